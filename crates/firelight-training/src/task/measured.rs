//! How the model of a run is evaluated on its validation data, or on other data. A task says what to measure; the course of it, on one
//! rank or several, stands here once.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use burn::train::ValidLoader;
use firelight_storage::{Checkpoint, ModelFolder};
use serde::Serialize;

use super::{RecipeOf, Task, TaskEvaluation, read_recipe};
use crate::ranks::{ExampleDigest, agree_on};
use crate::{Alone, Communicator, Evaluator, TrainingError, TrainingModule, measure_on, telling};

/// The data that a run is to be evaluated on: a path, and the name of a split there. None is what the run validates on, which its
/// folder keeps.
pub type AskedData<'a> = Option<(&'a Path, Option<&'a str>)>;

/// A task whose runs can be evaluated, by [`evaluate_run`].
pub trait MeasuredTask: Task {
    /// What may be chosen beside the data, such as the beams of a search; `()` where there is no choice.
    type Options: Default;
    /// What an evaluation finds: [`TaskEvaluation`], or a type of the task's own, whose JSON a program prints.
    type Report: From<TaskEvaluation> + Serialize;

    /// Loads the model, and reads the data that is asked for. Every rank does so by itself.
    ///
    /// # Errors
    /// If the folder is no run of this task, there is no such data, or the model cannot read it.
    fn measured(
        run: &OpenedRun<'_, Self>,
        asked: AskedData<'_>,
        options: &Self::Options,
    ) -> Result<Measurement<Self>, Self::Error>;

    /// What was found, as the task tells it. Default: converted.
    fn report(found: TaskEvaluation, _recipe: &RecipeOf<Self>) -> Self::Report {
        found.into()
    }
}

/// A run that is to be evaluated.
pub struct OpenedRun<'a, T: Task> {
    /// Its folder.
    pub folder: ModelFolder,
    /// Its recipe.
    pub recipe: RecipeOf<T>,
    /// The weights that are asked for.
    pub checkpoint: &'a Checkpoint,
    /// Where the model is to compute.
    pub device: &'a Device,
}

/// What an evaluation takes: a model, data and scores.
pub struct Measurement<T: Task> {
    /// The model, with a loss without weights and smoothing.
    pub task: TrainingModule<T::Net>,
    /// The examples once each.
    pub loader: ValidLoader<TrainingModule<T::Net>>,
    /// What makes the scores.
    pub evaluator: Box<dyn Evaluator<TrainingModule<T::Net>>>,
    /// What the loss counts, as people read it behind the number: `nats per token`.
    pub loss_unit: String,
    /// How many examples there are.
    pub count: usize,
    /// Gives all examples to a digest, by which ranks compare them. Whatever decides the result belongs to an example: what the model
    /// reads, and what it is to answer. One process does not call it.
    pub examples: Box<dyn FnOnce(&mut ExampleDigest)>,
}

impl<T: Task> Measurement<T> {
    /// What one pass over the data finds, after ranks have compared it.
    fn on(self, ranks: Arc<dyn Communicator>) -> Result<TaskEvaluation, TrainingError> {
        let Self { task, loader, mut evaluator, loss_unit, count, examples } = self;
        agree_on(ranks.clone(), examples)?;
        let began = Instant::now();
        let (found, values) = measure_on(&task, loader.as_ref(), evaluator.as_mut(), ranks)?;
        let scores = evaluator.scores().iter().map(|score| score.name).zip(values).collect();
        let (targets, seconds) = (found.tokens, began.elapsed().as_secs_f64());
        Ok(TaskEvaluation { loss: found.loss, loss_unit, scores, examples: count, targets, seconds })
    }
}

/// Evaluates a checkpoint of the run in `folder` on the data that is `asked` for, or, without any, on what the run validates on. The
/// task's [`MeasuredTask::measured`] says how the data is read.
///
/// ```
/// # fn of<T>() -> Result<f64, T::Error>
/// # where T: firelight_training::MeasuredTask<Options = (), Report = firelight_training::TaskEvaluation> {
/// use std::path::Path;
/// use firelight_storage::Checkpoint;
/// use firelight_training::evaluate_run;
///
/// let test = Some((Path::new("data"), Some("test")));
/// let found = evaluate_run::<T>("runs/sst2-1", &Checkpoint::Best, test, &(), &Default::default())?;
/// println!("{:.4} {}", found.loss, found.loss_unit);
/// # Ok(found.loss)
/// # }
/// ```
///
/// # Errors
/// If the folder is no run of the task, keeps no data where none is asked for, the data cannot be read, or the device fails.
pub fn evaluate_run<T: MeasuredTask>(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    asked: AskedData<'_>,
    options: &T::Options,
    device: &Device,
) -> Result<T::Report, T::Error> {
    evaluate_run_on::<T>(folder, checkpoint, asked, options, device, Arc::new(Alone))
}

