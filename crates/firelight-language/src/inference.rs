//! The decoding interface of [`LanguageModel`]: prefill and steps, cached and not, in one way of computing.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_core::{Cache, Pass, SequenceInput};
use firelight_generation::{Autoregressive, DecodeState, GenerationError, check_prompt, row_indices};

use crate::data::tokens;
use crate::model::LanguageModel;

/// What a language model remembers between two tokens: the window of tokens that it sees, and their keys and values.
///
/// When the window is full its start moves on by half a context; what is left is read anew from position 0. So is a text that
/// outgrows its rotary frequencies, where those depend on the length. With and without a cache the window is the same, and so is
/// the text.
#[derive(Debug, Clone)]
pub struct LmState {
    tokens: Tensor<2, Int>,
    padding: Option<Tensor<2, Bool>>,
    cache: Option<Cache>,
    max_seq_len: usize,
    read: usize,
}

impl LmState {
    /// Adds one token per row, `[B]`, and returns what has to be read now: the token, or the window when there is no
    /// cache, its start has moved, or a text of the first length does not continue to the second.
    fn push(
        &mut self,
        token: Tensor<1, Int>,
        continues: impl Fn(usize, usize) -> bool,
    ) -> (Tensor<2, Int>, Option<Tensor<2, Bool>>) {
        let token = token.unsqueeze_dim::<2>(1); // [B, 1]
        self.read += 1;
        let len = self.tokens.dims()[1];
        let moves = len == self.max_seq_len;
        if moves {
            self.move_start();
        }
        let begins_anew = moves || !continues(len, len + 1);
        if let Some(cache) = self.cache.as_mut().filter(|_| begins_anew) {
            cache.clear();
        }
        self.tokens = Tensor::cat(vec![self.tokens.clone(), token.clone()], 1);
        self.padding = self.padding.take().map(|padding| {
            let visible = Tensor::<2, Int>::zeros(token.dims(), &padding.device()).bool();
            Tensor::cat(vec![padding, visible], 1)
        });
        if begins_anew || self.cache.is_none() { (self.tokens.clone(), self.padding.clone()) } else { (token, None) }
    }

    fn move_start(&mut self) {
        let start = self.max_seq_len / 2;
        let kept = self.max_seq_len - start;
        let keep = |x: Tensor<2, Int>| x.narrow(1, start, kept);
        self.padding = self.padding.take().map(|padding| padding.narrow(1, start, kept));
        self.tokens = keep(self.tokens.clone());
    }
}

impl DecodeState for LmState {
    fn len(&self) -> usize {
        self.read
    }

    fn select_rows(&mut self, rows: &[usize]) {
        let rows = row_indices(rows, &self.tokens.device());
        self.tokens = self.tokens.clone().select(0, rows.clone());
        // By way of numbers: on flex selected truths are of a type that does not join others.
        self.padding = self.padding.take().map(|padding| padding.int().select(0, rows.clone()).bool());
        if let Some(cache) = &mut self.cache {
            cache.select_rows(&rows);
        }
    }
}

impl LanguageModel {
    /// Logits after the last of `tokens`, `[B, V]`. The one way in which prefill, cached and uncached steps compute.
    fn next_logits(
        &self,
        (tokens, padding): (Tensor<2, Int>, Option<Tensor<2, Bool>>),
        cache: Option<&mut Cache>,
    ) -> Tensor<2> {
        let last = tokens.dims()[1] - 1;
        let mut pass = cache.map_or_else(Pass::default, Pass::cached);
        let hidden = self.hidden(tokens, &SequenceInput { padding, ..SequenceInput::default() }, &mut pass);
        self.logits(hidden.narrow(1, last, 1)).squeeze_dim(1)
    }

    fn start(&self, prompt: Vec<Vec<u32>>, cache: Option<Cache>) -> Result<(Tensor<2>, LmState), GenerationError> {
        check_prompt(&prompt, self.max_seq_len(), self.vocab_size())?;
        let read = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let (tokens, padding) = left_padded(&prompt, read, &self.device());
        let mut state = LmState { tokens, padding, cache, max_seq_len: self.max_seq_len(), read };
        let logits = self.next_logits((state.tokens.clone(), state.padding.clone()), state.cache.as_mut());
        Ok((logits, state))
    }

