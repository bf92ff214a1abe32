//! A whole training: from a recipe and a text to a run folder. `prepare` reads and checks everything and only then makes
//! the folder; `fit` trains.

mod corpus;
mod estimate;
mod evaluate;
mod model_recipe;
mod recipe;
mod report;
mod request;
mod self_check;

pub use estimate::Estimate;
pub use evaluate::{Evaluation, evaluate};
pub use model_recipe::ModelRecipe;
pub use recipe::{DataRecipe, LanguageRecipe, Packing, stories_recipe};
pub use request::RunRequest;
pub use self_check::Check;

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use burn::train::Interrupter;
use firelight_core::{ConfigError, ParamBuilder, ParameterReport};
use firelight_data::{TokenFile, Tokenizer, TokenizerConfig, Tokens, read_text, stories};
use firelight_storage::{Existing, ModelFolder, StorageError, write_atomic};
use firelight_training::{
    Extension, FitInput, MetricsLog, Observer, Problem, Recipe, RecipeError, StartPoint, ValidationLoss, fit,
    resume_point,
};

use crate::error::LanguageError;
use crate::model::{LanguageModel, LanguageModelConfig};
use crate::text_generator::TextGenerator;
use crate::training::LmTask;
use corpus::Corpus;

/// Where runs go when no folder is named.
const RUNS: &str = "runs";

/// A training that is ready to begin: everything is read and checked, the folder is made.
#[derive(Debug)]
pub struct Run {
    /// Where the run writes.
    pub folder: ModelFolder,
    /// The recipe, overrides included.
    pub recipe: LanguageRecipe,
    /// Text to tokens.
    pub tokenizer: Tokenizer,
    /// Tokens to train on.
    pub training: Tokens,
    /// Tokens to validate on.
    pub validation: Tokens,
    /// The same tokens with their documents.
    parts: (Corpus, Corpus),
    task: LmTask,
    start: StartPoint,
    device: Device,
}

/// What a training leaves behind.
#[derive(Debug)]
pub struct TrainedRun {
    /// The run folder.
    pub folder: ModelFolder,
    /// The model after the last step.
    pub model: LanguageModel,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Steps done, earlier runs included.
    pub steps: usize,
    /// The last evaluation.
    pub evaluation: Option<ValidationLoss>,
    /// The evaluation with the lowest loss.
    pub best: Option<ValidationLoss>,
    /// Whether the run was stopped before its last step.
    pub interrupted: bool,
}

impl Run {
    /// Reads recipe and text, or continues the run in the folder.
    ///
    /// A run that was stopped before it had its first checkpoint begins again, and so does one that is to be resumed in a
    /// folder without a run if the request names a recipe or a text: a command that is repeated until it succeeds may say
    /// [`Existing::Resume`] from the first time on.
    ///
    /// # Errors
    /// If the recipe, the text or the folder cannot be used. Nothing is written before all is checked.
    pub fn prepare(request: &RunRequest) -> Result<Self, LanguageError> {
        let Plan { recipe, tokenizer, corpus, config } = match (&request.out, request.existing) {
            (Some(out), Existing::Resume) => match ModelFolder::create(out, Existing::Resume) {
                Ok(folder) if folder.config().is_file() => return Self::resume(folder, request),
                Ok(folder) => return Self::begin_again(folder, request),
                Err(StorageError::NothingToResume { .. }) if request.names_a_source() => Plan::new(request)?,
                Err(error) => return Err(error.into()),
            },
            _ => Plan::new(request)?,
        };
        let folder = match (&request.out, request.existing) {
            (Some(out), Existing::Resume) => ModelFolder::create(out, Existing::Refuse)?,
            (Some(out), existing) => ModelFolder::create(out, existing)?,
            (None, _) => ModelFolder::next_free(RUNS, request.name())?,
        };
        // The recipe marks the folder as a run; config.json goes last and makes it a model.
        write_atomic(folder.recipe(), recipe.to_toml()?)?;
        corpus.save(&folder, tokenizer.vocab_size())?;
        tokenizer.save(folder.tokenizer())?;
        folder.write_config(crate::TASK, &config)?;
        Self::assemble(folder, recipe, tokenizer, &config, StartPoint::default(), &request.device)
    }

