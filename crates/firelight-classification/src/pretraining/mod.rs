//! Masked language models as recipes train them, to begin classifiers from: what `[data]` and `[model]` mean, and how texts
//! become batches. `firelight_training::Run` does the rest.

mod corpus;
mod recipe;

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_core::{ConfigError, LossConfig, ParamBuilder, Pass};
use firelight_storage::ModelFolder;
use firelight_training::{BuiltIn, Check, Cost, Estimate, Problem, Task, TrainingError};

pub use corpus::MaskedCorpus;
pub use recipe::{EncoderModelRecipe, MaskedLanguageRecipe, TextsRecipe};

use crate::data::input_of;
use crate::error::ClassificationError;
use crate::masking::{MaskedBatcher, MaskedLanguageTask};
use crate::model::{MaskedLanguageModel, MaskedLanguageModelConfig};

/// Texts of the batch that is learnt by heart.
const TEXTS: usize = 8;

/// Which tokens stood where masks stand.
#[derive(Debug, Clone, Copy)]
pub struct MaskedLanguage;

impl Task for MaskedLanguage {
    const NAME: &'static str = crate::MASKED_LANGUAGE_TASK;
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "masked", text: recipe::MASKED }];
    const TARGET: &'static str = "hidden token";

    type Data = TextsRecipe;
    type Model = EncoderModelRecipe;
    type Loss = LossConfig;
    type Config = MaskedLanguageModelConfig;
    type Corpus = MaskedCorpus;
    type Net = MaskedLanguageModel;
    type Error = ClassificationError;

    fn judge(recipe: &MaskedLanguageRecipe) -> Vec<Problem> {
        let short = recipe.model.transformer.max_seq_len < 4;
        let short = short.then(|| "max_seq_len must be at least 4: two tokens stand around a text".into());
        [
            Problem::list("model", ConfigError::list(recipe.model.config(1).validate())),
            Problem::list("model", short),
            Problem::list("loss", ConfigError::list(recipe.loss.validate())),
            Problem::list("data", ConfigError::list(recipe.data.validate())),
        ]
        .concat()
    }

    fn read(
        recipe: &mut MaskedLanguageRecipe,
        source: &Path,
        paths: &[PathBuf],
    ) -> Result<MaskedCorpus, ClassificationError> {
        MaskedCorpus::read(recipe, source, paths)
    }

    fn save(corpus: &MaskedCorpus, folder: &ModelFolder) -> Result<(), ClassificationError> {
        corpus.save(folder)
    }

    fn open(recipe: &MaskedLanguageRecipe, folder: &ModelFolder) -> Result<MaskedCorpus, ClassificationError> {
        MaskedCorpus::open(recipe, folder)
    }

    fn is_of(
        corpus: &MaskedCorpus,
        recipe: &MaskedLanguageRecipe,
        paths: &[PathBuf],
    ) -> Result<bool, ClassificationError> {
        corpus.is_of(recipe, paths)
    }

    fn sizes(corpus: &MaskedCorpus) -> String {
        corpus.sizes()
    }

    fn config(
        recipe: &MaskedLanguageRecipe,
        corpus: &MaskedCorpus,
        source: &Path,
    ) -> Result<MaskedLanguageModelConfig, ClassificationError> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size());
        config.validate().map_err(|error| ClassificationError::Config { path: source.into(), error })?;
        Ok(config)
    }

    fn model(config: &MaskedLanguageModelConfig, seed: u64, device: &Device) -> MaskedLanguageModel {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    fn parameters(model: &MaskedLanguageModel) -> Vec<(String, usize)> {
        model.report().parts()
    }

    fn batches_of_an_epoch(corpus: &MaskedCorpus, recipe: &MaskedLanguageRecipe) -> Result<usize, ClassificationError> {
        Ok(corpus.training_plan(recipe)?.num_batches())
    }

    fn training_loader(
        corpus: &MaskedCorpus,
        recipe: &MaskedLanguageRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<TrainLoader<MaskedLanguageTask>, ClassificationError> {
        corpus.training_loader(recipe, batches, device)
    }

    fn validation_loader(
        corpus: &MaskedCorpus,
        recipe: &MaskedLanguageRecipe,
        device: &Device,
    ) -> Result<ValidLoader<MaskedLanguageTask>, ClassificationError> {
        corpus.validation_loader(recipe, device)
    }

    /// The head reads the chosen share of the tokens alone.
    fn estimate(recipe: &MaskedLanguageRecipe, config: &MaskedLanguageModelConfig) -> Estimate {
        let stack = &config.encoder.transformer;
        let head = stack.d_model * (stack.d_model + config.encoder.vocab_size);
        let share = recipe.data.masking.ratio;
        let cost = Cost {
            parameters: config.num_params(),
            flops_per_token: stack.train_flops_per_token() + (6.0 * share * head as f64) as usize,
            floats_per_token: stack.floats_kept_per_token(),
            vocab_size: (share * config.encoder.vocab_size as f64).ceil() as usize,
            batch_tokens: recipe.data.batching.max_tokens(recipe.training.batch_size, stack.max_seq_len),
        };
        Estimate::new(cost, &recipe.training)
    }

    fn self_check(
        recipe: &MaskedLanguageRecipe,
        config: &MaskedLanguageModelConfig,
        corpus: &MaskedCorpus,
        device: &Device,
    ) -> Result<Vec<Check>, ClassificationError> {
        let mut quiet = config.clone();
        quiet.encoder = quiet.encoder.with_stack(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
        let model = quiet.init_with(&ParamBuilder::new(device, recipe.seed)).valid();
        let dataset = corpus.masked(recipe, true);
        let some = (0..TEXTS.min(dataset.len())).map(|index| dataset.get(index));
        let examples =
            some.collect::<Result<Vec<_>, _>>().map_err(|cause| TrainingError::Data { part: "self-check", cause })?;
        let batch = |device: &Device| MaskedBatcher.batch(examples.clone(), device);
        let task = MaskedLanguageTask::new(model.clone(), LossConfig::default());
        let device = model.devices().into_iter().next().unwrap_or_default();
        Ok(vec![
            padding(&model, corpus, &device)?,
            Check::guess(&task, batch(&device), config.encoder.vocab_size)?,
            Check::by_heart(task.train(), || batch(&device.clone().autodiff()), recipe.seed)?,
        ])
    }
}

/// A longer text in the same batch, and so padding, changes nothing.
fn padding(model: &MaskedLanguageModel, corpus: &MaskedCorpus, device: &Device) -> Result<Check, ClassificationError> {
    let mut texts: Vec<_> = corpus.training().iter().take(TEXTS).collect();
    texts.sort_by_key(|text| text.ids.len());
    let length = texts[0].ids.len();
    let logits = |texts: &[&crate::data::EncodedText]| {
        let found = model.forward(&input_of(texts, device), &mut Pass::default());
        let first = found.narrow(0, 0, 1).narrow(1, 0, length);
        first.try_into_vec_as::<f32>().map_err(ClassificationError::device("the logits of the self-check"))
    };
    let [alone, padded] = [logits(&texts[..1])?, logits(&texts)?];
    Ok(Check::same("padding changes nothing", &padded, &alone))
}
