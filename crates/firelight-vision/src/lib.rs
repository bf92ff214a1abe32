//! Vision transformers: labelled images in, a classifier trained by Burn's `Learner`, classes with probabilities out.
//!
//! 1. [`VisionModel`] (model.rs): images `[B, C, H, W]` become logits `[B, classes]`.
//! 2. [`ImageBatch`] and [`ImageBatcher`] (data.rs): normalised images become batches, mixed where that is asked for.
//! 3. [`VisionTask`] (training.rs): the model as Burn trains it; [`Vision`] (run/) says what recipes mean, so that a [`Run`] is a
//!    whole training.
//! 4. [`ImageClassifier`] (inference.rs) loads a run folder and names the class of images, [`ImageEmbedder`] (embedder.rs) makes
//!    vectors of them; [`Rollout`] (rollout.rs) shows what it looked at.
//! 5. [`ImageTextModel`] (image_text/): images and texts in one space, as CLIP; [`ImageTextMatcher`] compares them.
//!
//! Without the feature `train` only the model and the classification are built, and `burn-train` is not.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use firelight_vision::{VisionConfig, VitSize};
//!
//! let device = Device::flex();
//! let names = ["cat", "owl"].map(str::to_string).to_vec();
//! let model = VisionConfig::of_small_images(VitSize::Tiny, names, 1, [28, 28]).init(&device);
//! assert_eq!(model.forward(Tensor::zeros([3, 1, 28, 28], &device)).dims(), [3, 2]); // [B, classes]
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod data;
mod embedder;
mod encoder;
mod image_text;
mod inference;
mod model;
mod rollout;
#[cfg(feature = "train")]
mod run;
#[cfg(feature = "train")]
mod training;

#[cfg(feature = "train")]
pub use burn::train::Interrupter;
pub use data::{ImageBatch, ImageBatcher, Partners};
pub use embedder::ImageEmbedder;
pub use encoder::{ImageEncoder, ImageEncoderConfig};
#[cfg(feature = "train")]
pub use firelight_training::RunRequest;
pub use image_text::{ImageTextConfig, ImageTextMatcher, ImageTextModel, TextTower};
pub use inference::{Classification, ImageClassifier};
pub use model::{VisionConfig, VisionModel, VitSize};
pub use rollout::Rollout;
#[cfg(feature = "train")]
pub use run::{ImageData, ImageRecipe, Run, TrainedRun, Vision, VisionModelRecipe, VisionRecipe, images_recipe};
#[cfg(feature = "train")]
pub use training::{ImageAnswers, VisionTask};

/// The name of this task in `recipe.toml` and `config.json`.
pub const TASK: &str = "vision";

/// The name of an encoder of images in `config.json`.
pub const IMAGE_ENCODER_TASK: &str = "image_encoder";

/// The name of a model of images and texts in `config.json`.
pub const IMAGE_TEXT_TASK: &str = "image_text";
