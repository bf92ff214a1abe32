//! From a recipe, its overrides and its data to everything that a run begins with.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_storage::{InputError, ModelFolder, StorageError, read_text_file, shortened};
use toml::{Table, Value};

use super::embedded::unnamed;
use super::{DataModule, RecipeOf, RunRequest, Task, blocks, built_in, memory, stack, start};
use crate::config::all_of;
use crate::evaluator::deciding;
use crate::freeze;
use crate::path::fits;
use crate::ranks::Ranks;
use crate::recipe::{LIMIT, init_in, refuse, task_in};
use crate::{AnyRecipe, Problem, Recipe, RecipeError, fields_of};

/// What a run begins with, all of it checked.
pub(super) struct Plan<T: Task> {
    pub(super) recipe: RecipeOf<T>,
    pub(super) corpus: T::DataModule,
    pub(super) config: T::Config,
}

impl<T: Task> Plan<T> {
    /// As one of `ranks`.
    pub(super) fn new(request: &RunRequest, ranks: &Ranks) -> Result<Self, T::Error> {
        let plan = Self::unchecked(request)?.checked(request, ranks)?;
        let problems = start::check::<T>(&plan.recipe, &plan.config, &request.device)?;
        refused::<T>(request, &problems)?;
        Ok(plan)
    }

    /// The same of a training that this machine may not hold.
    pub(super) fn unchecked(request: &RunRequest) -> Result<Self, T::Error> {
        let source = request.recipe.clone().unwrap_or_else(|| unnamed::<T>().0.into());
        let mut recipe = read_new_recipe::<T>(request.recipe.as_deref(), &request.overrides)?;
        recipe.training.check_device(&request.device)?;
        warn_of_one_file::<T>(&recipe, &request.data);
        let corpus = T::DataModule::read(&mut recipe, &source, &request.data)?;
        if !request.data.is_empty() {
            T::DataModule::forget_generated(&mut recipe);
        }
        let config = T::config(&recipe, &corpus, &source)?;
        Ok(Self { recipe, corpus, config })
    }

    /// The same with its epochs counted in steps; refused where it asks for what the machine cannot hold or the model does not
    /// have. A run that is resumed is checked alike, because its recipe may have been edited.
    pub(super) fn checked(self, request: &RunRequest, ranks: &Ranks) -> Result<Self, T::Error> {
        let too_large = memory::check(&self, &request.device, ranks); // before anything of its size is made
        refused::<T>(request, too_large.as_slice())?;
        let batches = self.corpus.batches_per_epoch(&self.recipe)?;
        let plan = Self { recipe: self.recipe.over(batches), ..self };
        refused::<T>(request, &plan.problems(&request.device))?;
        Ok(plan)
    }

    /// Finds a metric that the task does not measure, adapters, groups, frozen parts or blocks that the model does not have, and a decay
    /// longer than the training: only the task knows its metrics, only a model its parameters, and only the data its epochs.
    fn problems(&self, device: &Device) -> Vec<Problem> {
        let Self { recipe, corpus, config } = self;
        let metric = deciding(&T::evaluator(corpus, recipe).scores(), &recipe.training.monitor).err();
        let metric = metric.map(|error| Problem { key: "training.monitor".into(), text: error.to_string() });
        let names_parameters = !recipe.optimizer.groups.is_empty() || !recipe.training.freeze.is_empty();
        let model = names_parameters.then(|| T::model(config, recipe.seed, device));
        let check = |model| {
            let own = super::run::frozen_by_adapters::<T>(config, &model);
            all_of([recipe.optimizer.validate_for(&model), freeze::check(&model, &own, &recipe.training.freeze)])
        };
        let parameters = model.and_then(|model| check(model).err());
        let parameters = parameters.map_or(Vec::new(), |error| error.problems().to_vec());
        let schedule = recipe.schedule.validate().err().map_or(Vec::new(), |error| error.problems().to_vec());
        let alone = (T::has_adapters(config) && recipe.init.from.is_none()).then(|| {
            let text = "adapters change a model that has learnt: name its run as init.from, or by --from";
            Problem { key: "model.adapters".into(), text: text.into() }
        });
        let structure = T::inspect(config, device);
        let structure = structure.into_iter().chain(blocks::problem::<T>(recipe, config, device));
        let found = metric.into_iter().chain(alone).chain(structure);
        found.chain(parameters).chain(schedule).collect()
    }
}

/// Refuses a request for `problems`, each with its place in the recipe.
fn refused<T: Task>(request: &RunRequest, problems: &[Problem]) -> Result<(), RecipeError> {
    if problems.is_empty() {
        return Ok(());
    }
    let (name, text) = source::<T>(request.recipe.as_deref())?;
    refuse(&text, &name, &request.overrides, problems)
}

