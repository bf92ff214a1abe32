//! BART's noise: five ways to spoil a text, one after the other as a recipe lists them. The targets are the text itself.
//!
//! Source: Lewis et al. 2020, BART, section 2.2 (<https://arxiv.org/abs/1910.13461>). The paper's choice is text infilling
//! of 30 % of the tokens, and sentence permutation (section 4).

use serde::{Deserialize, Serialize};

use super::{NoiseSeed, choose, share};
use firelight_storage::InputError;

use crate::DataError;
use crate::dice::Dice;

/// Longer spans than these are texts; [`poisson`] takes time in proportion.
const MAX_MEAN: f64 = 100.0;

fn mean_span_length() -> f64 {
    3.0
}

/// One way to spoil a text. In a recipe: `{ kind = "text_infilling", ratio = 0.3 }`, `{ kind = "sentence_permutation" }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum BartNoise {
    /// Tokens become masks.
    TokenMasking {
        /// Share of the tokens, from 0 to 1.
        ratio: f64,
    },
    /// Tokens are left out: the model has to tell where.
    TokenDeletion {
        /// Share of the tokens, from 0 to 1.
        ratio: f64,
    },
    /// Spans become one mask each: the model has to tell how many tokens are missing. A span may be empty, and its mask
    /// stands for nothing.
    TextInfilling {
        /// Share of the tokens that are missing, from 0 to 1.
        ratio: f64,
        /// Tokens of a span in the mean of their Poisson distribution, from 1 to 100. Default: 3.
        #[serde(default = "mean_span_length")]
        mean_span_length: f64,
    },
    /// Sentences come in another order.
    SentencePermutation,
    /// The text begins at any of its tokens, and what was before comes behind its end.
    DocumentRotation,
}

/// The ids that BART's noise needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BartTokens<'a> {
    /// The mask.
    pub mask: u32,
    /// Those that end a sentence, such as that of `.`.
    pub ends_of_sentences: &'a [u32],
}

impl BartNoise {
    /// # Errors
    /// Lists every number that is out of its range.
    pub fn validate(&self) -> Result<(), DataError> {
        let (ratio, mean) = match *self {
            Self::TokenMasking { ratio } | Self::TokenDeletion { ratio } => (ratio, 1.0),
            Self::TextInfilling { ratio, mean_span_length } => (ratio, mean_span_length),
            Self::SentencePermutation | Self::DocumentRotation => (0.0, 1.0),
        };
        let mut problems = Vec::new();
        if !(0.0..=1.0).contains(&ratio) {
            problems.push(format!("denoising.ratio = {ratio} must be from 0 to 1"));
        }
        if !(1.0..=MAX_MEAN).contains(&mean) {
            problems.push(format!("denoising.mean_span_length = {mean} must be from 1 to {MAX_MEAN}"));
        }
        Ok(InputError::of_all(&problems)?)
    }

    /// Inputs and targets of a text: the text after each noise in turn, and the text.
    pub fn apply(noises: &[Self], ids: &[u32], tokens: &BartTokens, seed: NoiseSeed) -> (Vec<u32>, Vec<u32>) {
        let dice = &mut seed.dice();
        let inputs = noises.iter().fold(ids.to_vec(), |ids, noise| noise.spoil(&ids, tokens, dice));
        (inputs, ids.to_vec())
    }

    fn spoil(&self, ids: &[u32], tokens: &BartTokens, dice: &mut Dice) -> Vec<u32> {
        match *self {
            Self::TokenMasking { ratio } => {
                let masked = choose(dice, ids.len(), share(ratio, ids.len()));
                ids.iter().zip(masked).map(|(&id, is_masked)| if is_masked { tokens.mask } else { id }).collect()
            }
            Self::TokenDeletion { ratio } => {
                let deleted = choose(dice, ids.len(), share(ratio, ids.len()));
                ids.iter().zip(deleted).filter(|(_, is_deleted)| !is_deleted).map(|(&id, _)| id).collect()
            }
            Self::TextInfilling { ratio, mean_span_length } => {
                let spans = span_lengths(dice, share(ratio, ids.len()), mean_span_length);
                infill(ids, &spans, tokens.mask, dice)
            }
            Self::SentencePermutation => {
                let mut sentences: Vec<&[u32]> =
                    ids.split_inclusive(|id| tokens.ends_of_sentences.contains(id)).collect();
                dice.shuffle(&mut sentences);
                sentences.concat()
            }
            Self::DocumentRotation => {
                let (before, first) = ids.split_at(if ids.is_empty() { 0 } else { dice.below(ids.len()) });
                [first, before].concat()
            }
        }
    }
}

