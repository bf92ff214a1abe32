//! GPT-style language models: text in, a decoder trained by Burn's `Learner`, text out.
//!
//! 1. [`LanguageModel`] (model.rs): tokens `[B, T]` become logits `[B, T, V]`.
//! 2. [`LmBatch`] and [`LmBatcher`] (data.rs): windows of a text, or its documents, become batches.
//! 3. [`LmTask`] (training.rs): the model as Burn trains it; [`Language`] (run/) says what recipes mean, so that a [`Run`]
//!    is a whole training.
//! 4. inference.rs: the model implements [`Autoregressive`](firelight_generation::Autoregressive); [`TextGenerator`] loads
//!    a run folder and continues prompts, and scores given texts by [`ScoreOptions`] (score.rs); [`ChatSession`] (chat/) is a
//!    conversation by a chat template; [`BlockMix`] (quantized.rs) puts its matrices into blocks of 8 or 4 bits, by what
//!    calibration.rs measures on a text.
//!
//! Without the feature `train` only the model and the generation are built, and `burn-train` is not.
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use firelight_language::LanguageModelConfig;
//!
//! let device = Device::flex();
//! let model = LanguageModelConfig::new(65, 32, 4, 2).with_max_seq_len(16).init(&device);
//! let tokens = Tensor::<2, Int>::zeros([1, 8], &device); // [B, T]
//! assert_eq!(model.forward(tokens).dims(), [1, 8, 65]); // [B, T, V]
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod calibration;
mod chat;
mod data;
mod inference;
mod model;
mod quantized;
#[cfg(feature = "train")]
mod run;
mod score;
mod text_generator;
#[cfg(feature = "train")]
mod training;

#[cfg(feature = "train")]
pub use burn::train::Interrupter;
pub use calibration::CalibrationOptions;
pub use chat::{ChatAnswer, ChatMessage, ChatSession};
pub use data::{LmBatch, LmBatcher};
#[cfg(feature = "train")]
pub use firelight_training::RunRequest;
pub use inference::{CacheKind, LmState, WithCache};
pub use model::{LanguageModel, LanguageModelConfig};
pub use quantized::{BlockMix, KeptFloat, Quantized, write_formats};
#[cfg(feature = "train")]
pub use run::{
    DataRecipe, Evaluation, Language, LanguageRecipe, LmText, ModelRecipe, Packing, Run, TrainedRun, stories_recipe,
};
pub use score::ScoreOptions;
pub use text_generator::{AmateurOptions, ContextOverflow, Past, TextGenerator};
#[cfg(feature = "train")]
pub use training::LmTask;

/// The name of this task in `recipe.toml` and `config.json`.
pub const TASK: &str = "language";
