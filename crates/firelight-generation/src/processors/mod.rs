//! Processors change a row of logits before a token is chosen, one file each. They run in order on the host, in f64; the logit minus
//! infinity hides a token. A processor of your own implements [`LogitsProcessor`] and is given to
//! [`GenerationOptions::with_processor`](crate::GenerationOptions::with_processor) or
//! [`BeamOptions::with_processor`](crate::BeamOptions::with_processor).

mod banned_text;
mod bans;
mod contrastive;
mod dry;
mod epsilon_cutoff;
mod eta_cutoff;
mod history;
mod left;
mod min_p;
mod mirostat;
mod no_repeat_ngram;
mod repetition;
mod temperature;
mod top_h;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical;
mod xtc;

use std::fmt::Debug;

pub use banned_text::BannedText;
pub use bans::{BannedSequences, ForcedPrefix, ForcedTokens, SuppressUntil};
pub use contrastive::ContrastiveDecoding;
pub use dry::Dry;
pub use epsilon_cutoff::EpsilonCutoff;
pub use eta_cutoff::EtaCutoff;
pub use history::History;
pub use min_p::MinP;
pub use mirostat::{Mirostat, MirostatOptions};
pub use no_repeat_ngram::NoRepeatNgram;
pub use repetition::{FrequencyPenalty, RepetitionPenalty};
pub use temperature::Temperature;
pub use top_h::TopH;
pub use top_k::TopK;
pub use top_n_sigma::TopNSigma;
pub use top_p::TopP;
pub use typical::Typical;
pub use xtc::Xtc;

pub(crate) use self::left::Left;
use crate::GenerationError;
pub use crate::distribution::softmax;
use crate::distribution::{is_distribution, largest};

/// The logit of a token that can no longer be chosen.
pub const HIDDEN: f64 = f64::NEG_INFINITY;

/// How many tokens are refused before the [fallback](LogitsProcessor::fallback_token) is written: to ask a constraint of a whole
/// vocabulary would take minutes.
const MOST_REFUSED: usize = 256;

