//! `config.json`: the configuration of a model behind three fields that say who wrote it, in which version, for which
//! task. [`ModelFolder`](crate::ModelFolder) reads and writes it, the task crates give the configuration itself.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{InputError, StorageError, read_file, shortened, shortened_reason, write_atomic};

/// The value of the field `format` in every configuration that Firelight writes.
pub const FORMAT: &str = "firelight";

/// The version of the folder's layout that this program writes and reads.
pub const VERSION: u64 = 2;

/// No configuration is larger, in bytes.
const LIMIT: u64 = 16 << 20;

/// The configuration as it stands in the file: the stamp first, then the fields of the model.
#[derive(Serialize, Deserialize)]
struct Stamped<T, C> {
    format: T,
    version: u64,
    task: T,
    #[serde(flatten)]
    config: C,
}

/// Writes the stamp and the fields of `config` to `path`.
pub(crate) fn write<C: Serialize>(path: &Path, task: &str, config: &C) -> Result<(), StorageError> {
    let stamped = Stamped { format: FORMAT, version: VERSION, task, config };
    let mut text = serde_json::to_string_pretty(&stamped).map_err(fields_error(path, task))?;
    text.push('\n');
    write_atomic(path, text)
}

/// Reads the fields of a configuration for `task` from `path`, after its stamp has been checked. A field that every writer
/// writes may not be missing: its default may not be what the weights were trained with.
pub(crate) fn read<C: Serialize + DeserializeOwned>(path: &Path, task: &str) -> Result<C, StorageError> {
    let text = read_file(path, LIMIT)?;
    let mut value: Value = serde_json::from_slice(&text)
        .map_err(|error| InputError::in_file(path, format!("is not JSON: {}", shortened_reason(&error.to_string()))))
        .map_err(|error| error.advise("restore the file, or train the model again"))?;
    check_stamp(path, task, &value)?;
    if let Value::Object(fields) = &mut value {
        // What is left belongs to the model, so a configuration may refuse fields it does not know.
        for key in ["format", "version", "task"] {
            fields.remove(key);
        }
    }
    let config = C::deserialize(&value).map_err(fields_error(path, task))?;
    let whole = serde_json::to_value(&config).map_err(fields_error(path, task))?;
    match missing(&whole, &value) {
        Some(key) => {
            let reason = format!("missing field `{key}`; restore the file that was written with these weights");
            Err(wrong_fields(path, task, &reason))
        }
        None => Ok(config),
    }
}

/// The path of the first key of `whole` that `found` lacks, such as `transformer.norm`.
fn missing(whole: &Value, found: &Value) -> Option<String> {
    let below = |key: &str, whole: &Value, found: &Value| missing(whole, found).map(|rest| format!("{key}.{rest}"));
    match (whole, found) {
        (Value::Object(whole), Value::Object(found)) => whole.iter().find_map(|(key, value)| match found.get(key) {
            Some(found) => below(key, value, found),
            None => Some(key.clone()),
        }),
        (Value::Array(whole), Value::Array(found)) => {
            let pairs = whole.iter().zip(found).enumerate();
            pairs.into_iter().find_map(|(index, (whole, found))| below(&index.to_string(), whole, found))
        }
        _ => None,
    }
}

/// Whether the file at `path` is a configuration of Firelight, of any version and task.
pub(crate) fn is_ours(path: &Path) -> bool {
    parsed(path).is_some_and(|config| config["format"] == FORMAT)
}

/// The task of the configuration at `path`; none where it does not say, which is for its reader to tell.
pub(crate) fn task_in(path: &Path) -> Option<String> {
    parsed(path)?["task"].as_str().map(str::to_string)
}

fn parsed(path: &Path) -> Option<Value> {
    serde_json::from_slice(&read_file(path, LIMIT).ok()?).ok()
}

/// Checks format, version and task, in this order: a wrong format makes the rest meaningless.
fn check_stamp(path: &Path, task: &str, config: &Value) -> Result<(), StorageError> {
    if config["format"] != FORMAT {
        let (expected, found) = ("`\"format\": \"firelight\"`", shown(config, "format"));
        let problem = format!("is not a configuration of Firelight: expected {expected}, found {found}");
        return Err(InputError::in_file(path, problem).into());
    }
    if config["version"] != VERSION {
        let found = shown(config, "version");
        let problem = format!(
            "has format version {found}, but this program reads version {VERSION}: use the Firelight that wrote it"
        );
        return Err(InputError::in_file(path, problem + ", or train the model again").into());
    }
    if config["task"] != task {
        let found = shown(config, "task");
        return Err(StorageError::ConfigTask { path: path.into(), expected: task.into(), found });
    }
    Ok(())
}

/// The value of `key` as an error message shows it.
fn shown(config: &Value, key: &str) -> String {
    config.get(key).map_or_else(|| "none".into(), |value| shortened(&value.to_string()))
}

