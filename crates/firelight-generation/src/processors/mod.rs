//! The changes that a row of logits goes through before a token is chosen, one file each. They are called in order on the host, in f64;
//! a token is taken out by the logit minus infinity. A processor of your own implements [`LogitsProcessor`] and is given to
//! [`GenerationOptions::with_processor`](crate::GenerationOptions::with_processor) or
//! [`BeamOptions::with_processor`](crate::BeamOptions::with_processor).

mod bans;
mod contrastive;
mod dry;
mod min_p;
mod mirostat;
mod no_repeat_ngram;
mod repetition;
mod temperature;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical;
mod xtc;

use std::cmp::Ordering;
use std::fmt::Debug;

pub use bans::{Banned, Forced, NotBefore};
pub use contrastive::ContrastiveDecoding;
pub use dry::Dry;
pub use min_p::MinP;
pub use mirostat::{Mirostat, MirostatOptions};
pub use no_repeat_ngram::NoRepeatNgram;
pub use repetition::{FrequencyPenalty, RepetitionPenalty};
pub use temperature::Temperature;
pub use top_k::TopK;
pub use top_n_sigma::TopNSigma;
pub use top_p::TopP;
pub use typical::Typical;
pub use xtc::Xtc;

use crate::draw::Draw;

/// The logit of a token that can no longer be chosen.
pub const HIDDEN: f64 = f64::NEG_INFINITY;

/// One change of a row of logits, for greedy choice, draws and beams alike.
///
/// ```
/// use firelight_generation::processors::{HIDDEN, History, LogitsProcessor};
///
/// /// Even ids only, one more reason to avoid a token each time that it was written.
/// #[derive(Clone, Debug)]
/// struct Even;
///
/// impl LogitsProcessor for Even {
///     fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
///         logits.iter_mut().skip(1).step_by(2).for_each(|logit| *logit = HIDDEN);
///         history.new_ids().iter().for_each(|&id| logits[id as usize] -= 1.0);
///     }
///     fn boxed(&self) -> Box<dyn LogitsProcessor> {
///         Box::new(self.clone())
///     }
/// }
///
/// let mut logits = [0.5, 0.25, 0.0];
/// Even.process(&History::new(&[7, 2, 2], 1), &mut logits);
/// assert_eq!(logits, [0.5, HIDDEN, -2.0]);
/// ```
pub trait LogitsProcessor: Debug + Send + Sync {
    /// Changes the logits `[V]` of one row in place. They hold no NaN; a beam search gives logarithms of probabilities. Where a list of
    /// processors leaves nothing finite, decoding ends with an error.
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]);

    /// The token that was chosen by the logits of the last call. Default: forgets it, for a processor that looks at the history alone.
    fn accept(&mut self, chosen: u32) {
        let _ = chosen;
    }

    /// Whether the text may go on with a token that was chosen by the logits of the last call; where it may not, another one is chosen. For
    /// what is too costly to ask of every token. Default: it may.
    fn admits(&mut self, chosen: u32) -> bool {
        let _ = chosen;
        true
    }

    /// Whether nothing may follow what was accepted: the text ends. Default: it goes on.
    fn is_complete(&self) -> bool {
        false
    }

    /// A copy, with what it knows of the row: beams branch.
    fn boxed(&self) -> Box<dyn LogitsProcessor>;
}

/// What is known of a row when its next token is chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct History<'a> {
    ids: &'a [u32],
    prompt: usize,
    draw: Draw,
}

impl<'a> History<'a> {
    /// The ids of a row, of which the first `prompt` were given.
    ///
    /// # Panics
    /// Panics if there are fewer ids.
    pub fn new(ids: &'a [u32], prompt: usize) -> Self {
        assert!(prompt <= ids.len(), "a prompt of {prompt} ids in a history of {}", ids.len());
        Self { ids, prompt, draw: Draw::default() }
    }

