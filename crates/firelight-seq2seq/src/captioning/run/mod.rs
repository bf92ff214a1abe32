//! Models of captions as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how images with captions become batches.
//! `firelight_training::Run` does the rest.

mod data;
mod evaluate;
mod recipe;
mod self_check;
#[cfg(test)]
mod tests;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder};
use firelight_data::Image;
use firelight_storage::TaskError;
use firelight_tasks::{cost_of, patch_grid, problems, structure};
use firelight_training::{
    BatchCost, BuiltIn, Check, Evaluator, PositionGrid, Problem, Run, Shared, Task, TrainingModule, deal_to_all,
};

use super::CAPTIONING_TASK;
use super::captioner::Captioner;
use super::model::{CaptionConfig, CaptionModel, STACKS};
use crate::run::score::{TargetScores, Written};
pub use data::CaptionData;
pub use evaluate::CaptionOptions;
pub use recipe::{CaptionModelRecipe, CaptionRecipe, ImageTextRecipe};

/// From an image to a text that describes it.
#[derive(Debug, Clone, Copy)]
pub struct Captioning;

impl Task for Captioning {
    const NAME: &'static str = CAPTIONING_TASK;
    const BUILT_IN: &'static [BuiltIn] = &recipe::BUILT_IN;
    // What a model of another task has behind its encoder of images, and the keys that there are those of its encoder alone.
    const HEAD: &'static [&'static str] = &["vit.head", "vit.distillation.head"];
    const HEAD_KEYS: &'static [&'static str] = &["max_seq_len", "n_image_layers", "patterns", "position"];

    type Data = ImageTextRecipe;
    type Model = CaptionModelRecipe;
    type Loss = LossConfig;
    type Config = CaptionConfig;
    type DataModule = CaptionData;
    type Net = CaptionModel;
    type Error = TaskError;

    fn judge(recipe: &CaptionRecipe) -> Vec<Problem> {
        let sections = problems([
            ("model", recipe.model.sketch().validate()),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ]);
        sections.into_iter().chain(recipe::foreign(recipe)).collect()
    }

    fn config(recipe: &CaptionRecipe, data: &CaptionData, source: &Path) -> Result<CaptionConfig, TaskError> {
        let images = (data.training().images.shape(), data.normalization().clone());
        let vocabulary = data.vocabulary();
        let config = recipe.model.config(images, vocabulary.target().vocab_size(), vocabulary.ends().start);
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    structure!(adapters, |config, params| {
        let [vit, decoder] = STACKS.map(|name| params.scope(name));
        (config.vit.init_with(&vit), config.decoder.init_with(&decoder))
    });

    fn grid(config: &CaptionConfig) -> Option<PositionGrid> {
        patch_grid(&config.vit)
    }

    fn evaluator(data: &CaptionData, recipe: &CaptionRecipe) -> Box<dyn Evaluator<TrainingModule<CaptionModel>>> {
        let count = recipe.data.described.min(data.validation().captions.len());
        Box::new(Shared(TargetScores::new((count > 0).then(|| descriptions(recipe, data, count, 1)))))
    }

    /// A token is one of a caption, with its share of an image.
    fn batch_cost(recipe: &CaptionRecipe, config: &CaptionConfig, _device: &Device) -> BatchCost {
        let (model, length) = (config.init_with(&ParamBuilder::counting()), config.decoder.max_seq_len);
        // The costs of both sides count one token each; of an image there are more, or fewer, than of its caption.
        let (image, further) = (model.vit.cost(), config.image_tokens() as f64 / length as f64 - 1.0);
        let mut cost = model.cost(length);
        cost.flops_per_token += further * image.flops_per_token;
        cost.activations_per_token =
            cost.activations_per_token.saturating_add_signed((further * image.activations_per_token as f64) as isize);
        cost_of(&cost, config.vocab_size, recipe.training.batch_size.saturating_mul(length))
    }

    fn self_check(run: &Run<Self>) -> Result<Vec<Check>, TaskError> {
        self_check::self_check(run)
    }
}

/// Captions of the first `count` validation images, beside the true ones as the tokenizer gives them back.
pub(super) fn descriptions(
    recipe: &CaptionRecipe,
    data: &CaptionData,
    count: usize,
    beams: usize,
) -> Written<CaptionModel> {
    let (vocabulary, validation) = (data.vocabulary().clone(), data.validation());
    let again = |caption: &String| vocabulary.target().encode(caption).map(|ids| vocabulary.target().decode(&ids));
    let targets: Vec<String> =
        validation.captions[..count].iter().map(|caption| again(caption).unwrap_or(caption.clone())).collect();
    let images: Vec<Image> = (0..count).map(|index| validation.images.image(index)).collect();
    let shape = (validation.images.shape(), data.normalization().clone());
    let config = recipe.model.config(shape, vocabulary.target().vocab_size(), vocabulary.ends().start);
    // The images that one process describes together, as their true captions.
    let batches: Vec<Vec<String>> = targets.chunks(Captioner::BATCH).map(<[String]>::to_vec).collect();
    Written::new(targets, recipe.data.metrics.clone(), move |model: &CaptionModel, ranks| {
        let captioner = Captioner::new(model.clone(), config.clone(), vocabulary.clone());
        let found = deal_to_all::<Vec<String>, TaskError>(ranks, batches.clone(), |before, captions| {
            let found = captioner.caption(&images[before..before + captions.len()], beams)?;
            Ok(found.into_iter().map(|caption| caption.text).collect())
        })?;
        Ok(found.concat())
    })
}
