//! What lies in a run folder, and under which name. A new file gets its name, its path and its place in the removal here:
//!
//! ```text
//! recipe.toml  config.json  tokenizer.json  metrics.jsonl
//! special_tokens_map.json  source_special_tokens_map.json              what special tokens are for, where a tokenizer's file does not say it
//! generation_config.json                                               how a published model is to be decoded
//! chat_template.jinja  chat_template.tool_use.jinja  tokenizer_config.json     how it reads conversations, with the tokens of templates
//! sessions.json                                                        date, wall time and command of every process that trained
//! report.html                                                          the curves, the recipe and samples on one page
//! data.tokens  data.documents  data.sources.json                       of a text
//! training.jsonl  validation.jsonl  source_tokenizer.json              of pairs of texts
//! images.idx  images.json                                              of images
//! datasets.json                                                        of datasets that stay where they are
//! init.json                                                            what was taken over from another run
//! .lock                                                                held by the process that trains
//! .firelight-unfinished/                                               what becomes the folder of a model once all of it is there
//! model.safetensors  state.json                                        weights where a training last ended, and their step
//! quantization.json                                                    which of them are in blocks of few bits, and in which
//! adapters.safetensors                                                 its low-rank adapters alone, where it has some
//! tensorboard/events.out.tfevents.*                                    on request
//! checkpoints/best/{model.safetensors, state.json}                     lowest validation loss
//! checkpoints/step-N/{model.safetensors, optimizer.bpk, state.json}    where a run can be resumed
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ModelFolder;
use crate::StorageError;
use crate::atomic::replace_file;
use crate::checkpoint_folder::{STATE, WEIGHTS, checkpoint_of, remove};
use crate::listing::names_in;

pub(super) const RECIPE: &str = "recipe.toml";
pub(super) const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENS: &str = "data.tokens";
const DOCUMENTS: &str = "data.documents";
const SOURCES: &str = "data.sources.json";
const SOURCE_TOKENIZER: &str = "source_tokenizer.json";
const TRAINING_PAIRS: &str = "training.jsonl";
const VALIDATION_PAIRS: &str = "validation.jsonl";
const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const SOURCE_SPECIAL_TOKENS: &str = "source_special_tokens_map.json";
const GENERATION: &str = "generation_config.json";
const CHAT: [&str; 3] = ["chat_template.jinja", "chat_template.tool_use.jinja", "tokenizer_config.json"];
const IMAGES: &str = "images.idx";
const IMAGE_INDEX: &str = "images.json";
const DATASETS: &str = "datasets.json";
const ADAPTERS: &str = "adapters.safetensors";
pub(super) const QUANTIZATION: &str = "quantization.json";
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const SESSIONS: &str = "sessions.json";
const REPORT: &str = "report.html";
const EVENTS: &str = "tensorboard";
pub(super) const INIT: &str = "init.json";
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// What a run is trained and validated on, what turns it into tokens, and how its model is asked.
const DATA: [&str; 16] = [
    DOCUMENTS,
    SOURCES,
    TOKENS,
    TRAINING_PAIRS,
    VALIDATION_PAIRS,
    SOURCE_TOKENIZER,
    IMAGES,
    IMAGE_INDEX,
    DATASETS,
    SPECIAL_TOKENS,
    SOURCE_SPECIAL_TOKENS,
    GENERATION,
    CHAT[0],
    CHAT[1],
    CHAT[2],
    TOKENIZER,
];

impl ModelFolder {
    /// `recipe.toml`: the run as it was asked for.
    pub fn recipe(&self) -> PathBuf {
        self.path.join(RECIPE)
    }

    /// `config.json`: the task and the configuration of the model.
    pub fn config(&self) -> PathBuf {
        self.path.join(CONFIG)
    }

    /// `tokenizer.json`, in the field's common format.
    pub fn tokenizer(&self) -> PathBuf {
        self.path.join(TOKENIZER)
    }

    /// `data.tokens`: the text of the run as token ids, from which it can be resumed without its text.
    pub fn tokens(&self) -> PathBuf {
        self.path.join(TOKENS)
    }

    /// `data.documents`: the lengths of the documents of the text in tokens, where a run tells them apart.
    pub fn documents(&self) -> PathBuf {
        self.path.join(DOCUMENTS)
    }

    /// `data.sources.json`: how many of the tokens are of which source, to train and to validate on.
    pub fn sources(&self) -> PathBuf {
        self.path.join(SOURCES)
    }