/// Warns of a validation loss that says nothing about what the model has not seen.
fn warn_of_one_file<T: Task>(recipe: &RecipeOf<T>, data: &[PathBuf]) {
    let values = recipe.values().unwrap_or_default();
    if let Some(file) = one_file(&values, data) {
        log::warn!(
            "data.split.train and data.split.validation are both \"{file}\": the model is validated on what it is trained on"
        );
    }
}

/// The file that a recipe both trains and validates on, also where it names it in two ways; names are those of paths, or of files
/// within the data, with their ending or without.
fn one_file<'a>(values: &'a BTreeMap<String, Value>, data: &[PathBuf]) -> Option<&'a str> {
    let file = |key: &str| values.get(key).and_then(Value::as_str);
    let names @ [training, validation] = [file("data.split.train")?, file("data.split.validation")?];
    let mut places = [Path::new(".")].into_iter().chain(data.iter().map(PathBuf::as_path));
    let is_one = |place: &Path| {
        let [one, other] = names.map(|name| real(&place.join(name)));
        one.is_some() && one == other
    };
    (training == validation || places.any(is_one)).then_some(training)
}

/// A path in one way alone, whether its last part is there or not.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
}

/// The recipe at `path`, the built-in one of that name where there is no such file, or without a path the first of those, with
/// overrides such as `("training.steps", "500")`; checked, as far as it can be without the data.
///
/// # Errors
/// If the file cannot be read, or is no recipe of the task.
pub fn read_recipe<T: Task>(path: Option<&Path>, overrides: &[(String, String)]) -> Result<RecipeOf<T>, RecipeError> {
    read_beside::<T>(path, overrides, &Table::new())
}

/// The same of a training that is to begin: where `init.from` names a run, the keys of `[model]` that are left out are those of the
/// run. Those of its stack are what its `config.json` says, which may be more than its recipe does: heads may have been pruned. A built-in
/// recipe leaves its structure to the run, but for dropout, adapters and a new head.
///
/// # Errors
/// As [`read_recipe`], if there are no weights to begin from, or if a key says something else than that of the run.
pub fn read_new_recipe<T: Task>(path: Option<&Path>, overrides: &[(String, String)]) -> Result<RecipeOf<T>, T::Error> {
    let (name, text) = source::<T>(path)?;
    let Some(run) = init_in(&text, &name, overrides)?.run()? else { return Ok(read_recipe::<T>(path, overrides)?) };
    let model = model_in::<T>(&run)?;
    let is_own = path.is_some_and(|path| built_in::<T>(path).is_none());
    let text = if is_own || model.is_empty() { text } else { without_structure::<T>(&text, &run) };
    refuse(&text, &name, overrides, &said_twice((&text, overrides), &run, &model))?;
    let recipe = read_text::<T>((&name, &text), overrides, &model)?;
    refuse(&text, &name, overrides, &contradictions::<T>(&recipe, &run, &model))?;
    Ok(recipe)
}

/// What a recipe says of its layers in another way than the run that it begins from, so that both cannot stand together: by `patterns` where the
/// run has `layers`, or the other way round.
fn said_twice((text, overrides): (&str, &[(String, String)]), run: &ModelFolder, model: &Table) -> Vec<Problem> {
    let recipe: Table = text.parse().unwrap_or_default();
    let is_own = |key: &str| {
        let is_set = |(name, _): &(String, String)| name.strip_prefix("model.") == Some(key);
        recipe.get("model").is_some_and(|model| model.get(key).is_some()) || overrides.iter().any(is_set)
    };
    let of_run = |key: &str| model.get(key).and_then(Value::as_array).is_some_and(|layers| !layers.is_empty());
    let both_ways = [["patterns", "layers"], ["layers", "patterns"]].into_iter();
    let torn = both_ways.filter(|[own, other]| is_own(own) && !is_own(other) && of_run(other));
    let problem = |[own, other]: [&str; 2]| {
        let run = run.path().display();
        let text = format!(
            "model.{own} says what layers attend to, as model.{other} of the run `{run}` does that init.from names: leave it out"
        );
        Problem { key: format!("model.{own}"), text }
    };
    torn.map(problem).collect()
}

/// A built-in recipe without the structure of the model that it would begin from nothing.
fn without_structure<T: Task>(text: &str, run: &ModelFolder) -> String {
    let mut recipe: Table = text.parse().unwrap_or_default();
    let stays = |key: &str| {
        let is_new_head = !is_of::<T>(run) && T::HEAD_KEYS.contains(&key);
        is_new_head || key.ends_with("dropout") || key == "adapters" || key == "stochastic_depth"
    };
    if let Some(Value::Table(model)) = recipe.get_mut("model") {
        model.retain(|key, _| stays(key));
    }
    toml::to_string(&recipe).unwrap_or_else(|_| text.into())
}

