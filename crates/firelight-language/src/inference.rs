//! A trained model continues a prompt: the decoding interface of [`LanguageModel`], and [`TextGenerator`], which is all
//! that a user needs.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_core::{Cache, Pass, SequenceInput};
use firelight_data::Tokenizer;
use firelight_generation::{
    Autoregressive, DecodeState, GeneratedText, GenerationError, GenerationOptions, generate_text,
};
use firelight_storage::{Checkpoint, ModelFolder, load_weights};

use crate::data::tokens;
use crate::error::LanguageError;
use crate::model::{LanguageModel, LanguageModelConfig};

/// What a language model remembers between two tokens: the window of tokens that it sees, and their keys and values.
///
/// When the window is full its start moves on by half a context; what is left is read anew from position 0. With and
/// without a cache the window is the same, and so is the text.
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
    /// cache or its start has moved.
    fn push(&mut self, token: Tensor<1, Int>) -> (Tensor<2, Int>, Option<Tensor<2, Bool>>) {
        let token = token.unsqueeze_dim::<2>(1); // [B, 1]
        self.read += 1;
        let moves = self.tokens.dims()[1] == self.max_seq_len;
        if moves {
            self.move_start();
        }
        self.tokens = Tensor::cat(vec![self.tokens.clone(), token.clone()], 1);
        self.padding = self.padding.take().map(|padding| {
            let visible = Tensor::<2, Int>::zeros(token.dims(), &padding.device()).bool();
            Tensor::cat(vec![padding, visible], 1)
        });
        if moves || self.cache.is_none() { (self.tokens.clone(), self.padding.clone()) } else { (token, None) }
    }

    fn move_start(&mut self) {
        let start = self.max_seq_len / 2;
        let kept = self.max_seq_len - start;
        let keep = |x: Tensor<2, Int>| x.narrow(1, start, kept);
        self.padding = self.padding.take().map(|padding| padding.narrow(1, start, kept));
        self.tokens = keep(self.tokens.clone());
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
    }
}

impl DecodeState for LmState {
    fn len(&self) -> usize {
        self.read
    }

    fn select_rows(&mut self, rows: Tensor<1, Int>) {
        self.tokens = self.tokens.clone().select(0, rows.clone());
        self.padding = self.padding.take().map(|padding| padding.select(0, rows.clone()));
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
        let hidden = self.hidden(tokens, &SequenceInput { padding, memory: None }, &mut pass);
        self.logits(hidden.narrow(1, last, 1)).squeeze_dim(1)
    }

    fn start(&self, prompt: Vec<Vec<u32>>, cache: Option<Cache>) -> Result<(Tensor<2>, LmState), GenerationError> {
        self.check(&prompt)?;
        let read = prompt.iter().map(Vec::len).max().unwrap_or(0);
        let (tokens, padding) = left_padded(&prompt, read, &self.embedding.weight.device());
        let mut state = LmState { tokens, padding, cache, max_seq_len: self.max_seq_len(), read };
        let logits = self.next_logits((state.tokens.clone(), state.padding.clone()), state.cache.as_mut());
        Ok((logits, state))
    }

    fn check(&self, prompt: &[Vec<u32>]) -> Result<(), GenerationError> {
        let (max_seq_len, vocab_size) = (self.max_seq_len(), self.vocab_size());
        if prompt.is_empty() || prompt.iter().any(Vec::is_empty) {
            return Err(GenerationError::EmptyPrompt);
        }
        if let Some(row) = prompt.iter().find(|row| row.len() > max_seq_len) {
            return Err(GenerationError::PromptTooLong { tokens: row.len(), max_seq_len });
        }
        match prompt.iter().flatten().find(|id| **id as usize >= vocab_size) {
            Some(id) => Err(GenerationError::UnknownToken { id: *id, vocab_size }),
            None => Ok(()),
        }
    }