    /// With random numbers for new token number `step` of a row, by a seed.
    #[must_use]
    pub fn with_draw(mut self, seed: u64, row: usize, step: usize) -> Self {
        self.draw = Draw { seed, row, step };
        self
    }

    /// The same row with more new tokens: `ids` begins with those of this history.
    pub(crate) fn after<'b>(&self, ids: &'b [u32]) -> History<'b> {
        let step = self.draw.step + ids.len() - self.ids.len();
        History { ids, prompt: self.prompt, draw: Draw { step, ..self.draw } }
    }

    /// Where its next token is drawn.
    pub(crate) fn draw(&self) -> Draw {
        self.draw
    }

    /// All ids, the prompt included, in front of the one that is chosen. Of a model with an encoder it is the target alone.
    pub fn ids(&self) -> &'a [u32] {
        self.ids
    }

    /// The ids that were chosen.
    pub fn new_ids(&self) -> &'a [u32] {
        &self.ids[self.prompt..]
    }

    /// A number in `[0, 1)`, by the seed, the row and the number of the token: the same each time.
    pub fn uniform(&self) -> f64 {
        self.draw.aside()
    }
}

/// Several processors, one after the other.
#[derive(Debug, Default)]
pub struct Processors(Vec<Box<dyn LogitsProcessor>>);

impl Processors {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts one behind the others.
    pub fn push(&mut self, processor: impl LogitsProcessor + 'static) {
        self.0.push(Box::new(processor));
    }

    /// [`LogitsProcessor::process`] of each.
    pub fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        self.0.iter_mut().for_each(|processor| processor.process(history, logits));
    }

    /// [`LogitsProcessor::admits`] of all.
    pub fn admits(&mut self, chosen: u32) -> bool {
        self.0.iter_mut().all(|processor| processor.admits(chosen))
    }

    /// [`LogitsProcessor::is_complete`] of any.
    pub fn is_complete(&self) -> bool {
        self.0.iter().any(|processor| processor.is_complete())
    }

    /// [`LogitsProcessor::accept`] of each.
    pub fn accept(&mut self, chosen: u32) {
        self.0.iter_mut().for_each(|processor| processor.accept(chosen));
    }
}

impl Clone for Processors {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|processor| processor.boxed()).collect())
    }
}

impl Extend<Box<dyn LogitsProcessor>> for Processors {
    fn extend<I: IntoIterator<Item = Box<dyn LogitsProcessor>>>(&mut self, processors: I) {
        self.0.extend(processors);
    }
}

/// The probabilities `[V]` of logits `[V]`: `exp(l_i - max) / sum`, exactly 0 for a hidden token.
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(HIDDEN, f64::max);
    let weights: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// Orders token ids from the most to the least probable, the lower id first among equals.
fn by_rank(logits: &[f64]) -> impl Fn(&usize, &usize) -> Ordering {
    // Not `total_cmp`: it would put 0.0 before -0.0, which are equal logits.
    |a, b| logits[*b].partial_cmp(&logits[*a]).unwrap_or(Ordering::Equal).then(a.cmp(b))
}

/// Takes the given tokens out.
fn hide(logits: &mut [f64], ids: &[usize]) {
    for &id in ids {
        logits[id] = HIDDEN;
    }
}

