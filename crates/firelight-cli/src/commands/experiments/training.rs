//! One point of an experiment: the ordinary run of its task, in this process. A process of its own would find the device, and on a GPU
//! its kernels, anew for each point; here what a run took is free for the next one, and a panic ends no more than its point.

use std::io::{self, IsTerminal};
use std::panic::{self, AssertUnwindSafe};

use anyhow::{Context, Result, anyhow};
use burn::train::Interrupter;
use firelight::device::NamedDevice;
use firelight::storage::ModelFolder;
use firelight::training::experiments::Measured;
use firelight::training::{Estimate, Observer, ProgressBar, Run, RunRequest, Score, ValidationLoss};

use super::super::place;
use super::super::tasks::Shown;
use crate::failure;
use crate::pulse::{Pulse, StepPulse};

/// What is left of a run that took all of its steps.
struct Reached {
    best: Option<ValidationLoss>,
    steps: usize,
    folder: ModelFolder,
}

/// Trains a point to its end, or goes on with it; none if it was interrupted. A panic is an error.
pub(super) fn train<T: Shown>(
    request: &RunRequest,
    chosen: &NamedDevice,
    interrupter: &Interrupter,
) -> Result<Option<Measured>> {
    let trained = panic::catch_unwind(AssertUnwindSafe(|| measure::<T>(request, chosen, interrupter)));
    trained.unwrap_or_else(|payload| Err(anyhow!("internal failure: {}", failure::panic_message(&*payload))))
}

fn measure<T: Shown>(
    request: &RunRequest,
    chosen: &NamedDevice,
    interrupter: &Interrupter,
) -> Result<Option<Measured>> {
    let pulse = Pulse::of("preparing the data and the model");
    let run = Run::<T>::prepare(request)?.named_device(&place(chosen));
    let (cost, score, non_embedding) = (run.cost(), run.monitored(), run.non_embedding_parameters());
    let reached = reach(run, pulse, interrupter)?;
    reached.map(|reached| measured(&reached, &cost, score, non_embedding)).transpose()
}

fn reach<T: Shown>(run: Run<T>, pulse: Pulse, interrupter: &Interrupter) -> Result<Option<Reached>> {
    if run.is_finished() {
        return Ok(Some(Reached { best: run.best(), steps: run.done(), folder: run.folder }));
    }
    let trained = run.fit_with(observers::<T>(pulse), interrupter.clone(), None)?;
    let reached = Reached { best: trained.best, steps: trained.steps, folder: trained.folder };
    Ok(if trained.interrupted { None } else { Some(reached) })
}

/// The progress of a training, as `firelight train` shows it.
fn observers<T: Shown>(pulse: Pulse) -> Vec<Box<dyn Observer>> {
    let bar: Box<dyn Observer> = Box::new(ProgressBar::new().counting(T::TARGET));
    match io::stderr().is_terminal() {
        true => vec![bar],
        false => vec![bar, Box::new(StepPulse::new(pulse))],
    }
}

fn measured(reached: &Reached, cost: &Estimate, score: Score, non_embedding: usize) -> Result<Measured> {
    let best = reached.best.context("the run has no evaluation")?;
    let value = match score.name {
        "loss" => best.loss,
        name => Measured::value_in(reached.folder.metrics(), best.step, name)?,
    };
    let tokens = cost.tokens_per_step as f64 * reached.steps as f64;
    Ok(Measured {
        value,
        higher_is_better: score.higher_is_better,
        best_step: best.step,
        steps: reached.steps,
        parameters: cost.parameters,
        non_embedding_parameters: non_embedding,
        tokens,
        flops: cost.flops_per_token * tokens,
    })
}
