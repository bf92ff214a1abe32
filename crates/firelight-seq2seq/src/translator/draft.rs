//! Guesses of a smaller translator, which reads the source by itself.

use burn::tensor::{Device, Int, Tensor};
use firelight_generation::processors::History;
use firelight_generation::{
    Autoregressive, BeamOptions, DecodeState, DraftModel, Drafter, GenerationError, Hypothesis, ModelDrafter,
};

use super::guessed::{LogProbabilities, guessed};
use super::options::token_by_token;
use crate::data::right_padded;
use crate::inference::Seq2SeqState;
use crate::model::Seq2SeqModel;

/// The target that a search of one beam finds, with the guesses of a draft.
///
/// # Errors
/// As [`guessed`].
pub(super) fn drafted<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(
    model: &M,
    source: Vec<u32>,
    draft: &DraftModel<Seq2SeqModel>,
    options: &BeamOptions,
) -> Result<Hypothesis, GenerationError> {
    let longest = longest_target(draft.model(), &source);
    let of_source = OfSource { model: draft.model(), source: source.clone() };
    let of_source = draft.restricted(&of_source);
    let of_source = LogProbabilities(&of_source); // of what may be written, as those of the model
    let drafter = ModelDrafter::new(&of_source, &token_by_token(options))?.with_tokens(draft.tokens());
    guessed(model, source, UpTo { longest, drafter }, options)
}

/// The longest target that a draft can write, in tokens, the first one included: none where the source is too long for it.
fn longest_target(draft: &Seq2SeqModel, source: &[u32]) -> usize {
    if source.len() <= draft.max_source_len() { draft.max_target_len() } else { 0 }
}

/// Guesses while the target is no longer than its model reads.
struct UpTo<D> {
    longest: usize,
    drafter: D,
}

impl<D: Drafter> Drafter for UpTo<D> {
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
        // The last guess is not read.
        let room = (self.longest + 1).saturating_sub(history.ids().len());
        self.drafter.guess(history, most.min(room))
    }
}

/// A model of the targets of one source. Its prompt is a target so far, as that of a language model is a text so far; the token that it begins
/// with is the model's own.
struct OfSource<'m> {
    model: &'m Seq2SeqModel,
    source: Vec<u32>,
}

impl OfSource<'_> {
    /// Reads what the state has not read of a target: one token or more.
    fn read_rest(&self, target: &[u32], mut state: Seq2SeqState) -> (Tensor<2>, Seq2SeqState) {
        let (rest, _) = right_padded(&[&target[state.len()..]], &self.device()); // [1, T]
        let last = rest.dims()[1] - 1;
        let logits = self.model.extend(rest, &mut state); // [1, T, V]
        (logits.narrow(1, last, 1).squeeze_dim(1), state)
    }
}

