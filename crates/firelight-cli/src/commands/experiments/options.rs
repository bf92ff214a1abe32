//! What an experiment is asked, and its course: everything is checked, then one point after the other is trained.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail, ensure};
use burn::tensor::Device;
use burn::train::Interrupter;
use firelight::device::{self, NamedDevice};
use firelight::storage::Existing;
use firelight::training::experiments::{Axis, Choices, ExperimentPlan, Grid, Journal, Outcome, Point};
use firelight::training::{Estimate, RecipeOf, Run, RunRequest, read_new_recipe, task_of};

use super::super::recipes;
use super::super::tasks::{Shown, with_task};
use super::super::train::parse_override;
use super::finished::Finished;
use super::training;
use crate::failure::Mistake;
use crate::interruption::INTERRUPTED;
use crate::{failure, interruption, output};

/// The most trainings that are begun without --yes.
const MOST: usize = 1000;

/// Refused combinations that are told.
const TOLD: usize = 5;

#[derive(clap::Args)]
pub(super) struct GridOptions {
    /// Recipe file (TOML), or the name of an embedded one (`firelight recipes`)
    recipe: PathBuf,
    /// Key, or its last part, and its values: KEY=V1,V2,... or KEY=FROM..TO:COUNT with equal ratios; may be repeated
    #[arg(long = "vary", value_name = "KEY=VALUES", required = true, value_parser = Axis::parse)]
    axes: Vec<Axis>,
    /// Vary each key by itself around the recipe, and not all of them together
    #[arg(long)]
    one_at_a_time: bool,
    /// Trainings of each combination, with the recipe's seed and those that follow it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// Folder of the experiment, in which the same command again goes on; by default runs/RECIPE-experiment
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// File or folder to train on, as with `firelight train`; may be repeated
    #[arg(long, value_name = "PATH")]
    data: Vec<PathBuf>,
    /// Metric that is compared, and by which each run keeps its best weights; by default training.monitor
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Override a value of the recipe in all trainings, such as training.steps=500; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// Device, such as cpu, wgpu or cuda:1; `firelight devices` lists those found
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Train more than 1,000 points
    #[arg(long)]
    yes: bool,
    /// Check all points and print what each costs; nothing is trained or written
    #[arg(long)]
    dry_run: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl GridOptions {
    /// Trains all points that are not done; none where only their costs were asked for. `of_loss` refuses any other metric.
    pub(super) fn train(&self, of_loss: bool) -> Result<Option<Finished>> {
        let task = match recipes::named(&self.recipe)? {
            Some(embedded) => embedded.task.to_string(),
            None => task_of(&self.recipe)?,
        };
        let unknown = || Mistake(format!("`{}` is for the unknown task `{task}`", self.recipe.display()));
        with_task!(task.as_str(), |T| self.train_as::<T>(of_loss), bail!(unknown()))
    }

    fn train_as<T: Shown>(&self, of_loss: bool) -> Result<Option<Finished>> {
        let chosen = device::choose(self.device.as_deref())?;
        let grid = self.grid(self.axes_of::<T>()?)?;
        let first = self.recipe_of_first::<T>(&grid)?;
        let metric = first.training.monitor.clone();
        let is_right = !of_loss || metric == "loss";
        ensure!(
            is_right,
            Mistake(format!("scaling laws are of the loss, and the metric is `{metric}`: give --metric loss"))
        );
        let points = grid.points(first.seed);
        let plan = ExperimentPlan::new(&grid, first.to_toml()?, &self.data);
        let journal = Journal::open(self.folder(), plan)?;
        let waiting: Vec<Point> = points.iter().filter(|point| !journal.is_done(&point.name)).cloned().collect();
        let estimates = self.estimates::<T>(&grid, &waiting, &chosen.device)?;
        if self.dry_run {
            output::print(&costs(&grid, &estimates))?;
            return Ok(None);
        }
        let (folder, json) = (self.folder(), self.json);
        let mut finished = Finished { grid, points, journal, metric, folder, json };
        announce(&finished, waiting.len(), self.seeds as usize, &estimates);
        self.train_points::<T>(&mut finished, &waiting, &chosen)?;
        Ok(Some(finished))
    }

    fn folder(&self) -> PathBuf {
        let name = self.recipe.file_stem().unwrap_or_default().to_string_lossy();
        self.out.clone().unwrap_or_else(|| Path::new("runs").join(format!("{name}-experiment")))
    }

    /// What is varied, with whole keys. The recipe is read for keys that are not.
    fn axes_of<T: Shown>(&self) -> Result<Vec<Axis>> {
        if self.axes.iter().all(|axis| axis.key.contains('.')) {
            return Ok(self.axes.clone());
        }
        let recipe = read_new_recipe::<T>(Some(&self.recipe), &self.overrides(&[]))?.to_toml()?;
        Ok(self.axes.iter().cloned().map(|axis| axis.of_recipe(&recipe)).collect::<Result<_, _>>()?)
    }

    fn grid(&self, axes: Vec<Axis>) -> Result<Grid> {
        let has_metric = axes.iter().any(|axis| axis.key == "training.monitor");
        let grid = Grid::new(axes, self.one_at_a_time, self.seeds as usize)?;
        let (size, yes) = (grid.size(), self.yes);
        ensure!(
            yes || size <= MOST,
            Mistake(format!("these are {size} trainings: vary fewer values, or train more than {MOST} with --yes"))
        );
        ensure!(
            !has_metric,
            Mistake("points of different metrics cannot be compared: give --metric, or one --set".into())
        );
        Ok(grid)
    }

    /// Reads the recipe of every combination, and returns the first.
    fn recipe_of_first<T: Shown>(&self, grid: &Grid) -> Result<RecipeOf<T>> {
        let read = |choices: &Choices| -> Result<RecipeOf<T>> {
            Ok(read_new_recipe::<T>(Some(&self.recipe), &self.overrides(choices))?)
        };
        let recipes = checked(grid, &grid.combinations(), read)?;
        Ok(recipes.into_iter().next().unwrap_or_else(|| unreachable!("a grid has a point")))
    }

    /// Checks the data and the model of every combination that has a point to be trained, and tells what each costs.
    fn estimates<T: Shown>(&self, grid: &Grid, waiting: &[Point], device: &Device) -> Result<Vec<(Choices, Estimate)>> {
        let mut combinations: Vec<Choices> = waiting.iter().map(|point| point.choices.clone()).collect();
        combinations.dedup();
        let estimate = |choices: &Choices| -> Result<(Choices, Estimate)> {
            let request = self.request(self.overrides(choices), device);
            Ok((choices.clone(), Run::<T>::estimate(&request)?))
        };
        checked(grid, &combinations, estimate)
    }

    /// Trains the points one after the other. One that fails is noted; an interruption ends the command.
    fn train_points<T: Shown>(&self, finished: &mut Finished, waiting: &[Point], chosen: &NamedDevice) -> Result<()> {
        finished.journal.save()?;
        let interrupter = Interrupter::new();
        interruption::listen(&interrupter)?;
        for (point, number) in waiting.iter().zip(1..) {
            output::note(format_args!("training {number} of {}: {}", waiting.len(), point.name));
            let mut overrides = self.overrides(&point.choices);
            overrides.push(("seed".into(), point.seed.to_string()));
            let (out, existing) = (Some(finished.journal.run_folder(&point.name)), Existing::Continue);
            let request = RunRequest { out, existing, ..self.request(overrides, &chosen.device) };
            let outcome = match training::train::<T>(&request, chosen, &interrupter) {
                Ok(Some(measured)) => Some(Outcome::Done(measured)),
                Ok(None) => None,
                Err(error) => Some(Outcome::Failed { message: failure::problems(&error).join("; ") }),
            };
            if let Some(Outcome::Failed { message }) = &outcome {
                output::note(format_args!("{} failed: {message}", point.name));
            }
            let is_interrupted = outcome.is_none() || (interrupter.should_stop() && number < waiting.len());
            if let Some(outcome) = outcome {
                finished.journal.note(&point.name, outcome)?;
            }
            finished.write_records()?;
            if is_interrupted {
                output::note(format_args!("interrupted; the same command goes on"));
                std::process::exit(INTERRUPTED);
            }
        }
        finished.write_records()
    }

    /// All overrides of a combination in the order of their weight.
    fn overrides(&self, choices: &[(String, String)]) -> Vec<(String, String)> {
        let metric = self.metric.iter().map(|metric| ("training.monitor".to_string(), format!("{metric:?}")));
        self.overrides.iter().cloned().chain(metric).chain(choices.iter().cloned()).collect()
    }

    fn request(&self, overrides: Vec<(String, String)>, device: &Device) -> RunRequest {
        let (recipe, data) = (Some(self.recipe.clone()), self.data.clone());
        RunRequest { recipe, overrides, data, ..RunRequest::new(device) }
    }
}

/// What `check` says of every combination.
///
/// # Errors
/// If it refuses any, before anything is trained: with the error itself where all are refused alike, or else with those that are.
fn checked<R>(grid: &Grid, combinations: &[Choices], check: impl Fn(&Choices) -> Result<R>) -> Result<Vec<R>> {
    let (mut found, mut refused) = (Vec::new(), Vec::<(String, Error)>::new());
    for choices in combinations {
        match check(choices) {
            Ok(fit) => found.push(fit),
            Err(error) if !failure::is_user_error(&error) => return Err(error),
            Err(error) => refused.push((grid.label(choices), error)),
        }
    }
    if refused.is_empty() {
        return Ok(found);
    }
    let told: Vec<String> = refused.iter().map(|(_, error)| failure::problems(error).join("; ")).collect();
    let is_one = refused.len() == combinations.len() && told.iter().all(|text| *text == told[0]);
    if is_one {
        return Err(refused.swap_remove(0).1);
    }
    let shown = refused.iter().zip(&told).take(TOLD).map(|((label, _), text)| format!("`{label}`: {text}"));
    let more = refused.len().saturating_sub(TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let (count, all) = (refused.len(), combinations.len());
    let shown = shown.collect::<Vec<_>>().join("; ");
    bail!(Mistake(format!("{count} of {all} combinations are refused, and nothing was trained: {shown}{more}")))
}

/// A line for each combination, with what one of its trainings costs.
fn costs(grid: &Grid, estimates: &[(Choices, Estimate)]) -> String {
    let mut text = String::new();
    for (choices, estimate) in estimates {
        let _ = writeln!(text, "{}: {estimate}", grid.label(choices));
    }
    text
}

/// Says how much there is to do. Seeds that are done already count with their combination: the sum is the most that it takes.
fn announce(finished: &Finished, waiting: usize, seeds: usize, estimates: &[(Choices, Estimate)]) {
    let whole = |estimate: &Estimate| {
        estimate.flops_per_token * estimate.tokens_per_step as f64 * estimate.steps as f64 * seeds as f64
    };
    let flops: f64 = estimates.iter().map(|(_, estimate)| whole(estimate)).sum();
    let (all, folder) = (finished.points.len(), finished.folder.display());
    output::note(format_args!("{all} trainings in {folder}, {waiting} of them to do: at most {flops:.2e} FLOP"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid::new(vec![Axis::parse("model.a=1,2,3").unwrap()], false, 1).unwrap()
    }

    fn message(check: impl Fn(&Choices) -> Result<()>) -> String {
        let grid = grid();
        checked(&grid, &grid.combinations(), check).unwrap_err().to_string()
    }

    #[test]
    fn combinations_are_refused_together() {
        let refuse = |text: &str| -> Result<()> { Err(Mistake(text.to_string()).into()) };
        assert_eq!(message(|_| refuse("no key")), "no key");
        let some =
            message(|choices| if choices[0].1 == "2" { Ok(()) } else { refuse(&format!("bad {}", choices[0].1)) });
        assert_eq!(some, "2 of 3 combinations are refused, and nothing was trained: `a=1`: bad 1; `a=3`: bad 3");
        assert_eq!(message(|_| Err(Error::msg("the disk failed"))), "the disk failed");
        let grid = grid();
        assert_eq!(checked(&grid, &grid.combinations(), |choices| Ok(choices[0].1.clone())).unwrap(), ["1", "2", "3"]);
    }
}