/// Keys of `[model]` in which a run and one that begins from it may differ: no weight depends on them, or the weights themselves
/// tell.
const MAY_DIFFER: [&str; 5] = ["init", "max_seq_len", "n_layers", "stochastic_depth", "adapters"];

/// The `[model]` section of a run, as far as the task has its keys, with the stack that its structure has; adapters are merged.
fn model_in<T: Task>(run: &ModelFolder) -> Result<Table, T::Error> {
    let said = said_in::<T>(run);
    let (Some(place), Some(whole)) = (T::STACK, whole::<T>(&said)) else { return Ok(said) };
    let Some(corrected) = place.corrected(run, (&said, &whole), &MAY_DIFFER) else { return Ok(said) };
    if is_of::<T>(run) {
        start::structure_of::<T>(run)?; // what is wrong with it is told of its own file
    }
    Ok(corrected)
}

/// The `[model]` section of the recipe of a run, as far as the task has its keys.
fn said_in<T: Task>(run: &ModelFolder) -> Table {
    let text = read_text_file(run.recipe(), LIMIT).unwrap_or_default(); // weights of other programs have none
    let model = text.parse::<Table>().ok().and_then(|mut recipe| recipe.remove("model"));
    let Some(Value::Table(mut model)) = model else { return Table::new() };
    let known = fields_of::<T::Model>().unwrap_or_default();
    let is_known = |key: &str| known.contains(&key) && (is_of::<T>(run) || !T::HEAD_KEYS.contains(&key));
    model.retain(|key, _| key != "adapters" && is_known(key));
    model
}

/// What a `[model]` section means, with its defaults; none if the task cannot read it.
fn whole<T: Task>(model: &Table) -> Option<Table> {
    stack::table(&Value::Table(model.clone()).try_into::<T::Model>().ok()?)
}

fn is_of<T: Task>(run: &ModelFolder) -> bool {
    run.task().as_deref() == Some(T::NAME)
}

/// What a recipe says otherwise than the run that it begins from, whose `[model]` is `model`.
fn contradictions<T: Task>(recipe: &RecipeOf<T>, run: &ModelFolder, model: &Table) -> Vec<Problem> {
    let (Some(found), Some(own)) = (whole::<T>(model), stack::table(&recipe.model)) else { return Vec::new() };
    let leaves_head =
        !is_of::<T>(run) || T::HEAD.iter().any(|head| recipe.init.exclude.iter().any(|own| fits(own, head)));
    let may_differ = |key: &str| {
        MAY_DIFFER.contains(&key) || key.ends_with("dropout") || (leaves_head && T::HEAD_KEYS.contains(&key))
    };
    let shown = |value: Option<&Value>| value.map_or("left out".into(), |value| shortened(&value.to_string()));
    let keys = own.keys().chain(found.keys().filter(|key| !own.contains_key(*key)));
    let differing = keys.filter(|key| own.get(*key) != found.get(*key) && !may_differ(key));
    let problem = |key: &String| {
        let [own, found] = [&own, &found].map(|table| shown(table.get(key)));
        let run = run.path().display();
        let text = format!(
            "model.{key} = {own}, but {found} in the run `{run}` that init.from names: set it alike, or leave it out"
        );
        Problem { key: format!("model.{key}"), text }
    };
    differing.map(problem).collect()
}

/// The recipe, with the keys of `[model]` that it leaves out taken from `model`.
pub(super) fn read_beside<T: Task>(
    path: Option<&Path>,
    overrides: &[(String, String)],
    model: &Table,
) -> Result<RecipeOf<T>, RecipeError> {
    let (name, text) = source::<T>(path)?;
    read_text::<T>((&name, &text), overrides, model)
}

/// The recipe of a name and a text, with the keys of `[model]` that it leaves out taken from `model`.
pub(super) fn read_text<T: Task>(
    (name, text): (&str, &str),
    overrides: &[(String, String)],
    model: &Table,
) -> Result<RecipeOf<T>, RecipeError> {
    let check = |task: &str| match task == T::NAME {
        true => Ok(()),
        false => {
            let (found, expected) = (shortened(task), T::NAME);
            Err(InputError::new(format!("the recipe `{name}` is for the task `{found}`: expected `{expected}`")))
        }
    };
    check(&task_in(text, name)?)?; // before the keys, which are unknown to another task
    let recipe = Recipe::parse_beside(text, name, overrides, model, T::judge)?;
    check(&recipe.task)?; // which an override may have changed
    Ok(recipe)
}

