//! A training that is tried and not done: everything is read and checked, a few steps are taken in memory, and nothing is written.

use std::fmt;
use std::iter;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use burn::train::TrainLoader;
use indicatif::HumanDuration;

use super::begin::Plan;
use super::estimate::cost_of;
use super::run::{frozen, training_module};
use super::{DataModule, Estimate, RunRequest, Task, blocks, start};
use crate::evaluate::device_of;
use crate::ranks::Ranks;
use crate::{Trainable, Trainer, TrainingError, TrainingModule, freeze};

/// Steps that are taken: one to warm up, and those that are measured.
const STEPS: usize = 6;

/// No further step begins once those before took so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A training that is read and checked, and not begun.
pub struct DryRun<T: Task> {
    plan: Plan<T>,
    device: Device,
}

/// How long a training takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The median time of a step.
    pub step: Duration,
    /// Steps of the whole training.
    pub steps: usize,
}

impl<T: Task> DryRun<T> {
    /// Reads and checks what a training would begin with.
    ///
    /// # Errors
    /// As [`Run::prepare`](super::Run::prepare), as far as recipe and data go.
    pub fn prepare(request: &RunRequest) -> Result<Self, T::Error> {
        Ok(Self { plan: Plan::new(request, &Ranks::alone())?, device: request.device.clone() })
    }

    /// What the training would cost.
    pub fn estimate(&self) -> Estimate {
        let Plan { recipe, config, .. } = &self.plan;
        cost_of::<T>(recipe, config, &self.device, || blocks::planned::<T>(recipe, config, &self.device))
    }

    /// Takes a few steps of the training and forgets them.
    ///
    /// # Errors
    /// If the model that the training starts from cannot be read, the data does not fit into batches, the loss is not finite, or the
    /// device fails.
    pub fn measure(&self) -> Result<Pace, T::Error> {
        let mut trainer = self.trainer()?;
        let recipe = &self.plan.recipe;
        let steps = STEPS.min(recipe.training.steps);
        let batches = 0..steps * recipe.training.gradient_accumulation_steps;
        let loader = self.plan.corpus.training_loader(recipe, batches, &self.device)?;
        let times = take_steps(&mut trainer, &loader, steps)?;
        Ok(Pace { step: typical(times), steps: recipe.training.steps })
    }

    fn trainer(&self) -> Result<Trainer<TrainingModule<T::Net>>, T::Error> {
        let Plan { recipe, config, .. } = &self.plan;
        let (model, _) = start::begin::<T>(recipe, config, &self.device)?;
        let frozen = frozen::<T>(recipe, config, &model);
        let task = training_module::<T>(recipe, model);
        let scale = task.loss_scale();
        let task = if device_of(&task).is_autodiff() { task } else { task.train() };
        let task = freeze::freeze(task, &frozen).map_err(TrainingError::from)?;
        let task = recipe.training.recompute.apply(task);
        let trainer = Trainer::new(task, recipe.optimizer.clone(), recipe.schedule.clone(), recipe.seed);
        Ok(Trainer { accumulate: recipe.training.gradient_accumulation_steps, ..trainer.with_loss_scale(scale) })
    }
}

/// The time of each step; fewer than asked for where they take long.
fn take_steps<M: Trainable>(
    trainer: &mut Trainer<M>,
    loader: &TrainLoader<M>,
    steps: usize,
) -> Result<Vec<Duration>, TrainingError> {
    let loader = loader.to_device(&trainer.device());
    let (mut batches, mut times) = (loader.iter(), Vec::<Duration>::new());
    while times.len() < steps && times.iter().sum::<Duration>() < PATIENCE {
        let began = Instant::now();
        let Some(first) = batches.next() else { break };
        let group = iter::once(first).chain((&mut *batches).take(trainer.accumulate - 1));
        trainer.step_since(began, group, drop)?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// The median without the first step, in which kernels are compiled and memory is taken; that one where there is no other.
fn typical(mut times: Vec<Duration>) -> Duration {
    if times.len() > 1 {
        times.remove(0);
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

impl Pace {
    /// The time of all steps.
    pub fn whole(&self) -> Duration {
        Duration::try_from_secs_f64(self.step.as_secs_f64() * self.steps as f64).unwrap_or(Duration::MAX)
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (whole, seconds) = (HumanDuration(self.whole()), self.step.as_secs_f64());
        write!(f, "about {whole}, {} steps of {seconds:.3} s, without evaluations and checkpoints", self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::toy_task::{Toy, request};
    use super::*;
    use crate::toy::alone;

    #[test]
    fn the_first_step_counts_only_where_there_is_no_other() {
        let seconds = |all: &[u64]| all.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        assert_eq!(typical(seconds(&[9, 3, 1, 2])), Duration::from_secs(2));
        assert_eq!(typical(seconds(&[9])), Duration::from_secs(9));
        assert_eq!(typical(seconds(&[])), Duration::ZERO);
    }

    #[test]
    fn a_pace_tells_the_time_of_all_steps() {
        let pace = Pace { step: Duration::from_millis(360), steps: 500 };
        assert_eq!(pace.whole(), Duration::from_secs(180));
        assert_eq!(pace.to_string(), "about 3 minutes, 500 steps of 0.360 s, without evaluations and checkpoints");
    }

    #[test]
    fn a_dry_run_takes_some_steps_and_writes_nothing() {
        let _alone = alone();
        let (home, request) = request(&[("training.gradient_accumulation_steps", "2")]);
        let trial = DryRun::<Toy>::prepare(&request).unwrap();
        let noted = trial.plan.recipe.loss.clone();
        assert_eq!(trial.estimate(), Run::<Toy>::estimate(&request).unwrap());
        assert_eq!(trial.measure().unwrap().steps, 3);
        assert_eq!(noted.passes().len(), 6, "two batches for each of three steps");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
