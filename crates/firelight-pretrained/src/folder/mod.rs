//! A model folder as Hugging Face writes it: `config.json`, weights in one file or in several with an index, tokenizer files. A GGUF file
//! is all of that in one.

mod file;
mod weights;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use firelight_storage::{InputError, StorageError, read_json};
use serde_json::Value;

use crate::gguf::{self, Gguf};
pub(crate) use weights::is_float;
pub use weights::{TensorInfo, Weights};

/// No JSON file of a folder but the tokenizer is larger, in bytes.
pub(crate) const JSON_LIMIT: u64 = 16 << 20;

/// A folder with the `config.json` of a published model, or a file with the ending `.gguf`, whose metadata is read as one.
///
/// ```
/// use firelight_pretrained::HubFolder;
///
/// let home = tempfile::tempdir().unwrap();
/// std::fs::write(home.path().join("config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
/// assert_eq!(HubFolder::open(home.path()).unwrap().model_type(), Some("gpt2"));
/// ```
#[derive(Clone, Debug)]
pub struct HubFolder {
    path: PathBuf,
    config: Value,
    gguf: Option<Arc<Gguf>>,
}

impl HubFolder {
    /// Reads `config.json`, or the header of a GGUF file.
    ///
    /// # Errors
    /// If there is none, or it is no JSON object, or the header is damaged or of a model that is not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        if is_gguf(path) {
            let gguf = Gguf::open(path)?;
            return Ok(Self { path: path.into(), config: gguf.config()?, gguf: Some(Arc::new(gguf)) });
        }
        let file = path.join("config.json");
        let config: Value = read_json(&file, JSON_LIMIT)?;
        match config.is_object() {
            true => Ok(Self { path: path.into(), config, gguf: None }),
            false => Err(InputError::in_file(&file, "is no JSON object").advise("give the folder of a model").into()),
        }
    }

    /// A folder with this `config.json`, which is not read.
    pub(crate) fn of(path: PathBuf, config: Value) -> Self {
        Self { path, config, gguf: None }
    }

    /// Whether `path` is such a folder: its `config.json` names a `model_type`, `architectures` or `architecture`, which a run folder's does
    /// not. Every file with the ending `.gguf` is one, so that what is wrong with it is told.
    pub fn is_one(path: impl AsRef<Path>) -> bool {
        if is_gguf(path.as_ref()) {
            return true;
        }
        let is_published = |folder: Self| {
            ["model_type", "architectures", "architecture"].iter().any(|key| folder.config.get(key).is_some())
        };
        Self::open(path).is_ok_and(is_published)
    }

    /// The GGUF file, where it is one.
    pub(crate) fn gguf(&self) -> Option<&Gguf> {
        self.gguf.as_deref()
    }

    /// The folder, or the GGUF file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `config.json`, or the GGUF file.
    pub fn config_path(&self) -> PathBuf {
        if self.gguf.is_some() { self.path.clone() } else { self.path.join("config.json") }
    }

    /// What it says.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The family of the model, as Hugging Face calls it; `timm` where that library's key `architecture` stands in its place.
    pub fn model_type(&self) -> Option<&str> {
        let timm = || self.config["architecture"].as_str().map(|_| "timm");
        self.config["model_type"].as_str().or_else(timm)
    }

    /// The class of the model in `transformers`, which says what head it has.
    pub fn architecture(&self) -> Option<&str> {
        self.config["architectures"][0].as_str()
    }

    /// The weights, of which only the headers are read.
    ///
    /// # Errors
    /// If a file is missing or damaged, or an index names a file outside the folder.
    pub fn weights(&self) -> Result<Weights, StorageError> {
        match &self.gguf {
            Some(gguf) => Weights::of_gguf(&self.path, gguf),
            None => Weights::open(&self.path),
        }
    }
}

fn is_gguf(path: &Path) -> bool {
    gguf::is_named(path) && !path.is_dir()
}
