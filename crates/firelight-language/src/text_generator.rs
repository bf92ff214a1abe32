//! A trained model and its tokenizer, loaded from a run folder: all that a user of a model needs.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Device;
use firelight_core::ConfigError;
use firelight_data::{SpecialRole, TextStream, Tokenizer};
use firelight_generation::{
    GeneratedText, GenerationDefaults, GenerationOptions, WithVocabulary, generate_text, generate_text_samples,
};
use firelight_storage::{Checkpoint, ModelFolder, TaskError, load_weights};

use crate::inference::Uncached;
use crate::model::{LanguageModel, LanguageModelConfig};

/// A trained model and its tokenizer: prompts in, text out.
#[derive(Debug)]
pub struct TextGenerator {
    model: LanguageModel,
    tokenizer: Tokenizer,
    /// Of a published model.
    defaults: Option<GenerationDefaults>,
    cached: bool,
}

impl TextGenerator {
    /// Puts a model and its tokenizer together.
    pub fn new(model: LanguageModel, tokenizer: Tokenizer) -> Self {
        Self { model, tokenizer, defaults: None, cached: true }
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
        let folder = ModelFolder::open(folder)?;
        let config: LanguageModelConfig = folder.read_config(crate::TASK)?;
        TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
        let weights = folder.weights(checkpoint)?;
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        tokenizer.fits(config.vocab_size, &folder.config())?;
        let mut model = config.init(device);
        load_weights(&mut model, weights)?;
        let generator = Self::new(model, tokenizer);
        match folder.generation() {
            path if path.is_file() => Ok(generator.with_defaults(GenerationDefaults::of_file(path)?)),
            _ => Ok(generator),
        }
    }

    /// What the makers of a published model say of its decoding: its end tokens end a text, and what they ban is not written. A prompt
    /// gets the tokens in front that the tokenizer's file puts there, such as LLaMA's `<s>`.
    pub fn with_defaults(mut self, defaults: GenerationDefaults) -> Self {
        self.defaults = Some(defaults);
        self
    }

    /// What the makers of a published model say of its decoding, where it is one. Of their samplers and penalties nothing is used unless it is
    /// in the options.
    pub fn defaults(&self) -> Option<&GenerationDefaults> {
        self.defaults.as_ref()
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
    pub fn generate(&self, prompt: &str, options: &GenerationOptions) -> Result<GeneratedText, TaskError> {
        self.generate_streaming(prompt, options, |_| ControlFlow::Continue(()))
    }

    /// Continues `prompt` `samples` times, each time with other draws of the same seed. The first is what
    /// [`generate`](Self::generate) returns; greedy choice gives the same text every time.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_samples(
        &self,
        prompt: &str,
        samples: usize,
        options: &GenerationOptions,
    ) -> Result<Vec<GeneratedText>, TaskError> {
        let (options, (prompt, text)) = (&self.until_end(options), self.read(prompt)?);
        let (cached, uncached) = (self.real(&self.model), &Uncached(&self.model));
        let texts = match self.cached {
            true => generate_text_samples(&cached, prompt, samples, &text, options)?,
            false => generate_text_samples(&self.real(uncached), prompt, samples, &text, options)?,
        };
        Ok(texts)
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
    ) -> Result<GeneratedText, TaskError> {
        let (options, (prompt, text)) = (&self.until_end(options), self.read(prompt)?);
        let (cached, uncached) = (self.real(&self.model), &Uncached(&self.model));
        let text = match self.cached {
            true => generate_text(&cached, prompt, text, options, observe)?,
            false => generate_text(&self.real(uncached), prompt, text, options, observe)?,
        };
        Ok(text)
    }

    /// A text ends where the tokenizer has a token for its end, too, and where the model's makers say so.
    fn until_end(&self, options: &GenerationOptions) -> GenerationOptions {
        let mut options = options.clone();
        options.stop_tokens.extend(self.tokenizer.role(SpecialRole::End));
        if let Some(defaults) = &self.defaults {
            options.stop_tokens.extend(defaults.end_tokens());
            defaults.add_to(&mut options.processing, self.tokenizer.vocab_size());
        }
        options
    }