    fn next(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        let unread = state.push(token, |past, len| self.transformer.continues(past, len));
        self.next_logits(unread, state.cache.as_mut())
    }
}

/// Rows of unequal length end together: the shorter ones are padded on the left, where positions do not count it.
fn left_padded(rows: &[Vec<u32>], seq_len: usize, device: &Device) -> (Tensor<2, Int>, Option<Tensor<2, Bool>>) {
    let shape = [rows.len(), seq_len];
    let missing = |row: &Vec<u32>| seq_len - row.len();
    let ids = rows.iter().flat_map(|row| std::iter::repeat_n(0, missing(row)).chain(row.iter().copied())).collect();
    let padding = rows.iter().any(|row| missing(row) > 0).then(|| {
        let flags: Vec<bool> = rows.iter().flat_map(|row| (0..seq_len).map(|t| t < missing(row))).collect();
        Tensor::from_bool(TensorData::new(flags, shape), device)
    });
    (tokens(ids, shape, device), padding)
}

/// Decodes with a cache. A prompt is one row of ids per text.
impl Autoregressive for LanguageModel {
    type Prompt = Vec<Vec<u32>>;
    type State = LmState;

    fn device(&self) -> Device {
        self.embedding.weight.device()
    }

    fn history(&self, prompt: &Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        prompt.clone()
    }

    fn prefill(&self, prompt: Vec<Vec<u32>>) -> Result<(Tensor<2>, LmState), GenerationError> {
        self.start(prompt, Some(self.cache()))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        self.next(token, state)
    }
}

/// Decodes without a cache: every step reads the whole window again. Slow, and the proof that the cache changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Uncached<'a>(pub &'a LanguageModel);