/// Changes a row of logits before a token is chosen, in sampling, greedy decoding and searches alike.
///
/// ```
/// use firelight_generation::processors::{HIDDEN, History, LogitsProcessor};
///
/// /// Even ids only, and each time a token was written makes it less probable.
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
    /// Changes the logits `[V]` of one row in place. They hold no NaN; a beam search passes log-probabilities. If the processors leave
    /// no finite logit, decoding ends with an error.
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]);

    /// Receives the token that was chosen from the logits of the last call. Default: does nothing, for a processor without state.
    fn accept(&mut self, chosen: u32) {
        let _ = chosen;
    }

    /// Whether the text may go on with a token that was chosen from the logits of the last call. If not, another one is chosen. For checks
    /// that are too costly for every token. Those that [take precedence](Self::takes_precedence) are asked last; where there is one, its
    /// [fallback](Self::fallback_token) is written after 256 refused tokens. Default: true.
    fn admits(&mut self, chosen: u32) -> bool {
        let _ = chosen;
        true
    }

    /// Whether the text is complete: nothing may follow, so it ends. Default: false.
    fn is_complete(&self) -> bool {
        false
    }

    /// Whether its rule takes precedence over other processors: where they hide every token that it allows, they are left out for one token, and it
    /// sees the model's logits. `process` may then be called several times for a token. For a rule that a text may never break, such as a
    /// [`Constraint`](crate::Constraint). Default: false.
    ///
    /// ```
    /// use firelight_generation::processors::{BannedSequences, HIDDEN, History, LogitsProcessor, Processors};
    ///
    /// /// Token 2 and no other.
    /// #[derive(Clone, Debug)]
    /// struct OnlyTwo;
    ///
    /// impl LogitsProcessor for OnlyTwo {
    ///     fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
    ///         (0..logits.len()).filter(|id| *id != 2).for_each(|id| logits[id] = HIDDEN);
    ///     }
    ///     fn takes_precedence(&self) -> bool {
    ///         true
    ///     }
    ///     fn boxed(&self) -> Box<dyn LogitsProcessor> {
    ///         Box::new(self.clone())
    ///     }
    /// }
    ///
    /// let mut list = Processors::default();
    /// list.push(BannedSequences(vec![vec![2]]));
    /// list.push(OnlyTwo);
    /// let mut logits = [0.5, 0.25, 0.125];
    /// list.process(&History::default(), &mut logits);
    /// assert_eq!(logits, [HIDDEN, HIDDEN, 0.125]);
    /// ```
    fn takes_precedence(&self) -> bool {
        false
    }

    /// The token to write where no token is left, not even by the processors that [take precedence](Self::takes_precedence) alone, or where none
    /// of those left is [admitted](Self::admits). If the text ends here instead, this is none and [`is_complete`](Self::is_complete) is true from then on.
    /// Default: none, and decoding ends with an error.
    fn fallback_token(&mut self) -> Option<u32> {
        None
    }

    /// The tokens that complete the text where it has to end here, because its reader stops it or an error does; none if it may end here. They are
    /// written without being chosen, and the processor does not [accept](Self::accept) them. Default: none, a text may end anywhere.
    fn closing_tokens(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// Whether it depends on the logits and their order alone. `process` may then be called with the visible logits only. Default: false.
    fn ignores_ids(&self) -> bool {
        false
    }

    /// The error that the last [`process`](Self::process) came to, which is handed over once. Decoding ends with it, whatever the other
    /// processors leave. For a processor that can fail, as one that asks another model. Default: none.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use firelight_generation::processors::{History, LogitsProcessor};
    /// use firelight_generation::{Autoregressive, GenerationError, GenerationOptions, generate};
    ///
    /// /// Asks a server that is down.
    /// #[derive(Clone, Debug)]
    /// struct Asks {
    ///     is_down: bool,
    /// }
    ///
    /// impl LogitsProcessor for Asks {
    ///     fn process(&mut self, _: &History<'_>, _: &mut [f64]) {
    ///         self.is_down = true;
    ///     }
    ///     fn failure(&mut self) -> Option<GenerationError> {
    ///         let reason = "the server is down".to_string();
    ///         std::mem::take(&mut self.is_down).then_some(GenerationError::Device { reason })
    ///     }
    ///     fn boxed(&self) -> Box<dyn LogitsProcessor> {
    ///         Box::new(self.clone())
    ///     }
    /// }
    ///
    /// fn fails<M: Autoregressive>(model: &M, prompt: M::Prompt) -> bool {
    ///     let options = GenerationOptions::new(9).with_processor(Asks { is_down: false });
    ///     generate(model, prompt, &options, |_| ControlFlow::Continue(())).is_err()
    /// }
    /// ```
    fn failure(&mut self) -> Option<GenerationError> {
        None
    }

    /// A copy with its state: every row and every beam has its own.
    fn boxed(&self) -> Box<dyn LogitsProcessor>;
}

/// A list of processors that run one after the other.
#[derive(Debug, Default)]
pub struct Processors(Vec<Box<dyn LogitsProcessor>>);

impl Processors {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a processor.
    pub fn push(&mut self, processor: impl LogitsProcessor + 'static) {
        self.0.push(Box::new(processor));
    }

