//! The models that a published checkpoint can be, each a model of this workspace with the task of its run folder.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use firelight_classification::{
    MASKED_LANGUAGE_TASK, MaskedLanguageModel, MaskedLanguageModelConfig, QUESTION_ANSWERING_TASK, ReadingConfig,
    SentenceEncoder, SentenceEncoderConfig, SpanReader, SpanReaderConfig, TEXT_ENCODER_TASK, TOKEN_CLASSIFICATION_TASK,
    TextClassifier, TextClassifierConfig, TextEncoderConfig, TokenClassifier, TokenClassifierConfig,
};
use firelight_core::{
    AdapterConfig, ConfigError, ParameterEntry, ParameterReport, TransformerConfig, WeightEntry, build_in_blocks,
    onto_device, weights_of,
};
use firelight_data::{Normalization, Resizing};
use firelight_language::{LanguageModel, LanguageModelConfig};
use firelight_seq2seq::{Seq2SeqConfig, Seq2SeqModel, Tying};
use firelight_storage::{Checkpoint, InputError, ModelFolder, StorageError, TaskError, shortened};
use firelight_vision::{
    IMAGE_ENCODER_TASK, IMAGE_TEXT_TASK, ImageEncoder, ImageEncoderConfig, ImageTextConfig, ImageTextModel,
    VisionConfig, VisionModel,
};

use crate::{HubFolder, Plan, PublishedModel, Weights, locate};