    /// `source_tokenizer.json`, where the source of pairs has a tokenizer of its own.
    pub fn source_tokenizer(&self) -> PathBuf {
        self.path.join(SOURCE_TOKENIZER)
    }

    /// `generation_config.json`: how a published model is to be decoded.
    pub fn generation(&self) -> PathBuf {
        self.path.join(GENERATION)
    }

    /// `training.jsonl`: the pairs that a run is trained on, from which it can be resumed without its files.
    pub fn training_pairs(&self) -> PathBuf {
        self.path.join(TRAINING_PAIRS)
    }

    /// `validation.jsonl`: the pairs that it is validated on.
    pub fn validation_pairs(&self) -> PathBuf {
        self.path.join(VALIDATION_PAIRS)
    }

    /// `images.idx`: the pixels of the images of a run, from which it can be resumed without its files.
    pub fn images(&self) -> PathBuf {
        self.path.join(IMAGES)
    }

    /// `images.json`: their classes and labels, and which of them are trained on.
    pub fn image_index(&self) -> PathBuf {
        self.path.join(IMAGE_INDEX)
    }

    /// `datasets.json`: where the data lies that a run does not keep, and what it held when the run began.
    pub fn datasets(&self) -> PathBuf {
        self.path.join(DATASETS)
    }

    /// `adapters.safetensors`: the low-rank adapters of the last step alone, where the model has some.
    pub fn adapters(&self) -> PathBuf {
        self.path.join(ADAPTERS)
    }

    /// `quantization.json`: which parameters are in blocks of few bits, where some are.
    pub fn quantization(&self) -> PathBuf {
        self.path.join(QUANTIZATION)
    }

    /// `init.json`: what the first step took over from another run, where the run began from one.
    pub fn init(&self) -> PathBuf {
        self.path.join(INIT)
    }

    /// `metrics.jsonl`: one JSON object for each step and each evaluation.
    pub fn metrics(&self) -> PathBuf {
        self.path.join(METRICS)
    }

    /// `sessions.json`: date, wall time, version and command of every process that trained the run.
    pub fn sessions(&self) -> PathBuf {
        self.path.join(SESSIONS)
    }

    /// `report.html`: the curves, the recipe and samples on one page.
    pub fn report(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// `tensorboard`: the folder of event files, where a run was asked for them.
    pub fn tensorboard(&self) -> PathBuf {
        self.path.join(EVENTS)
    }

    /// The names of the files of a run that lie here now, beside the folders of checkpoints and events; what no run writes is left out.
    ///
    /// ```
    /// use firelight_storage::{Existing, ModelFolder};
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
    /// for file in ["recipe.toml", "output.log"] {
    ///     std::fs::write(folder.path().join(file), "").unwrap();
    /// }
    /// assert_eq!(folder.files(), ["recipe.toml"]);
    /// ```
    pub fn files(&self) -> Vec<&'static str> {
        files().filter(|name| self.path.join(name).is_file()).collect()
    }

    /// Copies recipe and data into the folder of a model that was made from the one here, as far as they are there.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn hand_on(&self, to: &Self) -> Result<(), StorageError> {
        for name in [RECIPE].iter().chain(&DATA).filter(|name| self.path.join(name).is_file()) {
            let (from, target) = (self.path.join(name), to.path.join(name));
            replace_file(&target, |temporary| {
                fs::copy(&from, temporary).map(drop).map_err(StorageError::io("write", &target))
            })?;
        }
        Ok(())
    }
}

/// The files of a run in its folder. The two that mark one come last, so that an interrupted removal can be repeated.
fn files() -> impl Iterator<Item = &'static str> {
    let learnt = [REPORT, SESSIONS, METRICS, INIT, ADAPTERS, STATE, WEIGHTS, QUANTIZATION];
    learnt.into_iter().chain(DATA).chain([CONFIG, RECIPE])
}

/// Whether a run has a file of this name.
pub(super) fn is_file_of_run(name: &str) -> bool {
    files().any(|file| file == name)
}

/// Removes the files of a run and nothing else.
pub(super) fn remove_run(path: &Path) -> Result<(), StorageError> {
    let checkpoints = path.join(CHECKPOINTS);
    for name in names_in(&checkpoints)?.iter().filter(|name| checkpoint_of(name).is_some()) {
        remove(&checkpoints.join(name))?;
    }
    // A folder that holds foreign files is not empty and stays.
    let _ = fs::remove_dir(&checkpoints);
    remove(&path.join(EVENTS))?;
    for file in files().map(|name| path.join(name)) {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StorageError::io("remove", &file)(error));
            }
            _ => {}
        }
    }
    Ok(())
}