    /// [`LogitsProcessor::process`] of each.
    pub fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let mut left = Left::of(logits);
        self.run(history, &mut left);
        left.widen();
    }

    fn run<R: AsRef<[f64]> + AsMut<[f64]>>(&mut self, history: &History<'_>, left: &mut Left<R>) {
        let (takes_precedence, mut has_precedent) = (self.takes_precedence(), false);
        if takes_precedence {
            left.remember();
        }
        for place in 0..self.0.len() {
            let processor = &mut self.0[place];
            let logits = if processor.ignores_ids() { left.narrow() } else { left.widen() };
            processor.process(history, logits);
            has_precedent |= processor.takes_precedence();
            if takes_precedence && has_precedent && left.is_empty() {
                left.restore();
                self.process_precedent(history, left.widen());
                if left.is_empty() {
                    return;
                }
            }
        }
    }

    pub(crate) fn takes_precedence(&self) -> bool {
        self.0.iter().any(|processor| processor.takes_precedence())
    }

    /// [`LogitsProcessor::process`] of those that take precedence alone.
    fn process_precedent(&mut self, history: &History<'_>, logits: &mut [f64]) {
        for processor in self.0.iter_mut().filter(|processor| processor.takes_precedence()) {
            processor.process(history, logits);
        }
    }

    /// Fills `left` with what all processors leave of the logits `[V]` of a row, in double precision. They may leave nothing.
    ///
    /// # Errors
    /// If the model's logits are no distribution, or a processor fails. `step` and `row` stand in the message.
    pub(crate) fn process_row(
        &mut self,
        history: &History<'_>,
        logits: &[f32],
        left: &mut Left<Vec<f64>>,
        (step, row): (usize, usize),
    ) -> Result<(), GenerationError> {
        left.fill(logits);
        if !is_distribution(left.logits()) {
            return Err(GenerationError::NonFiniteLogits { step, row });
        }
        self.process_left(history, left)
    }

    /// Hides what the processors do not leave. They may leave nothing.
    ///
    /// # Errors
    /// If a processor fails.
    pub(crate) fn process_left(
        &mut self,
        history: &History<'_>,
        left: &mut Left<Vec<f64>>,
    ) -> Result<(), GenerationError> {
        self.run(history, left);
        self.sound()?;
        left.narrow();
        Ok(())
    }

    /// Whether they depend on the logits and their order alone: [`LogitsProcessor::ignores_ids`] of all.
    pub(crate) fn ignore_ids(&self) -> bool {
        self.0.iter().all(|processor| processor.ignores_ids())
    }

    /// Makes sure that no processor has failed.
    ///
    /// # Errors
    /// [`LogitsProcessor::failure`] of the first that has one.
    pub(crate) fn sound(&mut self) -> Result<(), GenerationError> {
        self.failure().map_or(Ok(()), Err)
    }

    /// The token that is written where nothing is left or admitted: [`LogitsProcessor::fallback_token`]. None if the text ends here instead.
    ///
    /// # Errors
    /// If no processor knows one. `step` and `row` stand in the message.
    pub(crate) fn forced(&mut self, step: usize, row: usize) -> Result<Option<u32>, GenerationError> {
        match self.fallback_token() {
            None if !self.is_complete() => Err(GenerationError::NothingLeft { step, row }),
            token => Ok(token),
        }
    }

    /// [`LogitsProcessor::fallback_token`] of the first that has one.
    pub(crate) fn fallback_token(&mut self) -> Option<u32> {
        self.0.iter_mut().find_map(|processor| processor.fallback_token())
    }

    /// [`LogitsProcessor::closing_tokens`] of the first that has some. None behind an empty text: nobody has seen anything of it.
    pub(crate) fn closing(&mut self, text: &[u32]) -> Vec<u32> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut closings = self.0.iter_mut().map(|processor| processor.closing_tokens());
        closings.find(|closing| !closing.is_empty()).unwrap_or_default()
    }

    /// [`LogitsProcessor::failure`] of the first that has one.
    pub fn failure(&mut self) -> Option<GenerationError> {
        self.0.iter_mut().find_map(|processor| processor.failure())
    }

    /// [`LogitsProcessor::admits`] of all. Those that take precedence may search for long, so they are asked
    /// only where all others admit the token.
    pub fn admits(&mut self, chosen: u32) -> bool {
        [false, true].into_iter().all(|precedent| {
            let mut asked = self.0.iter_mut().filter(|processor| processor.takes_precedence() == precedent);
            asked.all(|processor| processor.admits(chosen))
        })
    }

    /// Whether so many tokens were refused that the fallback is written. Only those that take precedence are expected to have
    /// one.
    pub(crate) fn gives_up(&self, refused: usize) -> bool {
        refused >= MOST_REFUSED && self.takes_precedence()
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

/// Hides the tokens with these ids.
fn hide(logits: &mut [f64], ids: &[usize]) {
    for &id in ids {
        logits[id] = HIDDEN;
    }
}

/// Hides the tokens with logits below `least`.
fn hide_below(logits: &mut [f64], least: f64) {
    logits.iter_mut().filter(|logit| **logit < least).for_each(|logit| *logit = HIDDEN);
}

/// Hides the tokens less probable than `least`, except the most probable ones.
fn hide_rare(logits: &mut [f64], probabilities: &[f64], least: f64) {
    let best = largest(logits);
    let rare = |(logit, probability): &(&mut f64, &f64)| **probability < least && **logit < best;
    logits.iter_mut().zip(probabilities).filter(rare).for_each(|(logit, _)| *logit = HIDDEN);
}

/// Hides the tokens with these ids; ids that the model does not have are ignored.
fn hide_ids(logits: &mut [f64], ids: impl IntoIterator<Item = u32>) {
    for id in ids {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = HIDDEN;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;
    use crate::distribution::by_rank;

    /// The ids that a processor leaves of a distribution.
    pub(super) fn kept(mut processor: impl LogitsProcessor, probabilities: &[f64]) -> Vec<usize> {
        let mut logits: Vec<f64> = probabilities.iter().map(|probability| probability.ln()).collect();
        processor.process(&History::default(), &mut logits);
        (0..logits.len()).filter(|&id| logits[id] != HIDDEN).collect()
    }

    /// Admits some tokens, counts how often it is asked, and writes token 1 in place of others if it takes precedence.
    #[derive(Clone, Debug)]
    pub(crate) struct Admits {
        only: Vec<u32>,
        takes_precedence: bool,
        asked: Arc<AtomicUsize>,
    }

    impl Admits {
        pub(crate) fn new(only: &[u32], takes_precedence: bool) -> Self {
            Self { only: only.to_vec(), takes_precedence, asked: Arc::new(AtomicUsize::new(0)) }
        }

        pub(crate) fn asked(&self) -> usize {
            self.asked.load(Relaxed)
        }
    }

    impl LogitsProcessor for Admits {
        fn process(&mut self, _: &History<'_>, _: &mut [f64]) {}

        fn admits(&mut self, chosen: u32) -> bool {
            self.asked.fetch_add(1, Relaxed);
            self.only.contains(&chosen)
        }

        fn takes_precedence(&self) -> bool {
            self.takes_precedence
        }

        fn fallback_token(&mut self) -> Option<u32> {
            self.takes_precedence.then_some(1)
        }

        fn boxed(&self) -> Box<dyn LogitsProcessor> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn those_that_take_precedence_are_asked_last() {
        let (costly, cheap) = (Admits::new(&[3], true), Admits::new(&[2, 3], false));
        let mut list = Processors::default();
        list.push(costly.clone());
        list.push(cheap.clone());
        assert_eq!([1, 2, 3].map(|id| list.admits(id)), [false, false, true]);
        assert_eq!((cheap.asked(), costly.asked()), (3, 2), "token 1 was refused before");
        assert!(list.gives_up(MOST_REFUSED) && !list.gives_up(MOST_REFUSED - 1));
        assert!(!Processors::default().gives_up(usize::MAX), "nobody knows what to write instead");
    }

    /// The ids below 5 that a processor hides after new ids.
    pub(super) fn hidden(mut processor: impl LogitsProcessor, new: &[u32]) -> Vec<usize> {
        let mut logits = [1.0; 5];
        processor.process(&History::new(new, 0), &mut logits);
        (0..5).filter(|&id| logits[id] == HIDDEN).collect()
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
            cutoff in 0.01f64..0.99,
        ) {
            let before = logits.clone();
            let best = (0..before.len()).min_by(by_rank(&before)).unwrap();
            let mut chain = Processors::default();
            chain.push(Temperature(temperature));
            chain.push(TopH(p));
            chain.push(TopK(k));
            chain.push(TopP(p));
            chain.push(MinP(least));
            chain.push(EpsilonCutoff(cutoff / 10.0));
            chain.push(EtaCutoff(cutoff));
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
            chain.push(TopH(p));
            chain.push(Typical(p));
            chain.push(EpsilonCutoff(p / 2.0));
            chain.push(EtaCutoff(p / 2.0));
            chain.push(Xtc { probability: 1.0, threshold: 0.01 });
            chain.push(Mirostat::new(MirostatOptions::default()));
            chain.process(&History::new(&ids, ids.len() / 2), &mut logits);
            prop_assert!(logits[1] == HIDDEN && logits.iter().all(|logit| !logit.is_nan()));
            prop_assert!(logits.iter().any(|logit| logit.is_finite()));
        }
    }
}
