//! Folders of sentence-transformers: `modules.json` says what stands behind the encoder, one folder each.
//!
//! Source: Reimers and Gurevych 2019, §3 (<https://arxiv.org/abs/1908.10084>), and `models/Pooling.py` of sentence-transformers.

use std::path::Path;

use firelight_classification::{PoolingConfig, SentenceEncoderConfig};
use firelight_storage::{InputError, StorageError, TaskError, listed, read_json, shortened};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::HubFolder;
use crate::folder::JSON_LIMIT;

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// What `modules.json` and `sentence_bert_config.json` make of an encoder; without them it stays as it is.
///
/// # Errors
/// If a file is damaged, or names a module or a pooling that is not known.
pub(crate) fn with_modules(
    config: SentenceEncoderConfig,
    folder: &HubFolder,
) -> Result<SentenceEncoderConfig, TaskError> {
    let path = folder.path().join("modules.json");
    if !path.is_file() {
        return Ok(config);
    }
    let modules: Vec<Module> = read_json(&path, JSON_LIMIT)?;
    let mut config = config.with_normalize(false).with_max_text_len(longest(folder.path())?);
    for module in modules {
        config = match module.kind.rsplit('.').next() {
            Some("Transformer") if module.path.is_empty() => config,
            Some("Pooling") => config.with_pooling(pooling(&own_folder(folder.path(), &module.path, &path)?)?),
            Some("Normalize") => config.with_normalize(true),
            _ => {
                let problem =
                    format!("names the module `{}` in `{}`", shortened(&module.kind), shortened(&module.path));
                let known = "known are Transformer in the folder itself, Pooling and Normalize";
                return Err(InputError::in_file(&path, problem).advise(known).into());
            }
        };
    }
    Ok(config)
}

/// The folder of a module is one beside `modules.json`.
fn own_folder(folder: &Path, name: &str, modules: &Path) -> Result<std::path::PathBuf, InputError> {
    let is_plain = !name.is_empty() && !name.contains(['/', '\\']) && name != "..";
    match is_plain {
        true => Ok(folder.join(name)),
        false => {
            let problem = format!("names the folder `{}`, which is not beside it", shortened(name));
            Err(InputError::in_file(modules, problem).advise("download the model from a source that you trust"))
        }
    }
}

fn pooling(folder: &Path) -> Result<PoolingConfig, TaskError> {
    let path = folder.join("config.json");
    let keys: Map<String, Value> = read_json(&path, JSON_LIMIT)?;
    let flags = keys.iter().filter(|(_, value)| **value == Value::Bool(true)).map(|(key, _)| key.as_str());
    let mut modes: Vec<&str> = flags.filter_map(|key| key.strip_prefix("pooling_mode_")).collect();
    modes.extend(keys.get("pooling_mode").and_then(Value::as_str));
    match modes[..] {
        ["cls_token" | "cls"] => Ok(PoolingConfig::Class),
        ["mean_tokens" | "mean"] => Ok(PoolingConfig::Mean),
        ["max_tokens" | "max"] => Ok(PoolingConfig::Max),
        _ => {
            let found: Vec<String> = modes.iter().map(ToString::to_string).collect();
            let problem =
                format!("asks for the pooling {}", if found.is_empty() { "none".into() } else { listed(&found) });
            Err(InputError::in_file(&path, problem)
                .advise("known are cls_token, mean_tokens or max_tokens, one alone")
                .into())
        }
    }
}

/// The longest text in tokens, where `sentence_bert_config.json` says it.
fn longest(folder: &Path) -> Result<Option<usize>, StorageError> {
    #[derive(Deserialize)]
    struct Keys {
        max_seq_length: Option<usize>,
    }
    let path = folder.join("sentence_bert_config.json");
    if !path.is_file() {
        return Ok(None);
    }
    let keys: Keys = read_json(&path, JSON_LIMIT)?;
    Ok(keys.max_seq_length.filter(|longest| *longest > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_classification::TextEncoderConfig;
    use std::fs;
    use tempfile::TempDir;

    fn folder(modules: &str, pooling: &str) -> TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("1_Pooling")).unwrap();
        fs::write(home.path().join("config.json"), "{}").unwrap();
        fs::write(home.path().join("modules.json"), modules).unwrap();
        fs::write(home.path().join("1_Pooling/config.json"), pooling).unwrap();
        fs::write(home.path().join("sentence_bert_config.json"), r#"{"max_seq_length": 7}"#).unwrap();
        home
    }

    fn read(modules: &str, pooling: &str) -> Result<SentenceEncoderConfig, String> {
        let home = folder(modules, pooling);
        let config = SentenceEncoderConfig::new(TextEncoderConfig::bert(9, 4, 2, 1));
        with_modules(config, &HubFolder::open(home.path()).unwrap()).map_err(|error| error.to_string())
    }

    const MODULES: &str = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}"#;

    #[test]
    fn modules_say_how_texts_become_vectors() {
        let normalize =
            format!(r#"{MODULES}, {{"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}}]"#);
        let found = read(&normalize, r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#).unwrap();
        assert_eq!((found.pooling, found.normalize, found.max_text_len), (PoolingConfig::Class, true, Some(7)));
        let found = read(&format!("{MODULES}]"), r#"{"pooling_mode": "max"}"#).unwrap();
        assert_eq!((found.pooling, found.normalize), (PoolingConfig::Max, false));
    }

    #[test]
    fn what_is_not_known_is_told() {
        let dense = format!(r#"{MODULES}, {{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}}]"#);
        let mean = r#"{"pooling_mode_mean_tokens": true}"#;
        assert!(read(&dense, mean).unwrap_err().contains("names the module `sentence_transformers.models.Dense`"));
        let both = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}"#;
        assert!(
            read(&format!("{MODULES}]"), both).unwrap_err().contains("asks for the pooling max_tokens, mean_tokens")
        );
        let last = r#"{"pooling_mode_lasttoken": true}"#;
        assert!(read(&format!("{MODULES}]"), last).unwrap_err().contains("asks for the pooling lasttoken"));
        let outside = MODULES.replace("1_Pooling", "../1_Pooling");
        assert!(read(&format!("{outside}]"), mean).unwrap_err().contains("which is not beside it"));
    }
}
