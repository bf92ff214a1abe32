//! From a recipe, its overrides and its data to everything that a run begins with.

use std::fs;
use std::path::Path;

use burn::tensor::Device;

use super::{RecipeOf, RunRequest, Task, built_in};
use crate::recipe::task_in;
use crate::validation::Metrics;
use crate::{AnyRecipe, Recipe, RecipeError};

/// What a run begins with, all of it checked.
pub(super) struct Plan<T: Task> {
    pub(super) recipe: RecipeOf<T>,
    pub(super) corpus: T::Corpus,
    pub(super) config: T::Config,
}

impl<T: Task> Plan<T> {
    pub(super) fn new(request: &RunRequest) -> Result<Self, T::Error> {
        let source = request.recipe.clone().unwrap_or_else(|| T::BUILT_IN[0].name.into());
        let mut recipe = read_recipe::<T>(request.recipe.as_deref(), &request.overrides)?;
        recipe.training.check_device(&request.device)?;
        let corpus = T::read(&mut recipe, &source, &request.data)?;
        let config = T::config(&recipe, &corpus, &source)?;
        check_groups::<T>(&recipe, &config, &source, &request.device)?;
        Metrics::new(T::metrics(&corpus, &recipe), &recipe.training.best_by)?;
        recipe.training = recipe.training.clone().over(T::batches_of_an_epoch(&corpus, &recipe)?);
        Ok(Self { recipe, corpus, config })
    }
}

/// Finds groups of parameters that the model does not have; only a model knows its parameters.
fn check_groups<T: Task>(
    recipe: &RecipeOf<T>,
    config: &T::Config,
    source: &Path,
    device: &Device,
) -> Result<(), RecipeError> {
    if recipe.optimizer.groups.is_empty() {
        return Ok(());
    }
    let place = format!("`{}`", source.display());
    let problems = recipe.optimizer.validate_for(&T::model(config, recipe.seed, device));
    problems.map_err(|error| RecipeError::Range { place, text: error.to_string() })
}

/// The recipe at `path`, the built-in one of that name where there is no such file, or without a path the first of those, with
/// overrides such as `("training.steps", "500")`; checked, as far as it can be without the data.
///
/// # Errors
/// If the file cannot be read, or is no recipe of the task.
pub fn read_recipe<T: Task>(path: Option<&Path>, overrides: &[(String, String)]) -> Result<RecipeOf<T>, RecipeError> {
    let name = path.unwrap_or(Path::new(T::BUILT_IN[0].name));
    let found = if path.is_some() { built_in::<T>(name) } else { T::BUILT_IN.first().copied() };
    let text = found.map_or_else(|| read(name), |recipe| Ok(recipe.text.to_string()))?;
    let recipe = Recipe::parse_with(&text, &name.display().to_string(), overrides, T::judge)?;
    match recipe.task == T::NAME {
        true => Ok(recipe),
        false => Err(RecipeError::Task { path: name.into(), found: recipe.task, expected: format!("`{}`", T::NAME) }),
    }
}

/// The recipe at `path`, whatever its task is.
///
/// # Errors
/// If the file cannot be read, or something is wrong with what all recipes share.
pub fn read_any_recipe(path: &Path, overrides: &[(String, String)]) -> Result<AnyRecipe, RecipeError> {
    AnyRecipe::parse(&read(path)?, &path.display().to_string(), overrides)
}

/// The task that the recipe at `path` is for, whatever else it says.
///
/// # Errors
/// If the file cannot be read, is no TOML, or names no task.
pub fn task_of(path: &Path) -> Result<String, RecipeError> {
    task_in(&read(path)?, &path.display().to_string())
}

fn read(path: &Path) -> Result<String, RecipeError> {
    fs::read_to_string(path).map_err(|reason| RecipeError::File { path: path.into(), reason })
}
