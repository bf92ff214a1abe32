//! A training from its beginning to its report, as a terminal shows it, whatever the task is.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use anyhow::{Result, ensure};
use burn::train::Interrupter;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{LearningRateMetric, LossMetric};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use firelight::device::NamedDevice;
use firelight::training::metrics::{Perplexity, TokensPerSecond};
use firelight::training::{
    Check, Communicator, DataModule, DryRun, Extension, Objective, Observer, ProgressBar, Run, RunRequest, Sample,
    TensorBoard, TrainedRun, TrainingModule,
};

use super::super::place;
use super::super::tasks::Shown;
use crate::failure::Mistake;
use crate::interruption::INTERRUPTED;
use crate::pulse::{Pulse, StepPulse};
use crate::{interruption, output, ranks};

/// What was asked of a training beside the training itself.
#[derive(Clone, Copy)]
pub(super) struct Course {
    pub(super) dry_run: bool,
    pub(super) self_check: bool,
    pub(super) tui: bool,
    pub(super) tensorboard: bool,
}

impl Course {
    /// Trains on one device, or on that of one of the processes that train together.
    pub(super) fn follow<T: Shown>(self, request: &RunRequest, chosen: &NamedDevice) -> Result<()> {
        self.check_screen()?;
        let member = ranks::member();
        if self.dry_run {
            member.leave()?;
            return if member.rank() == 0 { try_out::<T>(request, chosen) } else { Ok(()) };
        }
        self.take_part::<T>(request, (chosen, place(chosen).as_str()), member.communicator(), || Ok(member.leave()?))
    }

    /// Refuses Burn's dashboard where there is nothing to draw on.
    pub(super) fn check_screen(self) -> Result<()> {
        let has_screen = !self.tui || io::stdout().is_terminal();
        ensure!(
            has_screen,
            Mistake("--tui draws on a terminal: leave it out where the output is a file or a pipe".into())
        );
        Ok(())
    }

    /// Trains as one of several ranks, or alone, on the chosen device; `place` names those of this process. The first rank has the last word,
    /// for which it parts from the others by `leave`.
    pub(super) fn take_part<T: Shown>(
        self,
        request: &RunRequest,
        (chosen, place): (&NamedDevice, &str),
        communicator: Arc<dyn Communicator>,
        leave: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let pulse = Pulse::of("preparing the data and the model");
        let (rank, world) = (communicator.rank(), communicator.world());
        let run = Run::<T>::prepare_on(request, communicator)?.named_device(place);
        if run.is_finished() {
            leave()?;
            conclude_finished(&run);
            return Ok(());
        }
        announce(&run, &places(place, world));
        if self.self_check {
            pulse.now("checking the model");
            check(&run)?;
        }
        let trained = self.train(run, pulse, rank == 0)?;
        leave()?;
        if rank > 0 {
            return Ok(()); // the first one has the files, and the last word
        }
        conclude(&trained);
        show(&trained, chosen)
    }

    /// Trains under the eyes of a progress bar or of Burn's dashboard. Those move on a terminal; elsewhere a step that takes long
    /// is reported by the pulse. Of several ranks the first one alone is watched.
    fn train<T: Shown>(self, run: Run<T>, pulse: Pulse, is_first: bool) -> Result<TrainedRun<T>> {
        let interrupter = Interrupter::new();
        interruption::listen(&interrupter)?;
        if !is_first {
            return Ok(run.fit_with(Vec::new(), interrupter, None)?);
        }
        let mut observers: Vec<Box<dyn Observer>> = Vec::new();
        if !self.tui {
            observers.push(Box::new(ProgressBar::new().counting(T::TARGET)));
        }
        match io::stderr().is_terminal() {
            true => drop(pulse),
            false => observers.push(Box::new(StepPulse::new(pulse))),
        }
        if self.tensorboard {
            observers.push(Box::new(TensorBoard::create(run.folder.tensorboard())?));
        }
        let dashboard = self.tui.then(|| dashboard(interrupter.clone(), T::TARGET));
        Ok(run.fit_with(observers, interrupter, dashboard)?)
    }
}

/// Where the ranks compute.
fn places(place: &str, ranks: usize) -> String {
    if ranks == 1 { place.to_string() } else { format!("{ranks} ranks, {place}") }
}

