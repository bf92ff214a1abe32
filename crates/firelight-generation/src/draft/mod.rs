//! Guesses of what a model will write, read by it at once: speculative decoding.
//!
//! The model reads its last token and a few guesses in one pass, which costs little more than the token alone. Behind each the next token
//! is chosen as ever, by the same processors and the same draw. As long as it is the one that was guessed, the next logits are there already;
//! at the first that is not, the guesses behind it are taken back.
//!
//! # Source
//! Leviathan, Kalman and Matias 2023, Fast inference from Transformers via speculative decoding (<https://arxiv.org/abs/2211.17192>), whose
//! rejection sampling keeps the distribution. Here more is kept: since every token is drawn by a number that its place alone determines, the
//! text of a seed is the same with and without guesses, up to the rounding of logits that are computed together.

mod lookup;
mod model;

pub use lookup::PromptLookup;
pub use model::DraftModel;

use crate::GenerationError;
use crate::processors::History;

/// Guesses the next tokens of a row.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use firelight_generation::processors::History;
/// use firelight_generation::{Drafter, GenerationError};
///
/// /// After each token comes the next number.
/// struct Counting;
///
/// impl Drafter for Counting {
///     fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
///         let last = history.ids().last().copied().unwrap_or(0);
///         Ok((last + 1..).take(most.min(3)).collect())
///     }
/// }
///
/// assert_eq!(Counting.guess(&History::new(&[4], 1), 9)?, [5, 6, 7]);
/// # Ok::<(), GenerationError>(())
/// ```
pub trait Drafter: Send {
    /// At most `most` ids that may come next, in their order; none where there is no idea.
    ///
    /// # Errors
    /// Where a model that guesses fails.
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError>;
}

#[cfg(test)]
mod tests;