    /// Checks what a training would begin with and says what it would cost; nothing is written.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), as far as recipe and text go.
    pub fn estimate(request: &RunRequest) -> Result<Estimate, LanguageError> {
        let Plan { recipe, config, .. } = Plan::new(request)?;
        Ok(Estimate::new(&config, &recipe))
    }

    /// Begins a run again that was stopped while its folder was being filled.
    fn begin_again(folder: ModelFolder, request: &RunRequest) -> Result<Self, LanguageError> {
        let (own, out) = (folder.recipe(), folder.path().to_path_buf());
        let mut again = request.clone();
        again.recipe = again.recipe.or(Some(own)).filter(|path| path.is_file());
        again.existing = Existing::Force;
        again.out = Some(out);
        drop(folder); // The new run takes the folder's lock.
        Self::prepare(&again)
    }

    /// Continues a run. A recipe and a text may stand beside the folder, as when the first command is repeated, if they are
    /// those of the run; how long it goes on may change.
    fn resume(folder: ModelFolder, request: &RunRequest) -> Result<Self, LanguageError> {
        let out = folder.path().to_path_buf();
        let stored = parse_recipe(&folder.recipe(), &[])?;
        let source = request.recipe.clone().unwrap_or_else(|| folder.recipe());
        let mut recipe = parse_recipe(&source, &request.overrides)?;
        recipe.data.stories = stored.data.stories;
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        if let Some(path) = &request.data {
            let corpus = Corpus::encode(&tokenizer, &recipe.data, &read_text(path)?)?;
            same_text(&out, corpus.tokens(), &TokenFile::open(folder.tokens())?)?;
        }
        recipe.continues(&stored)?;
        recipe.training.check_device(&request.device)?;
        let config = folder.read_config(crate::TASK)?;
        if recipe.model.config(tokenizer.vocab_size()) != config {
            return Err(LanguageError::OtherRun { path: out, key: "model" });
        }
        let start = resume_point(&folder)?.unwrap_or_default();
        let run = Self::assemble(folder, recipe, tokenizer, &config, start, &request.device)?;
        if !run.is_finished() {
            write_atomic(run.folder.recipe(), run.recipe.to_toml()?)?;
        }
        Ok(run)
    }

    fn assemble(
        folder: ModelFolder,
        mut recipe: LanguageRecipe,
        tokenizer: Tokenizer,
        config: &LanguageModelConfig,
        start: StartPoint,
        device: &Device,
    ) -> Result<Self, LanguageError> {
        let tokens = TokenFile::open(folder.tokens())?;
        if tokens.vocab_size() != tokenizer.vocab_size() {
            return Err(LanguageError::Vocabulary {
                path: folder.tokens(),
                found: tokens.vocab_size(),
                tokenizer: tokenizer.vocab_size(),
            });
        }
        let parts = Corpus::open(&folder, &recipe.data, tokens)?.parts(&recipe)?;
        recipe.training = recipe.training.clone().over(parts.0.batches_of_an_epoch(&recipe)?);
        let (training, validation) = (parts.0.tokens().clone(), parts.1.tokens().clone());
        let model = config.init_with(&ParamBuilder::new(device, recipe.seed));
        let task = LmTask::new(model, recipe.loss)
            .with_recompute(recipe.training.recompute)
            .with_precision(recipe.training.precision);
        let device = device.clone();
        Ok(Self { folder, recipe, tokenizer, training, validation, parts, task, start, device })
    }