/// Lengths of spans that have `tokens` tokens together. The last one drawn is cut to fit.
fn span_lengths(dice: &mut Dice, tokens: usize, mean: f64) -> Vec<usize> {
    let (mut lengths, mut left) = (Vec::new(), tokens);
    while left > 0 {
        let length = poisson(dice, mean).min(left);
        lengths.push(length);
        left -= length;
    }
    lengths
}

/// Puts a mask in the place of each span. Spans and kept tokens stand in any order, all equally likely; two spans may meet.
fn infill(ids: &[u32], spans: &[usize], mask: u32, dice: &mut Dice) -> Vec<u32> {
    let kept = ids.len() - spans.iter().sum::<usize>();
    let (mut noisy, mut rest, mut spans) = (Vec::new(), ids, spans.iter());
    for is_span in choose(dice, kept + spans.len(), spans.len()) {
        let span = if is_span { spans.next() } else { None };
        let (taken, after) = rest.split_at(span.copied().unwrap_or(1));
        noisy.push(if is_span { mask } else { taken[0] });
        rest = after;
    }
    noisy
}

/// A number of the Poisson distribution: how many uniform numbers can be multiplied before the product is below e^-mean.
/// Source: Knuth, The Art of Computer Programming, section 3.4.1, algorithm Q.
fn poisson(dice: &mut Dice, mean: f64) -> usize {
    let below = (-mean).exp();
    let mut product = dice.fraction();
    let mut number = 0;
    while product > below {
        product *= dice.fraction();
        number += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MASK: u32 = 9_999;
    const TOKENS: BartTokens = BartTokens { mask: MASK, ends_of_sentences: &[0] };

    fn spoilt(noise: BartNoise, ids: &[u32], seed: u64) -> Vec<u32> {
        let (inputs, targets) = BartNoise::apply(&[noise], ids, &TOKENS, NoiseSeed { seed, epoch: 0, index: 0 });
        assert_eq!(targets, ids);
        inputs
    }

    #[test]
    fn spans_become_one_mask_each() {
        // All but the order is fixed: three kept tokens, a span of two and an empty one.
        let found: std::collections::BTreeSet<Vec<u32>> =
            (0..2_000).map(|seed| infill(&[1, 2, 3, 4, 5], &[2, 0], MASK, &mut Dice::new(seed))).collect();
        assert_eq!(found.len(), 10); // 5 over 2 places
        assert!(found.contains(&vec![1, MASK, 4, MASK, 5]) && found.contains(&vec![MASK, MASK, 3, 4, 5]));
    }

    #[test]
    fn lengths_of_spans_are_poisson() {
        let mut dice = Dice::new(1);
        let numbers: Vec<f64> = (0..20_000).map(|_| poisson(&mut dice, 3.0) as f64).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 20_000.0;
        let empty = numbers.iter().filter(|number| **number == 0.0).count() as f64 / 20_000.0;
        // Mean and variance 3, e^-3 = 0.0498 of zeros; standard deviations 0.012, 0.032 and 0.0015.
        assert!((mean - 3.0).abs() < 0.06 && (variance - 3.0).abs() < 0.16, "{mean} {variance}");
        assert!((empty - 0.0498).abs() < 0.008, "{empty}");
    }

    #[test]
    fn sentences_and_beginnings_are_all_about_as_likely() {
        let count = |noise: BartNoise, expected: &[u32]| {
            (0..3_000).filter(|&seed| spoilt(noise, &[1, 2, 0, 3, 0, 4], seed) == expected).count()
        };
        // 500 expected of six orders, and of six beginnings; standard deviation 20.
        assert!((390..610).contains(&count(BartNoise::SentencePermutation, &[4, 1, 2, 0, 3, 0])));
        assert!((390..610).contains(&count(BartNoise::DocumentRotation, &[3, 0, 4, 1, 2, 0])));
    }

    #[test]
    fn noises_follow_each_other() {
        let paper = [BartNoise::TextInfilling { ratio: 0.3, mean_span_length: 3.0 }, BartNoise::SentencePermutation];
        let ids: Vec<u32> = (0..40).map(|number| number % 10).collect();
        let at = |epoch| BartNoise::apply(&paper, &ids, &TOKENS, NoiseSeed { seed: 0, epoch, index: 5 }).0;
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
        assert_eq!(at(1).iter().filter(|id| **id != MASK).count(), 28);
        assert_eq!(BartNoise::apply(&[], &ids, &TOKENS, NoiseSeed { seed: 0, epoch: 0, index: 0 }).0, ids);
    }

    #[test]
    fn a_recipe_names_noises_and_wrong_numbers_are_listed() {
        let read = |json: &str| serde_json::from_str::<BartNoise>(json).unwrap();
        let infilling = read(r#"{"kind": "text_infilling", "ratio": 0.3}"#);
        assert_eq!(infilling, BartNoise::TextInfilling { ratio: 0.3, mean_span_length: 3.0 });
        assert!(infilling.validate().is_ok() && BartNoise::DocumentRotation.validate().is_ok());
        assert_eq!(
            BartNoise::TextInfilling { ratio: 1.5, mean_span_length: 0.0 }.validate().unwrap_err().to_string(),
            "denoising.ratio = 1.5 must be from 0 to 1; denoising.mean_span_length = 0 must be from 1 to 100"
        );
    }

    fn is_subsequence(part: &[u32], whole: &[u32]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|id| rest.any(|other| other == id))
    }

    proptest! {
        #[test]
        fn noise_keeps_what_it_promises(
            ids in prop::collection::vec(0_u32..20, 0..60), ratio in 0.0_f64..=1.0, mean in 1.0_f64..8.0, seed: u64,
        ) {
            let cut = (ratio * ids.len() as f64).round_ties_even() as usize;
            let masked = spoilt(BartNoise::TokenMasking { ratio }, &ids, seed);
            prop_assert_eq!(masked.len(), ids.len());
            prop_assert_eq!(masked.iter().filter(|id| **id == MASK).count(), cut);
            prop_assert!(masked.iter().zip(&ids).all(|(found, id)| found == id || *found == MASK));

            let deleted = spoilt(BartNoise::TokenDeletion { ratio }, &ids, seed);
            prop_assert_eq!(deleted.len(), ids.len() - cut);
            prop_assert!(is_subsequence(&deleted, &ids));

            let infilled = spoilt(BartNoise::TextInfilling { ratio, mean_span_length: mean }, &ids, seed);
            let kept: Vec<u32> = infilled.iter().copied().filter(|id| *id != MASK).collect();
            prop_assert_eq!(kept.len(), ids.len() - cut);
            prop_assert!(is_subsequence(&kept, &ids));

            let rotated = spoilt(BartNoise::DocumentRotation, &ids, seed);
            prop_assert!(ids.is_empty() || (0..ids.len()).any(|start| [&ids[start..], &ids[..start]].concat() == rotated));

            // The last sentence ends as all others do, so that it can stand anywhere.
            let ended = [&ids[..], &[0]].concat();
            let permuted = spoilt(BartNoise::SentencePermutation, &ended, seed);
            let sentences = |ids: &[u32]| {
                let mut all: Vec<Vec<u32>> = ids.split(|id| *id == 0).map(<[u32]>::to_vec).collect();
                all.sort();
                all
            };
            prop_assert_eq!(sentences(&permuted), sentences(&ended));
        }
    }
}
