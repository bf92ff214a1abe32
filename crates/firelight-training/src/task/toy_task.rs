//! The smallest task, for tests: a line through points, with no choice of data or model.

use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_storage::ModelFolder;

use super::{BatchCost, BuiltIn, DataModule, NoKeys, RecipeOf, RunRequest, Task};
use crate::toy::{Line, Noted, PointLoader};
use crate::{Communicator, Evaluator, Score, Shared, SharedEvaluator, TrainingError, TrainingModule, ValidOutput};

/// The task of a line through points.
pub(super) struct Toy;

impl Task for Toy {
    const NAME: &'static str = "toy";
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "toy", text: "task = \"toy\"\n\n[training]\nsteps = 3\n" }];
    type Data = NoKeys;
    type Model = NoKeys;
    type Loss = Noted;
    type Config = NoKeys;
    type DataModule = ();
    type Net = Line;
    type Error = Box<dyn Error>;

    fn config(_recipe: &RecipeOf<Self>, _corpus: &(), _source: &Path) -> Result<NoKeys, Self::Error> {
        Ok(NoKeys {})
    }

    fn model(_config: &NoKeys, _seed: u64, device: &Device) -> Line {
        Line::new(0.0, 0.0, device)
    }

    fn evaluator(_corpus: &(), _recipe: &RecipeOf<Self>) -> Box<dyn Evaluator<TrainingModule<Line>>> {
        Box::new(Shared(Counted::default()))
    }

    fn batch_cost(recipe: &RecipeOf<Self>, _config: &NoKeys, _device: &Device) -> BatchCost {
        // As if the points of all batches lay in memory: so a recipe can ask for more than any machine has.
        let activations_per_token = 2 * recipe.training.gradient_accumulation_steps;
        let (parameters, flops_per_token, logits_per_token) = (2, 12.0, 0);
        let tokens = recipe.training.batch_size;
        BatchCost { parameters, flops_per_token, activations_per_token, logits_per_token, tokens }
    }
}

/// Validation batches that toys have judged in this process.
pub(super) static JUDGED: AtomicUsize = AtomicUsize::new(0);

/// Draws how many batches the last pass had.
#[derive(Default)]
struct Counted {
    batches: usize,
    drawn: Vec<(String, String)>,
}

impl SharedEvaluator<TrainingModule<Line>> for Counted {
    fn scores(&self) -> Vec<Score> {
        Vec::new()
    }

    fn batch_statistics(&self, _output: &ValidOutput<()>) -> Result<Vec<Vec<f64>>, TrainingError> {
        JUDGED.fetch_add(1, Ordering::Relaxed);
        Ok(vec![Vec::new()])
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        self.batches += statistics.len();
        Ok(())
    }

    fn finish(&mut self, _model: &TrainingModule<Line>, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        let batches = std::mem::take(&mut self.batches);
        self.drawn = vec![("Batches".into(), format!("<svg><text>{batches} batches</text></svg>"))];
        Ok(Vec::new())
    }

    fn figures(&self) -> Option<Vec<(String, String)>> {
        Some(self.drawn.clone())
    }
}

impl DataModule<Toy> for () {
    fn read(_recipe: &mut RecipeOf<Toy>, _source: &Path, _paths: &[PathBuf]) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    fn save(&self, _folder: &ModelFolder) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    fn open(_recipe: &RecipeOf<Toy>, _folder: &ModelFolder) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    fn is_of(&self, _recipe: &RecipeOf<Toy>, _paths: &[PathBuf]) -> Result<bool, Box<dyn Error>> {
        Ok(true)
    }

    fn sizes(&self) -> String {
        "points".into()
    }

    fn batches_per_epoch(&self, _recipe: &RecipeOf<Toy>) -> Result<usize, Box<dyn Error>> {
        Ok(4)
    }

    fn training_loader(
        &self,
        _recipe: &RecipeOf<Toy>,
        batches: Range<usize>,
        _device: &Device,
    ) -> Result<TrainLoader<TrainingModule<Line>>, Box<dyn Error>> {
        Ok(Arc::new(PointLoader::of_steps(batches.start, batches.end)))
    }

    fn validation_loader(
        &self,
        _recipe: &RecipeOf<Toy>,
        _device: &Device,
    ) -> Result<ValidLoader<TrainingModule<Line>>, Box<dyn Error>> {
        Ok(Arc::new(PointLoader::of_steps(0, 3)))
    }
}

/// A request with changes of the built-in recipe, and the folder that it is for.
pub(super) fn request(changes: &[(&str, &str)]) -> (tempfile::TempDir, RunRequest) {
    let home = tempfile::tempdir().unwrap();
    let request = RunRequest::new(&Device::flex()).with_out(home.path().join("run"));
    let change = |request: RunRequest, (key, value): &(&str, &str)| request.with_override(key, value);
    (home, changes.iter().fold(request, change))
}
