//! The decoding interface of [`LanguageModel`]: prefill and steps, cached and not, in one way of computing.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_core::{Cache, Pass, SequenceInput};
use firelight_generation::{
    Autoregressive, DecodeState, GenerationError, HiddenStates, JoinState, check_prompt, one_by_one, row_indices,
};

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
    /// How many tokens were read when the window was last read anew.
    anew: usize,
    /// The shortest and the longest window that the keys were turned in.
    turned: [usize; 2],
}

/// Tokens with their padding, `[B, T]` each.
type Unread = (Tensor<2, Int>, Option<Tensor<2, Bool>>);

impl LmState {
    /// Adds tokens to each row, `[B, T]`, and returns what has to be read now: the tokens, or the window when there is no
    /// cache, its start has moved, or a text of the first length does not continue to the second. It has room for them, or one comes.
    fn push(&mut self, tokens: Tensor<2, Int>, continues: impl Fn(usize, usize) -> bool) -> Unread {
        let length = tokens.dims()[1];
        self.read += length;
        let moves = self.window() + length > self.max_seq_len;
        if moves {
            self.move_start();
        }
        let longer = self.window() + length;
        let begins_anew = moves || self.turned.iter().any(|&past| !continues(past, longer));
        self.turned = [longer; 2];
        if begins_anew {
            self.anew = self.read;
            self.cache.iter_mut().for_each(Cache::clear);
        }
        self.tokens = Tensor::cat(vec![self.tokens.clone(), tokens.clone()], 1);
        self.padding = self.padding.take().map(|padding| {
            let visible = Tensor::<2, Int>::zeros(tokens.dims(), &padding.device()).bool();
            Tensor::cat(vec![padding, visible], 1)
        });
        if begins_anew || self.cache.is_none() { (self.tokens.clone(), self.padding.clone()) } else { (tokens, None) }
    }

    /// How many tokens the window holds.
    fn window(&self) -> usize {
        self.tokens.dims()[1]
    }

    fn move_start(&mut self) {
        let start = self.max_seq_len / 2;
        let kept = self.max_seq_len - start;
        let keep = |x: Tensor<2, Int>| x.narrow(1, start, kept);
        self.padding = self.padding.take().map(|padding| padding.narrow(1, start, kept));
        self.tokens = keep(self.tokens.clone());
    }

    /// The place in the window of the token number `len` of the text.
    fn place(&self, len: usize) -> Option<usize> {
        self.window().checked_sub(self.read.checked_sub(len)?)
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

    /// As far as the window was not read anew since, and the cache can go back.
    fn can_truncate(&self, len: usize) -> bool {
        let can = |place| self.cache.as_ref().is_none_or(|cache| cache.can_truncate(place));
        len >= self.read || (len >= self.anew.max(1) && self.place(len).is_some_and(|place| place > 0 && can(place)))
    }

    fn truncate(&mut self, len: usize) {
        assert!(self.can_truncate(len), "{} tokens were read: the window cannot go back to {len}", self.read);
        let Some(place) = self.place(len) else { return };
        self.tokens = self.tokens.clone().narrow(1, 0, place);
        self.padding = self.padding.take().map(|padding| padding.narrow(1, 0, place));
        self.cache.iter_mut().for_each(|cache| cache.truncate(place));
        self.read = len;
    }
}

impl JoinState for LmState {
    /// The shorter window is padded on the left. What was read before cannot be taken back.
    fn join(&mut self, other: Self) {
        let window = self.window().max(other.window());
        let rows = [&*self, &other].map(|state| padded_on_the_left(state, window));
        let [(tokens, padding), (more, more_padding)] = rows;
        self.tokens = Tensor::cat(vec![tokens, more], 0);
        self.padding = Some(Tensor::cat(vec![padding, more_padding], 0));
        self.cache = self.cache.take().zip(other.cache).map(|(mut cache, other)| {
            cache.join(other);
            cache
        });
        self.read = self.read.max(other.read);
        self.anew = self.read;
        self.turned = [self.turned[0].min(other.turned[0]), self.turned[1].max(other.turned[1])];
    }
}

/// The window of a state as one of so many tokens, and what of it is padding.
fn padded_on_the_left(state: &LmState, window: usize) -> (Tensor<2, Int>, Tensor<2, Bool>) {
    let ([rows, length], device) = (state.tokens.dims(), state.tokens.device());
    let flags = |value: i32, length: usize| Tensor::<2, Int>::full([rows, length], value, &device);
    // By way of numbers: on flex selected truths are of a type that does not join others.
    let padding = state.padding.clone().map_or_else(|| flags(0, length), |padding| padding.int());
    if length == window {
        return (state.tokens.clone(), padding.bool());
    }
    let missing = window - length;
    let tokens = Tensor::cat(vec![Tensor::zeros([rows, missing], &device), state.tokens.clone()], 1);
    (tokens, Tensor::cat(vec![flags(1, missing), padding], 1).bool())
}

/// Guesses that are read at once, at most: a layer that keeps the last tokens can go back by so many.
const MAX_GUESSES: usize = 64;

impl LanguageModel {
    /// The vectors of the last `count` of the tokens, `[B, count, D]`. The one way in which prefill, cached and uncached steps compute.
    fn next_hidden(&self, (tokens, padding): Unread, cache: Option<&mut Cache>, count: usize) -> Tensor<3> {
        let first = tokens.dims()[1] - count;
        let mut pass = cache.map_or_else(Pass::default, Pass::cached);
        let hidden = self.hidden(tokens, &SequenceInput { padding, ..SequenceInput::default() }, &mut pass);
        hidden.narrow(1, first, count)
    }