    /// The ids of a prompt and what decodes the ids behind it. A published model has learnt to read its tokenizer's tokens in front.
    fn read(&self, prompt: &str) -> Result<(Vec<Vec<u32>>, TextStream), TaskError> {
        let frame = self.defaults.as_ref().and_then(|_| self.tokenizer.frame());
        let front = frame.map_or_else(Vec::new, |frame| frame.front().to_vec());
        let prompt = [front, self.tokenizer.encode(prompt)?].concat();
        let text = self.tokenizer.stream_after(&prompt);
        Ok((vec![prompt], text))
    }

    /// A model that chooses among the ids of the tokenizer.
    fn real<'m, M>(&self, model: &'m M) -> WithVocabulary<'m, M> {
        let real = WithVocabulary::new(model, self.tokenizer.vocab_size());
        self.defaults.iter().fold(real, WithVocabulary::with_defaults)
    }
}

/// The model after the last step, with its tokenizer.
#[cfg(feature = "train")]
impl From<crate::TrainedRun> for TextGenerator {
    fn from(run: crate::TrainedRun) -> Self {
        Self::new(run.model, run.corpus.tokenizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_data::TokenizerConfig;
    use firelight_generation::StopReason;
    use firelight_storage::{Existing, save_weights};

    fn config() -> LanguageModelConfig {
        let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
        let config = LanguageModelConfig::new(9, 16, 2, 2).with_max_seq_len(12);
        config.with_transformer(|stack| stack.with_init(wide))
    }

    fn generator() -> TextGenerator {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        TextGenerator::new(config().init_with(&ParamBuilder::new(&Device::default(), 0)), tokenizer)
    }

    fn texts(found: &[GeneratedText]) -> Vec<&str> {
        found.iter().map(|sample| sample.text.as_str()).collect()
    }

    #[test]
    fn samples_of_one_seed_differ_and_the_first_is_the_text_of_the_seed() {
        let (generator, options) = (generator(), GenerationOptions::new(20).with_temperature(1.0).with_seed(3));
        let found = generator.generate_samples("abc", 5, &options).unwrap();
        assert_eq!(found[0], generator.generate("abc", &options).unwrap());
        let distinct: std::collections::BTreeSet<&str> = texts(&found).into_iter().collect();
        assert_eq!((found.len(), distinct.len()), (5, 5), "{distinct:?}");
        assert_eq!(texts(&generator.generate_samples("abc", 2, &options).unwrap()), texts(&found)[..2]);
        let other = generator.generate_samples("abc", 5, &options.clone().with_seed(4)).unwrap();
        assert_ne!(texts(&other), texts(&found));
        // Beyond the context the window moves, with a cache and without.
        assert_eq!(texts(&generator.without_cache().generate_samples("abc", 5, &options).unwrap()), texts(&found));
    }

    #[test]
    fn a_text_comes_in_pieces_until_the_caller_has_enough() {
        let (generator, options) = (generator(), GenerationOptions::new(20).with_seed(3));
        let whole = generator.generate("abc", &options).unwrap();
        let streamed = |most: usize| {
            let mut pieces = Vec::new();
            let found = generator.generate_streaming("abc", &options, |piece| {
                pieces.push(piece.to_string());
                if pieces.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            (found.unwrap(), pieces)
        };
        let (found, pieces) = streamed(usize::MAX);
        assert_eq!((pieces.len(), pieces.concat(), &found), (20, whole.text.clone(), &whole));
        let (found, pieces) = streamed(4);
        assert_eq!((found.stopped, &found.ids[..]), (StopReason::Caller, &whole.ids[..4]));
        assert_eq!(pieces.concat(), found.text);
    }

    #[test]
    fn a_model_may_know_more_ids_than_its_tokenizer() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
        let (generator, options) =
            (TextGenerator::new(model, tokenizer), GenerationOptions::new(20).with_temperature(2.0));
        let found = generator.generate_samples("ab", 3, &options).unwrap();
        assert!(found.iter().all(|sample| sample.text.len() == 20 && sample.ids.iter().all(|&id| id < 3)), "{found:?}");
        assert_eq!(generator.without_cache().generate("ab", &options).unwrap(), found[0]);
    }

    #[test]
    fn a_text_ends_with_the_token_for_its_end() {
        let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh").unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["</s>"]).unwrap();
        let (generator, options) =
            (TextGenerator::new(model, tokenizer), GenerationOptions::new(99).with_temperature(2.0));
        let found = generator.generate("ab", &options).unwrap();
        assert_eq!((found.stopped, found.ids.contains(&8)), (StopReason::StopToken(8), false));
    }

    #[test]
    fn a_published_model_ends_where_its_makers_say_and_begins_with_the_frame() {
        let tokenizer =
            Tokenizer::train(&TokenizerConfig::Char, "abcdef").unwrap().with_special_tokens(&["<s>", "</s>"]);
        let tokenizer = tokenizer.unwrap().with_frame(6, 7).unwrap().0;
        let model = || config().init_with(&ParamBuilder::new(&Device::default(), 0));
        let options = GenerationOptions::new(99).with_temperature(2.0);
        let generated = |generator: &TextGenerator, prompt| generator.generate(prompt, &options).unwrap();
        let (plain, published) = (
            TextGenerator::new(model(), tokenizer.clone()),
            TextGenerator::new(model(), tokenizer)
                .with_defaults(serde_json::from_str(r#"{"eos_token_id": [0, 1, 2], "suppress_tokens": [3]}"#).unwrap()),
        );
        let found = generated(&published, "ab");
        assert!(matches!(found.stopped, StopReason::StopToken(id) if [0, 1, 2, 7].contains(&id)), "{found:?}");
        assert!(found.ids.iter().all(|id| [4, 5, 6].contains(id)), "{found:?}");
        let fronts = [&plain, &published].map(|generator| generator.read("ab").unwrap().0.remove(0));
        assert_eq!(fronts, [vec![0, 1], vec![6, 0, 1]]);
    }

    #[test]
    fn a_prompt_that_cannot_be_read_is_refused() {
        let (generator, options) = (generator(), GenerationOptions::new(3));
        for (prompt, expected) in [("", "the prompt is empty"), ("abz", "the character 'z' at position 2")] {
            let error = generator.generate_samples(prompt, 2, &options).unwrap_err();
            assert!(error.is_user_error() && error.to_string().starts_with(expected), "{error}");
            assert_eq!(generator.generate(prompt, &options).unwrap_err().to_string(), error.to_string());
        }
    }

    #[test]
    fn a_model_comes_back_from_its_folder_and_lacks_nothing_that_changes_a_text() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        let (before, options) = (generator(), GenerationOptions::new(20).greedy());
        before.tokenizer().save(folder.tokenizer()).unwrap();
        folder.write_config(crate::TASK, &config()).unwrap();
        save_weights(before.model(), folder.weights_path(&Checkpoint::Last)).unwrap();
        let load = || TextGenerator::load_from(folder.path(), &Checkpoint::Last, &Device::default());
        assert_eq!(load().unwrap().generate("abc", &options).unwrap(), before.generate("abc", &options).unwrap());

        let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.config()).unwrap()).unwrap();
        for (part, key) in [("", "tied"), ("/transformer", "norm"), ("/transformer", "position")] {
            let mut fields = whole.clone();
            fields.pointer_mut(part).and_then(|part| part.as_object_mut()).unwrap().remove(key).unwrap();
            std::fs::write(folder.config(), fields.to_string()).unwrap();
            let text = load().unwrap_err().to_string();
            let path = format!("{part}/{key}")[1..].replace('/', ".");
            assert!(text.contains("config.json`") && text.contains(&format!("missing field `{path}`")), "{text}");
        }
    }
}