impl Autoregressive for Uncached<'_> {
    type Prompt = Vec<Vec<u32>>;
    type State = LmState;

    fn device(&self) -> Device {
        self.0.device()
    }

    fn history(&self, prompt: &Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        prompt.clone()
    }

    fn prefill(&self, prompt: Vec<Vec<u32>>) -> Result<(Tensor<2>, LmState), GenerationError> {
        self.0.start(prompt, None)
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        self.0.next(token, state)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::model::LanguageModelConfig;
    use firelight_core::{
        AttentionMechanism, AttentionPattern, ParamBuilder, PositionConfig, RotaryConfig, RotaryScaling,
        TransformerConfig, WeightInit,
    };
    use firelight_generation::{GenerationOptions, generate};
    use firelight_kernels::assert_close;

    fn model(position: PositionConfig) -> LanguageModel {
        let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(8);
        let wide =
            firelight_core::WeightInit { weight: firelight_core::Init::Normal { std: 0.4 }, scale_residual: false };
        config
            .with_transformer(|stack| stack.with_position(position).with_init(wide))
            .init_with(&ParamBuilder::new(&Device::default(), 0))
    }

    fn greedy<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, prompt: &[&[u32]]) -> Vec<Vec<u32>> {
        let prompt = prompt.iter().map(|row| row.to_vec()).collect();
        let options = GenerationOptions::new(30).greedy();
        let rows = generate(model, prompt, &options, |_| ControlFlow::Continue(())).unwrap();
        rows.into_iter().map(|row| row.ids).collect()
    }

    /// Its frequencies are others from six tokens on.
    fn by_length(scaling: RotaryScaling) -> PositionConfig {
        PositionConfig::Rotary(RotaryConfig::default().with_theta(100.0).with_scaling(scaling))
    }

    #[test]
    fn the_cache_changes_no_text_even_far_beyond_the_context() {
        for position in [
            PositionConfig::None,
            PositionConfig::Learned,
            PositionConfig::Sinusoidal,
            PositionConfig::rotary(),
            by_length(RotaryScaling::Dynamic { factor: 4.0, original_max_seq_len: 5 }),
            by_length(RotaryScaling::LongRope {
                factor: 4.0,
                original_max_seq_len: 5,
                short_factor: vec![1.0; 4],
                long_factor: vec![2.0, 4.0, 6.0, 8.0],
                attention_factor: None,
            }),
            PositionConfig::Alibi,
            PositionConfig::t5(false),
            PositionConfig::shaw(),
        ] {
            let model = model(position.clone());
            assert_eq!(greedy(&model, &[&[1, 2, 3]]), greedy(&Uncached(&model), &[&[1, 2, 3]]), "{position:?}");
        }
    }

    #[test]
    fn a_window_decodes_as_far_as_it_forgets() {
        let window = AttentionPattern::SlidingWindow { left: 2, right: 0 };
        for patterns in [vec![window], vec![window, AttentionPattern::Causal]] {
            let stack = |stack: TransformerConfig| {
                let stack = stack.with_position(PositionConfig::rotary()).with_patterns(patterns.clone());
                stack.with_init(WeightInit::xavier())
            };
            let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(150).with_transformer(stack);
            let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
            let prompt: Vec<u32> = (0..140).map(|i| i * i % 13).collect();
            let expected = greedy(&Uncached(&model), &[&prompt, &prompt[60..]]);
            assert_eq!(greedy(&model, &[&prompt, &prompt[60..]]), expected, "{patterns:?}");
        }
    }

    #[test]
    fn every_mechanism_decodes_alike_with_and_without_a_cache() {
        use AttentionMechanism::{Additive, Bilinear, Linear};
        for mechanism in [Additive, Bilinear, Linear] {
            let stack = |stack: TransformerConfig| {
                let stack = stack.with_position(PositionConfig::rotary()).with_attention_mechanism(mechanism);
                stack.with_init(WeightInit::xavier())
            };
            let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(16).with_transformer(stack);
            let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
            let prompts: [&[u32]; 2] = [&[1, 2, 3, 4, 5], &[7, 8]];
            assert_eq!(greedy(&model, &prompts), greedy(&Uncached(&model), &prompts), "{mechanism:?}");
        }
    }

    #[test]
    fn a_row_decodes_in_company_as_it_does_alone() {
        let model = model(PositionConfig::Learned);
        let together = greedy(&model, &[&[1, 2, 3, 4, 5], &[7, 8]]);
        // Windows move for all rows at once, so they agree until the longest row fills the context.
        assert_eq!(together[0], greedy(&model, &[&[1, 2, 3, 4, 5]])[0]);
        assert_eq!(together[1][..4], greedy(&model, &[&[7, 8]])[0][..4]);
        assert_eq!(together, greedy(&Uncached(&model), &[&[1, 2, 3, 4, 5], &[7, 8]]));
    }

    #[test]
    fn rows_of_padded_prompts_branch_and_go_on() {
        let model = model(PositionConfig::Learned);
        let token = |ids: &[i64]| Tensor::<1, Int>::from_ints(ids, &Device::default());
        let (_, mut state) = model.prefill(vec![vec![1, 2, 3, 4], vec![7, 8]]).unwrap();
        let (_, mut uncached) = Uncached(&model).prefill(vec![vec![1, 2, 3, 4], vec![7, 8]]).unwrap();
        let (_, mut alone) = model.prefill(vec![vec![7, 8]]).unwrap();
        [&mut state, &mut uncached].into_iter().for_each(|state| state.select_rows(&[1, 1]));
        let found = model.step(token(&[9, 5]), &mut state);
        assert_close(&found, &Uncached(&model).step(token(&[9, 5]), &mut uncached), 1e-4);
        assert_close(&found.narrow(0, 0, 1), &model.step(token(&[9]), &mut alone), 1e-4);
    }

    #[test]
    fn the_start_moves_by_half_a_context() {
        let model = model(PositionConfig::Learned);
        let (_, mut state) = model.prefill(vec![(0..8).collect()]).unwrap();
        let token = || Tensor::<1, Int>::from_ints([9], &Device::default());
        assert_eq!(state.push(token(), |_, _| true).0.try_to_vec_as::<i64>().unwrap(), [4, 5, 6, 7, 9]);
        assert_eq!(state.push(token(), |_, _| true).0.dims(), [1, 1]);
        assert_eq!(state.len(), 10);
    }

    #[test]
    fn bad_prompts_are_refused() {
        let model = model(PositionConfig::Learned);
        let refuse = |prompt: Vec<u32>| model.prefill(vec![prompt]).err().unwrap().to_string();
        assert!(refuse(vec![]).contains("empty"));
        assert!(refuse(vec![0; 9]).contains("the prompt has 9 tokens"));
        assert!(refuse(vec![13]).contains("token id 13"));
    }
}