    /// Reads prompts: the vectors of the last `count` tokens of each, `[B, count, D]`, and the state after them.
    fn start(
        &self,
        prompt: &[Vec<u32>],
        cache: Option<Cache>,
        count: usize,
    ) -> Result<(Tensor<3>, LmState), GenerationError> {
        check_prompt(prompt, self.max_seq_len(), self.vocab_size())?;
        let read = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let (tokens, padding) = left_padded(prompt, read, &self.device());
        let mut state =
            LmState { tokens, padding, cache, max_seq_len: self.max_seq_len(), read, anew: 0, turned: [read; 2] };
        let unread = (state.tokens.clone(), state.padding.clone());
        Ok((self.next_hidden(unread, state.cache.as_mut(), count), state))
    }

    /// The logits of the last token of prompts, `[B, V]`, and the state after it.
    fn start_logits(&self, prompt: &[Vec<u32>], cache: Option<Cache>) -> Result<(Tensor<2>, LmState), GenerationError> {
        let (hidden, state) = self.start(prompt, cache, 1)?;
        Ok((self.logits(hidden).squeeze_dim(1), state))
    }

    /// The rest of one row's prompt, where the state has read the first tokens.
    fn go_on(&self, prompt: Vec<Vec<u32>>, mut state: LmState) -> Result<(Tensor<2>, LmState), GenerationError> {
        check_prompt(&prompt, self.max_seq_len(), self.vocab_size())?;
        let rest = prompt[0][state.read..].to_vec();
        let shape = [1, rest.len()];
        let unread = tokens(rest, shape, &self.device());
        let hidden = self.next(unread, &mut state, 1);
        Ok((self.logits(hidden).squeeze_dim(1), state))
    }

    /// Reads tokens `[B, T]`: the vectors of the last `count`, `[B, count, D]`.
    fn next(&self, tokens: Tensor<2, Int>, state: &mut LmState, count: usize) -> Tensor<3> {
        let unread = state.push(tokens, |past, len| self.transformer.continues(past, len));
        self.next_hidden(unread, state.cache.as_mut(), count)
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
        self.start_logits(&prompt, Some(self.cache()))
    }

    fn prefill_rest(&self, prompt: Vec<Vec<u32>>, state: LmState) -> Result<(Tensor<2>, LmState), GenerationError> {
        match prompt.len() == 1 && (1..prompt[0].len()).contains(&state.len()) {
            true => self.go_on(prompt, state),
            false => self.prefill(prompt),
        }
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        self.logits(self.next(token.unsqueeze_dim(1), state, 1)).squeeze_dim(1)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut LmState) -> Tensor<3> {
        let [_, length] = tokens.dims();
        match state.window() + length <= self.max_seq_len() {
            true => self.logits(self.next(tokens, state, length)),
            false => one_by_one(self, tokens, state),
        }
    }

