//! Tokens that are banned, or forced at a position.
//!
//! Source: `NoBadWordsLogitsProcessor`, `SuppressTokensAtBeginLogitsProcessor`, `MinNewTokensLengthLogitsProcessor`,
//! `ForcedBOSTokenLogitsProcessor`, `ForcedEOSTokenLogitsProcessor` and `PrefixConstrainedLogitsProcessor` of transformers, whose rules these are.

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

/// Begins the text with these ids: hides all other tokens at their positions. Unlike [`ForcedTokens`] it keeps the logit of the token that is forced,
/// so that a beam search counts its probability. A token that is hidden gets the logit 0 and is written all the same.
///
/// ```
/// use firelight_generation::processors::{ForcedPrefix, HIDDEN, History, LogitsProcessor};
///
/// let mut logits = [0.5, 0.25, 0.125];
/// ForcedPrefix(vec![2, 1]).process(&History::new(&[0, 2], 1), &mut logits);
/// assert_eq!(logits, [HIDDEN, 0.25, HIDDEN]);
/// ```
#[doc(alias = "prefix_allowed_tokens_fn")]
#[derive(Clone, Debug, PartialEq)]
pub struct ForcedPrefix(pub Vec<u32>);

impl LogitsProcessor for ForcedPrefix {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let Some(&id) = self.0.get(history.new_ids().len()) else { return };
        let given = logits.get(id as usize).copied();
        logits.fill(HIDDEN);
        if let Some(given) = given {
            logits[id as usize] = if given == HIDDEN { 0.0 } else { given };
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
    fn a_prefix_is_forced_token_by_token_and_keeps_its_logits() {
        let of = |ids: &[u32], mut logits: [f64; 3]| {
            ForcedPrefix(vec![1, 7, 2]).process(&History::new(ids, 1), &mut logits);
            logits
        };
        let logits = [3.0, -2.0, HIDDEN];
        assert_eq!(of(&[0], logits), [HIDDEN, -2.0, HIDDEN]);
        assert_eq!(of(&[0, 1], logits), [HIDDEN; 3], "no such token");
        assert_eq!(of(&[0, 1, 7], logits), [HIDDEN, HIDDEN, 0.0], "a ban gives way");
        assert_eq!(of(&[0, 1, 7, 2], logits), logits);
    }

    #[test]
    fn one_place_is_forced() {
        let first = ForcedTokens { place: 0, ids: vec![2] };
        assert_eq!(hidden(first.clone(), &[]), [0, 1, 3, 4]);
        assert_eq!(hidden(first, &[7]), [0; 0], "all of it is new");
        assert_eq!(hidden(ForcedTokens { place: 1, ids: vec![2, 4] }, &[7]), [0, 1, 3]);
    }
}
