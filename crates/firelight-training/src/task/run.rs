//! A training that is ready to begin: [`Run::prepare`] reads and checks everything and only then makes the folder;
//! [`Run::fit`] trains.

mod on_ranks;
#[cfg(test)]
mod tests;

use std::fmt;

use burn::tensor::Device;
use burn::train::Interrupter;
use firelight_storage::{Existing, InputError, ModelFolder, StorageError, write_atomic};
use toml::Table;

use super::begin::{Plan, read_beside, read_recipe};
use super::embedded::unnamed;
use super::estimate::cost_of;
use super::{Check, DataModule, Estimate, RecipeOf, RunRequest, Task, TrainedRun, blocks, start};
use crate::checkpoint::write_json;
use crate::config::LOSS;
use crate::path::{fits, parameters_of, shapes_of};
use crate::ranks::{Ranks, Shards};
use crate::sessions::SessionLog;
use crate::{
    Extension, FitInput, InitReport, MetricsLog, Observer, Score, StartPoint, TrainingConfig, TrainingError,
    TrainingModule, ValidationLoss, fit, resume_point,
};

/// Where runs go when no folder is named.
const RUNS: &str = "runs";

/// A training that is ready to begin: everything is read and checked, the folder is made.
pub struct Run<T: Task> {
    /// Where the run writes.
    pub folder: ModelFolder,
    /// The recipe, overrides included.
    pub recipe: RecipeOf<T>,
    /// What is trained and validated on.
    pub corpus: T::DataModule,
    config: T::Config,
    task: TrainingModule<T::Net>,
    init: Option<InitReport>,
    start: StartPoint,
    device: Device,
    device_name: String,
    /// The ranks that train it; the first one alone writes.
    ranks: Ranks,
}

impl<T: Task> Run<T> {
    /// Reads recipe and data, or continues the run in the folder.
    ///
    /// A run that was stopped before it had its first checkpoint begins again, and so does one that is to be resumed in a
    /// folder without a run if the request names a recipe or data: a command that is repeated until it succeeds may say
    /// [`Existing::Resume`] from the first time on. [`Existing::Continue`] begins in a missing or empty folder without either.
    ///
    /// # Errors
    /// If the recipe, the data or the folder cannot be used. Nothing is written before all is checked.
    pub fn prepare(request: &RunRequest) -> Result<Self, T::Error> {
        Self::prepare_first(request, &Ranks::alone())
    }

    /// As the first of the ranks, which alone makes the folder, has its lock and writes.
    fn prepare_first(request: &RunRequest, ranks: &Ranks) -> Result<Self, T::Error> {
        match (&request.out, request.existing) {
            (Some(out), Existing::Resume | Existing::Continue) => match ModelFolder::create(out, request.existing) {
                Ok(folder) if folder.config().is_file() => Self::resume(folder, request, ranks),
                Ok(folder) => Self::begin_again(folder, request, ranks),
                Err(StorageError::NothingToResume { .. }) if request.names_a_source() => {
                    Self::begin(&request.clone().with_existing(Existing::Refuse), ranks)
                }
                Err(error) => Err(error.into()),
            },
            _ => Self::begin(request, ranks),
        }
    }

    /// The recipe and the structure of the model that a training would begin with, one that this machine cannot hold included;
    /// nothing is written.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), as far as recipe and data go.
    pub fn plan(request: &RunRequest) -> Result<(RecipeOf<T>, T::Config), T::Error> {
        let Plan { recipe, config, .. } = Plan::<T>::unchecked(request)?;
        Ok((recipe, config))
    }

    /// Checks what a training would begin with and says what it would cost; nothing is written.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), as far as recipe and data go.
    pub fn estimate(request: &RunRequest) -> Result<Estimate, T::Error> {
        let Plan { recipe, config, .. } = Plan::<T>::new(request, &Ranks::alone())?;
        Ok(cost_of::<T>(&recipe, &config, &request.device, || blocks::planned::<T>(&recipe, &config, &request.device)))
    }

