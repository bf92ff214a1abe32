//! A trained model and its tokenizer, loaded from a run folder: all that a user of a model needs.

mod batch;
mod contrast;
mod draft;
mod overflow;
mod search;

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::{Device, FloatDType};
use firelight_core::{CacheType, Compression, ConfigError, Importance};
use firelight_data::{SpecialRole, TextStream, Tokenizer};
use firelight_generation::{
    Autoregressive, GeneratedText, GenerationDefaults, GenerationOptions, Prefix, Processing, TokenStream,
    WithVocabulary, decode_texts,
};
use firelight_storage::{Checkpoint, InputError, ModelFolder, TaskError};

use self::contrast::Amateur;
use self::draft::Guesser;
use crate::inference::{CacheKind, LmState, WithCache};
use crate::model::{LanguageModel, LanguageModelConfig};
use crate::quantized::{BlockMix, load_weighted};

pub use self::contrast::AmateurOptions;
pub use self::overflow::ContextOverflow;

/// A trained model and its tokenizer: prompts in, text out.
#[derive(Debug)]
pub struct TextGenerator {
    model: LanguageModel,
    tokenizer: Tokenizer,
    /// Of a published model.
    defaults: Option<GenerationDefaults>,
    guesser: Option<Guesser>,
    amateur: Option<Amateur>,
    cache: CacheKind,
    overflow: ContextOverflow,
    /// How many first tokens stay in a text that slides, where the caller says so.
    keep: Option<usize>,
}

/// What a generator has read, so that a text that begins alike is read from where it differs.
pub type Past = Prefix<LmState>;

/// The ids of a prompt, one row, and the stream that decodes the ids after it.
type ReadPrompt = (Vec<Vec<u32>>, TextStream);

impl TextGenerator {
    /// Puts a model and its tokenizer together.
    pub fn new(model: LanguageModel, tokenizer: Tokenizer) -> Self {
        let (cache, overflow) = (CacheKind::Plain, ContextOverflow::default());
        Self { model, tokenizer, defaults: None, guesser: None, amateur: None, cache, overflow, keep: None }
    }

