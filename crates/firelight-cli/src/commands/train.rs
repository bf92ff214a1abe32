//! `firelight train`: a recipe and a text become a run folder, and a sample shows what was learned.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use burn::tensor::Device;
use burn::train::Interrupter;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{LearningRateMetric, LossMetric};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use firelight::device::{self, NamedDevice};
use firelight::generation::GenerationOptions;
use firelight::language::{Check, LmTask, Run, RunRequest, TextGenerator, TrainedRun};
use firelight::storage::{Checkpoint, Existing};
use firelight::training::metrics::{Perplexity, TokensPerSecond};
use firelight::training::{Extension, Observer, ProgressBar, TensorBoard};

use super::{opening, place};
use crate::interruption::INTERRUPTED;
use crate::{interruption, output};

/// Length of the sample after the training, in tokens.
const SAMPLE_TOKENS: usize = 400;

/// Train a model by a recipe; without one, a small GPT on generated stories
#[derive(clap::Args, Default)]
pub(crate) struct Train {
    /// Recipe file (TOML); without one, the embedded recipe of small English stories
    recipe: Option<PathBuf>,
    /// Text file (UTF-8) to train on
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Run folder to write; without one, the next free runs/RECIPE-N
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop after N steps; the learning rate schedule stays the recipe's
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Seed of the weights, the order of the data and dropout
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Device: flex, ndarray, wgpu, vulkan, metal, cuda or rocm, with an index such as cuda:1, or auto
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Override a value of the recipe, such as model.d_model=64; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// Replace an existing run folder
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Continue the run in the folder --out from its newest checkpoint; a command with a recipe begins it if need be
    #[arg(long, requires = "out")]
    resume: bool,
    /// Check recipe and text, say what the training would cost, and stop
    #[arg(long)]
    dry_run: bool,
    /// First check that the model keeps the future out, ignores padding, begins at ln V and learns one batch by heart
    #[arg(long)]
    self_check: bool,
    /// Show Burn's dashboard in the place of the progress bar
    #[arg(long)]
    tui: bool,
    /// Write TensorBoard event files into the run folder too
    #[arg(long)]
    tensorboard: bool,
}

impl Train {
    pub(crate) fn run(self) -> Result<()> {
        let chosen = device::choose(self.device.as_deref())?;
        let (dry_run, checked, view) = (self.dry_run, self.self_check, self.view());
        let request = self.request(&chosen.device);
        if dry_run {
            return estimate(&request);
        }
        let run = Run::prepare(&request)?;
        if run.is_finished() {
            conclude_finished(&run);
            return Ok(());
        }
        announce(&run, &place(&chosen));
        if checked {
            self_check(&run)?;
        }
        let trained = train(run, &view)?;
        conclude(&trained);
        show(&trained, &chosen)
    }

    fn request(self, device: &Device) -> RunRequest {
        let (existing, overrides) = (self.existing(), self.overrides());
        RunRequest { recipe: self.recipe, overrides, data: self.data, out: self.out, existing, device: device.clone() }
    }

    fn view(&self) -> View {
        View { tui: self.tui, tensorboard: self.tensorboard }
    }

