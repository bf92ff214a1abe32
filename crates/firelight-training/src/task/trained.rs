//! What a training leaves behind, and the page that tells of it.

use std::fmt;

use burn::tensor::Device;
use firelight_storage::{Checkpoint, ModelFolder};

use super::run::training_module;
use super::{DataModule, Task, blocks, read_recipe};
use crate::evaluate::device_of;
use crate::report::newest_evaluation;
use crate::{Report, Sample, TrainingError, ValidationLoss, measure};

/// What a training leaves behind.
pub struct TrainedRun<T: Task> {
    /// The run folder.
    pub folder: ModelFolder,
    /// The model after the last step.
    pub model: T::Net,
    /// What it was trained and validated on.
    pub corpus: T::DataModule,
    /// Steps done, earlier runs included.
    pub steps: usize,
    /// The step at which the run is to end.
    pub planned: usize,
    /// The last evaluation.
    pub evaluation: Option<ValidationLoss>,
    /// The best evaluation by `monitor`.
    pub best: Option<ValidationLoss>,
    /// What decides which evaluation is the best: `training.monitor`.
    pub monitor: String,
    /// Whether the run was stopped before its last step.
    pub interrupted: bool,
    /// What the last evaluation drew, where it was one of these weights.
    pub(super) figures: Option<Vec<(String, String)>>,
}

impl<T: Task> TrainedRun<T> {
    /// Reads the run in `folder` with its newest weights, whether it is finished or not.
    ///
    /// # Errors
    /// If there are no weights yet, or a file of the run is missing or damaged.
    pub fn open(folder: ModelFolder, device: &Device) -> Result<Self, T::Error> {
        let recipe = read_recipe::<T>(Some(&folder.recipe()), &[])?;
        let (config, found) = (folder.read_config(T::NAME)?, folder.find(&Checkpoint::Last)?);
        let corpus = T::DataModule::open(&recipe, &folder)?;
        let recipe = recipe.clone().over(corpus.batches_per_epoch(&recipe)?);
        let model = blocks::load::<T>(&folder, (&config, recipe.seed), &found.path, device)?;
        let evaluation = newest_evaluation(&folder)?;
        let steps = found.step.or(evaluation.map(|newest| newest.step)).unwrap_or(0);
        let (best, planned) = (best_in(&folder)?, recipe.training.steps);
        let (monitor, interrupted) = (recipe.training.monitor, steps < planned);
        let figures = None;
        Ok(Self { folder, model, corpus, steps, planned, evaluation, best, monitor, interrupted, figures })
    }

    /// Writes `report.html` into the run folder: curves, the figures of the last evaluation, recipe, parameters and samples, and when,
    /// for how long, where and by which commands the run was trained. A run that was [opened](Self::open), or stopped between two
    /// evaluations, is evaluated for its figures, if its evaluator draws any.
    ///
    /// # Errors
    /// If the run's metrics or its data cannot be read, the device fails, or the page cannot be written.
    pub fn write_report(&self, samples: Vec<Sample>) -> Result<(), T::Error> {
        let report = Report {
            loss_unit: self.corpus.loss_unit(),
            facts: self.facts(),
            parameters: T::parameters(&self.model),
            figures: self.figures.clone().map_or_else(|| self.drawn(), Ok)?,
            samples,
            ..bare::<T>(&self.folder, self.planned)
        };
        Ok(report.write(&self.folder)?)
    }

    /// The figures of one pass over the validation data.
    fn drawn(&self) -> Result<Vec<(String, String)>, T::Error> {
        let recipe = read_recipe::<T>(Some(&self.folder.recipe()), &[])?;
        let mut evaluator = T::evaluator(&self.corpus, &recipe);
        if evaluator.figures().is_some() {
            let loader = self.corpus.validation_loader(&recipe, &device_of(&self.model))?;
            let model = training_module::<T>(&recipe, self.model.clone());
            measure(&model, loader.as_ref(), evaluator.as_mut())?;
        }
        Ok(evaluator.figures().unwrap_or_default())
    }

    /// Writes the report of a run without its model and its data: the curves, the recipe, and what is known of its training.
    ///
    /// # Errors
    /// If the run's recipe or metrics cannot be read, or the page cannot be written.
    pub fn write_bare_report(folder: &ModelFolder) -> Result<(), T::Error> {
        let recipe = read_recipe::<T>(Some(&folder.recipe()), &[])?;
        Ok(bare::<T>(folder, recipe.training.steps).write(folder)?)
    }

    fn facts(&self) -> Vec<(String, String)> {
        let best = self.best.as_ref().map(|best| ("best".to_string(), best.in_words(&self.monitor)));
        best.into_iter().chain([("data".to_string(), self.corpus.sizes())]).collect()
    }
}

