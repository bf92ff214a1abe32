//! The model before its first step: a new one, or one that takes over what another run has learnt.

use std::collections::BTreeMap;
use std::slice;

use burn::tensor::Device;
use firelight_kernels::BlockFormat;
use firelight_storage::{InputError, LearntWeights, ModelFolder, Parameters, StorageError};

use super::run::{frozen, frozen_by_adapters};
use super::{RecipeOf, Task, blocks};
use crate::freeze::is_frozen;
use crate::init::{InitReport, Match, Matching, Other, Regrid, TaskRules, matched, take};
use crate::path::{fits, shapes_of};
use crate::{Problem, RecipeError, TrainingError};

/// The model before its first step, and what of it came from where, where it begins from other weights.
pub(super) fn begin<T: Task>(
    recipe: &RecipeOf<T>,
    config: &T::Config,
    device: &Device,
) -> Result<(T::Net, Option<InitReport>), T::Error> {
    let model = T::model(config, recipe.seed, device);
    match Start::find::<T>(recipe, config, &model, device)? {
        None => Ok((model, None)),
        Some(Start { source, found, regrid, matching, .. }) => {
            let formats = blocks::of_base::<T>(recipe, config, &model);
            let model = taken_over::<T>(model, &formats, &matching.taken, (&found, regrid.as_ref()))?;
            Ok((model, Some(InitReport::new(&source, matching))))
        }
    }
}

/// The model with what it takes over, its base in blocks of these formats. Each matrix goes into its blocks before the next one is read, so
/// that the floats of the base never lie in memory together.
fn taken_over<T: Task>(
    model: T::Net,
    formats: &BTreeMap<String, BlockFormat>,
    taken: &[Match],
    (found, regrid): (&Parameters, Option<&Regrid>),
) -> Result<T::Net, StorageError> {
    let (base, others): (Vec<Match>, Vec<Match>) =
        taken.iter().cloned().partition(|one| formats.contains_key(&one.path));
    let mut model = take(model, &others, found, regrid)?;
    for one in &base {
        let format = BTreeMap::from([(one.path.clone(), formats[&one.path])]);
        model = T::quantized(take(model, slice::from_ref(one), found, regrid)?, &format);
    }
    Ok(if formats.is_empty() { model } else { T::quantized(model, formats) }) // what begins anew and is frozen, too
}

/// Makes sure that the model can begin from the weights that the recipe names, and lists what would stay as it begins.
pub(super) fn check<T: Task>(
    recipe: &RecipeOf<T>,
    config: &T::Config,
    device: &Device,
) -> Result<Vec<Problem>, T::Error> {
    if recipe.init.from.is_none() {
        return Ok(Vec::new());
    }
    let model = T::model(config, recipe.seed, device);
    let start = Start::find::<T>(recipe, config, &model, device)?;
    if !T::has_adapters(config) {
        return Ok(Vec::new()); // what the recipe freezes is meant
    }
    let new = start.map_or(Vec::new(), |start| start.matching.new);
    // What the recipe freezes by name is meant.
    let (beside, all) = (frozen_by_adapters::<T>(config, &model), frozen::<T>(recipe, config, &model));
    let stays = new.iter().filter(|path| is_frozen(&beside, path) && is_frozen(&all, path));
    let text = |path: &String| {
        format!(
            "`{path}` begins anew and is not trained beside model.adapters: train it by training.freeze = [\"!{path}\"]"
        )
    };
    Ok(stays.map(|path| Problem { key: "model.adapters".into(), text: text(path) }).collect())
}

/// The structure of the model of a run, which can be built.
pub(super) fn structure_of<T: Task>(run: &ModelFolder) -> Result<T::Config, T::Error> {
    let config = run.read_config(T::NAME)?;
    match T::problems(&config) {
        problems if problems.is_empty() => Ok(config),
        problems => Err(TrainingError::damaged(&run.config())(problems.join("; ")).into()),
    }
}

/// Weights that fit a model.
struct Start {
    source: LearntWeights,
    found: Parameters,
    regrid: Option<Regrid>,
    matching: Matching,
}

impl Start {
    fn find<T: Task>(
        recipe: &RecipeOf<T>,
        config: &T::Config,
        model: &T::Net,
        device: &Device,
    ) -> Result<Option<Self>, T::Error> {
        let Some(source) = recipe.init.source()? else { return Ok(None) };
        let task = source.run.as_ref().and_then(|run| run.task());
        let other = match task.as_deref() {
            None => Other::Unknown,
            Some(task) if task == T::NAME => Other::Same,
            Some(_) => Other::Task,
        };
        let same = source.run.as_ref().filter(|_| other == Other::Same);
        let found_config = same.map(structure_of::<T>).transpose()?;
        let found = parameters::<T>(&source, found_config.as_ref(), device)?;
        let (own, shapes) = (shapes_of(model), found.shapes());
        if let (Some(found), Some(run)) = (&found_config, same) {
            check_head::<T>(recipe, (found, config), &own, run).map_err(TrainingError::from)?;
        }
        let regrid = T::grid(config)
            .and_then(|grid| Regrid::new(grid, found_config.as_ref().and_then(T::grid), shapes.get(grid.parameter)));
        let renamed = T::renamed(config);
        let rules = TaskRules { head: T::HEAD, other, renamed, rows: T::ROWS, regrid };
        let matching = matched(&recipe.init, &rules, &own, &shapes).map_err(|mismatch| {
            let mut problems = mismatch.problems();
            let place = format!("`{}`, which init.from names, does not fit the model: ", source.path.display());
            problems[0].insert_str(0, &place);
            RecipeError::Several { errors: problems.into_iter().map(InputError::new).collect() }
        })?;
        Ok(Some(Self { source, found, regrid, matching }))
    }
}

/// Refuses a head of `run` that is taken over and says something else.
fn check_head<T: Task>(
    recipe: &RecipeOf<T>,
    (found, config): (&T::Config, &T::Config),
    own: &[(String, Vec<usize>)],
    run: &ModelFolder,
) -> Result<(), InputError> {
    let is_taken = |head: &&str| own.iter().any(|(path, _)| fits(head, path) && recipe.init.selects(path));
    let exclude: Vec<&'static str> = T::HEAD.iter().copied().filter(is_taken).collect();
    match T::other_head(found, config).filter(|_| !exclude.is_empty()) {
        Some(reason) => {
            let problem = format!("the head of the run `{}` {reason}", run.path().display());
            Err(InputError::new(problem).advise(format!("set init.exclude = {exclude:?} to begin with a new head")))
        }
        None => Ok(()),
    }
}

/// The parameters of the weights, adapters added into them.
fn parameters<T: Task>(
    source: &LearntWeights,
    config: Option<&T::Config>,
    device: &Device,
) -> Result<Parameters, T::Error> {
    if let (Some(config), Some(run)) = (config.filter(|config| T::has_adapters(config)), &source.run) {
        let model = blocks::load::<T>(run, (config, 0), &source.path, device)?;
        return Ok(Parameters::of_base(&T::merged(config, model).1, &source.path));
    }
    let found = Parameters::open(&source.path)?;
    if found.have_adapters() {
        let problem = "has low-rank adapters, which another task cannot take over: merge them first, by `firelight merge RUN_DIR \
                       --out DIR`, and begin from that";
        return Err(TrainingError::from(InputError::in_file(&source.path, problem)).into());
    }
    Ok(found)
}