    /// Loads the last weights of a run onto Burn's default device: the one that `BURN_DEVICE` names, else Burn's choice
    /// among the backends compiled in, which it does not probe. Programs that carry a GPU backend to machines without the
    /// GPU choose the device themselves and call [`load_from`](Self::load_from).
    ///
    /// # Errors
    /// If the folder is no language model, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        Self::load_in(folder, checkpoint, device, FloatDType::F32)
    }

    /// As [`load_from`](Self::load_from), with all weights as numbers of another type, in which everything is then computed. Half
    /// precision takes half the memory, and may choose another token where two are nearly as probable.
    ///
    /// # Errors
    /// As [`load_from`](Self::load_from).
    pub fn load_in(
        folder: impl AsRef<Path>,
        checkpoint: &Checkpoint,
        device: &Device,
        dtype: FloatDType,
    ) -> Result<Self, TaskError> {
        let folder = ModelFolder::open(folder)?;
        let config: LanguageModelConfig = folder.read_config(crate::TASK)?;
        TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
        let weights = folder.weights(checkpoint)?;
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        tokenizer.fits(config.vocab_size, &folder.config())?;
        let model = load_weighted(&folder, &config, (weights.as_path(), dtype), device)?;
        let generator = Self::new(model, tokenizer);
        match folder.generation() {
            path if path.is_file() => Ok(generator.with_defaults(GenerationDefaults::of_file(path)?)),
            _ => Ok(generator),
        }
    }

    /// Applies the generation defaults of a published model: its end tokens end a text, and the tokens that it bans are never
    /// written. A prompt gets the tokens in front that the tokenizer's file asks for, such as LLaMA's `<s>`.
    pub fn with_defaults(mut self, defaults: GenerationDefaults) -> Self {
        self.guesser = self.guesser.map(|guesser| guesser.without_banned(&defaults));
        self.defaults = Some(defaults);
        self
    }

    /// The generation defaults of a published model. Its samplers and penalties are not applied; a caller who wants them puts them
    /// into the options.
    pub fn defaults(&self) -> Option<&GenerationDefaults> {
        self.defaults.as_ref()
    }

    /// Computes with matrices in blocks of 8 or 4 bits, which take a quarter of the memory or less, and may choose another token where two
    /// are nearly as probable.
    pub fn quantize(self, mix: &BlockMix) -> Self {
        self.quantize_by(mix, &Importance::new())
    }

    /// As [`quantize`](Self::quantize), where errors of weights count as much as `importance` says, which
    /// [`importance`](Self::importance) measures on a text.
    ///
    /// # Panics
    /// If the importance is that of another model.
    pub fn quantize_by(mut self, mix: &BlockMix, importance: &Importance) -> Self {
        self.model = mix.apply_by(self.model, importance);
        self
    }

    /// Recomputes the whole window at every step; the text stays the same.
    pub fn without_cache(mut self) -> Self {
        self.cache = CacheKind::None;
        self
    }

    /// Compresses the KV cache of what is old of a text: less memory, another text. A [`contrast`](Self::contrast) reads with a plain one.
    ///
    /// # Errors
    /// If a number of the compression is 0, no layer of the model can compress its past, or the cache has a type of its own.
    pub fn with_compression(self, compression: Compression) -> Result<Self, TaskError> {
        self.with_cache(CacheKind::Compressed(compression))
    }

    /// Stores the keys and values of the KV cache as numbers of a type: less memory, and a text that may differ where two tokens are nearly
    /// as probable. A [`contrast`](Self::contrast) reads with a plain one.
    ///
    /// # Errors
    /// If no layer of the model keeps keys and values, its device has no numbers of the type, or the past is compressed.
    pub fn with_cache_type(self, cache_type: CacheType) -> Result<Self, TaskError> {
        match (cache_type, self.cache) {
            (CacheType::Computed, CacheKind::Compressed(_)) => Ok(self),
            (CacheType::Computed, _) => self.with_cache(CacheKind::Plain),
            _ => self.with_cache(CacheKind::Typed(cache_type)),
        }
    }

    fn with_cache(mut self, cache: CacheKind) -> Result<Self, TaskError> {
        if let (CacheKind::Compressed(_), CacheKind::Typed(_)) | (CacheKind::Typed(_), CacheKind::Compressed(_)) =
            (self.cache, cache)
        {
            return Err(compressed_in_a_type().into());
        }
        self.cache = cache;
        self.decoder().cache()?;
        Ok(self)
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
    pub fn generate(&self, prompt: &str, options: &GenerationOptions) -> Result<GeneratedText, TaskError> {
        self.generate_streaming(prompt, options, |_| ControlFlow::Continue(()))
    }

    /// Continues `prompt` and calls `observe` with every piece of the text as it comes. `observe` may stop the generation with
    /// [`ControlFlow::Break`].
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_streaming(
        &self,
        prompt: &str,
        options: &GenerationOptions,
        observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, TaskError> {
        let mut prompt = self.read(prompt)?.0;
        self.generate_after(&mut Past::default(), prompt.swap_remove(0), options, observe)
    }

    /// Continues a text of ids. What `past` has read of its beginning is not read again; afterwards `past` holds what was read of
    /// this text.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_after(
        &self,
        past: &mut Past,
        prompt: Vec<u32>,
        options: &GenerationOptions,
        observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, TaskError> {
        self.write(&self.real(&self.decoder()), past, prompt, &self.until_end(options), observe)
    }

    fn write<M: Autoregressive<Prompt = Vec<Vec<u32>>, State = LmState>>(
        &self,
        model: &M,
        past: &mut Past,
        prompt: Vec<u32>,
        options: &GenerationOptions,
        mut observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<GeneratedText, TaskError> {
        let prompt = self.readable(prompt, self.kept());
        let (text, fitting) = (self.tokenizer.stream_after(&prompt), self.fitting(options, prompt.len()));
        let tokens = TokenStream::after(model, past, prompt, &fitting)?;
        let mut tokens = self.guessing(tokens, &fitting)?;
        let mut written = decode_texts(&mut tokens, vec![text], |_, piece| observe(piece))?.swap_remove(0);
        *past = tokens.into_prefix();
        written.stop_reason = overflow::reason(written.stop_reason, written.ids.len(), options.max_new_tokens);
        Ok(written)
    }

    fn until_end(&self, options: &GenerationOptions) -> GenerationOptions {
        let mut options = options.clone();
        self.end(&mut options.stop_tokens, &mut options.processing);
        options
    }

    /// Adds the tokenizer's end token, the defaults of a published model and the amateur to options.
    fn end(&self, stop_tokens: &mut Vec<u32>, processing: &mut Processing) {
        stop_tokens.extend(self.tokenizer.role(SpecialRole::End));
        if let Some(defaults) = &self.defaults {
            stop_tokens.extend(defaults.end_tokens());
            defaults.add_to(processing, self.tokenizer.vocab_size());
        }
        if let Some(amateur) = &self.amateur {
            processing.custom.push(amateur.processor());
        }
    }

    /// The tokens in front of every text. Only a published model has them: it was trained with those of its tokenizer.
    pub(crate) fn front(&self) -> Vec<u32> {
        let frame = self.defaults.as_ref().and_then(|_| self.tokenizer.frame());
        frame.map_or_else(Vec::new, |frame| frame.front().to_vec())
    }

    /// The ids of a prompt as the model reads it, with the tokens in front that a published model asks for.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>, TaskError> {
        Ok([self.front(), self.tokenizer.encode(prompt)?].concat())
    }

    /// Encodes a prompt, and begins the stream that decodes what follows it.
    fn read(&self, prompt: &str) -> Result<ReadPrompt, TaskError> {
        let prompt = self.readable(self.encode(prompt)?, self.kept());
        let text = self.tokenizer.stream_after(&prompt);
        Ok((vec![prompt], text))
    }

    /// The model with the cache that was asked for.
    fn decoder(&self) -> WithCache<'_> {
        WithCache::new(&self.model, self.cache).keeping(self.kept())
    }

    /// The model restricted to the ids of the tokenizer.
    fn real<'m, M>(&self, model: &'m M) -> WithVocabulary<'m, M> {
        let real = WithVocabulary::new(model, self.tokenizer.vocab_size());
        self.defaults.iter().fold(real, WithVocabulary::with_defaults)
    }
}

/// Means of keys that are rounded would be rounded again each time that the past is compressed.
fn compressed_in_a_type() -> InputError {
    InputError::new("a KV cache whose past is compressed cannot have a cache type")
        .advise("leave out the compression or the cache type")
}

/// The model after the last step, with its tokenizer.
#[cfg(feature = "train")]
impl From<crate::TrainedRun> for TextGenerator {
    fn from(run: crate::TrainedRun) -> Self {
        Self::new(run.model, run.corpus.tokenizer)
    }
}

#[cfg(test)]
mod tests;
