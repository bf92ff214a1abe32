//! The forecaster as a task of its own, in three methods: what its data is, what structure it has, what model that is. A recipe with
//! overrides, a run folder, checks, an estimate, exact resume and a report are Firelight's.

use std::error::Error;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use firelight_core::{PositionConfig, TransformerConfig};
use firelight_storage::Existing;
use firelight_training::{
    DatasetTask, Datasets, NoKeys, Objective, RecipeOf, Run, RunRequest, StepOutput, Switches, Task, TrainLoss,
    ValidOutput,
};
use serde::{Deserialize, Serialize};

use crate::forecaster::{Forecaster, Series, Waves};

/// The task `forecast`.
pub struct Forecast;

/// The `[data]` section: how many series there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    training: usize,
    validation: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { training: 500, validation: 64 }
    }
}

/// The `[model]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Encoder {
    d_model: usize,
    n_layers: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { d_model: 32, n_layers: 2 }
    }
}

impl Task for Forecast {
    const NAME: &'static str = "forecast";
    const TARGET: &'static str = "series";
    type Data = Sizes;
    type Model = Encoder;
    type Loss = NoKeys;
    type Config = TransformerConfig;
    type DataModule = Datasets<Self>;
    type Net = Forecaster;
    type Error = Box<dyn Error>;

    fn config(recipe: &RecipeOf<Self>, _: &Datasets<Self>, _: &Path) -> Result<TransformerConfig, Self::Error> {
        let encoder = TransformerConfig::new(recipe.model.d_model, 4, recipe.model.n_layers);
        Ok(encoder.with_position(PositionConfig::rotary()))
    }

    fn model(config: &TransformerConfig, seed: u64, device: &Device) -> Forecaster {
        Forecaster::around(config, seed, device)
    }
}

impl DatasetTask for Forecast {
    type Item = Series;

    fn datasets(recipe: &RecipeOf<Self>, _: &[PathBuf]) -> Result<Datasets<Self>, Self::Error> {
        let Sizes { training, validation } = recipe.data;
        Ok(Datasets::new(Waves(training), Waves(validation), Waves(0)))
    }
}

/// What a step minimises and reports: the squared error, which is the loss by which Burn's Learner trains the model as well.
impl Objective for Forecaster {
    type Batch = Tensor<2>;
    type Loss = NoKeys;
    type Answers = ();

    fn train_loss(&self, series: Tensor<2>, _: &NoKeys, _: Switches) -> TrainLoss {
        let output = self.regress(series);
        TrainLoss { reported: output.losses(), minimised: output.loss }
    }

    fn valid_step(&self, series: Tensor<2>, _: Switches) -> ValidOutput<()> {
        self.regress(series).losses().into()
    }
}

/// Trains in a folder, or goes on where it was stopped: `("training.steps", "60")` changes the recipe.
///
/// # Errors
/// If a key is unknown, the folder holds something else, or the training fails.
pub fn run(folder: &Path, overrides: &[(String, String)]) -> Result<(), Box<dyn Error>> {
    let mut request = RunRequest::new(&Device::default()).with_out(folder).with_existing(Existing::Continue);
    request.overrides = overrides.to_vec();
    let run = Run::<Forecast>::prepare(&request)?;
    println!("{}, from step {}", run.cost(), run.done());
    run.fit()?.write_report(Vec::new())
}
