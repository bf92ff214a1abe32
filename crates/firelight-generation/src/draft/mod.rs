//! Speculative decoding: cheap guesses of the next tokens, which the model checks in one pass.
//!
//! The model reads its last token and a few guesses in one pass, which costs little more than the token alone. After each of them the
//! next token is chosen as usual, by the same processors and the same draw. While the choice is the token that was guessed, the next
//! logits are there already; at the first difference the remaining guesses are taken back.
//!
//! # Source
//! Leviathan, Kalman and Matias 2023, Fast inference from Transformers via speculative decoding (<https://arxiv.org/abs/2211.17192>), whose
//! rejection sampling keeps the distribution. Here the text itself is kept: every token is drawn by a random number that depends on its
//! place alone, so a seed gives the same text with and without guesses, up to the rounding of logits that are computed together.

mod drafter;
mod lookup;
mod model;

pub use drafter::ModelDrafter;
pub use lookup::PromptLookup;
pub use model::DraftModel;

use crate::GenerationError;
use crate::processors::History;

/// Guesses the next tokens of a row, for speculative decoding. Guesses are also called draft tokens, proposals or candidates.
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
#[doc(alias = "proposer")]
#[doc(alias = "candidate generator")]
pub trait Drafter: Send {
    /// Guesses up to `most` next ids, in their order. None if it has no guess. The model accepts the first ones that it chooses itself.
    ///
    /// # Errors
    /// If the model that guesses fails.
    #[doc(alias = "propose")]
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError>;
}

#[cfg(test)]
mod tests;
