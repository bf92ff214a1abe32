//! Text encoders with heads: texts in; labels, tokens, spans or vectors out.
//!
//! 1. [`TextEncoder`] (encoder.rs): tokens `[B, T]`, of one segment or of two, become vectors `[B, T, D]`; presets from BERT to
//!    modern encoders.
//! 2. [`Pooler`] (pooling.rs): one vector of a text, `[B, D]`.
//! 3. heads/: answers for a text ([`SequenceHead`]), for every token ([`TokenHead`]), a stretch of the text ([`SpanHead`]), and
//!    the tokens behind masks ([`MaskedLanguageHead`]).
//! 4. [`TextClassifier`] and its siblings (model.rs): an encoder with a head. [`SequenceLossConfig`] (loss.rs) computes
//!    the loss of answers for whole texts.
//! 5. [`ClassifierTask`] (training.rs): the model as Burn trains it; [`Classification`] (run/) says what recipes mean, so that a
//!    [`Run`] is a whole training.
//! 6. [`Classifier`] loads a run folder and names the label of every text, its labels or its number; [`Embedder`] turns texts into vectors.
//!    [`LongText`] says how both read texts that are longer than the model reads.
//! 7. [`MaskedLanguage`] (pretraining/) is the training of a masked language model, whose batches masking.rs makes, or of another
//!    [`PretrainingModel`] (objectives/) on texts without labels; pretrained.rs
//!    begins a classifier from its run, as a whole or by low-rank adapters, which `firelight_training::merge` adds into the weights.
//! 8. [`MaskFiller`] (mask_filler.rs) finds what stands behind the masks of texts.
//! 9. [`TokenClassification`] (token_classification/) is the training of a [`TokenClassifier`] on tagged sentences, and [`Tagger`] (tagger.rs)
//!    loads its run and tags the words of texts; [`QuestionAnswering`] (question_answering/) that of a [`SpanReader`] on questions about texts,
//!    and [`QuestionAnswerer`] (question_answerer.rs) answers them.
//!
//! Without the feature `train` only the models and what asks them are built, and `burn-train` is not.
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use firelight_classification::{TextClassifierConfig, TextEncoderConfig, TextInput};
//! use firelight_core::Pass;
//!
//! let device = Device::flex();
//! let model = TextClassifierConfig::new(TextEncoderConfig::bert(100, 32, 4, 2), ["bad", "good"]).init(&device);
//! let texts = TextInput::new(Tensor::<2, Int>::ones([3, 7], &device));
//! assert_eq!(model.forward(&texts, &mut Pass::default()).dims(), [3, 2]); // [B, C]
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod classifier;
mod data;
mod embedder;
mod encoder;
mod heads;
mod long_text;
mod loss;
mod mask_filler;
#[cfg(feature = "train")]
mod masking;
mod model;
mod objectives;
#[cfg(feature = "train")]
mod on_encoder;
mod pooling;
mod pretrained;
#[cfg(feature = "train")]
mod pretraining;
mod question_answerer;
#[cfg(feature = "train")]
mod question_answering;
mod reading;
#[cfg(feature = "train")]
mod records;
mod sentence_encoder;
#[cfg(feature = "train")]
mod sequence_classification;
mod tagger;
#[cfg(all(test, feature = "train"))]
mod tiny;
#[cfg(feature = "train")]
mod token_classification;
#[cfg(feature = "train")]
mod training;
mod vocabulary;

