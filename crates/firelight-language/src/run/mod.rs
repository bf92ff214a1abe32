//! A whole training: from a recipe and a text to a run folder. `prepare` reads and checks everything and only then makes
//! the folder; `fit` trains.

mod evaluate;
mod model_recipe;
mod recipe;

pub use evaluate::{Evaluation, evaluate};
pub use model_recipe::ModelRecipe;
pub use recipe::{DataRecipe, LanguageRecipe, stories_recipe};

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use burn::train::Interrupter;
use firelight_core::{ConfigError, ParamBuilder, ParameterReport};
use firelight_data::{StepLoader, TokenFile, Tokenizer, TokenizerConfig, Tokens, WindowDataset, read_text, stories};
use firelight_storage::{Existing, ModelFolder, write_atomic};
use firelight_training::{FitInput, MetricsLog, Observer, Recipe, StartPoint, ValidationLoss, fit, resume_point};

use crate::data::LmBatcher;
use crate::error::LanguageError;
use crate::model::{LanguageModel, LanguageModelConfig};
use crate::text_generator::TextGenerator;
use crate::training::LmTask;
use evaluate::validation_loader;

/// Where runs go when no folder is named.
const RUNS: &str = "runs";

/// The name of the built-in recipe.
const BUILT_IN: &str = "stories.toml";

/// What a user asks of a training.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The recipe; none is the built-in one, or the folder's own when a run is resumed.
    pub recipe: Option<PathBuf>,
    /// Changes of the recipe: `("training.steps", "500")`. The last word on a key counts.
    pub overrides: Vec<(String, String)>,
    /// The text; not needed by a recipe that generates its own, or to resume.
    pub data: Option<PathBuf>,
    /// The run folder; none is the next free `runs/<recipe>-<n>`.
    pub out: Option<PathBuf>,
    /// What to do when the folder holds a run already.
    pub existing: Existing,
    /// Where to compute.
    pub device: Device,
}

impl RunRequest {
    /// The built-in recipe in a new folder on `device`.
    pub fn new(device: &Device) -> Self {
        let (recipe, data, out) = (None, None, None);
        Self { recipe, overrides: Vec::new(), data, out, existing: Existing::Refuse, device: device.clone() }
    }

    /// Sets the recipe file.
    pub fn with_recipe(mut self, recipe: impl Into<PathBuf>) -> Self {
        self.recipe = Some(recipe.into());
        self
    }

    /// Changes one key of the recipe: `("model.d_model", 64)`.
    pub fn with_override(mut self, key: &str, value: impl Display) -> Self {
        self.overrides.push((key.to_string(), value.to_string()));
        self
    }

    /// Sets the text file.
    pub fn with_data(mut self, data: impl Into<PathBuf>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the run folder.
    pub fn with_out(mut self, out: impl Into<PathBuf>) -> Self {
        self.out = Some(out.into());
        self
    }

    /// Sets what to do when the folder holds a run already.
    pub fn with_existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// What a run without a folder of its own is called: after the recipe, or after the text when there is none.
    fn name(&self) -> &str {
        let source = self.recipe.as_deref().or(self.data.as_deref()).unwrap_or(Path::new(BUILT_IN));
        source.file_stem().and_then(|name| name.to_str()).unwrap_or("run")
    }
}

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
    /// # Errors
    /// If the recipe, the text or the folder cannot be used. Nothing is written before all is checked.
    pub fn prepare(request: &RunRequest) -> Result<Self, LanguageError> {
        match (&request.out, request.existing) {
            (Some(out), Existing::Resume) => Self::resume(out, request),
            _ => Self::begin(request),
        }
    }

    fn begin(request: &RunRequest) -> Result<Self, LanguageError> {
        let (source, mut recipe) = read_recipe(request)?;
        let text = read_data(&recipe, &source, request.data.as_deref())?;
        if request.data.is_some() {
            recipe.data.stories = None; // so that the recipe in the folder does not promise stories
        }
        let tokenizer = train_tokenizer(&recipe.data, &text)?;
        let tokens = tokenizer.encode(&text)?;
        let config = recipe.model.config(tokenizer.vocab_size());
        check_settings(&config, &recipe, &source)?;
        check_split(&Tokens::from(tokens.clone()), &recipe)?;

        let folder = match &request.out {
            Some(out) => ModelFolder::create(out, request.existing)?,
            None => ModelFolder::next_free(RUNS, request.name())?,
        };
        // The recipe marks the folder as a run; config.json goes last and makes it a model.
        write_atomic(folder.recipe(), recipe.to_toml()?)?;
        TokenFile::create(folder.tokens(), tokenizer.vocab_size(), tokens)?;
        tokenizer.save(folder.tokenizer())?;
        folder.write_config(crate::TASK, &config)?;
        Self::assemble(folder, recipe, tokenizer, &config, StartPoint::default(), &request.device)
    }

    /// Continues a run. A recipe and a text may stand beside the folder, as when the first command is repeated, if they are
    /// those of the run; the steps alone may change.
    fn resume(out: &Path, request: &RunRequest) -> Result<Self, LanguageError> {
        let folder = ModelFolder::create(out, Existing::Resume)?;
        let stored = parse_recipe(&folder.recipe(), &[])?;
        let source = request.recipe.clone().unwrap_or_else(|| folder.recipe());
        let mut recipe = parse_recipe(&source, &request.overrides)?;
        recipe.data.stories = stored.data.stories;
        same_run(out, &recipe, &stored)?;
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        if let Some(path) = &request.data {
            same_text(out, &tokenizer.encode(&read_text(path)?)?, &TokenFile::open(folder.tokens())?)?;
        }
        let config = folder.read_config(crate::TASK)?;
        if recipe.model.config(tokenizer.vocab_size()) != config {
            return Err(LanguageError::OtherRun { path: out.into(), key: "model" });
        }
        let start = resume_point(&folder)?.unwrap_or_default();
        recipe.training.steps = recipe.training.steps.max(start.step());
        let run = Self::assemble(folder, recipe, tokenizer, &config, start, &request.device)?;
        write_atomic(run.folder.recipe(), run.recipe.to_toml()?)?;
        Ok(run)
    }

