//! The end-to-end tests live in `tests/main.rs`; this library holds the programs of the README, which are compiled with the
//! documentation examples.

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
