//! The end-to-end tests live in `tests/main.rs`; this library holds the programs of the README and of the documentation,
//! which are compiled and run with the documentation examples, what those tests share with `examples/`, and the readers
//! that `inputs` and `fuzz` try with damaged input.

pub mod inputs;
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

/// What a run draws and how it counts.
#[cfg(doctest)]
#[doc = include_str!("../../docs/reproduce.md")]
pub struct Reproduce;

/// Published models.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/published.md")]
pub struct Published;

/// Attention and blocks of one's own.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/attention.md")]
pub struct OwnAttention;

/// Stacks whose layers differ.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/layers.md")]
pub struct Layers;

/// What a model reads.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/inspect.md")]
pub struct Inspection;
/// Activations by their paths.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/hooks.md")]
pub struct Activations;

/// Masks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/mask.md")]
pub struct Masks;