/// The name in messages and the text of the recipe at `path`, or of a built-in one.
fn source<T: Task>(path: Option<&Path>) -> Result<(String, String), RecipeError> {
    let Some(path) = path else {
        let (name, text) = unnamed::<T>();
        return Ok((name.into(), text));
    };
    let text = built_in::<T>(path).map_or_else(|| read(path), |recipe| Ok(recipe.text.to_string()))?;
    Ok((path.display().to_string(), text))
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
    let text = read_text_file(path, LIMIT).map_err(|error| match error {
        StorageError::Io { cause, .. } => cause,
        other => io::Error::new(io::ErrorKind::InvalidInput, other),
    });
    Ok(text.map_err(StorageError::io("read the recipe", path))?)
}

#[cfg(test)]
mod tests {
    use firelight_storage::Existing;

    use super::super::Run;
    use super::super::toy_task::{Toy, request};
    use super::*;

    #[test]
    fn a_recipe_without_an_end_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("large.toml");
        let text = |spaces: u64| format!("task = \"toy\"{}", " ".repeat((spaces - 12) as usize));
        std::fs::write(&path, text(LIMIT)).unwrap();
        assert_eq!(task_of(&path).unwrap(), "toy");
        std::fs::write(&path, text(LIMIT + 1)).unwrap();
        let error = task_of(&path).unwrap_err().to_string();
        assert!(error.contains("large.toml` is larger than 1048576 bytes"), "{error}");
    }

    #[test]
    fn one_file_for_training_and_validation_is_found() {
        let home = tempfile::tempdir().unwrap();
        for name in ["a.tsv", "b.tsv"] {
            std::fs::write(home.path().join(name), "x").unwrap();
        }
        let found = |data: &str| {
            let recipe = AnyRecipe::parse(&format!("task = \"toy\"\n[data.split]\n{data}\n"), "toy.toml", &[]).unwrap();
            one_file(&recipe.values().unwrap(), &[home.path().into()]).map(str::to_string)
        };
        assert_eq!(found("train = \"all\"\nvalidation = \"all\"").as_deref(), Some("all"));
        assert_eq!(found("train = \"./a.tsv\"\nvalidation = \"a.tsv\"").as_deref(), Some("./a.tsv"));
        assert_eq!(found("train = \"train\"\nvalidation = \"./train\"").as_deref(), Some("train"));
        let whole = home.path().join("a.tsv");
        assert_eq!(found(&format!("train = \"a.tsv\"\nvalidation = {whole:?}")).as_deref(), Some("a.tsv"));
        for apart in [
            "train = \"all\"\nvalidation = \"dev\"",
            "train = \"a.tsv\"\nvalidation = \"./b.tsv\"",
            "train = \"all\"\nvalidation = 100",
            "tokenizer = \"char\"",
        ] {
            assert_eq!(found(apart), None, "{apart}");
        }
    }

    #[test]
    fn names_that_only_the_task_knows_are_all_reported_with_their_place_before_a_folder_is_made() {
        let (home, request) = request(&[]);
        let recipe = home.path().join("toy.toml");
        let text = "task = \"toy\"\n[training]\nsteps = 3\nmonitor = \"bleu\"\n[optimizer]\n\n[[optimizer.groups]]\n\
                    parameters = \"slope\"\n[[optimizer.groups]]\nweight_decay = 0\nparameters = \"slop\"\n";
        std::fs::write(&recipe, text).unwrap();
        let error = Run::<Toy>::prepare(&request.clone().with_recipe(&recipe)).unwrap_err();
        let error = error.downcast::<RecipeError>().unwrap();
        let (place, text) = (recipe.display(), error.to_string());
        let metric = "`training.monitor` is `bleu`, which this task does not measure: expected one of loss";
        assert!(text.starts_with(&format!("`{place}`, line 4: {metric}; `{place}`, line 11: ")), "{text}");
        assert!(text.contains("groups[1].parameters = \"slop\"") && error.is_user_error(), "{text}");
        assert!(!request.out.unwrap().exists());
    }

    #[test]
    fn the_edited_recipe_of_a_run_is_checked_before_the_run_goes_on() {
        let (_home, request) = request(&[]);
        drop(Run::<Toy>::prepare(&request).unwrap());
        let recipe = request.out.as_ref().unwrap().join("recipe.toml");
        let text = std::fs::read_to_string(&recipe).unwrap();
        std::fs::write(&recipe, text + "[[optimizer.groups]]\nweight_decay = 0\nparameters = \"slop\"\n").unwrap();
        let error = Run::<Toy>::prepare(&request.with_existing(Existing::Resume)).unwrap_err();
        let error = error.downcast::<RecipeError>().unwrap();
        let text = error.to_string();
        assert!(text.starts_with(&format!("`{}`, line ", recipe.display())), "{text}");
        assert!(text.contains("groups[0].parameters = \"slop\"") && error.is_user_error(), "{text}");
    }
}