/// Says what the training costs, and how long it takes by the steps that it tries: the cost first, which a model that is too
/// large for this machine has, too.
fn try_out<T: Shown>(request: &RunRequest, chosen: &NamedDevice) -> Result<()> {
    let pulse = Pulse::of("preparing the data and the model");
    let trial = DryRun::<T>::prepare(request)?;
    pulse.now("measuring a few steps");
    output::print(&format!("{}\n", trial.estimate()))?;
    let pace = trial.measure()?;
    Ok(output::print(&format!("time on {}: {pace}\n", place(chosen)))?)
}

/// Says what holds, and refuses to train a model of which something does not.
fn check<T: Shown>(run: &Run<T>) -> Result<()> {
    let checks = run.self_check()?;
    checks.iter().for_each(|check| output::note(format_args!("self-check: {check}")));
    ensure!(checks.iter().all(Check::holds), "the self-check failed, so nothing was trained");
    Ok(())
}

/// Burn's own screen; perplexity and throughput are numbers of models whose targets are tokens.
fn dashboard<M: Objective>(interrupter: Interrupter, target: &str) -> Extension<TrainingModule<M>> {
    let is_of_tokens = target == "token";
    Box::new(move |training| {
        let renderer = TuiMetricsRendererWrapper::new(interrupter, None);
        let training = training.with_metric_logger(InMemoryMetricLogger::new()).renderer(Box::new(renderer));
        let training = training.metrics((LossMetric::new(), LearningRateMetric::new()));
        if is_of_tokens { training.metrics((Perplexity::new(), TokensPerSecond::new())) } else { training }
    })
}

/// Says that there is nothing to do.
fn conclude_finished<T: Shown>(run: &Run<T>) {
    let folder = run.folder.path().display();
    let monitor = &run.recipe.training.monitor;
    let best = run.best().map_or(String::new(), |best| format!(", best {}", best.in_words(monitor)));
    output::note(format_args!("the run in {folder} is finished after {} steps{best}: nothing was changed", run.done()));
    output::note(format_args!("train it further with: firelight train --resume --out {folder} --steps N"));
}

/// Says what is about to happen, and what it is going to cost.
fn announce<T: Shown>(run: &Run<T>, place: &str) {
    let verb = if run.done() == 0 { "training" } else { "resuming" };
    output::note(format_args!(
        "{verb} in {} on {place}: {} parameters, {}, from step {} to {}",
        run.folder.path().display(),
        run.parameters().iter().map(|(_, count)| count).sum::<usize>(),
        run.corpus.sizes(),
        run.done(),
        run.recipe.training.steps.max(run.done()),
    ));
    if let Some(init) = run.init_report() {
        output::note(format_args!("begins from: {init}"));
    }
    output::note(format_args!("estimate: {}", run.cost()));
}

/// Says what came of it; a run that was interrupted ends here, as shells expect it to.
fn conclude<T: Shown>(run: &TrainedRun<T>) {
    let end = if run.interrupted { "interrupted" } else { "done" };
    match (&run.evaluation, &run.best) {
        (Some(last), Some(best)) => output::note(format_args!(
            "{end} after {} steps: validation loss {:.4} {} at step {}, best {}",
            run.steps,
            last.loss,
            run.corpus.loss_unit(),
            last.step,
            best.in_words(&run.monitor)
        )),
        _ => output::note(format_args!("{end} after {} steps", run.steps)),
    }
    let folder = run.folder.path().display().to_string();
    if run.interrupted {
        output::note(format_args!("resume with: firelight train --resume --out {folder}"));
        output::note(format_args!("report with: firelight report {folder}"));
        std::process::exit(INTERRUPTED);
    }
    output::note(format_args!("{}", T::next(&folder)));
}

/// Shows what the model makes, and draws the report.
fn show<T: Shown>(run: &TrainedRun<T>, chosen: &NamedDevice) -> Result<()> {
    let samples = T::samples(run, chosen)?;
    run.write_report(samples.clone())?;
    output::note(format_args!("report: {}", run.folder.report().display()));
    output::note(format_args!("{}:", T::SHOWS));
    for Sample { input, output, expected } in samples {
        let expected = expected.map_or(String::new(), |expected| format!(" (expected: {expected})"));
        output::note(format_args!("{input}{expected}:"));
        output::print(&format!("{}\n", output.trim()))?;
    }
    Ok(())
}
