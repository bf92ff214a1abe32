//! T5's span corruption: spans of a text are cut out, each leaves a sentinel, and the target lists them behind their
//! sentinels. `Thank you for inviting me to your party last week .` becomes `Thank you <X> me to your party <Y> week .` and
//! `<X> for inviting <Y> last <Z>`.
//!
//! Source: Raffel et al. 2020, Exploring the limits of transfer learning, sections 3.1.4 and 3.3.4
//! (<https://arxiv.org/abs/1910.10683>); how spans are drawn is `random_spans_noise_mask` in the paper's code, which ends
//! every text in a span, so that the last sentinel, `<Z>`, comes with masks of one's own alone.

use serde::{Deserialize, Serialize};

use super::{NoiseSeed, choose, share};
use firelight_storage::InputError;

use crate::DataError;
use crate::dice::Dice;

/// How much of a text is cut out, and in how long spans.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpanCorruption {
    /// Share of the tokens that are cut out, above 0 and below 1. Default: 0.15.
    pub noise_density: f64,
    /// Tokens of a span in the mean, at least 1. Default: 3.
    pub mean_span_length: f64,
}

impl Default for SpanCorruption {
    fn default() -> Self {
        Self { noise_density: 0.15, mean_span_length: 3.0 }
    }
}

impl SpanCorruption {
    /// # Errors
    /// Lists every number that is out of its range.
    pub fn validate(&self) -> Result<(), DataError> {
        let mut problems = Vec::new();
        if !(self.noise_density > 0.0 && self.noise_density < 1.0) {
            problems.push(format!("denoising.noise_density = {} must be above 0 and below 1", self.noise_density));
        }
        if !(1.0..f64::INFINITY).contains(&self.mean_span_length) {
            problems.push(format!("denoising.mean_span_length = {} must be at least 1", self.mean_span_length));
        }
        Ok(InputError::of_all(&problems)?)
    }

    /// Tokens that are cut out of a text of `length` tokens, and in how many spans: at least one of both, and at least one
    /// token stays before every span. So many sentinels does the text need.
    pub fn counts(&self, length: usize) -> (usize, usize) {
        let length = length.max(2);
        let tokens = share(self.noise_density, length).clamp(1, length - 1);
        let spans = (tokens as f64 / self.mean_span_length).round_ties_even() as usize;
        (tokens, spans.clamp(1, length - tokens))
    }

    /// Which tokens of a text of `length` tokens are cut out. A text of one token keeps it.
    pub fn mask(&self, length: usize, seed: NoiseSeed) -> Vec<bool> {
        let (tokens, spans) = self.counts(length);
        let dice = &mut seed.dice();
        let cut = segments(dice, tokens, spans);
        let kept = segments(dice, length.max(2) - tokens, spans);
        let mask = kept.into_iter().zip(cut).flat_map(|(kept, cut)| [vec![false; kept], vec![true; cut]].concat());
        mask.take(length).collect()
    }

    /// Inputs and targets of a text, with the sentinels in their order.
    ///
    /// # Panics
    /// Panics if there are fewer sentinels than [`counts`](Self::counts) tells.
    pub fn apply(&self, ids: &[u32], sentinels: &[u32], seed: NoiseSeed) -> (Vec<u32>, Vec<u32>) {
        Self::apply_mask(ids, &self.mask(ids.len(), seed), sentinels)
    }

    /// Inputs and targets of a text whose masked tokens are cut out. If the text goes on behind the last span, a sentinel
    /// more ends the targets.
    ///
    /// # Panics
    /// Panics if the mask has another length than the text, or if there are fewer sentinels than are needed.
    pub fn apply_mask(ids: &[u32], mask: &[bool], sentinels: &[u32]) -> (Vec<u32>, Vec<u32>) {
        assert_eq!(ids.len(), mask.len(), "a mask tells about every token of its text");
        let (mut inputs, mut targets, mut spans) = (Vec::new(), Vec::new(), 0);
        let sentinel = |span: usize| match sentinels.get(span) {
            Some(id) => *id,
            None => panic!("{} sentinels are too few for the spans of a text of {} tokens", sentinels.len(), ids.len()),
        };
        for (position, (&id, &is_cut)) in ids.iter().zip(mask).enumerate() {
            if is_cut && (position == 0 || !mask[position - 1]) {
                inputs.push(sentinel(spans));
                targets.push(sentinel(spans));
                spans += 1;
            }
            if is_cut { targets.push(id) } else { inputs.push(id) }
        }
        if mask.last() == Some(&false) {
            targets.push(sentinel(spans));
        }
        (inputs, targets)
    }
}