    /// The parameters of the model by part.
    pub fn report(&self) -> ParameterReport {
        self.task.model.report()
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

    /// Checks that the model keeps the future out, ignores padding, begins at the loss of a guess and can learn one batch by
    /// heart. The training that follows is the same with and without.
    ///
    /// # Errors
    /// If the device fails.
    pub fn self_check(&self) -> Result<Vec<Check>, LanguageError> {
        let config = self.recipe.model.config(self.tokenizer.vocab_size());
        self_check::self_check(&config, self.recipe.seed, &self.training, &self.device)
    }

    /// Trains to the last step; metrics go to the folder.
    ///
    /// # Errors
    /// If the loss leaves the numbers or a file cannot be written. What was written before stays.
    pub fn fit(self) -> Result<TrainedRun, LanguageError> {
        self.fit_with(Vec::new(), Interrupter::new(), None)
    }

    /// Trains to the last step, or until `interrupter` says stop; metrics go to the folder and to `observers`, and to what
    /// `extension` adds of Burn's own metrics and renderers.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(
        self,
        mut observers: Vec<Box<dyn Observer>>,
        interrupter: Interrupter,
        extension: Option<Extension<LmTask>>,
    ) -> Result<TrainedRun, LanguageError> {
        if !self.is_finished() {
            let log = match self.start.step() {
                0 => MetricsLog::create(self.folder.metrics())?,
                done => MetricsLog::resume(self.folder.metrics(), done)?,
            };
            observers.push(Box::new(log));
        }
        let batches = |step: usize| step.saturating_mul(self.recipe.training.accumulate);
        let end = self.recipe.training.steps.max(self.start.step());
        let train =
            self.parts.0.training_loader(&self.recipe, batches(self.start.step())..batches(end), &self.device)?;
        let valid = self.parts.1.validation_loader(&self.recipe, &self.device)?;
        let Recipe { seed, training, optimizer, schedule, .. } = self.recipe;
        let input = FitInput {
            loss_scale: self.task.loss_scale(),
            training,
            optimizer,
            schedule,
            seed,
            folder: Some(self.folder.clone()),
            start: self.start,
            observers,
            interrupter,
            extension,
            ..FitInput::new(train, valid)
        };
        let fitted = fit(self.task, input)?;
        Ok(TrainedRun {
            folder: self.folder,
            model: fitted.model.model,
            tokenizer: self.tokenizer,
            steps: fitted.steps,
            evaluation: fitted.evaluation,
            best: fitted.best,
            interrupted: fitted.interrupted,
        })
    }
}

impl TrainedRun {
    /// The trained model, ready to write.
    pub fn generator(&self) -> TextGenerator {
        TextGenerator::new(self.model.clone(), self.tokenizer.clone())
    }
}

/// What a run begins with, all of it checked.
struct Plan {
    recipe: LanguageRecipe,
    tokenizer: Tokenizer,
    corpus: Corpus,
    config: LanguageModelConfig,
}

impl Plan {
    fn new(request: &RunRequest) -> Result<Self, LanguageError> {
        let source = request.recipe.clone().unwrap_or_else(|| request::BUILT_IN.into());
        let mut recipe = read_recipe(request.recipe.as_deref(), &request.overrides)?;
        recipe.training.check_device(&request.device)?;
        let text = read_data(&recipe, &source, request.data.as_deref())?;
        if request.data.is_some() {
            recipe.data.stories = None; // so that the recipe in the folder does not promise stories
        }
        let tokenizer = train_tokenizer(&recipe.data, &text)?;
        let config = recipe.model.config(tokenizer.vocab_size());
        config.validate().map_err(|error| LanguageError::Config { path: source.clone(), error })?;
        check_groups(&config, &recipe, &source, &request.device)?;
        let corpus = Corpus::encode(&tokenizer, &recipe.data, &text)?;
        let (training, _) = corpus.parts(&recipe)?;
        recipe.training = recipe.training.clone().over(training.batches_of_an_epoch(&recipe)?);
        Ok(Self { recipe, tokenizer, corpus, config })
    }
}