macro_rules! structures {
    ($($(#[doc = $doc:literal])+ $Name:ident($Config:ty) => $Model:ty, $task:expr, [$($($stack:ident).+),+], [$($adapters:tt)+];)+) => {
        /// What a checkpoint is, as its run folder's `config.json` says it.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Structure {
            $($(#[doc = $doc])+ $Name($Config),)+
        }

        /// A model with the weights of a checkpoint: a plain Burn module of its sort.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        #[expect(clippy::large_enum_variant, reason = "there is one per checkpoint, and Burn's modules cannot be boxed")]
        pub enum AutoModel {
            $($(#[doc = $doc])+ $Name($Model),)+
        }

        impl Structure {
            /// The task of its run folder.
            pub fn task(&self) -> &'static str {
                match self {
                    $(Self::$Name(_) => $task,)+
                }
            }

            /// What of it cannot be built.
            pub fn problems(&self) -> Vec<String> {
                match self {
                    $(Self::$Name(config) => ConfigError::list(config.validate()),)+
                }
            }

            /// What the `config.json` of a run folder says.
            ///
            /// # Errors
            /// If it is missing or damaged, or of a task that no published checkpoint has.
            pub fn of_run(folder: &ModelFolder) -> Result<Self, TaskError> {
                let task = folder.task().unwrap_or_default();
                $(if task == $task {
                    let config: $Config = folder.read_config($task)?;
                    TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
                    return Ok(Self::$Name(config));
                })+
                let problem = format!("is of the task \"{}\", which no published checkpoint has", shortened(&task));
                Err(InputError::in_file(folder.path(), problem).advise("give another model").into())
            }

            /// Its stacks: of an encoder-decoder the decoder's first, of a model of images and texts that of images.
            pub fn stacks(&self) -> Vec<&TransformerConfig> {
                match self {
                    $(Self::$Name(config) => vec![$(&config.$($stack).+),+],)+
                }
            }

            /// Its stacks, to be changed.
            pub(crate) fn stacks_mut(&mut self) -> Vec<&mut TransformerConfig> {
                match self {
                    $(Self::$Name(config) => vec![$(&mut config.$($stack).+),+],)+
                }
            }

            /// Its low-rank adapters, where it has some.
            pub(crate) fn adapters(&self) -> Option<&AdapterConfig> {
                match self {
                    $(Self::$Name(config) => config.$($adapters)+.as_ref(),)+
                }
            }

            /// Removes the low-rank adapters.
            pub(crate) fn remove_adapters(&mut self) {
                match self {
                    $(Self::$Name(config) => config.$($adapters)+ = None,)+
                }
            }

            /// Its parameters, of which none is made.
            ///
            /// # Panics
            /// If it has [`problems`](Self::problems).
            pub fn parameters(&self) -> Vec<ParameterEntry> {
                let device = Device::flex();
                match self {
                    $(Self::$Name(config) => ParameterReport::of(&config.init(&device)).entries().to_vec(),)+
                }
            }

            /// Writes `config.json` of a run folder.
            ///
            /// # Errors
            /// If it cannot be written.
            pub fn write(&self, folder: &ModelFolder) -> Result<(), StorageError> {
                match self {
                    $(Self::$Name(config) => folder.write_config(self.task(), config),)+
                }
            }

            /// The model with the weights that a plan finds, as numbers of a type.
            ///
            /// # Errors
            /// As [`Plan::load`].
            ///
            /// # Panics
            /// If it has [`problems`](Self::problems).
            pub fn load(
                &self,
                plan: &Plan,
                weights: &Weights,
                device: &Device,
                dtype: FloatDType,
            ) -> Result<AutoModel, StorageError> {
                Ok(match self {
                    $(Self::$Name(config) => AutoModel::$Name(plan.load(config.init(device), weights, dtype)?),)+
                })
            }

            /// The model with the weights of a file of a run folder. Blocks of few bits stay blocks on the device flex.
            ///
            /// # Errors
            /// As [`ModelFolder::load_model`].
            ///
            /// # Panics
            /// If it has [`problems`](Self::problems).
            pub fn load_run(
                &self,
                folder: &ModelFolder,
                weights: &Path,
                device: &Device,
            ) -> Result<AutoModel, StorageError> {
                Ok(match self {
                    $(Self::$Name(config) => {
                        let build = |names: &_| build_in_blocks(names, device, |device| config.init(device));
                        let place = |model| onto_device(model, device);
                        AutoModel::$Name(folder.load_model((weights, FloatDType::F32), build, place)?)
                    })+
                })
            }
        }

        impl AutoModel {
            /// Number of scalars of all parameters.
            pub fn num_params(&self) -> usize {
                match self {
                    $(Self::$Name(model) => model.num_params(),)+
                }
            }
        }
    };
}

structures! {
    /// Continues a text.
    Language(LanguageModelConfig) => LanguageModel, firelight_language::TASK, [transformer], [adapters];
    /// Makes vectors of tokens and texts.
    Encoder(SentenceEncoderConfig) => SentenceEncoder, TEXT_ENCODER_TASK, [encoder.transformer], [encoder.adapters];
    /// Says which token stood in the place of a mask.
    Masked(MaskedLanguageModelConfig) => MaskedLanguageModel, MASKED_LANGUAGE_TASK, [encoder.transformer], [encoder.adapters];
    /// One answer for a text.
    Sequence(TextClassifierConfig) => TextClassifier, firelight_classification::TASK, [encoder.transformer], [encoder.adapters];
    /// One answer for every token.
    Token(TokenClassifierConfig) => TokenClassifier, TOKEN_CLASSIFICATION_TASK, [encoder.transformer], [encoder.adapters];
    /// Writes a target after a source.
    Seq2Seq(Seq2SeqConfig) => Seq2SeqModel, firelight_seq2seq::TASK, [stacks.decoder, stacks.encoder], [adapters];
    /// One of several classes for an image.
    Image(VisionConfig) => VisionModel, firelight_vision::TASK, [vit.transformer], [adapters];
    /// Makes vectors of images.
    ImageEncoder(ImageEncoderConfig) => ImageEncoder, IMAGE_ENCODER_TASK, [vit.transformer], [adapters];
    /// Compares images with texts.
    ImageText(ImageTextConfig) => ImageTextModel, IMAGE_TEXT_TASK, [vit.transformer, text], [adapters];
    /// The answer to a question as a stretch of the text.
    Span(SpanReaderConfig) => SpanReader, QUESTION_ANSWERING_TASK, [encoder.transformer], [encoder.adapters];
}

impl Structure {
    /// What a folder holds, whether a run folder or a folder as Hugging Face writes it.
    ///
    /// # Errors
    /// If it is neither, or as [`PublishedModel::open`] and [`of_run`](Self::of_run).
    pub fn of_folder(path: impl AsRef<Path>) -> Result<Self, TaskError> {
        let path = path.as_ref();
        match HubFolder::is_one(path) {
            true => Ok(PublishedModel::open(path)?.structure().clone()),
            false => Self::of_run(&ModelFolder::open(path)?),
        }
    }

    /// Takes away what `config.json` does not say: dropout of heads, how vectors of texts are made, what pixels are divided by; and the id of
    /// padding, with which nothing is computed.
    pub(crate) fn remove_settings(&mut self) {
        if let Some(encoder) = self.encoder_mut() {
            encoder.uncounted_padding = None;
        }
        match self {
            Self::Sequence(model) => model.head.dropout = 0.0,
            Self::Token(model) => model.head.dropout = 0.0,
            Self::Span(model) => model.reading = ReadingConfig::default(),
            Self::Encoder(model) => {
                let plain = SentenceEncoderConfig::new(model.encoder.clone()).with_pooler(model.pooler);
                *model = plain.with_discriminator(model.discriminator);
            }
            _ => {}
        }
        let nothing = Normalization { mean: Vec::new(), std: Vec::new() };
        *self = self.clone().with_pixels((Resizing::default(), nothing));
    }

    /// Sets how images come to size and pixels become numbers, where it reads any.
    pub(crate) fn with_pixels(mut self, pixels: (Resizing, Normalization)) -> Self {
        match &mut self {
            Self::Image(model) => (model.resizing, model.normalization) = pixels,
            Self::ImageEncoder(model) => (model.resizing, model.normalization) = pixels,
            Self::ImageText(model) => (model.resizing, model.normalization) = pixels,
            _ => {}
        }
        self
    }

    /// The same without low-rank adapters.
    pub(crate) fn without_adapters(&self) -> Self {
        let mut base = self.clone();
        base.remove_adapters();
        base
    }

    /// The matrices that its run folder can hold in blocks: those of a language model.
    pub(crate) fn matrices(&self) -> Vec<WeightEntry> {
        match self {
            Self::Language(model) => weights_of(&model.init(&Device::flex())),
            _ => Vec::new(),
        }
    }

    /// What makes vectors of its texts, where that is all that it reads.
    pub(crate) fn encoder(&self) -> Option<&TextEncoderConfig> {
        match self {
            Self::Encoder(model) => Some(&model.encoder),
            Self::Masked(model) => Some(&model.encoder),
            Self::Sequence(model) => Some(&model.encoder),
            Self::Token(model) => Some(&model.encoder),
            Self::Span(model) => Some(&model.encoder),
            _ => None,
        }
    }

    fn encoder_mut(&mut self) -> Option<&mut TextEncoderConfig> {
        match self {
            Self::Encoder(model) => Some(&mut model.encoder),
            Self::Masked(model) => Some(&mut model.encoder),
            Self::Sequence(model) => Some(&mut model.encoder),
            Self::Token(model) => Some(&mut model.encoder),
            Self::Span(model) => Some(&mut model.encoder),
            _ => None,
        }
    }

    /// The longest text that it reads, in tokens.
    pub(crate) fn longest_text(&self) -> Option<usize> {
        self.reads_text().then(|| self.stacks().last().map(|stack| stack.max_seq_len)).flatten()
    }

    /// How many tokens it has vectors of, where it reads or writes text; an encoder-decoder has one vocabulary for both.
    pub(crate) fn vocab_size(&self) -> Option<usize> {
        match self {
            Self::Language(model) => Some(model.vocab_size),
            Self::Seq2Seq(model) => Some(model.source_vocab_size.min(model.target_vocab_size)),
            Self::ImageText(model) => Some(model.vocab_size),
            _ => self.encoder().map(|encoder| encoder.vocab_size),
        }
    }

    /// Whether it has a tokenizer.
    pub(crate) fn reads_text(&self) -> bool {
        !matches!(self, Self::Image(_) | Self::ImageEncoder(_))
    }

    /// Whether it writes text, token by token.
    pub(crate) fn writes_text(&self) -> bool {
        matches!(self, Self::Language(_) | Self::Seq2Seq(_))
    }

    /// What `config.json` does not say: whether an encoder alone comes with a pooler, a discriminator with its head, and a decoder with a head of its
    /// own, or its bias.
    pub(crate) fn fit_to_tensors(&mut self, has: impl Fn(&str) -> bool) {
        if let Self::Encoder(model) = self {
            model.pooler = model.pooler.filter(|_| has("pooler.dense.weight"));
            model.discriminator = model.discriminator.filter(|_| has("discriminator.dense.weight"));
        }
        if let Self::Seq2Seq(model) = self
            && has("head.weight")
        {
            // The one who knows is the file: `config.json` says that heads are tied which are not.
            model.tying = Tying::Embeddings;
        }
        if let Self::Seq2Seq(model) = self {
            // `BartModel` has no bias, and `transformers` takes zeros where it adds the head.
            model.head.bias &= has("head.bias");
        }
        if let Self::ImageEncoder(model) = self {
            model.pooler &= has("pooler.weight");
        }
    }
}

/// A model by its name on the hub, its folder or its file: see [`locate`] for what names mean, and [`AutoModel::open`].
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use firelight_pretrained::{AutoModel, load};
///
/// let device = Device::flex();
/// let name = "../../tests/fixtures/pretrained/gpt2-plain"; // or "openai-community/gpt2"
/// let AutoModel::Language(model) = load(name, &device)? else { panic!("no language model") };
/// let logits = model.forward(Tensor::<2, Int>::from_ints([[3, 1, 4]], &device));
/// assert_eq!(logits.dims(), [1, 3, 48]); // as many as the vocabulary has tokens
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
///
/// # Errors
/// If there is no such model, it cannot be downloaded, or as [`AutoModel::open`].
pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<AutoModel, TaskError> {
    AutoModel::open(locate(model, |_| ())?, &Checkpoint::Last, device)
}

impl AutoModel {
    /// Opens a model, whether a run folder or a folder as Hugging Face writes it.
    ///
    /// # Errors
    /// If it is neither, or as [`PublishedModel::open`] and [`PublishedModel::load`].
    pub fn open(path: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let path = path.as_ref();
        if HubFolder::is_one(path) {
            return PublishedModel::open(path)?.load(device);
        }
        let folder = ModelFolder::open(path)?;
        let structure = Structure::of_run(&folder)?;
        Ok(structure.load_run(&folder, &folder.weights(checkpoint)?, device)?)
    }
}