/// Cuts `items` into `count` segments of at least one, every way to do so equally likely (`_random_segmentation`).
fn segments(dice: &mut Dice, items: usize, count: usize) -> Vec<usize> {
    let mut lengths = vec![1];
    for begins in choose(dice, items - 1, count - 1) {
        match lengths.last_mut() {
            Some(last) if !begins => *last += 1,
            _ => lengths.push(1),
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SENTINELS: [u32; 200] = {
        let mut ids = [0; 200];
        let mut span = 0;
        while span < 200 {
            ids[span] = 10_000 - span as u32;
            span += 1;
        }
        ids
    };

    fn seed(seed: u64) -> NoiseSeed {
        NoiseSeed { seed, epoch: 0, index: 0 }
    }

    /// Puts the spans of the targets into the places of their sentinels.
    fn restored(inputs: &[u32], targets: &[u32]) -> Vec<u32> {
        let span = |sentinel: &u32| {
            let start = targets.iter().position(|id| id == sentinel).unwrap() + 1;
            targets[start..].iter().take_while(|id| !SENTINELS.contains(id)).copied().collect()
        };
        inputs.iter().flat_map(|id| if SENTINELS.contains(id) { span(id) } else { vec![*id] }).collect()
    }

    #[test]
    fn the_papers_figure_comes_out() {
        // Figure 2. Thank=1 you=2 for=3 inviting=4 me=5 to=6 your=7 party=8 last=9 week=10 .=11; X=100, Y=101, Z=102.
        let ids: Vec<u32> = (1..=11).collect();
        let mask: Vec<bool> = ids.iter().map(|id| [3, 4, 9].contains(id)).collect();
        let (inputs, targets) = SpanCorruption::apply_mask(&ids, &mask, &[100, 101, 102]);
        assert_eq!(inputs, [1, 2, 100, 5, 6, 7, 8, 101, 10, 11]);
        assert_eq!(targets, [100, 3, 4, 101, 9, 102]);
    }

    #[test]
    fn counts_are_those_of_the_papers_code() {
        let noise = SpanCorruption::default();
        // 0.15 * 512 = 76.8 and 77 / 3 = 25.7; 0.15 * 10 = 1.5 and 0.15 * 30 = 4.5, halves to even; short texts cut one.
        let lengths = [512, 10, 30, 3, 2, 1];
        assert_eq!(lengths.map(|length| noise.counts(length)), [(77, 26), (2, 1), (4, 1), (1, 1), (1, 1), (1, 1)]);
        // Beyond the code: spans need a kept token each.
        assert_eq!(SpanCorruption { noise_density: 0.8, mean_span_length: 1.0 }.counts(10), (8, 2));
    }

    #[test]
    fn every_segmentation_is_about_as_likely() {
        let mut found = BTreeMap::new();
        (0..6_000).for_each(|number| *found.entry(segments(&mut seed(number).dice(), 5, 3)).or_insert(0) += 1);
        // Of 5 items into 3 segments there are 4 over 2 = 6: 1,000 expected, standard deviation 29.
        assert!(found.len() == 6 && found.values().all(|count| (830..1_170).contains(count)), "{found:?}");
    }

    #[test]
    fn epochs_and_items_have_noise_of_their_own() {
        let noise = SpanCorruption::default();
        let mask = |epoch, index| noise.mask(100, NoiseSeed { seed: 1, epoch, index });
        assert_eq!(mask(0, 0), mask(0, 0));
        assert!(mask(0, 0) != mask(1, 0) && mask(0, 0) != mask(0, 1) && mask(0, 1) != mask(1, 0));
    }

    #[test]
    fn numbers_out_of_range_are_all_listed() {
        let noise: SpanCorruption = serde_json::from_str(r#"{"noise_density": 1.0, "mean_span_length": 0.5}"#).unwrap();
        assert_eq!(
            noise.validate().unwrap_err().to_string(),
            "denoising.noise_density = 1 must be above 0 and below 1; denoising.mean_span_length = 0.5 must be at least 1"
        );
        assert!(SpanCorruption::default().validate().is_ok());
    }

    #[test]
    #[should_panic(expected = "1 sentinels are too few for the spans of a text of 40 tokens")]
    fn too_few_sentinels_panic() {
        SpanCorruption::default().apply(&[7; 40], &[100], seed(0));
    }

    proptest! {
        #[test]
        fn spans_put_back_are_the_text(
            length in 1_usize..300, density in 0.01_f64..0.6, mean in 1.0_f64..8.0, number: u64,
        ) {
            let noise = SpanCorruption { noise_density: density, mean_span_length: mean };
            let ids: Vec<u32> = (0..length as u32).collect();
            let (tokens, spans) = noise.counts(length);
            let mask = noise.mask(length, seed(number));
            let (inputs, targets) = noise.apply(&ids, &SENTINELS, seed(number));
            prop_assert_eq!(restored(&inputs, &targets), ids);
            if length > 1 {
                prop_assert_eq!(mask.iter().filter(|is_cut| **is_cut).count(), tokens);
                prop_assert_eq!((inputs.len(), targets.len()), (length - tokens + spans, tokens + spans));
                prop_assert!(!mask[0] && mask[length - 1]);
                let used: Vec<u32> = inputs.into_iter().filter(|id| SENTINELS.contains(id)).collect();
                prop_assert_eq!(&used[..], &SENTINELS[..spans]);
            }
        }

        #[test]
        fn any_mask_can_be_undone(mask in prop::collection::vec(any::<bool>(), 0..60)) {
            let ids: Vec<u32> = (0..mask.len() as u32).collect();
            let (inputs, targets) = SpanCorruption::apply_mask(&ids, &mask, &SENTINELS);
            prop_assert_eq!(restored(&inputs, &targets), ids);
        }
    }
}