    fn room(&self, state: &LmState) -> usize {
        let window = state.window();
        let room = MAX_GUESSES.min(self.max_seq_len() - window);
        let goes_back = state.cache.as_ref().is_none_or(|cache| cache.can_truncate(window.saturating_sub(1)));
        let continues = |len: usize| state.turned.iter().all(|&past| self.transformer.continues(past, len));
        if goes_back && continues(window + 1) && continues(window + room) { room } else { 0 }
    }
}

impl HiddenStates for LanguageModel {
    fn prefill_hidden(&self, prompt: Vec<Vec<u32>>) -> Result<(Tensor<2>, Tensor<3>, LmState), GenerationError> {
        let length = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let (hidden, state) = self.start(&prompt, Some(self.cache()), length)?;
        let logits = self.logits(hidden.clone().narrow(1, length - 1, 1)).squeeze_dim(1);
        Ok((logits, hidden, state))
    }

    fn step_hidden(&self, token: Tensor<1, Int>, state: &mut LmState) -> (Tensor<2>, Tensor<2>) {
        let hidden = self.next(token.unsqueeze_dim(1), state, 1);
        (self.logits(hidden.clone()).squeeze_dim(1), hidden.squeeze_dim(1))
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
        self.0.start_logits(&prompt, None)
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        self.0.step(token, state)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut LmState) -> Tensor<3> {
        self.0.extend(tokens, state)
    }

