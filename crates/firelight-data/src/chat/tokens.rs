//! The special tokens that templates spell.

use std::collections::BTreeMap;
use std::path::Path;

use firelight_storage::read_json;
use serde_json::Value;

use super::LIMIT;
use crate::DataError;

/// Tokens by their names, such as `bos_token`.
pub(super) type Tokens = BTreeMap<String, String>;

const MAP: &str = "special_tokens_map.json";

/// Those of `tokenizer_config.json`, else of `special_tokens_map.json`.
pub(super) fn of_folder(folder: &Path, config: &Value) -> Result<Tokens, DataError> {
    let map = folder.join(MAP);
    match of_keys(config) {
        found if found.is_empty() && map.is_file() => Ok(of_keys(&read_json(&map, LIMIT)?)),
        found => Ok(found),
    }
}

/// A token is a string, or an object with its spelling in `content`.
fn of_keys(keys: &Value) -> Tokens {
    let spelt = |value: &Value| value.as_str().or_else(|| value["content"].as_str()).map(String::from);
    let keys = keys.as_object().into_iter().flatten().filter(|(name, _)| name.ends_with("_token"));
    keys.filter_map(|(name, value)| Some((name.clone(), spelt(value)?))).collect()
}
