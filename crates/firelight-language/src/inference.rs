//! The decoding interface of [`LanguageModel`]: prefill and steps, cached and not, in one way of computing.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_core::{Cache, CacheType, Compression, ConfigError, KeyValues, Pass, SequenceInput};
use firelight_generation::{
    Autoregressive, DecodeState, GenerationError, HiddenStates, JoinState, check_prompt, extend_by_steps, row_indices,
};
use firelight_storage::InputError;

use crate::data::tokens;
use crate::model::LanguageModel;

/// What a language model remembers between two tokens: the window of tokens that it sees, and their keys and values.
///
/// When the window is full, half of it is dropped at its start, behind the tokens that [`WithCache::keeping`] keeps; what is left is read anew from
/// position 0. So is a text that outgrows its rotary frequencies, where those depend on the length. With and without a cache the window is the same,
/// and so is the text.
#[derive(Debug, Clone)]
pub struct LmState {
    tokens: Tensor<2, Int>,
    padding: Option<Tensor<2, Bool>>,
    cache: Option<Cache>,
    max_seq_len: usize,
    /// How many tokens stay at the beginning of the window.
    keep: usize,
    read: usize,
    /// How many tokens were read when the window was last read anew.
    anew: usize,
    /// The shortest and the longest window that the keys were turned in.
    turned: [usize; 2],
}

/// How many tokens a full window drops behind the first `keep`: half of the others.
pub(crate) fn dropped(max_seq_len: usize, keep: usize) -> usize {
    (max_seq_len - keep) / 2
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
        // Rows with padding begin at places of their own: of them, none are kept.
        let keep = if self.padding.is_some() { 0 } else { self.keep };
        let start = keep + dropped(self.max_seq_len, keep);
        let rest = self.max_seq_len - start;
        self.padding = self.padding.take().map(|padding| padding.narrow(1, start, rest));
        let last = self.tokens.clone().narrow(1, start, rest);
        self.tokens = match keep {
            0 => last,
            keep => Tensor::cat(vec![self.tokens.clone().narrow(1, 0, keep), last], 1),
        };
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
    ///
    /// # Panics
    /// If the past is compressed and the windows are not of one length.
    fn join(&mut self, other: Self) {
        let window = self.window().max(other.window());
        let padded = [&*self, &other].into_iter().any(|state| state.padding.is_some() || state.window() < window);
        let rows = [&*self, &other].map(|state| padded_on_the_left(state, window));
        let [(tokens, padding), (more, more_padding)] = rows;
        self.tokens = Tensor::cat(vec![tokens, more], 0);
        self.padding = padded.then(|| Tensor::cat(vec![padding, more_padding], 0));
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
        if padding.is_some() && compression(cache.as_ref()).is_some() {
            return Err(unequal_lengths(prompt).into());
        }
        let (max_seq_len, turned) = (self.max_seq_len(), [read; 2]);
        let mut state = LmState { tokens, padding, cache, max_seq_len, keep: 0, read, anew: 0, turned };
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
        let unread = state.push(tokens, |past, len| self.transformer.cache_stays_valid(past, len));
        self.next_hidden(unread, state.cache.as_mut(), count)
    }
}

/// How the past of a cache is compressed, if it is.
fn compression(cache: Option<&Cache>) -> Option<Compression> {
    cache.and_then(Cache::compression)
}

/// Prompts of several lengths, of which a compressed past would have to leave out the padding.
fn unequal_lengths(prompt: &[Vec<u32>]) -> InputError {
    let lengths = || prompt.iter().map(Vec::len);
    let (shortest, longest) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    let problem = format!(
        "the prompts have {shortest} to {longest} tokens, but with a compressed past only prompts of equal length are read together"
    );
    InputError::new(problem).advise("continue each by itself, or do not compress the past")
}

