//! Greedy translation of one source at a time, with guesses that are read at once.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use firelight_generation::processors::{History, NotBefore};
use firelight_generation::{
    Autoregressive, BeamOptions, Drafter, GenerationError, GenerationOptions, Hypothesis, PromptLookup, StopReason,
    TokenStream,
};

/// The target that a search of one beam finds, written token by token with the guesses of a drafter.
///
/// The end token is chosen as any other one, so that it counts in the score, which is that of the model without penalties.
///
/// # Errors
/// As [`beam_search`](firelight_generation::beam_search).
pub(super) fn guessed<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(
    model: &M,
    source: Vec<u32>,
    drafter: impl Drafter,
    options: &BeamOptions,
) -> Result<Hypothesis, GenerationError> {
    let (model, greedy) = (LogProbabilities(model), greedy(options));
    let mut tokens = TokenStream::new(&model, vec![source], &greedy)?.with_drafter(drafter);
    let (mut ids, mut log_probability) = (Vec::new(), 0.0);
    while let Some(step) = tokens.next() {
        let Some(id) = step?[0] else { break };
        log_probability += tokens.scores()[0].as_ref().map_or(0.0, |score| score.log_probability);
        ids.push(id);
        if options.stop_tokens.contains(&id) {
            tokens.end_row(0, StopReason::StopToken(id));
        }
    }
    let score = log_probability / (ids.len().max(1) as f64).powf(options.length_penalty);
    let stopped = tokens.stops()[0].unwrap_or(StopReason::MaxNewTokens);
    if matches!(stopped, StopReason::StopToken(_)) {
        ids.pop();
    }
    Ok(Hypothesis { ids, score, stopped })
}

/// The same choices token by token. That no end token comes too early is said apart, for to the stream it is a token like others.
pub(super) fn greedy(options: &BeamOptions) -> GenerationOptions {
    let ends = NotBefore { new_tokens: options.processing.min_new_tokens, ids: options.stop_tokens.clone() };
    let processing = options.processing.clone().with_processor(ends);
    GenerationOptions::new(options.max_new_tokens).greedy().with_processing(processing).with_logprobs(0)
}

/// Looks the last tokens up in the target and in the source before it, from where names and numbers are copied.
pub(super) struct SourceLookup {
    pub(super) lookup: PromptLookup,
    /// Empty where the two sides have no common vocabulary.
    pub(super) source: Vec<u32>,
}

impl Drafter for SourceLookup {
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
        let ids = [&self.source[..], history.ids()].concat();
        self.lookup.guess(&History::new(&ids, ids.len()), most)
    }
}

/// A model whose logits are log-probabilities: a search gives those to its processors, and penalties depend on it.
pub(super) struct LogProbabilities<'m, M>(pub(super) &'m M);

impl<M: Autoregressive> Autoregressive for LogProbabilities<'_, M> {
    type Prompt = M::Prompt;
    type State = M::State;

    fn device(&self) -> Device {
        self.0.device()
    }

    fn history(&self, prompt: &M::Prompt) -> Vec<Vec<u32>> {
        self.0.history(prompt)
    }

    fn prefill(&self, prompt: M::Prompt) -> Result<(Tensor<2>, M::State), GenerationError> {
        let (logits, state) = self.0.prefill(prompt)?;
        Ok((log_softmax(logits, 1), state))
    }

    fn prefill_rest(&self, prompt: M::Prompt, state: M::State) -> Result<(Tensor<2>, M::State), GenerationError> {
        let (logits, state) = self.0.prefill_rest(prompt, state)?;
        Ok((log_softmax(logits, 1), state))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut M::State) -> Tensor<2> {
        log_softmax(self.0.step(token, state), 1)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut M::State) -> Tensor<3> {
        log_softmax(self.0.extend(tokens, state), 2)
    }

    fn room(&self, state: &M::State) -> usize {
        self.0.room(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_from_the_source_goes_on_as_the_source_does() {
        let target = [9, 4, 5];
        let guess = |source: Vec<u32>| {
            let mut drafter = SourceLookup { lookup: PromptLookup::default(), source };
            drafter.guess(&History::new(&target, 1), 2).unwrap()
        };
        assert_eq!(guess(vec![3, 4, 5, 6, 7, 8]), [6, 7]);
        assert_eq!(guess(Vec::new()), [0; 0]);
    }
}
