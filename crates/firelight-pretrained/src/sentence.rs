//! Folders of sentence-transformers: `modules.json` says what stands behind the encoder, one folder each.
//!
//! Source: Reimers and Gurevych 2019, §3 (<https://arxiv.org/abs/1908.10084>), and `models/Pooling.py` of sentence-transformers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firelight_classification::{HeadActivation, PoolingConfig, SentenceDenseConfig, SentenceEncoderConfig};
use firelight_storage::{InputError, StorageError, TaskError, listed, read_json, shortened};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::folder::JSON_LIMIT;
use crate::{HubFolder, WeightMapping};

/// The ways of pooling, as sentence-transformers calls them, in the order in which it puts several one behind the other.
pub(crate) const POOLINGS: [(&str, PoolingConfig); 6] = [
    ("cls_token", PoolingConfig::Class),
    ("max_tokens", PoolingConfig::Max),
    ("mean_tokens", PoolingConfig::Mean),
    ("mean_sqrt_len_tokens", PoolingConfig::MeanSqrtLen),
    ("weightedmean_tokens", PoolingConfig::WeightedMean),
    ("lasttoken", PoolingConfig::Last),
];

/// Activation functions as modules of PyTorch.
pub(crate) const ACTIVATIONS: [(&str, Option<HeadActivation>); 4] = [
    ("torch.nn.modules.activation.Tanh", Some(HeadActivation::Tanh)),
    ("torch.nn.modules.linear.Identity", None),
    ("torch.nn.modules.activation.ReLU", Some(HeadActivation::Relu)),
    ("torch.nn.modules.activation.GELU", Some(HeadActivation::Gelu)),
];

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// An encoder with what stands behind it.
pub(crate) struct Modules {
    pub(crate) config: SentenceEncoderConfig,
    /// Where the parameters of its dense layers lie.
    pub(crate) rows: Vec<WeightMapping>,
    /// The folders of their weights.
    pub(crate) folders: Vec<String>,
}

/// What `modules.json` and the files beside it make of an encoder; without them it stays as it is.
///
/// # Errors
/// If a file is damaged, or names a module or a pooling that is not known.
pub(crate) fn with_modules(config: SentenceEncoderConfig, folder: &HubFolder) -> Result<Modules, TaskError> {
    let path = folder.path().join("modules.json");
    let mut found = Modules { config, rows: Vec::new(), folders: Vec::new() };
    if !path.is_file() {
        return Ok(found);
    }
    let modules: Vec<Module> = read_json(&path, JSON_LIMIT)?;
    let encoder = found.config.encoder.transformer.max_seq_len;
    found.config = found.config.with_normalize(false).with_max_text_len(longest(folder.path(), encoder)?);
    read_prompts(folder.path(), &mut found.config)?;
    for module in modules {
        let own = || own_folder(folder.path(), &module.path, &path);
        match module.kind.rsplit('.').next() {
            Some("Transformer") if module.path.is_empty() => {}
            Some("Pooling") if found.rows.is_empty() => found.config.pooling = pooling(&own()?)?,
            Some("Dense") if !found.config.normalize => found.add_dense(dense(&own()?)?, module.path),
            Some("Normalize") => found.config.normalize = true,
            _ => {
                let problem =
                    format!("names the module `{}` in `{}`", shortened(&module.kind), shortened(&module.path));
                let known = "known are Transformer in the folder itself, Pooling, Dense and Normalize, in this order";
                return Err(InputError::in_file(&path, problem).advise(known).into());
            }
        }
    }
    Ok(found)
}

impl Modules {
    fn add_dense(&mut self, dense: SentenceDenseConfig, folder: String) {
        self.rows.push(WeightMapping::linear(format!("{folder}.linear"), format!("dense.{}", self.folders.len())));
        self.config.dense.push(dense);
        self.folders.push(folder);
    }
}

/// The folder of a module is one beside `modules.json`.
fn own_folder(folder: &Path, name: &str, modules: &Path) -> Result<PathBuf, InputError> {
    let is_plain = !name.is_empty() && !name.contains(['/', '\\']) && name != "..";
    match is_plain {
        true => Ok(folder.join(name)),
        false => {
            let problem = format!("names the folder `{}`, which is not beside it", shortened(name));
            Err(InputError::in_file(modules, problem).advise("download the model from a source that you trust"))
        }
    }
}