/// Evaluates like [`evaluate_run`] on several ranks, which share the batches: the same loss and scores as one process, to the bit on a CPU.
/// Each rank calls it, and finds the same but for the seconds. Ranks first compare the examples that they have read.
///
/// ```
/// # fn of<T>() -> f64
/// # where T: firelight_training::MeasuredTask<Options = (), Report = firelight_training::TaskEvaluation>, T::Error: std::fmt::Debug {
/// use std::sync::Arc;
/// use firelight_storage::Checkpoint;
/// use firelight_training::{Threads, ThreadsOptions, evaluate_run_on};
///
/// let rank = Threads::ranks(1, ThreadsOptions::default()).remove(0); // of several, each on its thread
/// let found = evaluate_run_on::<T>("runs/sst2-1", &Checkpoint::Last, None, &(), &Default::default(), Arc::new(rank));
/// found.unwrap().loss
/// # }
/// ```
///
/// # Errors
/// As [`evaluate_run`], and if ranks have other models or examples, or one of them has failed or does not come in time.
pub fn evaluate_run_on<T: MeasuredTask>(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    asked: AskedData<'_>,
    options: &T::Options,
    device: &Device,
    communicator: Arc<dyn Communicator>,
) -> Result<T::Report, T::Error> {
    telling(communicator, |ranks| -> Result<T::Report, T::Error> {
        let folder = ModelFolder::open(folder)?;
        let recipe = read_recipe::<T>(Some(&folder.recipe()), &[])?;
        let run = OpenedRun { folder, recipe, checkpoint, device };
        let found = T::measured(&run, asked, options)?.on(ranks)?;
        Ok(T::report(found, &run.recipe))
    })
}

#[cfg(test)]
mod tests {
    use super::super::toy_task::{Toy, request};
    use super::super::{NoKeys, Run, blocks};
    use super::*;
    use crate::toy::{Noted, PointLoader, alone};
    use crate::{Threads, ThreadsOptions};
    use std::error::Error;
    use std::thread;

    /// The split is `y` of the point `(1, y)`, which the line goes through before it is trained if that is 0.
    impl MeasuredTask for Toy {
        type Options = ();
        type Report = TaskEvaluation;

        fn measured(
            run: &OpenedRun<'_, Self>,
            asked: AskedData<'_>,
            (): &(),
        ) -> Result<Measurement<Self>, Box<dyn Error>> {
            let y: f32 = asked.and_then(|(_, split)| split).unwrap_or("0").parse()?;
            let (config, weights) = (run.folder.read_config::<NoKeys>(Toy::NAME)?, run.folder.weights(run.checkpoint)?);
            let model = blocks::load::<Toy>(&run.folder, (&config, 0), &weights, run.device)?;
            Ok(Measurement {
                task: TrainingModule::new(model, Noted::default()),
                loader: Arc::new(PointLoader::new(vec![(1.0, y)], 1)),
                evaluator: Box::new(()),
                loss_unit: "squared error".into(),
                count: 1,
                examples: Box::new(move |digest| digest.extend([y.to_bits()])),
            })
        }
    }

    /// What a rank finds, or the text of its error.
    fn found(folder: &Path, y: &str, rank: Arc<dyn Communicator>) -> Result<TaskEvaluation, String> {
        let asked = Some((Path::new("points"), Some(y)));
        evaluate_run_on::<Toy>(folder, &Checkpoint::Last, asked, &(), &Device::flex(), rank)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_run_is_evaluated_on_what_is_asked_for_by_any_number_of_ranks() {
        let _alone = alone();
        let (_home, request) = request(&[]);
        let trained = Run::<Toy>::prepare(&request).unwrap().fit().unwrap();
        let (folder, line) = (trained.folder.path(), trained.model.slope() + trained.model.offset());
        let own = evaluate_run::<Toy>(folder, &Checkpoint::Last, None, &(), &Device::flex()).unwrap();
        assert!((own.loss - f64::from(line * line)).abs() < 1e-6, "{own:?} and {line}");
        assert_eq!((own.examples, own.targets, own.loss_unit.as_str()), (1, 1, "squared error"));
        let other = found(folder, "2", Arc::new(Alone)).unwrap().loss;
        assert!((other - f64::from((line - 2.0) * (line - 2.0))).abs() < 1e-5, "{other} and {line}");
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    assert_eq!(found(folder, "2", Arc::new(rank)).unwrap().loss.to_bits(), other.to_bits());
                });
            }
        });
    }

    #[test]
    fn ranks_with_other_examples_are_told_whatever_the_task_compares() {
        let _alone = alone();
        let (_home, request) = request(&[]);
        let trained = Run::<Toy>::prepare(&request).unwrap().fit().unwrap();
        let folder = trained.folder.path();
        thread::scope(|scope| {
            for (rank, y) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip(["2", "3"]) {
                scope.spawn(move || {
                    let error = found(folder, y, Arc::new(rank)).unwrap_err();
                    let told = "rank 1 does not do what rank 0 does: its validation data is `1 examples with";
                    assert!(error.starts_with(told), "{error}");
                });
            }
        });
    }

    #[test]
    fn a_rank_that_cannot_read_its_data_tells_the_others() {
        let _alone = alone();
        let (_home, request) = request(&[]);
        let trained = Run::<Toy>::prepare(&request).unwrap().fit().unwrap();
        let folder = trained.folder.path();
        thread::scope(|scope| {
            for (rank, y) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip(["2", "two"]) {
                scope.spawn(move || {
                    let error = found(folder, y, Arc::new(rank)).unwrap_err();
                    assert!(error.contains("invalid float literal"), "{error}");
                });
            }
        });
    }
}