/// Returns a converter of serde's errors, for `map_err`.
fn fields_error(path: &Path, task: &str) -> impl FnOnce(serde_json::Error) -> StorageError {
    move |error| wrong_fields(path, task, &error.to_string())
}

/// A field of the configuration that is missing, unknown or of the wrong type.
fn wrong_fields(path: &Path, task: &str, reason: &str) -> StorageError {
    let reason = shortened_reason(reason);
    InputError::in_file(path, format!("does not describe a \"{task}\" model: {reason}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct Config {
        d_model: usize,
        dropout: f64,
    }

    const CONFIG: Config = Config { d_model: 128, dropout: 0.1 };

    fn error_of(text: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.json");
        fs::write(&path, text).unwrap();
        let error = read::<Config>(&path, "language").unwrap_err();
        assert!(error.is_user_error());
        error.to_string().replace(&format!("{}/", home.path().display()), "")
    }

    #[test]
    fn begins_with_the_stamp_and_round_trips() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.json");
        write(&path, "language", &CONFIG).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "{\n  \"format\": \"firelight\",\n  \"version\": 2,\n  \"task\": \"language\",\n  \"d_model\": 128,\n  \"dropout\": 0.1\n}\n"
        );
        assert_eq!(read::<Config>(&path, "language").unwrap(), CONFIG);
    }

    #[test]
    fn an_unknown_version_names_both() {
        // That of 0.1, and one to come.
        for version in [1, 7] {
            let stamp = format!(r#"{{"format": "firelight", "version": {version}, "task": "language"}}"#);
            let expected = format!(
                "`config.json` has format version {version}, but this program reads version 2: use the Firelight that wrote \
                 it, or train the model again"
            );
            assert_eq!(error_of(&stamp), expected);
        }
    }

    #[test]
    fn another_task_names_both() {
        assert_eq!(
            error_of(r#"{"format": "firelight", "version": 2, "task": "vision"}"#),
            "`config.json` describes a model for the task \"vision\", but a model for the task \"language\" is expected; to ask \
             this one: firelight classify"
        );
        let of_no_command = error_of(r#"{"format": "firelight", "version": 2, "task": "toy"}"#);
        assert!(of_no_command.ends_with("a model for the task \"language\" is expected"), "{of_no_command}");
    }

    #[test]
    fn what_is_not_ours_says_so() {
        let foreign =
            "`config.json` is not a configuration of Firelight: expected `\"format\": \"firelight\"`, found none";
        assert_eq!(error_of(r#"{"model_type": "gpt2"}"#), foreign);
        assert_eq!(error_of("[1, 2]"), foreign);
        assert!(error_of("{\n  oops").starts_with("`config.json` is not JSON: key must be a string at line 2"));
        assert!(error_of("").starts_with("`config.json` is not JSON: EOF"));
        let long = error_of(&format!(r#"{{"format": "{}"}}"#, "x".repeat(1_000_000)));
        assert!(long.len() < 200 && long.ends_with("xxx..."), "{long}");
        let stamp = r#""format": "firelight", "version": 2, "task": "language""#;
        let long = error_of(&format!(r#"{{{stamp}, "d_model": "{}"}}"#, "x".repeat(1_000_000)));
        assert!(long.len() < 500 && long.ends_with("expected usize"), "{long}");
    }

    #[test]
    fn an_unknown_or_missing_field_is_named() {
        let stamp = r#""format": "firelight", "version": 2, "task": "language""#;
        let unknown = error_of(&format!("{{{stamp}, \"d_modle\": 3}}"));
        assert!(unknown.contains("unknown field `d_modle`, expected `d_model` or `dropout`"), "{unknown}");
        assert!(error_of(&format!("{{{stamp}, \"d_model\": 3}}")).contains("missing field `dropout`"));
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Default)]
    #[serde(default)]
    struct Nested {
        parts: Vec<Part>,
        #[serde(skip_serializing_if = "Option::is_none")]
        later: Option<usize>,
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Default)]
    #[serde(default)]
    struct Part {
        rate: f64,
        width: usize,
    }

    #[test]
    fn a_default_does_not_stand_in_for_a_field_that_was_always_written() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.json");
        let stamp = r#""format": "firelight", "version": 2, "task": "language""#;
        let found = |fields: &str| {
            fs::write(&path, format!("{{{stamp}, {fields}}}")).unwrap();
            read::<Nested>(&path, "language").map_err(|error| error.to_string())
        };
        let whole = Nested { parts: vec![Part::default(), Part { rate: 0.5, width: 3 }], later: None };
        assert_eq!(found(r#""parts": [{"rate": 0, "width": 0}, {"rate": 0.5, "width": 3}]"#), Ok(whole));
        let error = found(r#""parts": [{"rate": 0, "width": 0}, {"width": 3}]"#).unwrap_err();
        assert!(error.contains("config.json` does not describe") && error.contains("missing field `parts.1.rate`"));
    }
}
