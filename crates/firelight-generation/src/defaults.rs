//! `generation_config.json`: how the makers of a published model want it decoded.
//!
//! Source: `GenerationConfig` of transformers 5, whose names are kept.

use std::path::Path;

use firelight_storage::{StorageError, read_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Processing;

/// The largest file that is read, in bytes.
const LIMIT: u64 = 1 << 24;

/// The generation defaults of a published model. Keys without a field here are kept as they are.
///
/// ```
/// use firelight_generation::GenerationDefaults;
///
/// let text = r#"{"eos_token_id": [2, 32007], "temperature": 0.6}"#;
/// let defaults: GenerationDefaults = serde_json::from_str(text).unwrap();
/// assert_eq!(defaults.end_tokens(), [2, 32007]);
/// assert_eq!(defaults.more["temperature"], 0.6);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GenerationDefaults {
    /// Ids that end a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos_token_id: Option<TokenIds>,
    /// Sequences of ids that are never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad_words_ids: Option<Vec<Vec<u32>>>,
    /// Ids that are never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_tokens: Option<Vec<u32>>,
    /// Ids that a text does not begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_suppress_tokens: Option<Vec<u32>>,
    /// The id that a text begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_bos_token_id: Option<u32>,
    /// The ids that a text of the full length ends with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_eos_token_id: Option<TokenIds>,
    /// All other keys.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One id, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum TokenIds {
    /// One.
    One(u32),
    /// Several.
    Several(Vec<u32>),
}

impl TryFrom<Value> for TokenIds {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let several = || value.as_array()?.iter().map(id).collect::<Option<Vec<u32>>>();
        let one = id(&value).map(Self::One);
        one.or_else(|| several().map(Self::Several)).ok_or("expected the id of a token, or a list of ids")
    }
}

impl TokenIds {
    /// All of them.
    pub fn ids(&self) -> &[u32] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Several(ids) => ids,
        }
    }
}

impl GenerationDefaults {
    /// Reads a file. Without the file, returns the empty defaults.
    ///
    /// # Errors
    /// If it cannot be read, or a key has a value of another kind.
    pub fn of_file(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        if path.is_file() { read_json(path, LIMIT) } else { Ok(Self::default()) }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Ids that end a text.
    pub fn end_tokens(&self) -> &[u32] {
        self.eos_token_id.as_ref().map_or(&[], TokenIds::ids)
    }

    /// The id that a text begins with, for a vocabulary of `size` ids. None if the vocabulary does not have it.
    ///
    /// ```
    /// let defaults: firelight_generation::GenerationDefaults = serde_json::from_str(r#"{"forced_bos_token_id": 9}"#).unwrap();
    /// assert_eq!([defaults.first(10), defaults.first(9)], [Some(9), None]);
    /// ```
    pub fn first(&self, size: usize) -> Option<u32> {
        self.forced_bos_token_id.filter(|&id| (id as usize) < size)
    }

    /// Ids that are banned in every context.
    pub fn banned(&self) -> impl Iterator<Item = u32> {
        let single = |words: &Vec<u32>| <[u32; 1]>::try_from(words.as_slice()).ok();
        let words = self.bad_words_ids.iter().flatten().filter_map(single).flatten();
        words.chain(self.suppress_tokens.iter().flatten().copied())
    }

    /// A number among the other keys, such as `temperature`. None if it is missing, `null` or not a number.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.more.get(key)?.as_f64()
    }

    /// Adds the banned sequences, the banned first ids and the forced last ids to `processing`, for a vocabulary of `size` ids.
    pub fn add_to(&self, processing: &mut Processing, size: usize) {
        let sequences = self.bad_words_ids.iter().flatten().filter(|words| words.len() > 1).cloned();
        processing.banned.extend(sequences);
        processing.not_first.extend(self.begin_suppress_tokens.iter().flatten());
        if let Some(last) = &self.forced_eos_token_id {
            processing.forced_last.extend(last.ids().iter().filter(|&&id| (id as usize) < size));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_again() {
        let text = r#"{"bad_words_ids":[[7],[1,2]],"eos_token_id":3,"num_beams":4,"suppress_tokens":[9]}"#;
        let read: GenerationDefaults = serde_json::from_str(text).unwrap();
        assert_eq!((read.end_tokens(), read.banned().collect::<Vec<_>>()), (&[3][..], vec![7, 9]));
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!((read.number("num_beams"), read.number("top_k")), (Some(4.0), None));
        assert!(!read.is_empty() && GenerationDefaults::of_file("no/such").unwrap().is_empty());
    }

    #[test]
    fn bans_of_places_and_sequences_become_processors() {
        let text = r#"{"bad_words_ids": [[7], [1, 2]], "begin_suppress_tokens": [5], "forced_eos_token_id": [3, 4]}"#;
        let mut found = Processing::default();
        serde_json::from_str::<GenerationDefaults>(text).unwrap().add_to(&mut found, 4);
        let expected =
            Processing { banned: vec![vec![1, 2]], not_first: vec![5], forced_last: vec![3], ..Processing::default() };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_value_of_another_kind_is_told_with_its_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("generation_config.json");
        for (text, expected) in [
            (r#"{"forced_bos_token_id": "no"}"#, "invalid type"),
            (r#"{"eos_token_id": [1, -2]}"#, "expected the id of a token, or a list of ids"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = GenerationDefaults::of_file(&path).unwrap_err().to_string();
            assert!(error.contains("generation_config.json") && error.contains(expected), "{error}");
        }
    }
}