/// The same of ids, of which the model may not have all.
fn hide_ids(logits: &mut [f64], ids: impl IntoIterator<Item = u32>) {
    for id in ids {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = HIDDEN;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The ids that a processor leaves of a distribution.
    pub(super) fn kept(mut processor: impl LogitsProcessor, probabilities: &[f64]) -> Vec<usize> {
        let mut logits: Vec<f64> = probabilities.iter().map(|probability| probability.ln()).collect();
        processor.process(&History::default(), &mut logits);
        (0..logits.len()).filter(|&id| logits[id] != HIDDEN).collect()
    }

    /// The ids below 5 that a processor hides behind new ids.
    pub(super) fn hidden(mut processor: impl LogitsProcessor, new: &[u32]) -> Vec<usize> {
        let mut logits = [1.0; 5];
        processor.process(&History::new(new, 0), &mut logits);
        (0..5).filter(|&id| logits[id] == HIDDEN).collect()
    }

    #[test]
    fn softmax_of_the_logarithms_is_the_distribution() {
        let logits = [0.5f64.ln(), 0.25f64.ln(), HIDDEN, 0.25f64.ln()];
        let probabilities = softmax(&logits);
        assert_eq!(probabilities.len(), 4);
        for (found, expected) in probabilities.iter().zip([0.5, 0.25, 0.0, 0.25]) {
            assert!((found - expected).abs() < 1e-15, "{found} {expected}");
        }
    }

    #[test]
    fn equal_logits_rank_by_index_and_signs_of_zero_are_equal() {
        let logits = [-0.0, 2.0, 0.0, 2.0];
        let mut ids = vec![0, 1, 2, 3];
        ids.sort_by(by_rank(&logits));
        assert_eq!(ids, [1, 3, 0, 2]);
    }

    #[test]
    fn a_copy_goes_on_by_itself() {
        let mut first = Processors::default();
        first.push(Mirostat::new(MirostatOptions { tau: 2.0, eta: 1.0 }));
        let logits = [0.5f64, 0.25, 0.125, 0.125].map(f64::ln);
        let step = |processors: &mut Processors, chosen| {
            let mut logits = logits;
            processors.process(&History::default(), &mut logits);
            processors.accept(chosen);
            logits
        };
        step(&mut first, 3);
        let mut second = first.clone();
        step(&mut first, 3);
        step(&mut second, 0);
        assert_ne!(step(&mut first, 0), step(&mut second, 0), "what they were told differs");
    }

    proptest! {
        #[test]
        fn a_chain_keeps_the_order_and_the_best_token(
            mut logits in proptest::collection::vec(-20.0f64..20.0, 1..40),
            temperature in 0.1f64..3.0, k in 1usize..50, p in 0.01f64..=1.0, least in 0.0f64..=1.0, n in 0.1f64..4.0,
        ) {
            let before = logits.clone();
            let best = (0..before.len()).min_by(by_rank(&before)).unwrap();
            let mut chain = Processors::default();
            chain.push(Temperature(temperature));
            chain.push(TopK(k));
            chain.push(TopP(p));
            chain.push(MinP(least));
            chain.push(TopNSigma(n));
            chain.process(&History::default(), &mut logits);
            prop_assert!(logits[best].is_finite());
            prop_assert!(logits.iter().filter(|logit| logit.is_finite()).count() <= k);
            for (i, j) in (0..before.len()).flat_map(|i| (0..before.len()).map(move |j| (i, j))) {
                if before[i] > before[j] { prop_assert!(logits[i] >= logits[j]); }
            }
        }

        #[test]
        fn no_processor_makes_something_of_nothing(
            mut logits in proptest::collection::vec(-20.0f64..20.0, 2..20), ids in proptest::collection::vec(0u32..20, 0..30),
            p in 0.01f64..=1.0,
        ) {
            logits[1] = HIDDEN;
            let mut chain = Processors::default();
            chain.push(RepetitionPenalty(1.3));
            chain.push(FrequencyPenalty { frequency: 0.5, presence: 0.1 });
            chain.push(Dry { allowed: 1, ..Dry::default() });
            chain.push(Typical(p));
            chain.push(Xtc { probability: 1.0, threshold: 0.01 });
            chain.push(Mirostat::new(MirostatOptions::default()));
            chain.process(&History::new(&ids, ids.len() / 2), &mut logits);
            prop_assert!(logits[1] == HIDDEN && logits.iter().all(|logit| !logit.is_nan()));
            prop_assert!(logits.iter().any(|logit| logit.is_finite()));
        }
    }
}