    fn room(&self, state: &LmState) -> usize {
        self.0.room(state)
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
        let token = || Tensor::<2, Int>::from_ints([[9]], &Device::default());
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

    fn stack(change: impl FnOnce(TransformerConfig) -> TransformerConfig) -> LanguageModel {
        let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(150);
        let config = config.with_transformer(|stack| change(stack.with_init(WeightInit::xavier())));
        config.init_with(&ParamBuilder::new(&Device::default(), 0))
    }

    /// Stacks that keep all tokens, the last ones, and sums.
    fn stacks() -> Vec<LanguageModel> {
        let window = AttentionPattern::SlidingWindow { left: 2, right: 0 };
        vec![
            stack(|stack| stack.with_position(PositionConfig::Learned)),
            stack(|stack| {
                stack.with_position(PositionConfig::rotary()).with_patterns(vec![window, AttentionPattern::Causal])
            }),
            stack(|stack| stack.with_position(PositionConfig::Alibi)),
            stack(|stack| stack.with_attention_mechanism(AttentionMechanism::Linear)),
            stack(|stack| stack.with_position(long_rope(30))),
        ]
    }

    /// Its frequencies are others from so many tokens on.
    fn long_rope(length: usize) -> PositionConfig {
        by_length(RotaryScaling::LongRope {
            factor: 4.0,
            original_max_seq_len: length,
            short_factor: vec![1.0; 4],
            long_factor: vec![2.0, 4.0, 6.0, 8.0],
            attention_factor: None,
        })
    }

    #[test]
    fn a_text_that_goes_back_behind_a_change_of_frequencies_is_read_anew() {
        let model = stack(|stack| stack.with_position(long_rope(30)));
        let (_, mut state) = model.prefill(vec![ids(60)]).unwrap();
        state.truncate(9);
        let (found, _) = model.prefill_rest(vec![ids(12)], state).unwrap();
        assert_close(&found, &model.prefill(vec![ids(12)]).unwrap().0, 1e-4);
        let (_, near) = model.prefill(vec![ids(28)]).unwrap();
        assert_eq!(model.room(&near), 0, "guesses would cross the change");
    }

    fn ids(count: u32) -> Vec<u32> {
        (0..count).map(|i| i * i % 13).collect()
    }

    #[test]
    fn a_guess_that_is_taken_back_leaves_no_trace() {
        let [one, three] =
            [&[4][..], &[4, 9, 2]].map(|ids| Tensor::<1, Int>::from_ints(ids, &Device::default()).unsqueeze::<2>());
        for (number, model) in stacks().into_iter().enumerate() {
            for prompt in [vec![ids(5)], vec![ids(140)], vec![ids(9), ids(4)]] {
                let (_, mut state) = model.prefill(prompt.clone()).unwrap();
                if model.room(&state) == 0 {
                    assert!(number == 3 || (number == 4 && state.window() < 30), "sums do not go back");
                    continue;
                }
                assert_eq!(model.room(&state), 64.min(150 - state.window()));
                let (mut untouched, rows) = (state.clone(), prompt.len());
                let [one, three] = [&one, &three].map(|tokens| tokens.clone().repeat(&[rows, 1]));
                let found = model.extend(three.clone(), &mut state);
                // At once and one by one.
                assert_close(&found, &one_by_one(&model, three, &mut untouched.clone()), 1e-4);
                let read = state.len() - 3;
                assert!(state.can_truncate(read) && !state.can_truncate(0));
                state.truncate(read);
                assert_eq!((state.len(), state.window()), (untouched.len(), untouched.window()));
                let again = [&mut state, &mut untouched].map(|state| model.extend(one.clone(), state).into_data());
                again[0].assert_eq(&again[1], true);
            }
        }
    }

    #[test]
    fn more_tokens_than_fit_are_read_one_by_one_and_a_moved_window_does_not_go_back() {
        let model = model(PositionConfig::Learned);
        let (_, state) = model.prefill(vec![ids(6)]).unwrap();
        let tokens = Tensor::<2, Int>::from_ints([[1, 2, 3, 4]], &Device::default());
        let mut states = [state.clone(), state];
        let found = model.extend(tokens.clone(), &mut states[0]);
        assert_close(&found, &one_by_one(&model, tokens, &mut states[1]), 1e-5);
        assert_eq!((states[0].len(), states[0].window()), (10, 6));
        assert!(states[0].can_truncate(9) && !states[0].can_truncate(8), "the window moved for the ninth");
    }

    #[test]
    fn a_prompt_that_begins_alike_is_read_from_where_it_differs() {
        for model in stacks() {
            let (_, mut state) = model.prefill(vec![ids(60)]).unwrap();
            let longer = [ids(60), vec![7; 20]].concat();
            let (expected, _) = model.prefill(vec![longer.clone()]).unwrap();
            let (found, after) = model.prefill_rest(vec![longer.clone()], state.clone()).unwrap();
            assert_close(&found, &expected, 1e-4);
            assert_eq!(after.len(), 80);
            if !state.can_truncate(59) {
                continue;
            }
            state.truncate(59);
            let (found, _) = model.prefill_rest(vec![ids(60)], state.clone()).unwrap();
            assert_close(&found, &model.prefill(vec![ids(60)]).unwrap().0, 1e-4);
            let refused = model.prefill_rest(vec![vec![99; 60]], state.clone()).err().unwrap().to_string();
            assert!(refused.contains("token id 99"), "{refused}");
            assert!(model.prefill_rest(vec![ids(151)], state).is_err());
        }
    }

    #[test]
    fn rows_that_join_go_on_as_they_would_alone() {
        let token = |ids: &[i32]| Tensor::<1, Int>::from_ints(ids, &Device::default());
        // Frequencies that depend on the length are those of the longest row.
        for model in stacks().into_iter().take(4) {
            for prompts in [[ids(9), ids(4)], [ids(4), ids(9)], [ids(140), ids(70)], [ids(6), ids(6)]] {
                let mut alone = prompts.map(|prompt| model.prefill(vec![prompt]).unwrap().1);
                let mut joined = alone[0].clone();
                joined.join(alone[1].clone());
                for step in [[3, 8], [1, 5]] {
                    let found = model.step(token(&step), &mut joined);
                    for (row, state) in alone.iter_mut().enumerate() {
                        let expected = model.step(token(&step[row..=row]), state);
                        assert_close(&found.clone().narrow(0, row, 1), &expected, 1e-4);
                    }
                }
                joined.select_rows(&[1]);
                let [found, expected] = [&mut joined, &mut alone[1]].map(|state| model.step(token(&[2]), state));
                assert_close(&found, &expected, 1e-4);
            }
        }
    }
}