fn pooling(folder: &Path) -> Result<Vec<PoolingConfig>, TaskError> {
    let path = folder.join("config.json");
    let keys: Map<String, Value> = read_json(&path, JSON_LIMIT)?;
    let modes = modes(&keys);
    let is = |known: &str, mode: &str| known == mode || newer(known) == mode;
    let way = |mode: &String| POOLINGS.iter().find(|(known, _)| is(known, mode)).map(|(_, way)| *way);
    let found: Vec<PoolingConfig> = modes.iter().filter_map(way).collect();
    if found.is_empty() || found.len() != modes.len() {
        let asked = if modes.is_empty() { "none".into() } else { listed(&modes) };
        let known = format!("known are {}", listed(POOLINGS.map(|(name, _)| name)));
        return Err(InputError::in_file(&path, format!("asks for the pooling {asked}")).advise(known).into());
    }
    match keys.get("include_prompt") {
        Some(Value::Bool(false)) => {
            let problem = "leaves the prompt out of the pooled vector (include_prompt), which is not known here";
            Err(InputError::in_file(&path, problem).into())
        }
        _ => Ok(found),
    }
}

/// The names of the ways of pooling in their order: newer files list them, older ones have a flag for each.
fn modes(keys: &Map<String, Value>) -> Vec<String> {
    match keys.get("pooling_mode") {
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).map(Into::into).collect(),
        Some(Value::String(one)) => vec![one.clone()],
        _ => {
            let flags = keys.iter().filter(|(_, value)| **value == Value::Bool(true)).map(|(key, _)| key.as_str());
            let mut modes: Vec<String> =
                flags.filter_map(|key| key.strip_prefix("pooling_mode_").map(Into::into)).collect();
            modes.sort_by_key(|mode| POOLINGS.iter().position(|(known, _)| known == mode));
            modes
        }
    }
}

/// How newer files call a way of pooling.
pub(crate) fn newer(name: &str) -> &str {
    match name {
        "mean_sqrt_len_tokens" => name,
        _ => name.strip_suffix("_tokens").or(name.strip_suffix("_token")).unwrap_or(name),
    }
}

fn dense(folder: &Path) -> Result<SentenceDenseConfig, TaskError> {
    #[derive(Deserialize)]
    struct Keys {
        out_features: usize,
        bias: Option<bool>,
        activation_function: Option<String>,
    }
    let path = folder.join("config.json");
    let keys: Keys = read_json(&path, JSON_LIMIT)?;
    let name = keys.activation_function.as_deref().unwrap_or(ACTIVATIONS[0].0);
    match ACTIVATIONS.iter().find(|(known, _)| *known == name) {
        Some((_, activation)) => {
            let (d_out, bias) = (keys.out_features, keys.bias.unwrap_or(true));
            Ok(SentenceDenseConfig { d_out, bias, activation: *activation })
        }
        None => {
            let problem = format!("has activation_function = \"{}\"", shortened(name));
            let known = format!("known are {}", listed(ACTIVATIONS.map(|(name, _)| name)));
            Err(InputError::in_file(&path, problem).advise(known).into())
        }
    }
}

/// The prompts of `config_sentence_transformers.json`.
fn read_prompts(folder: &Path, config: &mut SentenceEncoderConfig) -> Result<(), StorageError> {
    #[derive(Deserialize)]
    struct Keys {
        prompts: Option<BTreeMap<String, String>>,
        default_prompt_name: Option<String>,
    }
    let path = folder.join("config_sentence_transformers.json");
    if path.is_file() {
        let keys: Keys = read_json(&path, JSON_LIMIT)?;
        config.prompts = keys.prompts.unwrap_or_default();
        config.default_prompt = keys.default_prompt_name;
    }
    Ok(())
}