    fn existing(&self) -> Existing {
        match (self.force, self.resume) {
            (true, _) => Existing::Force,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }

    /// All overrides in the order of their weight: the short options are the last word.
    fn overrides(&self) -> Vec<(String, String)> {
        let steps = self.steps.map(|steps| ("training.steps".to_string(), steps.to_string()));
        let seed = self.seed.map(|seed| ("seed".to_string(), seed.to_string()));
        self.overrides.iter().cloned().chain(steps).chain(seed).collect()
    }
}

pub(super) fn parse_override(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected SECTION.KEY=VALUE, such as model.d_model=64")?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

/// Says what a training would cost.
fn estimate(request: &RunRequest) -> Result<()> {
    let estimate = Run::estimate(request)?;
    output::print(&format!("{estimate}\n"))?;
    Ok(())
}

/// Says what holds, and refuses to train a model of which something does not.
fn self_check(run: &Run) -> Result<()> {
    let checks = run.self_check()?;
    checks.iter().for_each(|check| output::note(format_args!("self-check: {check}")));
    ensure!(checks.iter().all(Check::holds), "the self-check failed, so nothing was trained");
    Ok(())
}

/// What a training shows while it goes on.
struct View {
    tui: bool,
    tensorboard: bool,
}

/// Trains under the eyes of a progress bar or of Burn's dashboard.
fn train(run: Run, view: &View) -> Result<TrainedRun> {
    let interrupter = Interrupter::new();
    interruption::listen(&interrupter)?;
    let mut observers: Vec<Box<dyn Observer>> = Vec::new();
    if !view.tui {
        observers.push(Box::new(ProgressBar::new()));
    }
    if view.tensorboard {
        observers.push(Box::new(TensorBoard::create(run.folder.tensorboard())?));
    }
    let dashboard = view.tui.then(|| dashboard(interrupter.clone()));
    Ok(run.fit_with(observers, interrupter, dashboard)?)
}

/// Burn's own screen, with the numbers of a language model on it.
fn dashboard(interrupter: Interrupter) -> Extension<LmTask> {
    Box::new(|training| {
        let renderer = TuiMetricsRendererWrapper::new(interrupter, None);
        let metrics = (LossMetric::new(), Perplexity::new(), TokensPerSecond::new(), LearningRateMetric::new());
        training.with_metric_logger(InMemoryMetricLogger::new()).renderer(Box::new(renderer)).metrics(metrics)
    })
}

/// Says that there is nothing to do.
fn conclude_finished(run: &Run) {
    let folder = run.folder.path().display();
    let best = run.best().map_or(String::new(), |best| format!(", best {:.4} at step {}", best.loss, best.step));
    output::note(format_args!("the run in {folder} is finished after {} steps{best}: nothing was changed", run.done()));
    output::note(format_args!("train it further with: firelight train --resume --out {folder} --steps N"));
}

/// Says what is about to happen.
fn announce(run: &Run, place: &str) {
    let verb = if run.done() == 0 { "training" } else { "resuming" };
    output::note(format_args!(
        "{verb} in {} on {place}: {} parameters, {} tokens to train on, {} to validate on, from step {} to {}",
        run.folder.path().display(),
        run.report().total(),
        run.training.len(),
        run.validation.len(),
        run.done(),
        run.recipe.training.steps.max(run.done()),
    ));
}

/// Says what came of it; a run that was interrupted ends here, as shells expect it to.
fn conclude(run: &TrainedRun) {
    let end = if run.interrupted { "interrupted" } else { "done" };
    match (&run.evaluation, &run.best) {
        (Some(last), Some(best)) => output::note(format_args!(
            "{end} after {} steps: validation loss {:.4} nats per token, best {:.4} at step {}",
            run.steps, last.loss, best.loss, best.step
        )),
        _ => output::note(format_args!("{end} after {} steps", run.steps)),
    }
    let folder = run.folder.path().display();
    if run.interrupted {
        output::note(format_args!("resume with: firelight train --resume --out {folder}"));
        std::process::exit(INTERRUPTED);
    }
    output::note(format_args!("continue a text with: firelight generate {folder} --prompt TEXT"));
}

/// Reads the model back from its folder, as any later command will, lets it write, and draws the report.
fn show(run: &TrainedRun, chosen: &NamedDevice) -> Result<()> {
    let generator = TextGenerator::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
    let prompt = opening(generator.tokenizer());
    let text = generator.generate(&prompt, &GenerationOptions::new(SAMPLE_TOKENS))?.text;
    run.write_report(&place(chosen), &[(&prompt, &text)])?;
    output::note(format_args!("report: {}", run.folder.report().display()));
    output::note(format_args!("checkpoint: last; a sample:"));
    output::print(&format!("{}\n", text.trim()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_split_at_the_first_equals_sign() {
        let parsed = parse_override("optimizer.kind = adamw=x").unwrap();
        assert_eq!(parsed, ("optimizer.kind".to_string(), "adamw=x".to_string()));
        assert!(parse_override("model.d_model").is_err());
    }

    #[test]
    fn the_short_options_come_last() {
        let overrides = vec![("seed".into(), "1".into())];
        let train = Train { steps: Some(5), seed: Some(7), overrides, ..Train::default() };
        let expected = [("seed", "1"), ("training.steps", "5"), ("seed", "7")];
        assert_eq!(train.overrides(), expected.map(|(key, value)| (key.to_string(), value.to_string())));
    }
}
