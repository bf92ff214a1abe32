//! Vision transformers as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how images become batches.
//! `firelight_training::Run` does the rest.

mod corpus;
mod estimate;
mod evaluate;
mod model_recipe;
mod recipe;
mod score;
mod self_check;

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use firelight_core::{
    ConfigError, LossConfig, ParamBuilder, PatchPosition, check_adapters, merge_adapters, resize_positions,
};
use firelight_storage::listed;
use firelight_training::metrics::classes::draw_confusion;
use firelight_training::{BuiltIn, Check, Estimate, Evaluator, PositionGrid, Problem, Task, measure};

pub use corpus::ImageCorpus;
pub use evaluate::evaluate;
pub use model_recipe::VisionModelRecipe;
pub use recipe::{ImageRecipe, VisionRecipe, images_recipe};

use crate::error::VisionError;
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
    const HEAD: &'static [&'static str] = &["vit.head", "vit.distillation.head"];

    type Data = ImageRecipe;
    type Model = VisionModelRecipe;
    type Loss = LossConfig;
    type Config = VisionConfig;
    type DataModule = ImageCorpus;
    type Net = VisionModel;
    type Error = VisionError;

    fn judge(recipe: &VisionRecipe) -> Vec<Problem> {
        let model = recipe.model.sketch(recipe.data.image_size).validate();
        let adapters = recipe.model.adapters().map_or(Ok(()), |adapters| adapters.validate());
        [
            Problem::list("model", ConfigError::list(model)),
            Problem::list("model", ConfigError::list(adapters)),
            Problem::list("loss", ConfigError::list(recipe.loss.validate())),
            Problem::list("data", ConfigError::list(recipe.data.validate())),
        ]
        .concat()
    }

    fn config(recipe: &VisionRecipe, corpus: &ImageCorpus, source: &Path) -> Result<VisionConfig, VisionError> {
        let vit = recipe.model.config(corpus.training().shape(), corpus.classes().len());
        let (classes, normalization) = (corpus.classes().to_vec(), corpus.normalization().clone());
        let config = VisionConfig { classes, normalization, adapters: recipe.model.adapters(), vit };
        VisionError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    fn problems(config: &VisionConfig) -> Vec<String> {
        ConfigError::list(config.validate())
    }

    fn model(config: &VisionConfig, seed: u64, device: &Device) -> VisionModel {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    fn inspect(config: &VisionConfig, _device: &Device) -> Vec<Problem> {
        let vit = |params: &ParamBuilder| config.vit.init_with(&params.scope(VIT));
        Problem::list("model", ConfigError::list(check_adapters(config.adapters.as_ref(), vit)))
    }

    fn has_adapters(config: &VisionConfig) -> bool {
        config.adapters.is_some()
    }

    fn merged(config: &VisionConfig, model: VisionModel) -> (VisionConfig, VisionModel) {
        let bare = VisionConfig { adapters: None, ..config.clone() };
        (bare, config.adapters.iter().fold(model, merge_adapters))
    }

    fn other_head(found: &VisionConfig, config: &VisionConfig) -> Option<String> {
        let words = |config: &VisionConfig| format!("{} classes ({})", config.classes.len(), listed(&config.classes));
        (found.classes != config.classes)
            .then(|| format!("is for {}, but the data has {}", words(found), words(config)))
    }

    fn grid(config: &VisionConfig) -> Option<PositionGrid> {
        let is_learned = config.vit.patch_position == PatchPosition::Learned;
        let (before, grid) = (config.vit.pooling.tokens(), config.vit.grid());
        is_learned.then_some(PositionGrid { parameter: "vit.position", before, grid, resize: resize_positions })
    }

    fn evaluator(_corpus: &ImageCorpus, _recipe: &VisionRecipe) -> Box<dyn Evaluator<VisionTask>> {
        Box::new(score::ClassScores::default())
    }

    fn figures(model: &VisionModel, corpus: &ImageCorpus) -> Result<Vec<(String, String)>, VisionError> {
        let task = VisionTask::new(model.valid(), LossConfig::default());
        let mut scores = score::ClassScores::default();
        let (images, normalization) = (corpus.validation().clone(), corpus.normalization().clone());
        measure(&task, corpus::loader_of(images, normalization, &model.device()).as_ref(), &mut scores)?;
        let heading = "Confusion matrix of the validation images: a row for each true class";
        Ok(vec![(heading.to_string(), draw_confusion(&scores.confusion, corpus.classes()))])
    }

    fn estimate(recipe: &VisionRecipe, config: &VisionConfig, _device: &Device) -> Estimate {
        estimate::estimate(config, recipe)
    }

    fn self_check(
        recipe: &VisionRecipe,
        config: &VisionConfig,
        corpus: &ImageCorpus,
        device: &Device,
    ) -> Result<Vec<Check>, VisionError> {
        self_check::self_check(&VisionConfig { adapters: None, ..config.clone() }, recipe.seed, corpus, device)
    }
}