/// The longest text in tokens: `max_seq_length` of `sentence_bert_config.json`, or where newer folders lack it `model_max_length` of the tokenizer,
/// which counts where the encoder reads more.
fn longest(folder: &Path, encoder: usize) -> Result<Option<usize>, StorageError> {
    #[derive(Deserialize)]
    struct Keys {
        max_seq_length: Option<usize>,
    }
    let [own, tokenizer] = ["sentence_bert_config.json", "tokenizer_config.json"].map(|name| folder.join(name));
    if own.is_file() {
        let keys: Keys = read_json(&own, JSON_LIMIT)?;
        if let Some(longest) = keys.max_seq_length.filter(|longest| *longest > 0) {
            return Ok(Some(longest));
        }
    }
    if !tokenizer.is_file() {
        return Ok(None);
    }
    let keys: Value = read_json(&tokenizer, JSON_LIMIT)?;
    // A tokenizer without a limit says so by a number beyond all integers.
    let said = keys["model_max_length"].as_u64().and_then(|longest| usize::try_from(longest).ok());
    Ok(said.filter(|longest| (1..encoder).contains(longest)))
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
        read_folder(&folder(modules, pooling)).map(|found| found.config)
    }

    fn read_folder(home: &TempDir) -> Result<Modules, String> {
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
        assert_eq!((found.pooling, found.normalize, found.max_text_len), (vec![PoolingConfig::Class], true, Some(7)));
        let found = read(&format!("{MODULES}]"), r#"{"pooling_mode": "max"}"#).unwrap();
        assert_eq!((found.pooling, found.normalize), (vec![PoolingConfig::Max], false));
    }

    #[test]
    fn several_ways_stand_one_behind_the_other_in_their_own_order() {
        let all = r#"{"pooling_mode_lasttoken": true, "pooling_mode_mean_sqrt_len_tokens": true, "pooling_mode_cls_token": true,
            "pooling_mode_weightedmean_tokens": true, "include_prompt": true, "word_embedding_dimension": 4}"#;
        let found = read(&format!("{MODULES}]"), all).unwrap().pooling;
        let expected =
            [PoolingConfig::Class, PoolingConfig::MeanSqrtLen, PoolingConfig::WeightedMean, PoolingConfig::Last];
        assert_eq!(found, expected);
        let newer = r#"{"pooling_mode": ["mean", "max"]}"#;
        let found = read(&format!("{MODULES}]"), newer).unwrap().pooling;
        assert_eq!(found, [PoolingConfig::Mean, PoolingConfig::Max], "newer files say the order");
    }

    #[test]
    fn newer_folders_say_the_longest_text_beside_the_tokenizer() {
        let home = folder(&format!("{MODULES}]"), r#"{"pooling_mode": "mean"}"#);
        let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
        let found = || read_folder(&home).unwrap().config.max_text_len;
        write("tokenizer_config.json", r#"{"model_max_length": 9}"#);
        assert_eq!(found(), Some(7), "the older file goes first");
        write("sentence_bert_config.json", "{}");
        assert_eq!(found(), Some(9));
        for nothing in ["512", "1000000000000000019884624838656", "0", "null"] {
            write("tokenizer_config.json", &format!(r#"{{"model_max_length": {nothing}}}"#));
            assert_eq!(found(), None, "{nothing}");
        }
    }

    #[test]
    fn dense_layers_and_prompts_are_read() {
        let modules = format!(r#"{MODULES}, {{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}}]"#);
        let home = folder(&modules, r#"{"pooling_mode_mean_tokens": true}"#);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(home.path().join(name).parent().unwrap()).unwrap();
            fs::write(home.path().join(name), text).unwrap();
        };
        write("2_Dense/config.json", r#"{"in_features": 4, "out_features": 3, "bias": false}"#);
        write("config_sentence_transformers.json", r#"{"prompts": {"query": "q: "}, "default_prompt_name": "query"}"#);
        let found = read_folder(&home).unwrap();
        let layer = SentenceDenseConfig { d_out: 3, bias: false, activation: Some(HeadActivation::Tanh) };
        assert_eq!((found.config.dense, found.folders), (vec![layer], vec!["2_Dense".to_string()]));
        assert_eq!((&*found.config.prompts["query"], found.config.default_prompt.as_deref()), ("q: ", Some("query")));
        write("2_Dense/config.json", r#"{"out_features": 3, "activation_function": "os.system"}"#);
        assert!(read_folder(&home).err().unwrap().contains("activation_function = \"os.system\""));
    }

    #[test]
    fn what_is_not_known_is_told() {
        let other = format!(r#"{MODULES}, {{"path": "2_LSTM", "type": "sentence_transformers.models.LSTM"}}]"#);
        let mean = r#"{"pooling_mode_mean_tokens": true}"#;
        assert!(read(&other, mean).unwrap_err().contains("names the module `sentence_transformers.models.LSTM`"));
        let none = r#"{"pooling_mode_mean_tokens": false}"#;
        assert!(read(&format!("{MODULES}]"), none).unwrap_err().contains("asks for the pooling none"));
        let unknown = r#"{"pooling_mode": "median"}"#;
        assert!(read(&format!("{MODULES}]"), unknown).unwrap_err().contains("asks for the pooling median"));
        let without = r#"{"pooling_mode_mean_tokens": true, "include_prompt": false}"#;
        assert!(read(&format!("{MODULES}]"), without).unwrap_err().contains("include_prompt"));
        let outside = MODULES.replace("1_Pooling", "../1_Pooling");
        assert!(read(&format!("{outside}]"), mean).unwrap_err().contains("which is not beside it"));
    }
}
