//! Tokens that are banned, or forced at a position.
//!
//! Source: `NoBadWordsLogitsProcessor`, `SuppressTokensAtBeginLogitsProcessor`, `MinNewTokensLengthLogitsProcessor`,
//! `ForcedBOSTokenLogitsProcessor` and `ForcedEOSTokenLogitsProcessor` of transformers, whose rules these are.

use super::{HIDDEN, History, LogitsProcessor, hide_ids};

/// Bans sequences: hides the last token of a sequence if the history ends with the tokens before it.
#[doc(alias = "bad_words_ids")]
#[derive(Clone, Debug, PartialEq)]
pub struct BannedSequences(pub Vec<Vec<u32>>);

impl LogitsProcessor for BannedSequences {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let ends = self.0.iter().filter_map(|sequence| {
            let (last, before) = sequence.split_last()?;
            history.ids().ends_with(before).then_some(*last)
        });
        hide_ids(logits, ends);
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

/// Hides tokens until `new_tokens` have been generated: stop tokens for a minimum length, or tokens that may not begin a text.
#[doc(alias = "min_new_tokens")]
#[doc(alias = "begin_suppress_tokens")]
#[derive(Clone, Debug, PartialEq)]
pub struct SuppressUntil {
    /// The number of new tokens after which nothing is hidden.
    pub new_tokens: usize,
    /// The ids that are hidden.
    pub ids: Vec<u32>,
}

impl LogitsProcessor for SuppressUntil {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        if history.new_ids().len() < self.new_tokens {
            hide_ids(logits, self.ids.iter().copied());
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

/// Hides all other tokens at one position: the first of a text, or the last of its full length.
#[doc(alias = "forced_bos_token_id")]
#[doc(alias = "forced_eos_token_id")]
#[derive(Clone, Debug, PartialEq)]
pub struct ForcedTokens {
    /// The index of the position among the new tokens.
    pub place: usize,
    /// The ids that are allowed there.
    pub ids: Vec<u32>,
}

impl LogitsProcessor for ForcedTokens {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        if history.new_ids().len() != self.place {
            return;
        }
        logits.fill(HIDDEN);
        for &id in &self.ids {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = 0.0;
            }
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hidden;
    use super::*;

    #[test]
    fn a_sequence_is_banned_at_its_last_token() {
        let banned = BannedSequences(vec![vec![4], vec![1, 2, 3], vec![2, 0], vec![]]);
        assert_eq!(hidden(banned.clone(), &[1, 2]), [0, 3, 4]);
        assert_eq!(hidden(banned.clone(), &[2, 1]), [4]);
        assert_eq!(hidden(banned, &[]), [4]);
    }

    #[test]
    fn nothing_is_hidden_from_a_place_on() {
        let early = SuppressUntil { new_tokens: 2, ids: vec![0, 3, 99] };
        let at = |written: &[u32], prompt| {
            let mut logits = [1.0; 5];
            early.clone().process(&History::new(written, prompt), &mut logits);
            (0..5).filter(|&id| logits[id] == HIDDEN).collect::<Vec<_>>()
        };
        assert_eq!(at(&[1, 1, 1], 3), [0, 3]);
        assert_eq!(at(&[1, 1, 1], 2), [0, 3]);
        assert_eq!(at(&[1, 1, 1], 1), [0; 0]);
    }

    #[test]
    fn one_place_is_forced() {
        let first = ForcedTokens { place: 0, ids: vec![2] };
        assert_eq!(hidden(first.clone(), &[]), [0, 1, 3, 4]);
        assert_eq!(hidden(first, &[7]), [0; 0], "all of it is new");
        assert_eq!(hidden(ForcedTokens { place: 1, ids: vec![2, 4] }, &[7]), [0, 1, 3]);
    }
}
