//! Captioning: from an image to a text that says what it shows. Here are the model (model.rs), its loss (training.rs) and what a
//! trained one is asked (captioner.rs); run/ says what recipes mean.

mod captioner;
mod model;
#[cfg(feature = "train")]
mod run;
#[cfg(feature = "train")]
mod training;

pub use captioner::{Caption, CaptionWord, Captioner};
pub use model::{CaptionConfig, CaptionModel};
#[cfg(feature = "train")]
pub use run::{CaptionData, CaptionModelRecipe, CaptionOptions, CaptionRecipe, Captioning, ImageTextRecipe};
#[cfg(feature = "train")]
pub use training::CaptionBatch;

/// The name of this task in `recipe.toml` and `config.json`.
pub const CAPTIONING_TASK: &str = "captioning";
