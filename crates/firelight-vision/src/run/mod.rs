//! Vision transformers as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how images become batches.
//! `firelight_training::Run` does the rest.

mod corpus;
#[cfg(test)]
mod estimate_tests;
mod evaluate;
mod model_recipe;
mod recipe;
mod score;
mod self_check;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder, TransformerConfig};
use firelight_storage::{TaskError, listed};
use firelight_tasks::{cost_of, patch_grid, problems, structure};
use firelight_training::{BatchCost, BuiltIn, Check, Evaluator, PositionGrid, Problem, Shared, StackPath, Task};

pub use corpus::ImageData;
pub use model_recipe::VisionModelRecipe;
pub use recipe::{ImageRecipe, VisionRecipe, images_recipe};

use crate::model::{VIT, VisionConfig, VisionModel};
use crate::training::VisionTask;

/// A training of a vision transformer that is ready to begin.
pub type Run = firelight_training::Run<Vision>;

/// What the training of a vision transformer leaves behind.
pub type TrainedRun = firelight_training::TrainedRun<Vision>;

/// From an image to its class.
#[derive(Debug, Clone, Copy)]
pub struct Vision;

impl Task for Vision {
    const NAME: &'static str = crate::TASK;
    const TARGET: &'static str = "image";
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "images", text: recipe::IMAGES }];
    const HEAD: &'static [&'static str] = &[
        "vit.head",
        "vit.distillation.head",
        // What an encoder of images alone has behind it, and one that stands beside a tower of texts.
        "pooler",
        "text",
        "image_projection",
        "text_projection",
        "log_scale",
    ];
    const STACK: Option<StackPath> = Some(StackPath::of::<TransformerConfig>(&["vit", "transformer"]));

    type Data = ImageRecipe;
    type Model = VisionModelRecipe;
    type Loss = LossConfig;
    type Config = VisionConfig;
    type DataModule = ImageData;
    type Net = VisionModel;
    type Error = TaskError;

    fn judge(recipe: &VisionRecipe) -> Vec<Problem> {
        let model = recipe.model.sketch(recipe.data.image_size).validate();
        let adapters = recipe.model.adapters().map_or(Ok(()), |adapters| adapters.validate());
        problems([
            ("model", ConfigError::collect([model, adapters], [])),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ])
    }

    fn config(recipe: &VisionRecipe, corpus: &ImageData, source: &Path) -> Result<VisionConfig, TaskError> {
        let vit = recipe.model.config(corpus.training().shape(), corpus.classes().len());
        let (classes, normalization) = (corpus.classes().to_vec(), corpus.normalization().clone());
        let config =
            VisionConfig { normalization, adapters: recipe.model.adapters(), ..VisionConfig::new(classes, vit) };
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    structure!(adapters, |config, params| config.vit.init_with(&params.scope(VIT)));

    fn other_head(found: &VisionConfig, config: &VisionConfig) -> Option<String> {
        let words = |config: &VisionConfig| format!("{} classes ({})", config.classes.len(), listed(&config.classes));
        (found.classes != config.classes)
            .then(|| format!("is for {}, but the data has {}", words(found), words(config)))
    }

    fn grid(config: &VisionConfig) -> Option<PositionGrid> {
        patch_grid(&config.vit)
    }

    fn evaluator(corpus: &ImageData, _recipe: &VisionRecipe) -> Box<dyn Evaluator<VisionTask>> {
        Box::new(Shared(score::ClassScores::of(corpus.classes())))
    }

    /// A token is a patch, or one before them. The logits of an image are shared among its tokens.
    fn batch_cost(recipe: &VisionRecipe, config: &VisionConfig, _device: &Device) -> BatchCost {
        let (cost, tokens) = (config.init_with(&ParamBuilder::counting()).cost(), config.tokens());
        let logits_per_token = config.vit.n_classes.div_ceil(tokens);
        cost_of(&cost, logits_per_token, recipe.training.batch_size.saturating_mul(tokens))
    }

    fn self_check(run: &Run) -> Result<Vec<Check>, TaskError> {
        self_check::self_check(run)
    }
}