    fn begin(request: &RunRequest, ranks: &Ranks) -> Result<Self, T::Error> {
        let Plan { recipe, corpus, config } = Plan::<T>::new(request, ranks)?;
        ranks.check(recipe.training.gradient_accumulation_steps).map_err(TrainingError::from)?;
        let folder = match &request.out {
            Some(out) => ModelFolder::create(out, request.existing)?,
            None => ModelFolder::next_free(RUNS, request.name(unnamed::<T>().0))?,
        };
        // The recipe marks the folder as a run; config.json goes last and makes it a model.
        write_atomic(folder.recipe(), recipe.to_toml()?)?;
        corpus.save(&folder)?;
        folder.write_config(T::NAME, &config)?;
        let corpus = T::DataModule::open(&recipe, &folder)?; // as a resumed run will: in files, where it is large
        Self::assemble(folder, Plan { recipe, corpus, config }, StartPoint::default(), &request.device, ranks)
    }

    /// Begins a run again that was stopped while its folder was being filled.
    fn begin_again(folder: ModelFolder, request: &RunRequest, ranks: &Ranks) -> Result<Self, T::Error> {
        let mut again = request.clone();
        // A recipe that is named may be a built-in one, which is no file.
        again.recipe = again.recipe.or_else(|| Some(folder.recipe()).filter(|path| path.is_file()));
        again.existing = Existing::Force;
        drop(folder); // The new run takes the folder's lock.
        Self::begin(&again, ranks)
    }

    /// Continues a run. A recipe and data may stand beside the folder, as when the first command is repeated, if they are
    /// those of the run; how long it goes on may change.
    fn resume(folder: ModelFolder, request: &RunRequest, ranks: &Ranks) -> Result<Self, T::Error> {
        let stored = read_recipe::<T>(Some(&folder.recipe()), &[])?;
        let source = request.recipe.clone().unwrap_or_else(|| folder.recipe());
        // A run that began from another one keeps what it took from its recipe, and needs it no more.
        let taken = stored.init.from.as_ref().and_then(|_| Table::try_from(&stored.model).ok()).unwrap_or_default();
        let mut recipe = read_beside::<T>(Some(&source), &request.overrides, &taken)?;
        T::DataModule::recall(&mut recipe, &stored);
        recipe.continues(&stored)?;
        let corpus = T::DataModule::open(&recipe, &folder)?;
        if !request.data.is_empty() && !corpus.is_of(&recipe, &request.data)? {
            return Err(other_run(&folder, "--data").into());
        }
        recipe.training.check_device(&request.device)?;
        ranks.check(recipe.training.gradient_accumulation_steps).map_err(TrainingError::from)?;
        let config = folder.read_config(T::NAME)?;
        if T::config(&recipe, &corpus, &source)? != config {
            return Err(other_run(&folder, "model").into());
        }
        let plan = Plan { recipe, corpus, config }.checked(&request.clone().with_recipe(source), ranks)?;
        let start = resume_point(&folder)?.unwrap_or_default();
        let run = Self::assemble(folder, plan, start, &request.device, ranks)?;
        run.check_start()?; // fails before anything is written
        Ok(run)
    }

    /// Builds what the run goes on with and throws it away: of an optimiser that ranks share, no more than this rank has of it.
    fn check_start(&self) -> Result<(), TrainingError> {
        let (start, optimizer) = (&self.start, &self.recipe.optimizer);
        let model = start.restore_model(self.task.clone(), optimizer)?;
        let shards = self.recipe.training.shard_optimizer.then(|| Shards::of(&model, &self.ranks)).flatten();
        start.optimizer(&model, optimizer, shards.as_ref())?;
        Ok(())
    }

    fn assemble(
        folder: ModelFolder,
        plan: Plan<T>,
        start: StartPoint,
        device: &Device,
        ranks: &Ranks,
    ) -> Result<Self, T::Error> {
        let Plan { recipe, corpus, config } = plan;
        let (model, init) = match start.step() {
            0 => start::begin::<T>(&recipe, &config, device)?,
            _ => (blocks::built::<T>(&folder, &config, recipe.seed, device)?, None), // the checkpoint holds its weights
        };
        if let Some(init) = init.as_ref().filter(|_| ranks.is_first()) {
            blocks::note::<T>(&folder, &recipe, &config, &model)?; // before the first weights in blocks
            write_json(&folder.init(), init)?;
        }
        let task = training_module::<T>(&recipe, model);
        let (device, device_name, ranks) = (device.clone(), String::new(), ranks.clone());
        Ok(Self { folder, recipe, corpus, config, task, init, start, device, device_name, ranks })
    }

