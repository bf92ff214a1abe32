//! Sequence to sequence: pairs of texts in, an encoder-decoder trained by Burn's `Learner`, translations out.
//!
//! 1. [`Seq2SeqModel`] (model.rs): a source `[B, S]` and a target `[B, T]` become logits `[B, T, V]`.
//! 2. [`PairBatch`] and [`PairBatcher`] (data.rs): pairs of ids become batches; teacher forcing is built here, once.
//! 3. [`Seq2SeqTask`] (training.rs): the model as Burn trains it; [`Seq2Seq`] (run/) says what recipes mean, so that a [`Run`]
//!    is a whole training.
//! 4. inference.rs: the model implements [`Autoregressive`](firelight_generation::Autoregressive), the source read once;
//!    [`Translator`] loads a run folder and translates lines, and scores given targets (score.rs).
//!
//! 5. [`Captioning`] (captioning/) is the same from images to texts, with a [`CaptionModel`] and a [`Captioner`].
//!
//! Without the feature `train` only the model and the translation are built, and `burn-train` is not.
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use firelight_seq2seq::Seq2SeqConfig;
//!
//! let device = Device::flex();
//! let model = Seq2SeqConfig::new(100, 32, 4, 2).init(&device);
//! let (source, target) = (Tensor::<2, Int>::ones([2, 7], &device), Tensor::<2, Int>::ones([2, 5], &device));
//! assert_eq!(model.forward(source, None, target).dims(), [2, 5, 100]); // [B, T, V]
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "images")]
mod captioning;
mod data;
mod inference;
mod model;
#[cfg(feature = "train")]
pub(crate) mod run;
mod score;
#[cfg(feature = "train")]
mod training;
mod translator;
mod vocabulary;

#[cfg(feature = "train")]
pub use burn::train::Interrupter;
#[cfg(feature = "images")]
pub use captioning::{CAPTIONING_TASK, Caption, CaptionConfig, CaptionModel, CaptionWord, Captioner};
#[cfg(all(feature = "images", feature = "train"))]
pub use captioning::{
    CaptionBatch, CaptionData, CaptionModelRecipe, CaptionOptions, CaptionRecipe, Captioning, ImageTextRecipe,
};
pub use data::{PairBatch, PairBatcher};
#[cfg(feature = "train")]
pub use firelight_training::RunRequest;
pub use inference::{Seq2SeqState, Uncached};
pub use model::{Seq2SeqConfig, Seq2SeqModel, Tying};
#[cfg(feature = "train")]
pub use run::{
    Evaluation, PairRecipe, PairText, Run, Seq2Seq, Seq2SeqModelRecipe, Seq2SeqRecipe, TrainedRun, dates_recipe,
};
#[cfg(feature = "train")]
pub use training::{Seq2SeqTask, TargetAnswers};
pub use translator::{AlignedTokens, Draws, TranslateOptions, Translation, Translator};
pub use vocabulary::Vocabulary;

/// The name of this task in `recipe.toml` and `config.json`.
pub const TASK: &str = "seq2seq";
