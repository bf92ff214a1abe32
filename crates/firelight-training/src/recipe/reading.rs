//! A value of a recipe as the settings that it stands for, and the key that an error is about.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::Value;

/// What does not fit, and why.
pub(super) struct Misfit {
    /// Its key within the value that was read, `a.b` for what lies deeper; empty for the whole.
    pub(super) key: String,
    pub(super) cause: String,
}

impl Misfit {
    /// The cause with its key before it, where an error holds a text alone.
    pub(super) fn into_text(self) -> String {
        if self.key.is_empty() { self.cause } else { format!("`{}`: {}", self.key, self.cause) }
    }
}

/// # Errors
/// If the value does not fit.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Misfit> {
    serde_path_to_error::deserialize(value).map_err(|error: serde_path_to_error::Error<toml::de::Error>| {
        let keys: Vec<&str> = error.path().iter().filter_map(name_of).collect();
        Misfit { key: keys.join("."), cause: error.inner().message().into() }
    })
}

/// The elements of an array have no names.
fn name_of(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Map { key } => Some(key),
        Segment::Enum { variant } => Some(variant),
        Segment::Seq { .. } | Segment::Unknown => None,
    }
}
