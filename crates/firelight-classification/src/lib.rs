//! Text encoders with heads: texts in; labels, tokens, spans or vectors out.
//!
//! 1. [`TextEncoder`] (encoder.rs): tokens `[B, T]`, of one segment or of two, become vectors `[B, T, D]`; presets from BERT to
//!    modern encoders.
//! 2. [`Pooler`] (pooling.rs): one vector of a text, `[B, D]`.
//! 3. heads/: answers for a text ([`SequenceHead`]), for every token ([`TokenHead`]), a stretch of the text ([`SpanHead`]), and
//!    the tokens behind masks ([`MaskedLanguageHead`]).
//! 4. [`TextClassifier`] and its siblings (model.rs): an encoder with a head. [`SequenceLossConfig`] (loss.rs) charges answers for
//!    whole texts.
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

mod encoder;
mod heads;
mod loss;
mod model;
mod pooling;

pub use encoder::{TextEncoder, TextEncoderConfig, TextInput};
pub use heads::{
    HeadActivation, MaskedLanguageHead, MaskedLanguageHeadConfig, SequenceHead, SequenceHeadConfig, Span, SpanHead,
    SpanHeadConfig, SpanLogits, TokenHead, TokenHeadConfig,
};
pub use loss::{ClassWeights, Outcome, SequenceLoss, SequenceLossConfig, SequenceTargets};
pub use model::{
    MaskedLanguageModel, MaskedLanguageModelConfig, SpanReader, SpanReaderConfig, TextClassifier, TextClassifierConfig,
    TokenClassifier, TokenClassifierConfig,
};
pub use pooling::{
    AttentionPooling, ClassPooling, MaxPooling, MeanPooling, Pooler, PoolerConfig, Pooling, PoolingConfig,
};