/// What a report says without model and data.
fn bare<T: Task>(folder: &ModelFolder, steps: usize) -> Report {
    let name = folder.path().file_name().unwrap_or_default().to_string_lossy();
    let loss_unit = format!("nats per {}", T::TARGET);
    Report { title: format!("Training of {name}"), target: T::TARGET, loss_unit, steps, ..Report::default() }
}

/// The best evaluation of a run, which is noted beside its weights; none if the run has no best weights yet.
fn best_in(folder: &ModelFolder) -> Result<Option<ValidationLoss>, TrainingError> {
    let best = folder.checkpoint_folder(&Checkpoint::Best);
    match best.read_state() {
        Ok(text) => serde_json::from_slice(&text).map_err(TrainingError::damaged(&best.state())).map(Some),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl<T: Task> fmt::Debug for TrainedRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("TrainedRun").field("folder", &self.folder).field("steps", &self.steps).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::toy_task::{JUDGED, Toy, request};
    use super::*;
    use crate::toy::alone;
    use firelight_storage::Existing;
    use std::sync::atomic::Ordering;

    #[test]
    fn figures_are_those_of_the_last_evaluation_and_cost_no_pass_of_their_own() {
        let _alone = alone();
        let (_home, request) = request(&[("training.evaluate_every", "2")]);
        let judged = || JUDGED.load(Ordering::Relaxed);
        let before = judged();
        let trained = Run::<Toy>::prepare(&request).unwrap().fit().unwrap();
        assert_eq!(judged() - before, 6, "three batches after two steps, and after the third and last");
        trained.write_report(Vec::new()).unwrap();
        assert_eq!(judged() - before, 6, "the report evaluates nothing");
        let page = std::fs::read_to_string(trained.folder.report()).unwrap();
        assert!(page.contains("<figcaption>Batches</figcaption>") && page.contains(">3 batches<"), "{page}");
        let opened = TrainedRun::<Toy>::open(ModelFolder::open(trained.folder.path()).unwrap(), &request.device);
        opened.unwrap().write_report(Vec::new()).unwrap();
        assert_eq!(judged() - before, 9, "no process keeps the figures of another one");
        assert_eq!(std::fs::read_to_string(trained.folder.report()).unwrap(), page);
    }

    #[test]
    fn the_report_of_a_run_can_be_made_again_from_its_folder() {
        let _alone = alone();
        let (_home, request) = request(&[]);
        let page = |folder: &ModelFolder| std::fs::read_to_string(folder.report()).unwrap();
        let trained = Run::<Toy>::prepare(&request).unwrap().named_device("toaster").fit().unwrap();
        let sample = || vec![Sample::new("x = 1", "2.5").expecting("2")];
        trained.write_report(sample()).unwrap();
        let first = page(&trained.folder);
        for text in
            ["<th>device</th><td>toaster</td>", "<th>wall time</th>", "<th>best</th>", ">expected: 2<", ">slope<"]
        {
            assert!(first.contains(text), "`{text}` is not in {first}");
        }
        std::fs::remove_file(trained.folder.report()).unwrap();
        let opened = || TrainedRun::<Toy>::open(ModelFolder::open(trained.folder.path()).unwrap(), &request.device);
        let again = opened().unwrap();
        again.write_report(sample()).unwrap();
        assert_eq!(page(&trained.folder), first);
        assert_eq!((again.steps, again.planned, again.interrupted), (3, 3, false));
        assert_eq!((again.evaluation, again.best), (trained.evaluation, trained.best));
        // Weights are of the step that stands beside them, whatever was evaluated last.
        std::fs::write(trained.folder.checkpoint_folder(&Checkpoint::Last).state(), "{\"step\": 4}").unwrap();
        assert_eq!(opened().unwrap().steps, 4);

        // A resumed run adds up, and what has no weights yet has a report of its curves.
        let further = request.clone().with_override("training.steps", 5).with_existing(Existing::Resume);
        let path = trained.folder.path().to_path_buf();
        drop(trained.folder);
        let resumed = Run::<Toy>::prepare(&further).unwrap().named_device("toaster").fit().unwrap();
        std::fs::remove_file(path.join("model.safetensors")).unwrap();
        std::fs::remove_dir_all(path.join("checkpoints")).unwrap();
        let error = TrainedRun::<Toy>::open(ModelFolder::open(&path).unwrap(), &request.device).unwrap_err();
        assert!(error.to_string().contains("there are none yet"), "{error}");
        TrainedRun::<Toy>::write_bare_report(&resumed.folder).unwrap();
        let bare = page(&resumed.folder);
        assert!(bare.contains(" in 2 sessions") && bare.contains("<th>steps</th><td>5</td>"), "{bare}");
        assert!(!bare.contains("Parameters") && bare.contains("<figcaption>Loss</figcaption>"), "{bare}");
    }
}