impl Autoregressive for OfSource<'_> {
    type Prompt = Vec<Vec<u32>>;
    type State = Seq2SeqState;

    fn device(&self) -> Device {
        self.model.device()
    }

    fn prefill(&self, targets: Vec<Vec<u32>>) -> Result<(Tensor<2>, Seq2SeqState), GenerationError> {
        let (logits, state) = self.model.prefill(vec![self.source.clone()])?;
        Ok(if targets[0].len() > state.len() { self.read_rest(&targets[0], state) } else { (logits, state) })
    }

    fn prefill_rest(
        &self,
        targets: Vec<Vec<u32>>,
        state: Seq2SeqState,
    ) -> Result<(Tensor<2>, Seq2SeqState), GenerationError> {
        Ok(self.read_rest(&targets[0], state))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut Seq2SeqState) -> Tensor<2> {
        self.model.step(token, state)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::model::Seq2SeqConfig;
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_generation::{GenerationDefaults, GenerationOptions, TokenStream, WithVocabulary, beam_search};
    use firelight_kernels::assert_close;

    /// The token that every target begins with.
    const START: u32 = 11;

    const SOURCE: [u32; 4] = [1, 2, 3, 12];

    /// A model of random weights for sources and targets of so many tokens.
    fn model(seed: u64, max_seq_len: usize) -> Seq2SeqModel {
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let config = Seq2SeqConfig { start_token: START, ..Seq2SeqConfig::new(13, 16, 2, 2) };
        let config = config.with_max_seq_len(max_seq_len).with_both(|stack| stack.with_init(wide));
        config.init_with(&ParamBuilder::new(&Device::default(), seed))
    }

    #[test]
    fn a_target_that_goes_back_and_on_has_the_logits_of_a_training() {
        let model = model(0, 20);
        let draft = OfSource { model: &model, source: SOURCE.to_vec() };
        let expected = |target: &[u32]| {
            let [(source, _), (target, _)] = [&SOURCE[..], target].map(|ids| right_padded(&[ids], &Device::default()));
            let last = target.dims()[1] - 1;
            model.forward(source, None, target).narrow(1, last, 1).squeeze_dim::<2>(1)
        };
        let (first, second) = ([START, 3, 4, 5, 6], [START, 3, 4, 9]);
        let (logits, mut state) = draft.prefill(vec![first.to_vec()]).unwrap();
        assert_close(&logits, &expected(&first), 1e-4);
        state.truncate(3);
        let (logits, state) = draft.prefill_rest(vec![second.to_vec()], state).unwrap();
        assert_close(&logits, &expected(&second), 1e-4);
        assert_eq!(state.len(), 4);
        let (logits, state) = draft.prefill(vec![vec![7]]).unwrap(); // of a model whose targets begin with 7
        assert_close(&logits, &expected(&[START]), 1e-4);
        assert_eq!(state.len(), 1);
    }

    /// Counts how often it is asked.
    struct Counted<D>(D, Arc<AtomicUsize>);

    impl<D: Drafter> Drafter for Counted<D> {
        fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.guess(history, most)
        }
    }

    /// The target that a model writes with the guesses of a draft, and how often the draft was asked.
    fn written(model: &Seq2SeqModel, draft: &Seq2SeqModel, options: &GenerationOptions) -> (Vec<u32>, usize) {
        let (longest, asked) = (longest_target(draft, &SOURCE), Arc::new(AtomicUsize::new(0)));
        let draft = OfSource { model: draft, source: SOURCE.to_vec() };
        let drafter = ModelDrafter::new(&draft, options).unwrap().with_tokens(4).with_confidence(0.0);
        let drafter = Counted(UpTo { longest, drafter }, asked.clone());
        let tokens = TokenStream::new(model, vec![SOURCE.to_vec()], options).unwrap().with_drafter(drafter);
        let ids = tokens.filter_map(|step| step.unwrap()[0]).collect();
        (ids, asked.load(Ordering::Relaxed))
    }

    #[test]
    fn greedy_and_drawn_targets_are_the_same_whatever_is_guessed() {
        let (own, other, short, shorter) = (model(0, 20), model(7, 20), model(0, 9), model(0, 3));
        let random = |seed| GenerationOptions::new(17).with_temperature(0.7).with_seed(seed);
        for options in [GenerationOptions::new(17).greedy(), random(1), random(2)] {
            let tokens = TokenStream::new(&own, vec![SOURCE.to_vec()], &options).unwrap();
            let expected: Vec<u32> = tokens.filter_map(|step| step.unwrap()[0]).collect();
            assert_eq!(expected.len(), 17);
            let (found, asked) = written(&own, &own, &options);
            assert_eq!(found, expected);
            assert!(asked < 9, "asked {asked} times for 17 tokens, though every guess is right");
            for draft in [&other, &short, &shorter] {
                assert_eq!(written(&own, draft, &options).0, expected);
            }
        }
    }

    /// Counts how often a model reads: the source, and then one token or several at a time.
    struct Reads<'m, M>(&'m M, AtomicUsize);

    impl<M: Autoregressive> Autoregressive for Reads<'_, M> {
        type Prompt = M::Prompt;
        type State = M::State;

        fn device(&self) -> Device {
            self.0.device()
        }

        fn history(&self, prompt: &M::Prompt) -> Vec<Vec<u32>> {
            self.0.history(prompt)
        }

        fn prefill(&self, prompt: M::Prompt) -> Result<(Tensor<2>, M::State), GenerationError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.prefill(prompt)
        }

        fn step(&self, token: Tensor<1, Int>, state: &mut M::State) -> Tensor<2> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.step(token, state)
        }

        fn extend(&self, tokens: Tensor<2, Int>, state: &mut M::State) -> Tensor<3> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.extend(tokens, state)
        }

        fn room(&self, state: &M::State) -> usize {
            self.0.room(state)
        }
    }

    #[test]
    fn guesses_of_the_model_itself_are_accepted() {
        // Two ids may be written, by the tokenizer or by the bans. One of them is always as probable as a guess has to be.
        let (own, options) = (model(0, 20), BeamOptions::new(8).with_beams(1));
        let others: Vec<u32> = (2..13).collect();
        let banning: GenerationDefaults =
            serde_json::from_value(serde_json::json!({"suppress_tokens": others})).unwrap();
        let draft = |size| DraftModel::new(model(0, 20), size, 4);
        for (real, draft) in [
            (WithVocabulary::new(&own, 2), draft(2)),
            (WithVocabulary::new(&own, 13).with_defaults(&banning), draft(13).without_banned(&banning)),
        ] {
            let expected = beam_search(&real, vec![SOURCE.to_vec()], &options).unwrap().remove(0).remove(0);
            let reads = Reads(&real, AtomicUsize::new(0));
            let found = drafted(&reads, SOURCE.to_vec(), &draft, &options).unwrap();
            assert_eq!((found.ids.len(), found.ids), (8, expected.ids));
            // Each time it reads, one token is its own.
            let accepted = 8 - reads.1.load(Ordering::Relaxed);
            assert!(accepted >= 4, "{accepted} of 8 tokens were guessed");
        }
    }
}
