//! What `tokenizer_config.json` and `config.json` say of a tokenizer where a folder has no `tokenizer.json`.

use std::collections::BTreeMap;
use std::path::Path;

use firelight_storage::read_json;
use serde_json::{Map, Value, json};

use super::file::LIMIT;
use crate::DataError;

/// The two files of a folder; null in the place of one that it lacks.
pub(super) struct Settings {
    pub(super) keys: Value,
    pub(super) config: Value,
}

impl Settings {
    pub(super) fn of_folder(folder: &Path) -> Result<Self, DataError> {
        let read = |name: &str| -> Result<Value, DataError> {
            let path = folder.join(name);
            Ok(if path.is_file() { read_json(&path, LIMIT)? } else { Value::Null })
        };
        Ok(Self { keys: read("tokenizer_config.json")?, config: read("config.json")? })
    }

    /// The class that reads the tokenizer, such as `t5` for `T5TokenizerFast`; the type of the model where no class is named.
    pub(super) fn family(&self) -> String {
        let class = self.keys["tokenizer_class"].as_str().unwrap_or_default().trim_end_matches("Fast");
        match class.trim_end_matches("Tokenizer") {
            "" | "PreTrained" | "TokenizersBackend" => {
                self.config["model_type"].as_str().unwrap_or_default().to_lowercase()
            }
            class => class.to_lowercase(),
        }
    }

    pub(super) fn says(&self, key: &str, default: bool) -> bool {
        self.keys[key].as_bool().unwrap_or(default)
    }

    /// The special tokens that a vocabulary has, and those that `added_tokens_decoder` adds to it or describes in another way.
    pub(super) fn added(&self, ids: &Map<String, Value>, special: &[&str]) -> Value {
        let known = special.iter().filter_map(|token| Some((ids.get(*token)?.as_u64()?, added(token))));
        let listed = self.keys["added_tokens_decoder"].as_object().into_iter().flatten();
        let listed = listed.filter_map(|(id, token)| Some((id.parse::<u64>().ok()?, token.clone())));
        let tokens: BTreeMap<u64, Value> = known.chain(listed).collect();
        let with_id = |(id, mut token): (u64, Value)| {
            token.as_object_mut()?.insert("id".into(), json!(id));
            Some(token)
        };
        tokens.into_iter().filter_map(with_id).collect()
    }
}

/// A special token, as a file has it but for its id.
fn added(token: &str) -> Value {
    // A mask takes the space before it, as a word would.
    let takes_space = token == "<mask>";
    json!({
        "content": token, "special": true, "single_word": false, "lstrip": takes_space, "rstrip": false, "normalized": false,
    })
}
