//! Guesses from the text itself.

use serde::{Deserialize, Serialize};

use super::Drafter;
use crate::GenerationError;
use crate::processors::History;

/// Guesses that the last tokens go on as they did where they occurred before. For answers that repeat parts of their prompt, such as
/// summaries and code changes.
///
/// Source: Saxena 2023, Prompt lookup decoding. The longest n-gram counts, at its latest occurrence.
///
/// ```
/// use firelight_generation::processors::History;
/// use firelight_generation::{Drafter, PromptLookup};
///
/// let ids = [1, 2, 3, 4, 9, 2, 3]; // 2 and 3 were followed by 4
/// assert_eq!(PromptLookup::default().guess(&History::new(&ids, 5), 2)?, [4, 9]);
/// # Ok::<(), firelight_generation::GenerationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptLookup {
    /// The longest n-gram that is looked for, at least 1. Default 3.
    pub ngram: usize,
    /// The most tokens of one guess. Default 10.
    pub tokens: usize,
}

impl Default for PromptLookup {
    fn default() -> Self {
        Self { ngram: 3, tokens: 10 }
    }
}

impl PromptLookup {
    /// The place after the latest occurrence of the longest n-gram that the text ends with.
    fn place(&self, ids: &[u32]) -> Option<usize> {
        let before = |length: usize| {
            let (earlier, last) = (&ids[..ids.len() - 1], &ids[ids.len() - length..]);
            earlier.windows(length).rposition(|window| window == last).map(|place| place + length)
        };
        (1..=self.ngram.min(ids.len().saturating_sub(1))).rev().find_map(before)
    }
}

impl Drafter for PromptLookup {
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
        let ids = history.ids();
        let guess = self.place(ids).map_or(&[][..], |place| &ids[place..]);
        Ok(guess[..guess.len().min(most).min(self.tokens)].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(ngram: usize, ids: &[u32]) -> Vec<u32> {
        PromptLookup { ngram, tokens: 3 }.guess(&History::new(ids, 0), 9).unwrap()
    }

    #[test]
    fn the_longest_counts_before_the_latest() {
        let ids = [7, 1, 2, 5, 6, 9, 2, 8, 1, 2];
        assert_eq!(guess(1, &ids), [8, 1, 2]);
        assert_eq!(guess(2, &ids), [5, 6, 9]);
        assert_eq!(guess(9, &ids), [5, 6, 9]);
    }

    #[test]
    fn nothing_is_guessed_of_what_is_new() {
        for ids in [&[][..], &[4], &[4, 5, 6]] {
            assert_eq!(guess(3, ids), [0; 0], "{ids:?}");
        }
        assert_eq!(guess(3, &[4, 4]), [4]);
        assert_eq!(guess(3, &[4, 4, 4, 4]), [4]);
    }
}