/// The recipe at `path`, or the built-in one, with overrides such as `("training.steps", "500")`; checked, as far as it can be
/// without a text.
///
/// # Errors
/// If the file cannot be read, or is no recipe of a language model.
pub fn read_recipe(path: Option<&Path>, overrides: &[(String, String)]) -> Result<LanguageRecipe, LanguageError> {
    match path {
        Some(path) => parse_recipe(path, overrides),
        None => parse_text(stories_recipe(), Path::new(request::BUILT_IN), overrides),
    }
}

fn parse_recipe(path: &Path, overrides: &[(String, String)]) -> Result<LanguageRecipe, LanguageError> {
    let text = fs::read_to_string(path).map_err(|reason| LanguageError::RecipeFile { path: path.into(), reason })?;
    parse_text(&text, path, overrides)
}

fn parse_text(text: &str, path: &Path, overrides: &[(String, String)]) -> Result<LanguageRecipe, LanguageError> {
    let recipe = LanguageRecipe::parse_with(text, &path.display().to_string(), overrides, judge)?;
    match recipe.task == crate::TASK {
        true => Ok(recipe),
        false => Err(LanguageError::Task { path: path.into(), found: recipe.task }),
    }
}

/// Finds groups of parameters that the model does not have; only a model knows its parameters.
fn check_groups(
    config: &LanguageModelConfig,
    recipe: &LanguageRecipe,
    source: &Path,
    device: &Device,
) -> Result<(), LanguageError> {
    if recipe.optimizer.groups.is_empty() {
        return Ok(());
    }
    let model = config.init_with(&ParamBuilder::new(device, recipe.seed));
    let place = format!("`{}`", source.display());
    let problems = recipe.optimizer.validate_for(&model);
    Ok(problems.map_err(|error| RecipeError::Range { place, text: error.to_string() })?)
}

/// What is wrong with the model and its loss, whatever the vocabulary is going to be.
fn judge(recipe: &LanguageRecipe) -> Vec<Problem> {
    let placed = |section: &str, result: Result<(), ConfigError>| {
        let problems = result.err().map_or(Vec::new(), |error| error.problems().to_vec());
        let key = |text: &str| {
            let word = text.split([' ', ':']).next().unwrap_or_default();
            if word.contains('.') { word.to_string() } else { format!("{section}.{word}") }
        };
        problems.into_iter().map(|text| Problem { key: key(&text), text }).collect::<Vec<_>>()
    };
    let model = placed("model", recipe.model.config(1).validate());
    [model, placed("loss", recipe.loss.validate()), placed("data", recipe.data.validate())].concat()
}

fn read_data(recipe: &LanguageRecipe, source: &Path, data: Option<&Path>) -> Result<String, LanguageError> {
    match (data, recipe.data.stories) {
        (Some(path), _) => Ok(read_text(path)?),
        (None, Some(length)) => Ok(stories(recipe.seed, length)),
        (None, None) => Err(LanguageError::NoData { path: source.into() }),
    }
}

/// A character vocabulary is that of the whole text, as nanoGPT's; merges are learned from the training part alone.
fn train_tokenizer(data: &DataRecipe, text: &str) -> Result<Tokenizer, LanguageError> {
    let part = match data.tokenizer {
        TokenizerConfig::Bpe { .. } => &text[..text.floor_char_boundary(training_bytes(data, text))],
        _ => text,
    };
    Ok(Tokenizer::train(&data.tokenizer, part)?)
}

fn training_bytes(data: &DataRecipe, text: &str) -> usize {
    ((1.0 - data.validation_fraction.clamp(0.0, 1.0)) * text.len() as f64) as usize
}

fn same_text(out: &Path, tokens: &Tokens, stored: &TokenFile) -> Result<(), LanguageError> {
    match tokens.len() == stored.len() && stored.get(0..stored.len()) == tokens.get(0..tokens.len()) {
        true => Ok(()),
        false => Err(LanguageError::OtherRun { path: out.into(), key: "--data" }),
    }
}
