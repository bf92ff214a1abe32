//! What an experiment is and what of it is done, as `experiment.json` in its folder: it is what makes an experiment resumable.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, StorageError, read_json, write_json};
use serde::{Deserialize, Serialize};
use toml::Value;

use super::{Axis, Grid};
use crate::metrics_log::read_metrics;
use crate::{AnyRecipe, RecipeError, TrainingError};

/// The name of the file.
const FILE: &str = "experiment.json";

/// No such file is larger, in bytes.
const LIMIT: u64 = 256 << 20;

/// What decides about the results of an experiment: the same plan gives the same results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentPlan {
    /// The whole recipe of the first point, as TOML.
    pub recipe: String,
    /// What is trained on.
    pub data: Vec<String>,
    /// What is varied.
    pub axes: Vec<Axis>,
    /// Whether each axis is varied alone.
    pub one_at_a_time: bool,
    /// Trainings of each combination.
    pub seeds: usize,
}

/// How a training ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// It took all of its steps.
    Done(Measured),
    /// It ended with an error.
    Failed {
        /// What was said.
        message: String,
    },
}

/// What a training has reached, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The metric at the best evaluation, by which the run keeps its best weights.
    pub value: f64,
    /// Whether a higher value is a better one.
    pub higher_is_better: bool,
    /// The steps done before that evaluation.
    pub best_step: usize,
    /// The steps done.
    pub steps: usize,
    /// Numbers that the model has.
    pub parameters: usize,
    /// Those outside of tables with a row for each token or position.
    pub non_embedding_parameters: usize,
    /// Tokens of all steps, padding included.
    pub tokens: f64,
    /// Floating point operations of all steps, forward and backward.
    pub flops: f64,
}

/// The plan of an experiment and the outcomes so far, in its folder.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
    written: Written,
}

/// The content of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Written {
    plan: ExperimentPlan,
    outcomes: BTreeMap<String, Outcome>,
}

impl ExperimentPlan {
    /// The plan of a grid; `recipe` is that of its first point.
    pub fn new(grid: &Grid, recipe: String, data: &[PathBuf]) -> Self {
        let data = data.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string());
        let (axes, one_at_a_time, seeds) = (grid.axes.clone(), grid.one_at_a_time, grid.seeds);
        Self { recipe, data: data.collect(), axes, one_at_a_time, seeds }
    }

    /// What another plan says otherwise, in words.
    fn differences(&self, began: &Self) -> Result<Vec<String>, RecipeError> {
        let changed =
            |name: &str, was: String, is: String| (was != is).then(|| format!("{name} was {was} and is {is}"));
        let axis = |plan: &Self, key: &str| {
            let found = plan.axes.iter().find(|axis| axis.key == key);
            found.map_or_else(|| "not varied".to_string(), |axis| axis.values.join(","))
        };
        let given = |plan: &Self| if plan.one_at_a_time { "given" } else { "left out" }.to_string();
        let data = |plan: &Self| if plan.data.is_empty() { "left out".to_string() } else { plan.data.join(", ") };
        let keys = self.keys(began);
        let mut found: Vec<String> = keys
            .iter()
            .filter_map(|key| changed(&format!("--vary {key}"), axis(began, key), axis(self, key)))
            .collect();
        found.extend(changed("--one-at-a-time", given(began), given(self)));
        found.extend(changed("--seeds", began.seeds.to_string(), self.seeds.to_string()));
        found.extend(changed("--data", data(began), data(self)));
        found.extend(self.changes_of_recipe(began)?);
        if found.is_empty() && self.axes != began.axes {
            found.push("the --vary options had another order".into()); // and so have the points
        }
        Ok(found)
    }

    /// What the recipes say otherwise, beside the keys that are varied.
    fn changes_of_recipe(&self, began: &Self) -> Result<Vec<String>, RecipeError> {
        let (old, new) = (values(&began.recipe)?, values(&self.recipe)?);
        // One at a time, the recipe is that of the baseline, whose values all points share.
        let varied = if self.one_at_a_time && began.one_at_a_time { Vec::new() } else { self.keys(began) };
        let shown = |value: Option<&Value>| value.map_or_else(|| "left out".to_string(), ToString::to_string);
        let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        let differing = keys.filter(|key| old.get(*key) != new.get(*key) && !varied.contains(key));
        Ok(differing.map(|key| format!("{key} was {} and is {}", shown(old.get(key)), shown(new.get(key)))).collect())
    }

    /// The keys that are varied here or there.
    fn keys<'a>(&'a self, began: &'a Self) -> Vec<&'a String> {
        let mut keys: Vec<&String> = began.axes.iter().chain(&self.axes).map(|axis| &axis.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

fn values(recipe: &str) -> Result<BTreeMap<String, Value>, RecipeError> {
    AnyRecipe::parse(recipe, FILE, &[])?.values()
}

impl Journal {
    /// The experiment of this plan in a folder, or a new one where the folder is missing or empty; nothing is written yet.
    ///
    /// # Errors
    /// If the folder holds another experiment, with all that is different, or anything else, or it cannot be read.
    pub fn open(folder: impl AsRef<Path>, plan: ExperimentPlan) -> Result<Self, RecipeError> {
        let folder = folder.as_ref();
        let file = folder.join(FILE);
        if !file.is_file() {
            check_empty(folder)?;
            return Ok(Self { folder: folder.into(), written: Written { plan, outcomes: BTreeMap::new() } });
        }
        let written: Written = read_json(&file, LIMIT)?;
        let differences = plan.differences(&written.plan)?;
        if differences.is_empty() {
            return Ok(Self { folder: folder.into(), written });
        }
        let problem = format!("is of another experiment: {}", differences.join("; "));
        let advice = "name another folder by --out, or repeat the command that began this one";
        Err(InputError::in_file(&file, problem).advise(advice).into())
    }

    /// Makes the folder where it is missing, and writes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self) -> Result<(), StorageError> {
        fs::create_dir_all(&self.folder).map_err(StorageError::io("create the folder", &self.folder))?;
        write_json(self.folder.join(FILE), &self.written)
    }

    /// Where the run of a point lies.
    pub fn run_folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// How the trainings ended that have, by the names of their points.
    pub fn outcomes(&self) -> &BTreeMap<String, Outcome> {
        &self.written.outcomes
    }

    /// Whether a point is done, and its folder still there.
    pub fn is_done(&self, name: &str) -> bool {
        matches!(self.written.outcomes.get(name), Some(Outcome::Done(_))) && self.run_folder(name).is_dir()
    }

    /// Notes how a training ended.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&mut self, name: &str, outcome: Outcome) -> Result<(), StorageError> {
        self.written.outcomes.insert(name.into(), outcome);
        self.save()
    }
}