#[cfg(feature = "train")]
pub use burn::train::Interrupter;
pub use classifier::{Classifier, Prediction};
pub use data::{EncodedText, EncodedWords, Example, QuestionWindow, Target, TextBatch, TextBatcher};
pub use embedder::{Embedder, cosine_similarities};
pub use encoder::{TextEncoder, TextEncoderConfig, TextInput};
#[cfg(feature = "train")]
pub use firelight_training::RunRequest;
pub use heads::{
    HeadActivation, HeadTransform, HeadTransformConfig, MaskedLanguageHead, MaskedLanguageHeadConfig,
    ReplacedTokenHead, SequenceHead, SequenceHeadConfig, Span, SpanHead, SpanHeadConfig, SpanLogits, TokenHead,
    TokenHeadConfig,
};
pub use long_text::{LongText, PartPooling};
pub use loss::{ClassWeights, ProblemType, SequenceCriterion, SequenceLoss, SequenceLossConfig, SequenceTargets};
pub use mask_filler::{FilledMask, MaskFiller};
#[cfg(feature = "train")]
pub use masking::{MaskedBatch, MaskedBatcher, MaskedExample, MaskedLanguageTask};
pub use model::{
    MaskedLanguageModel, MaskedLanguageModelConfig, ReadingConfig, SpanReader, SpanReaderConfig, TextClassifier,
    TextClassifierConfig, TokenClassifier, TokenClassifierConfig,
};
pub use objectives::{
    Generator, NextSentenceLogits, NextSentenceModel, PretrainingConfig, PretrainingModel, PretrainingObjective,
    ReplacedTokenModel, ReplacedTokens,
};
#[cfg(feature = "train")]
pub use on_encoder::{EncoderKeys, EncoderRecipe};
pub use pooling::{
    AttentionPooling, ClassPooling, LastPooling, MaxPooling, MeanPooling, MeanSqrtLenPooling, Pooler, PoolerConfig,
    Pooling, PoolingConfig, WeightedMeanPooling,
};
#[cfg(feature = "train")]
pub use pretraining::{
    EncoderModelRecipe, MaskedData, MaskedLanguage, MaskedLanguageRecipe, NextSentenceBatch, PretrainingBatch,
    PretrainingKeys, PretrainingTask, ReplacedBatch, TextsRecipe,
};
pub use question_answerer::{FoundAnswer, QuestionAnswerer};
#[cfg(feature = "train")]
pub use question_answering::{
    QuestionAnswering, QuestionAnsweringRecipe, QuestionAnsweringRun, QuestionsRecipe, SpanAnswers, SpanBatch,
    SpanBatcher, SpanExample, SpanKeys, SpanLossConfig, SpanModelRecipe, SpanTask,
};
#[cfg(feature = "train")]
pub use records::{RecordData, RecordTask, Source};
pub use sentence_encoder::{SentenceDenseConfig, SentenceEncoder, SentenceEncoderConfig};
#[cfg(feature = "train")]
pub use sequence_classification::{
    Classification, ClassificationRecipe, ClassifierKeys, ClassifierModelRecipe, LabelledRecipe, Run, Targets,
    TrainedRun, texts_recipe,
};
pub use tagger::{Entity, TaggedToken, Tagger, Tagging};
#[cfg(feature = "train")]
pub use token_classification::{
    TagAnswers, TaggedBatch, TaggedBatcher, TaggedExample, TaggedRecipe, TokenClassification,
    TokenClassificationRecipe, TokenClassificationRun, TokenClassifierTask, TokenKeys, TokenModelRecipe,
};
#[cfg(feature = "train")]
pub use training::{ClassifierTask, TextAnswers};
pub use vocabulary::TextVocabulary;

/// The name of this task in `recipe.toml` and `config.json`.
pub const TASK: &str = "classification";

/// The name of an encoder without a task of its own in `config.json`.
pub const TEXT_ENCODER_TASK: &str = "text_encoder";

/// The name of the classification of tokens in `recipe.toml` and `config.json`.
pub const TOKEN_CLASSIFICATION_TASK: &str = "token_classification";

/// The name of the answering of questions in `recipe.toml` and `config.json`.
pub const QUESTION_ANSWERING_TASK: &str = "question_answering";

/// The name of the training of a masked language model in `recipe.toml` and `config.json`.
pub const MASKED_LANGUAGE_TASK: &str = "masked_language";
