//! A trained model and its tokenizer, loaded from a run folder: all that a user of a model needs.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Device;
use firelight_data::Tokenizer;
use firelight_generation::{GeneratedText, GenerationOptions, generate_text};
use firelight_storage::{Checkpoint, ModelFolder, check_size, load_weights};

use crate::error::LanguageError;
use crate::inference::Uncached;
use crate::model::{LanguageModel, LanguageModelConfig};

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
        if tokenizer.vocab_size() != config.vocab_size {
            let (found, tokenizer) = (config.vocab_size, tokenizer.vocab_size());
            return Err(LanguageError::Vocabulary { path: folder.config(), found, tokenizer });
        }
        check_size(&weights, config.num_params())?;
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

/// The model after the last step, with its tokenizer.
#[cfg(feature = "train")]
impl From<crate::TrainedRun> for TextGenerator {
    fn from(run: crate::TrainedRun) -> Self {
        Self::new(run.model, run.corpus.tokenizer)
    }
}