    fn assemble(
        folder: ModelFolder,
        recipe: LanguageRecipe,
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
        let (training, validation) = check_split(&Tokens::from(tokens), &recipe)?;
        let model = config.init_with(&ParamBuilder::new(device, recipe.seed));
        let task = LmTask::new(model, recipe.loss);
        Ok(Self { folder, recipe, tokenizer, training, validation, task, start, device: device.clone() })
    }

    /// The parameters of the model by part.
    pub fn report(&self) -> ParameterReport {
        self.task.model.report()
    }

    /// Steps that an earlier run has done.
    pub fn done(&self) -> usize {
        self.start.step()
    }

    /// Trains to the last step; metrics go to the folder.
    ///
    /// # Errors
    /// If the loss leaves the numbers or a file cannot be written. What was written before stays.
    pub fn fit(self) -> Result<TrainedRun, LanguageError> {
        self.fit_with(Vec::new(), Interrupter::new())
    }

    /// Trains to the last step, or until `interrupter` says stop; metrics go to the folder and to `observers`.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(
        self,
        mut observers: Vec<Box<dyn Observer>>,
        interrupter: Interrupter,
    ) -> Result<TrainedRun, LanguageError> {
        let log = match self.start.step() {
            0 => MetricsLog::create(self.folder.metrics())?,
            done => MetricsLog::resume(self.folder.metrics(), done)?,
        };
        observers.push(Box::new(log));
        let Recipe { seed, training, optimizer, schedule, model, .. } = self.recipe;
        let windows = WindowDataset::for_training(self.training, model.transformer.max_seq_len)?;
        let steps = self.start.step()..training.steps.max(self.start.step());
        let train = StepLoader::new(windows, LmBatcher, training.batch_size, &self.device).shuffled(seed, steps);
        let valid = validation_loader(self.validation, model.transformer.max_seq_len, &self.device)?;
        let input = FitInput {
            training,
            optimizer,
            schedule,
            seed,
            folder: Some(self.folder.clone()),
            start: self.start,
            observers,
            interrupter,
            ..FitInput::new(Arc::new(train), Arc::new(valid))
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

/// The recipe with its overrides, and the path it is known by.
fn read_recipe(request: &RunRequest) -> Result<(PathBuf, LanguageRecipe), LanguageError> {
    let path = request.recipe.clone().unwrap_or_else(|| BUILT_IN.into());
    let recipe = match &request.recipe {
        Some(path) => parse_recipe(path, &request.overrides)?,
        None => parse_text(stories_recipe(), &path, &request.overrides)?,
    };
    Ok((path, recipe))
}

fn parse_recipe(path: &Path, overrides: &[(String, String)]) -> Result<LanguageRecipe, LanguageError> {
    let text = fs::read_to_string(path).map_err(|reason| LanguageError::RecipeFile { path: path.into(), reason })?;
    parse_text(&text, path, overrides)
}

fn parse_text(text: &str, path: &Path, overrides: &[(String, String)]) -> Result<LanguageRecipe, LanguageError> {
    let recipe = LanguageRecipe::parse(text, &path.display().to_string(), overrides)?;
    match recipe.task == crate::TASK {
        true => Ok(recipe),
        false => Err(LanguageError::Task { path: path.into(), found: recipe.task }),
    }
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

fn check_settings(config: &LanguageModelConfig, recipe: &LanguageRecipe, source: &Path) -> Result<(), LanguageError> {
    let settings = ConfigError::collect([config.validate(), recipe.loss.validate()], []);
    settings.map_err(|error| LanguageError::Config { path: source.into(), error })
}

/// Training and validation part, each long enough for one window.
fn check_split(tokens: &Tokens, recipe: &LanguageRecipe) -> Result<(Tokens, Tokens), LanguageError> {
    let (training, validation) = tokens.split(recipe.data.validation_fraction)?;
    WindowDataset::for_training(training.clone(), recipe.model.transformer.max_seq_len)?;
    WindowDataset::for_evaluation(validation.clone(), recipe.model.transformer.max_seq_len)?;
    Ok((training, validation))
}

/// A run continues with the seed, the data and the model that it began with.
fn same_run(out: &Path, recipe: &LanguageRecipe, stored: &LanguageRecipe) -> Result<(), LanguageError> {
    let differing = [
        ("seed", recipe.seed != stored.seed),
        ("data", recipe.data != stored.data),
        ("model", recipe.model != stored.model),
        ("loss", recipe.loss != stored.loss),
        ("training.batch_size", recipe.training.batch_size != stored.training.batch_size),
    ];
    match differing.into_iter().find(|(_, differs)| *differs) {
        Some((key, _)) => Err(LanguageError::OtherRun { path: out.into(), key }),
        None => Ok(()),
    }
}

fn same_text(out: &Path, tokens: &[u32], stored: &TokenFile) -> Result<(), LanguageError> {
    match tokens.len() == stored.len() && stored.get(0..stored.len()) == tokens {
        true => Ok(()),
        false => Err(LanguageError::OtherRun { path: out.into(), key: "--data" }),
    }
}