    /// Names the device for the run's `sessions.json`, from which its report takes it.
    pub fn named_device(self, name: &str) -> Self {
        Self { device_name: name.into(), ..self }
    }

    /// The structure of the model.
    pub fn config(&self) -> &T::Config {
        &self.config
    }

    /// Where the model is trained.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The model as the next step finds it.
    pub fn model(&self) -> &T::Net {
        &self.task.model
    }

    /// What the first step takes over from other weights, where it begins from some.
    pub fn init_report(&self) -> Option<&InitReport> {
        self.init.as_ref()
    }

    /// The parameters of the model by part.
    pub fn parameters(&self) -> Vec<(String, usize)> {
        T::parameters(&self.task.model)
    }

    /// The parameters without those that have a row for each token or position ([`Task::ROWS`]), which Kaplan et al. 2020 leave out of
    /// the size of a model (section 2.1, <https://arxiv.org/abs/2001.08361>).
    pub fn non_embedding_parameters(&self) -> usize {
        let has_rows = |path: &str| T::ROWS.iter().any(|(pattern, _)| fits(pattern, path));
        let parameters = parameters_of(&self.task.model);
        let others = parameters.iter().filter(|parameter| !has_rows(&parameter.path));
        others.map(|parameter| parameter.shape.iter().product::<usize>()).sum()
    }

    /// What decides which evaluation is the best, `training.monitor`: the loss, or a score of the task.
    pub fn monitored(&self) -> Score {
        let scores = T::evaluator(&self.corpus, &self.recipe).scores();
        let found = scores.into_iter().find(|score| score.name == self.recipe.training.monitor);
        found.unwrap_or(Score::lower(LOSS))
    }

    /// What the training is going to cost.
    pub fn cost(&self) -> Estimate {
        cost_of::<T>(&self.recipe, &self.config, &self.device, || self.task.model.clone())
    }

    /// Steps that an earlier run has done.
    pub fn done(&self) -> usize {
        self.start.step()
    }

    /// Whether an earlier run has done all there is to do.
    pub fn is_finished(&self) -> bool {
        self.start.is_finished(&self.recipe.training)
    }

    /// The best evaluation of an earlier run.
    pub fn best(&self) -> Option<ValidationLoss> {
        self.start.best()
    }

    /// Tries the properties that a model must have before it is worth training; the training that follows is the same with
    /// and without.
    ///
    /// # Errors
    /// If the device fails.
    pub fn self_check(&self) -> Result<Vec<Check>, T::Error> {
        T::self_check(self)
    }

    /// Trains to the last step; metrics go to the folder.
    ///
    /// # Errors
    /// If the loss is not finite or a file cannot be written, or another rank has failed. What was written before stays.
    pub fn fit(self) -> Result<TrainedRun<T>, T::Error> {
        self.fit_with(Vec::new(), Interrupter::new(), None)
    }