    fn next(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        let unread = state.push(token);
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

    fn prefill(&self, prompt: Vec<Vec<u32>>) -> Result<(Tensor<2>, LmState), GenerationError> {
        self.0.start(prompt, None)
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut LmState) -> Tensor<2> {
        self.0.next(token, state)
    }
}

/// A trained model and its tokenizer: prompts in, text out.
#[derive(Debug)]
pub struct TextGenerator {
    model: LanguageModel,
    tokenizer: Tokenizer,
    cached: bool,
}

impl TextGenerator {
    /// Puts a model and its tokenizer together.
    pub fn new(model: LanguageModel, tokenizer: Tokenizer) -> Self {
        Self { model, tokenizer, cached: true }
    }

    /// Loads the last weights of a run onto Burn's default device: the one that `BURN_DEVICE` names, else Burn's choice
    /// among the backends compiled in, which it does not probe. Programs that carry a GPU backend to machines without the
    /// GPU choose the device themselves and call [`load_from`](Self::load_from).
    ///
    /// # Errors
    /// If the folder is no language model, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, LanguageError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(
        folder: impl AsRef<Path>,
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<Self, LanguageError> {
        let folder = ModelFolder::open(folder)?;
        let config: LanguageModelConfig = folder.read_config(crate::TASK)?;
        config.validate().map_err(|error| LanguageError::Config { path: folder.config(), error })?;
        let weights = folder.weights(checkpoint)?;
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        let mut model = config.init(device);
        load_weights(&mut model, weights)?;
        Ok(Self::new(model, tokenizer))
    }

    /// Recomputes the whole window at every step; the text stays the same.
    pub fn without_cache(mut self) -> Self {
        self.cached = false;
        self
    }

    /// The model.
    pub fn model(&self) -> &LanguageModel {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Continues `prompt`.
    ///
    /// # Errors
    /// If the prompt is empty, longer than the context, or has a character that the tokenizer does not know, or if an
    /// option is out of range.
    pub fn generate(&self, prompt: &str, options: &GenerationOptions) -> Result<GeneratedText, LanguageError> {
        self.generate_streaming(prompt, options, |_| ControlFlow::Continue(()))
    }

    /// Continues `prompt` and hands over every piece of the text as it comes; `observe` may break off.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_streaming(
        &self,
        prompt: &str,
        options: &GenerationOptions,
        observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, LanguageError> {
        let prompt = vec![self.tokenizer.encode(prompt)?];
        let text = match self.cached {
            true => generate_text(&self.model, prompt, &self.tokenizer, options, observe)?,
            false => generate_text(&Uncached(&self.model), prompt, &self.tokenizer, options, observe)?,
        };
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::PositionConfig;
    use firelight_generation::generate;

    fn model(position: PositionConfig) -> LanguageModel {
        let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(8);
        let wide =
            firelight_core::WeightInit { weight: firelight_core::Init::Normal { std: 0.4 }, scale_residual: false };
        config.with_transformer(|stack| stack.with_position(position).with_init(wide)).init(&Device::default())
    }

    fn greedy<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, prompt: &[&[u32]]) -> Vec<Vec<u32>> {
        let prompt = prompt.iter().map(|row| row.to_vec()).collect();
        let options = GenerationOptions::new(30).greedy();
        let rows = generate(model, prompt, &options, |_| ControlFlow::Continue(())).unwrap();
        rows.into_iter().map(|row| row.ids).collect()
    }

    #[test]
    fn the_cache_changes_no_text_even_far_beyond_the_context() {
        for position in
            [PositionConfig::None, PositionConfig::Learned, PositionConfig::Sinusoidal, PositionConfig::rotary()]
        {
            let model = model(position);
            assert_eq!(greedy(&model, &[&[1, 2, 3]]), greedy(&Uncached(&model), &[&[1, 2, 3]]), "{position:?}");
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
    fn the_start_moves_by_half_a_context() {
        let model = model(PositionConfig::Learned);
        let (_, mut state) = model.prefill(vec![(0..8).collect()]).unwrap();
        let token = || Tensor::<1, Int>::from_ints([9], &Device::default());
        assert_eq!(state.push(token()).0.try_to_vec_as::<i64>().unwrap(), [4, 5, 6, 7, 9]);
        assert_eq!(state.push(token()).0.dims(), [1, 1]);
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
