//! A whole training, from a recipe and its data to a run folder, for every kind of task. A task crate says through [`Task`]
//! what its data, its model and its loss are; everything else about a run is decided here, once: how it begins, what it
//! checks before it writes, how it is resumed, and what it leaves behind.

mod begin;
mod blocks;
mod check;
mod data_module;
mod datasets;
mod dry_run;
mod embedded;
mod estimate;
mod evaluation;
mod measured;
mod memory;
mod merge;
mod parts;
mod request;
mod run;
mod stack;
mod start;
#[cfg(test)]
mod toy_task;
mod trained;

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::Path;

use burn::tensor::Device;
use firelight_kernels::BlockFormat;
use firelight_storage::StorageError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use begin::{read_any_recipe, read_new_recipe, read_recipe, task_of};
pub use check::Check;
pub use data_module::DataModule;
pub use datasets::{DatasetTask, Datasets};
pub use dry_run::{DryRun, Pace};
pub use embedded::{BuiltIn, built_in};
pub use estimate::{BatchCost, Estimate};
pub use evaluation::TaskEvaluation;
pub use measured::{AskedData, MeasuredTask, Measurement, OpenedRun, evaluate_run, evaluate_run_on};
pub use merge::merge;
pub use request::RunRequest;
pub use run::Run;
pub use stack::StackPath;
pub use trained::TrainedRun;

use crate::{Evaluator, Objective, PositionGrid, Problem, Recipe, RecipeError, TrainingError, TrainingModule};

/// The recipe of a task.
pub type RecipeOf<T> = Recipe<<T as Task>::Data, <T as Task>::Model, <T as Task>::Loss>;

/// Embeddings and learned positions.
pub const ROWS: &[(&str, usize)] =
    &[("*embedding.weight", 0), ("*position.weight", 0), ("*layer_positions.?.weight", 0)];

/// A section of a recipe that belongs to the task.
pub trait Section: Clone + Debug + PartialEq + Serialize + DeserializeOwned {}

impl<S: Clone + Debug + PartialEq + Serialize + DeserializeOwned> Section for S {}

/// A section without keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoKeys {}

/// What one step of a task reads.
pub(crate) type BatchOf<T> = <<T as Task>::Net as Objective>::Batch;

