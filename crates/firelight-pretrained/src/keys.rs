//! The keys of a `config.json` of somebody else's: read by type, with errors that name the key.

mod pixels;

use std::path::PathBuf;

use firelight_storage::{InputError, shortened};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::HubFolder;

/// What the class of a model without a head ends with.
const BASE: &str = "Model";

/// No model has more, by far.
const MOST_LAYERS: usize = 10_000;
const MOST_LABELS: usize = 1_000_000;
const MOST_CHANNELS: usize = 1024;

/// A `config.json`, or a section of one.
///
/// ```
/// use firelight_pretrained::{HubFolder, Keys};
///
/// let home = tempfile::tempdir().unwrap();
/// std::fs::write(home.path().join("config.json"), r#"{"n_embd": 768, "n_inner": null, "n_head": "twelve"}"#).unwrap();
/// let folder = HubFolder::open(home.path()).unwrap();
/// let keys = Keys::of(&folder);
/// assert_eq!(keys.need::<usize>("n_embd"), Ok(768));
/// assert_eq!(keys.or("n_inner", 3072), Ok(3072));
/// let error = keys.need::<usize>("n_head").unwrap_err().to_string();
/// assert!(error.ends_with("config.json` has n_head = \"twelve\": expected a number that is not negative"), "{error}");
/// ```
#[derive(Clone, Debug)]
pub struct Keys<'a> {
    file: PathBuf,
    section: String,
    value: &'a Value,
    architecture: String,
}

impl<'a> Keys<'a> {
    /// All keys of a folder's `config.json`.
    pub fn of(folder: &'a HubFolder) -> Self {
        // Sentence models name the class that they were pre-trained with, and are the model alone.
        let architecture = folder.architecture().unwrap_or(BASE).to_string();
        let keys = Self { file: folder.config_path(), section: String::new(), value: folder.config(), architecture };
        if folder.path().join("modules.json").is_file() { keys.without_head() } else { keys }
    }

    /// The same keys of the model alone.
    pub(crate) fn without_head(mut self) -> Self {
        if let Some((family, _)) = self.architecture.split_once("For") {
            self.architecture = family.to_string() + BASE;
        }
        self
    }

    /// The section of a key, where there is one that is no `null`.
    pub fn section(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| value.is_object())?;
        Some(Self { section: format!("{}{key}.", self.section), value, ..self.clone() })
    }

    /// The section of a key; where there is none, one that says nothing.
    pub fn section_or_empty(&self, key: &str) -> Self {
        let empty = || Self { section: format!("{}{key}.", self.section), value: &Value::Null, ..self.clone() };
        self.section(key).unwrap_or_else(empty)
    }

    /// The value of a key; none where it is missing or `null`.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn get<T: DeserializeOwned + 'static>(&self, key: &str) -> Result<Option<T>, InputError> {
        let Some(value) = self.value.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        T::deserialize(value).map(Some).map_err(|_| self.unfit(key, expected::<T>()))
    }

    /// The value of a key, or another one where it is missing or `null`.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn or<T: DeserializeOwned + 'static>(&self, key: &str, default: T) -> Result<T, InputError> {
        Ok(self.get(key)?.unwrap_or(default))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If it is missing, `null` or of another type.
    pub fn need<T: DeserializeOwned + 'static>(&self, key: &str) -> Result<T, InputError> {
        let missing = || InputError::in_file(&self.file, format!("lacks the key `{}{key}`", self.section));
        self.get(key)?.ok_or_else(|| missing().advise("download it again"))
    }

    /// The number of layers, which is refused before anything is made of it where no model has so many.
    ///
    /// # Errors
    /// If it is missing or of another type, or too large.
    pub fn layers(&self, key: &str) -> Result<usize, InputError> {
        match self.need(key)? {
            layers if layers <= MOST_LAYERS => Ok(layers),
            _ => Err(self.unfit(key, &format!("at most {MOST_LAYERS} layers"))),
        }
    }

    /// The value of the first of these keys that is there.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn first<T: DeserializeOwned + 'static>(&self, keys: &[&str]) -> Result<Option<T>, InputError> {
        keys.iter().find_map(|key| self.get(key).transpose()).transpose()
    }

    /// Refuses a key that has another value than the one that is known here.
    ///
    /// # Errors
    /// If it has.
    pub fn only(&self, key: &str, known: &Value) -> Result<(), InputError> {
        match self.value.get(key) {
            Some(found) if found != known && !found.is_null() => Err(self.unfit(key, &known.to_string())),
            _ => Ok(()),
        }
    }

    /// The error of a key whose value is none of those that are known.
    pub fn unfit(&self, key: &str, expected: &str) -> InputError {
        let found = self.value.get(key).map_or("nothing".into(), |value| shortened(&value.to_string()));
        InputError::in_file(&self.file, format!("has {}{key} = {found}: expected {expected}", self.section))
    }

    /// The class of the model in `transformers`; where nobody says so, that of the model alone.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The names of the classes of a model with a head, in the order of its outputs: `id2label`, or `LABEL_0` and so on.
    ///
    /// # Errors
    /// If they are no names.
    pub fn labels(&self) -> Result<Vec<String>, InputError> {
        let names: serde_json::Map<String, Value> = self.or("id2label", serde_json::Map::new())?;
        let count = if names.is_empty() { self.or("num_labels", 2)? } else { names.len() };
        if count > MOST_LABELS {
            return Err(self.unfit("num_labels", &format!("at most {MOST_LABELS}")));
        }
        let name = |index: usize| match names.get(&index.to_string()) {
            Some(Value::String(name)) => Ok(name.clone()),
            None if names.is_empty() => Ok(format!("LABEL_{index}")),
            _ => Err(self.unfit("id2label", "a name for each number from 0 on")),
        };
        (0..count).map(name).collect()
    }
}

impl Keys<'_> {
    /// As many names of classes: those of a list, or `LABEL_0` and so on.
    ///
    /// # Errors
    /// If there are others or too many.
    pub fn names(&self, key: &str, count: usize) -> Result<Vec<String>, InputError> {
        if count > MOST_LABELS {
            return Err(self.unfit("num_classes", &format!("at most {MOST_LABELS}")));
        }
        match self.get::<Vec<String>>(key)? {
            Some(names) if names.len() == count => Ok(names),
            Some(_) => Err(self.unfit(key, &format!("{count} names"))),
            None => Ok((0..count).map(|index| format!("LABEL_{index}")).collect()),
        }
    }

    /// The channels of images, `num_channels`, which are refused before anything is made of them where no model has so many.
    ///
    /// # Errors
    /// If they are of another type, or too many.
    pub fn channels(&self) -> Result<usize, InputError> {
        match self.or("num_channels", 3)? {
            channels if channels <= MOST_CHANNELS => Ok(channels),
            _ => Err(self.unfit("num_channels", &format!("at most {MOST_CHANNELS}"))),
        }
    }
}

/// What a type is called in a message.
fn expected<T: 'static>() -> &'static str {
    match std::any::type_name::<T>() {
        "usize" | "u32" | "u64" => "a number that is not negative",
        "f64" => "a number",
        "bool" => "true or false",
        "alloc::string::String" => "a text",
        name if name.contains("Vec<") => "a list",
        _ => "another value",
    }
}