/// Refuses a folder that holds something.
fn check_empty(folder: &Path) -> Result<(), RecipeError> {
    if !folder.exists() {
        return Ok(());
    }
    let mut entries = fs::read_dir(folder).map_err(StorageError::io("read the folder", folder))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => {
            let problem = format!("holds other files and no {FILE}: expected a new folder, or that of an experiment");
            Err(InputError::in_file(folder, problem).advise("name another one by --out").into())
        }
    }
}

impl Measured {
    /// The value of a metric of the task in `metrics.jsonl`, at the evaluation after so many steps.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no such number.
    pub fn value_in(metrics: impl AsRef<Path>, step: usize, name: &str) -> Result<f64, TrainingError> {
        let path = metrics.as_ref();
        let text = read_metrics(path)?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let value = |line: serde_json::Value| if line["step"] == step { line[name].as_f64() } else { None };
        let missing = || InputError::in_file(path, format!("holds no `{name}` of step {step}"));
        Ok(lines.rev().find_map(value).ok_or_else(missing)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(axes: &[&str], seeds: usize, steps: usize) -> ExperimentPlan {
        let axes = axes.iter().map(|text| Axis::parse(text).unwrap()).collect();
        let recipe = format!("task = \"toy\"\nseed = 1\n[model]\nd_model = 8\n[training]\nsteps = {steps}\n");
        ExperimentPlan::new(&Grid::new(axes, false, seeds).unwrap(), recipe, &[])
    }

    fn measured(value: f64) -> Measured {
        Measured {
            value,
            higher_is_better: false,
            best_step: 2,
            steps: 3,
            parameters: 20,
            non_embedding_parameters: 10,
            tokens: 6.0,
            flops: 720.0,
        }
    }

    #[test]
    fn what_is_noted_is_found_again_by_the_same_plan() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/b");
        let first = plan(&["model.d_model=8,16"], 1, 3);
        let mut journal = Journal::open(&folder, first.clone()).unwrap();
        assert!(!folder.exists(), "nothing is written before it is asked for");
        journal.note("d_model=8,seed=1", Outcome::Done(measured(0.5))).unwrap();
        journal.note("d_model=16,seed=1", Outcome::Failed { message: "no".into() }).unwrap();
        fs::create_dir(journal.run_folder("d_model=8,seed=1")).unwrap();

        let again = Journal::open(&folder, first).unwrap();
        assert_eq!(again.outcomes(), journal.outcomes());
        assert!(again.is_done("d_model=8,seed=1") && !again.is_done("d_model=16,seed=1"));
        fs::remove_dir(again.run_folder("d_model=8,seed=1")).unwrap();
        assert!(!again.is_done("d_model=8,seed=1"), "its run is gone");
    }

    #[test]
    fn another_recipe_or_grid_is_refused_by_name() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("one");
        let axis = "model.d_model=8,16";
        Journal::open(&folder, plan(&[axis], 2, 3)).unwrap().save().unwrap();
        let message = |other| Journal::open(&folder, other).unwrap_err().to_string();
        for (other, expected) in [
            (plan(&[axis], 3, 3), "--seeds was 2 and is 3"),
            (plan(&[axis], 2, 4), "training.steps was 3 and is 4"),
            (plan(&["model.d_model=8"], 2, 3), "--vary model.d_model was 8,16 and is 8"),
            (plan(&[axis, "model.n=1"], 2, 3), "--vary model.n was not varied and is 1"),
            (
                ExperimentPlan { one_at_a_time: true, ..plan(&[axis], 2, 3) },
                "--one-at-a-time was left out and is given",
            ),
            (ExperimentPlan { data: vec!["x.txt".into()], ..plan(&[axis], 2, 3) }, "--data was left out and is x.txt"),
        ] {
            let found = message(other);
            assert!(found.contains(expected) && found.contains("experiment.json` is of another experiment"), "{found}");
            assert_eq!(found.matches(" was ").count(), 1, "{found}");
        }
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("notes.txt"), "x").unwrap();
        let error = Journal::open(home.path(), plan(&["model.d_model=8"], 1, 3)).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("no experiment.json"), "{error}");
        assert!(!home.path().join(FILE).exists());
    }

    #[test]
    fn a_metric_is_read_from_its_evaluation() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("metrics.jsonl");
        fs::write(&file, "{\"step\":2,\"bleu\":0.1}\n{\"step\":4,\"loss\":1.0}\n{\"step\":4,\"bleu\":0.3}\n").unwrap();
        assert_eq!(Measured::value_in(&file, 4, "bleu").unwrap(), 0.3);
        let error = Measured::value_in(&file, 5, "bleu").unwrap_err().to_string();
        assert!(error.contains("holds no `bleu` of step 5"), "{error}");
    }
}