/// Whether a state has read the beginning of the prompt as the whole prompt is read, and something is left.
fn goes_on(prompt: &[Vec<u32>], state: &LmState) -> bool {
    let is_whole = |compression: Compression| compression.keys(state.window()) == state.window();
    let as_one_pass = compression(state.cache.as_ref()).is_none_or(is_whole);
    prompt.len() == 1 && as_one_pass && (1..prompt[0].len()).contains(&state.len())
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
        if goes_on(&prompt, &state) { self.go_on(prompt, LmState { keep: 0, ..state }) } else { self.prefill(prompt) }
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        self.logits(self.next(token.unsqueeze_dim(1), state, 1)).squeeze_dim(1)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut LmState) -> Tensor<3> {
        let [_, length] = tokens.dims();
        match state.window() + length <= self.max_seq_len() {
            true => self.logits(self.next(tokens, state, length)),
            false => extend_by_steps(self, tokens, state),
        }
    }

    fn room(&self, state: &LmState) -> usize {
        let window = state.window();
        let room = KeyValues::SPARE.min(self.max_seq_len() - window);
        // Steps would compress the past as soon as more of it is old.
        let room = compression(state.cache.as_ref()).map_or(room, |compression| room.min(compression.room(window)));
        // Every cache can go back to nothing, which says nothing of the tokens between.
        let goes_back = state.cache.as_ref().is_none_or(|cache| window > 1 && cache.can_truncate(window - 1));
        let continues = |len: usize| state.turned.iter().all(|&past| self.transformer.cache_stays_valid(past, len));
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

/// How a model that decodes keeps what it has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheKind {
    /// By the KV cache of the model.
    #[default]
    Plain,
    /// By one of which the old part is compressed. It takes less memory and gives other logits.
    Compressed(Compression),
    /// By one that stores keys and values as numbers of a type of its own. It takes less memory and gives nearly the same logits.
    Typed(CacheType),
    /// Not at all: every step reads the whole window again. Slow, and the proof that the cache changes nothing.
    None,
}

/// A language model that decodes with a cache of a kind; by itself it decodes with its plain one.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::Compression;
/// use firelight_generation::{Autoregressive, GenerationError};
/// use firelight_language::{CacheKind, LanguageModelConfig, WithCache};
///
/// let model = LanguageModelConfig::new(65, 32, 4, 2).init(&Device::flex());
/// let kind = CacheKind::Compressed(Compression { recent: 16, rate: 4 });
/// let (logits, _) = WithCache::new(&model, kind).prefill(vec![vec![1, 2, 3]])?; // then steps, as of any model
/// assert_eq!(logits.dims(), [1, 65]);
/// # Ok::<(), GenerationError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WithCache<'a> {
    model: &'a LanguageModel,
    kind: CacheKind,
    keep: usize,
}

impl<'a> WithCache<'a> {
    /// The model with a cache of this kind.
    pub fn new(model: &'a LanguageModel, kind: CacheKind) -> Self {
        Self { model, kind, keep: 0 }
    }

    /// Keeps so many tokens at the beginning of a text that outgrows the context, such as `<s>`: half of the tokens behind them is dropped, and the
    /// text is read anew as if it were these tokens and the last ones. At most half of the context is kept, and nothing of texts of several lengths
    /// that are decoded together. Default 0.
    #[must_use]
    pub fn keeping(mut self, tokens: usize) -> Self {
        self.keep = tokens.min(self.model.max_seq_len() / 2);
        self
    }

    /// An empty cache of its kind.
    ///
    /// # Errors
    /// If it is compressed or of a type, and the model or its device cannot have it so.
    pub(crate) fn cache(&self) -> Result<Option<Cache>, GenerationError> {
        let refused = |error: ConfigError| GenerationError::InvalidOptions { problems: error.problems().to_vec() };
        match self.kind {
            CacheKind::Plain => Ok(Some(self.model.cache())),
            CacheKind::Compressed(compression) => self.model.compressed_cache(compression).map(Some).map_err(refused),
            CacheKind::Typed(cache_type) => self.model.cache_in(cache_type).map(Some).map_err(refused),
            CacheKind::None => Ok(None),
        }
    }
}

impl Autoregressive for WithCache<'_> {
    type Prompt = Vec<Vec<u32>>;
    type State = LmState;

    fn device(&self) -> Device {
        self.model.device()
    }

    fn history(&self, prompt: &Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        prompt.clone()
    }

    /// # Errors
    /// Also if the past is compressed and prompts of several lengths are read together: shorter ones would be padded.
    fn prefill(&self, prompt: Vec<Vec<u32>>) -> Result<(Tensor<2>, LmState), GenerationError> {
        let (logits, state) = self.model.start_logits(&prompt, self.cache()?)?;
        Ok((logits, LmState { keep: self.keep, ..state }))
    }

    fn prefill_rest(&self, prompt: Vec<Vec<u32>>, state: LmState) -> Result<(Tensor<2>, LmState), GenerationError> {
        if goes_on(&prompt, &state) {
            self.model.go_on(prompt, LmState { keep: self.keep, ..state })
        } else {
            self.prefill(prompt)
        }
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        self.model.step(token, state)
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut LmState) -> Tensor<3> {
        self.model.extend(tokens, state)
    }

    fn room(&self, state: &LmState) -> usize {
        self.model.room(state)
    }
}

#[cfg(test)]
mod tests;
