//! Translations that are written token by token: drawn, or greedily with guesses that are read at once.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use firelight_generation::processors::History;
use firelight_generation::{
    Autoregressive, BeamOptions, Drafter, GenerationError, GenerationOptions, Hypothesis, PromptLookup, StopReason,
    TokenScore, TokenStream,
};

use super::options::token_by_token;

/// The target that a search of one beam finds, written token by token with the guesses of a drafter.
///
/// # Errors
/// As [`beam_search`](firelight_generation::beam_search).
pub(super) fn guessed<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(
    model: &M,
    source: Vec<u32>,
    drafter: impl Drafter,
    options: &BeamOptions,
) -> Result<Hypothesis, GenerationError> {
    let (model, greedy) = (LogProbabilities(model), token_by_token(options));
    let tokens = TokenStream::new(&model, vec![source], &greedy)?.with_drafter(drafter);
    Ok(targets(tokens, options.length_penalty)?.swap_remove(0))
}

/// The targets of several sources, written token by token as `steps` says. Each is the one that its source would get alone, up to rounding.
///
/// # Errors
/// As [`TokenStream::of_rows`].
pub(super) fn drawn<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(
    model: &M,
    sources: Vec<Vec<u32>>,
    steps: &GenerationOptions,
    length_penalty: f64,
) -> Result<Vec<Hypothesis>, GenerationError> {
    let each = vec![steps.clone(); sources.len()];
    targets(TokenStream::of_rows(model, sources, &each)?, length_penalty)
}

/// Runs a stream to its end. The score of a target is that of the model, without penalties; the end token counts.
fn targets<M: Autoregressive>(
    mut tokens: TokenStream<'_, M>,
    length_penalty: f64,
) -> Result<Vec<Hypothesis>, GenerationError> {
    let of = |score: &Option<TokenScore>| score.as_ref().map_or(0.0, |score| score.log_probability);
    let mut rows: Vec<(Vec<u32>, Vec<TokenScore>)> = vec![(Vec::new(), Vec::new()); tokens.batch_size()];
    while let Some(step) = tokens.next() {
        for ((ids, scores), (id, score)) in rows.iter_mut().zip(step?.into_iter().zip(tokens.scores())) {
            ids.extend(id);
            scores.extend(score.clone());
        }
    }
    let ended = rows.into_iter().enumerate().map(|(row, (ids, scores))| {
        let (end, stop_reason) = (&tokens.end_scores()[row], tokens.stops()[row]);
        let total: f64 = scores.iter().map(|score| score.log_probability).sum();
        let length = ids.len() + usize::from(end.is_some());
        let score = (total + of(end)) / (length.max(1) as f64).powf(length_penalty);
        Hypothesis { ids, score, scores, stop_reason: stop_reason.unwrap_or(StopReason::MaxNewTokens) }
    });
    Ok(ended.collect())
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
