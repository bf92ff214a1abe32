//! The end-to-end tests live in `tests/main.rs`; this library holds the programs of the README and of the worked numbers,
//! which are compiled and run with the documentation examples, and what those tests share with `examples/`.

mod path;

pub use path::ParameterPath;

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// Numbers to check by hand.
#[cfg(doctest)]
#[doc = include_str!("../../docs/worked-numbers.md")]
pub struct WorkedNumbers;