/// What a kind of training says of itself: at least [`config`](Self::config) and [`model`](Self::model), and beside them its
/// [`DataModule`], which Burn's datasets are by one method, [`DatasetTask::datasets`]. The rest has defaults.
pub trait Task: Sized {
    /// The name in `recipe.toml` and `config.json`: `language`.
    const NAME: &'static str;
    /// The recipes that are part of the program; the first is trained when none is named. Default: none, and a run without a
    /// recipe has the defaults of all sections.
    const BUILT_IN: &'static [BuiltIn] = &[];
    /// What a loss is the mean over, as people read it: token.
    const TARGET: &'static str = "token";
    /// The parameters of the head, and those of the heads of tasks that share the body, as patterns of `[init]`: in a run that begins
    /// from one of another task the head begins anew, and the other one is left. Default: the task has none.
    const HEAD: &'static [&'static str] = &[];
    /// The keys of `[model]` that are the head's: another task may have others.
    const HEAD_KEYS: &'static [&'static str] = &[];
    /// Patterns of the parameters that have a row for each token or position, with the axis of the rows: what `init.resize = true`
    /// may resize. Default: embeddings and learned positions.
    const ROWS: &'static [(&'static str, usize)] = ROWS;
    /// Where a structure of this task, or of another one that a training begins from, has the stack that keys of `[model]` describe: a
    /// training takes it from there, and not from the recipe of the run, where the two differ. Default: the recipe tells alone.
    const STACK: Option<StackPath> = None;

    /// The `[data]` section.
    type Data: Section;
    /// The `[model]` section.
    type Model: Section;
    /// The `[loss]` section.
    type Loss: Section + Send;
    /// The structure of the model, as `config.json` holds it.
    type Config: Section;
    /// What it is trained and validated on.
    type DataModule: DataModule<Self>;
    /// The model.
    type Net: Objective<Loss = Self::Loss>;
    /// What can go wrong, with a text that tells the other ranks of a training.
    type Error: Display + From<StorageError> + From<RecipeError> + From<TrainingError>;

    /// Lists what is wrong with the task's sections, as far as that shows without the data.
    fn judge(_recipe: &RecipeOf<Self>) -> Vec<Problem> {
        Vec::new()
    }

    /// The structure that the recipe asks for, with what the data decides, such as the size of the vocabulary.
    ///
    /// # Errors
    /// If no such model can be built; `source` is the recipe's name.
    fn config(recipe: &RecipeOf<Self>, corpus: &Self::DataModule, source: &Path) -> Result<Self::Config, Self::Error>;

    /// Lists what is wrong with a structure that a file describes; [`model`](Self::model) may panic where there is anything.
    fn problems(_config: &Self::Config) -> Vec<String> {
        Vec::new()
    }

    /// A new model, its weights decided by `seed`.
    fn model(config: &Self::Config, seed: u64, device: &Device) -> Self::Net;

    /// Lists what is wrong with the structure that only a model of it shows, such as adapters of layers that it does not have.
    fn inspect(_config: &Self::Config, _device: &Device) -> Vec<Problem> {
        Vec::new()
    }

    /// Whether the structure has low-rank adapters. They and the head are trained alone, and need a run to begin from.
    fn has_adapters(_config: &Self::Config) -> bool {
        false
    }

    /// The structure without low-rank adapters, and the model with them added into its weights, whose adapters then change nothing. Weights
    /// in blocks become floats.
    fn merged(config: &Self::Config, model: Self::Net) -> (Self::Config, Self::Net) {
        (config.clone(), model)
    }

    /// The blocks that the matrices of a model go into of which `is_base` tells by their paths; those that are in blocks already have their
    /// own. Default: there are none, and a recipe with `init.quantize` is refused.
    fn base_in_blocks(
        _model: &Self::Net,
        _format: BlockFormat,
        _is_base: &dyn Fn(&str) -> bool,
    ) -> BTreeMap<String, BlockFormat> {
        BTreeMap::new()
    }

    /// The model with its matrices at these paths in blocks of few bits. Default: as it is.
    fn quantized(model: Self::Net, _formats: &BTreeMap<String, BlockFormat>) -> Self::Net {
        model
    }

    /// A new model, to be loaded from a file in which the matrices at these paths are in blocks of the formats of these names. It may lie
    /// elsewhere than on `device` until [`onto_device`](Self::onto_device). Default: there may be no names.
    ///
    /// # Errors
    /// Says why the names do not fit the model.
    fn model_in_blocks(
        config: &Self::Config,
        seed: u64,
        device: &Device,
        names: &BTreeMap<String, String>,
    ) -> Result<Self::Net, String> {
        match names.keys().next() {
            None => Ok(Self::model(config, seed, device)),
            Some(path) => Err(format!("`{path}` cannot be in blocks in a model of the task `{}`", Self::NAME)),
        }
    }

    /// A model whose weights are read, on its device. Default: it is there.
    fn onto_device(model: Self::Net, _device: &Device) -> Self::Net {
        model
    }

    /// Why the head of another run of this task says something else than that of this one, such as other classes; none if it does
    /// not.
    fn other_head(_found: &Self::Config, _config: &Self::Config) -> Option<String> {
        None
    }

    /// Parts of the head that another task has learnt too: their paths here and there.
    fn renamed(_config: &Self::Config) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The learned positions of image patches, which can be interpolated for images of another size.
    fn grid(_config: &Self::Config) -> Option<PositionGrid> {
        None
    }

    /// The parameters of the model by part. Default: by its fields, and by those of a field that has no list of layers; the layers of a
    /// list are one part.
    fn parameters(model: &Self::Net) -> Vec<(String, usize)> {
        parts::of(model)
    }

    /// What makes scores of every evaluation, beside the loss, and figures for the report.
    fn evaluator(
        _corpus: &Self::DataModule,
        _recipe: &RecipeOf<Self>,
    ) -> Box<dyn Evaluator<TrainingModule<Self::Net>>> {
        Box::new(())
    }

    /// What a batch of the training would cost. Default: what the parameters of a [`model`](Self::model) on `device` tell
    /// ([`BatchCost::of_parameters`]), as if every item were one target.
    fn batch_cost(recipe: &RecipeOf<Self>, config: &Self::Config, device: &Device) -> BatchCost {
        BatchCost::of_parameters(&Self::model(config, recipe.seed, device), recipe.training.batch_size)
    }

    /// Tries the properties that a model must have before it is worth training. Default: that the loss of the first training batch is
    /// a number.
    ///
    /// # Errors
    /// If the data cannot be read or the device fails.
    fn self_check(run: &Run<Self>) -> Result<Vec<Check>, Self::Error> {
        check::first_loss(run)
    }
}