    /// Trains to the last step, or until `interrupter` says stop; metrics go to the folder and to `observers`, and to what
    /// `extension` adds of Burn's own metrics and renderers. Of several ranks the first one alone has observers, and any may be interrupted.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(
        self,
        observers: Vec<Box<dyn Observer>>,
        interrupter: Interrupter,
        extension: Option<Extension<TrainingModule<T::Net>>>,
    ) -> Result<TrainedRun<T>, T::Error> {
        let ranks = self.ranks.clone();
        ranks.tell(self.fit_as(observers, interrupter, extension))
    }

    fn fit_as(
        self,
        mut observers: Vec<Box<dyn Observer>>,
        interrupter: Interrupter,
        extension: Option<Extension<TrainingModule<T::Net>>>,
    ) -> Result<TrainedRun<T>, T::Error> {
        observers.extend(self.logs()?);
        if self.writes() {
            write_atomic(self.folder.recipe(), self.recipe.to_toml()?)?; // a resumed run may have changed it
        }
        let input = FitInput { observers, interrupter, extension, ..self.input()? };
        let fitted = fit(self.task, input)?;
        Ok(TrainedRun {
            folder: self.folder,
            model: fitted.model.model,
            corpus: self.corpus,
            steps: fitted.steps,
            planned: self.recipe.training.steps,
            evaluation: fitted.evaluation,
            best: fitted.best,
            figures: fitted.figures,
            monitor: self.recipe.training.monitor,
            interrupted: fitted.interrupted,
        })
    }

    /// Whether this rank changes anything in the folder, which it does not in that of a finished run.
    fn writes(&self) -> bool {
        self.ranks.is_first() && !self.is_finished()
    }

    /// Metrics and sessions of the folder.
    fn logs(&self) -> Result<Vec<Box<dyn Observer>>, TrainingError> {
        if !self.writes() {
            return Ok(Vec::new());
        }
        let (path, sessions) = (self.folder.metrics(), SessionLog::open(self.folder.sessions(), &self.device_name)?);
        let metrics = match self.start.step() {
            0 => MetricsLog::create(path)?,
            done => MetricsLog::resume(path, done)?,
        };
        Ok(vec![Box::new(metrics), Box::new(sessions)])
    }

    fn input(&self) -> Result<FitInput<TrainingModule<T::Net>>, T::Error> {
        let recipe = &self.recipe;
        let batches = |step: usize| step.saturating_mul(recipe.training.gradient_accumulation_steps);
        let (start, end) = (self.start.step(), recipe.training.steps.max(self.start.step()));
        let train = self.corpus.training_loader(recipe, batches(start)..batches(end), &self.device)?;
        let valid = self.corpus.validation_loader(recipe, &self.device)?;
        Ok(FitInput {
            training: TrainingConfig {
                freeze: frozen::<T>(recipe, &self.config, &self.task.model),
                ..recipe.training.clone()
            },
            optimizer: recipe.optimizer.clone(),
            schedule: recipe.schedule.clone(),
            seed: recipe.seed,
            folder: Some(self.folder.clone()),
            start: self.start.clone(),
            loss_scale: self.task.loss_scale(),
            evaluator: T::evaluator(&self.corpus, recipe),
            communicator: self.ranks.communicator(),
            in_common: vec![("recipe".into(), recipe.to_toml()?), ("data".into(), self.corpus.sizes())],
            ..FitInput::new(train, valid)
        })
    }
}

impl<T: Task> fmt::Debug for Run<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Run").field("folder", &self.folder).field("recipe", &self.recipe).finish_non_exhaustive()
    }
}

/// The model with everything that decides how the recipe trains it.
pub(super) fn training_module<T: Task>(recipe: &RecipeOf<T>, model: T::Net) -> TrainingModule<T::Net> {
    let training_module = TrainingModule::new(model, recipe.loss.clone());
    training_module.with_recompute(recipe.training.recompute).with_precision(recipe.training.precision)
}

/// What a training leaves of a model as it is: what stands beside adapters, and then the recipe, which has the last word.
pub(super) fn frozen<T: Task>(recipe: &RecipeOf<T>, config: &T::Config, model: &T::Net) -> Vec<String> {
    [frozen_by_adapters::<T>(config, model), recipe.training.freeze.clone()].concat()
}

/// All but adapters and head, where there are adapters: the weights that were learnt before "do not receive gradient updates" (Hu
/// et al. 2021, LoRA, section 4.1, <https://arxiv.org/abs/2106.09685>), and a head has learnt nothing yet. Of the heads that tasks
/// on one body may have, those of this model are named.
pub(super) fn frozen_by_adapters<T: Task>(config: &T::Config, model: &T::Net) -> Vec<String> {
    if !T::has_adapters(config) {
        return Vec::new();
    }
    let paths = shapes_of(model);
    let heads = T::HEAD.iter().filter(|head| paths.iter().any(|(path, _)| fits(head, path)));
    let trained = heads.chain(&["*.adapter"]).map(|pattern| format!("!{pattern}"));
    ["*".to_string()].into_iter().chain(trained).collect()
}

/// The error of a run that is asked to continue as another one.
fn other_run(folder: &ModelFolder, key: &'static str) -> TrainingError {
    let problem = format!("cannot resume `{}`: `{key}` is not what the run began with", folder.path().display());
    InputError::new(problem).advise("leave it out, or start a new run in another folder").into()
}
