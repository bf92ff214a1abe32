//! What stands behind the encoder of a sentence model, as sentence-transformers writes it: `modules.json` and a folder for each module.

use std::collections::BTreeMap;

use firelight_classification::{PoolingConfig, SentenceDenseConfig, SentenceEncoderConfig};
use firelight_storage::{InputError, Parameters, TaskError};
use serde_json::{Map, Value, json};

use super::Export;
use crate::sentence::{ACTIVATIONS, POOLINGS, newer};
use crate::{Table, WeightMapping};

/// Whether a parameter is that of a dense layer behind the encoder, which has a file of its own.
pub(super) fn is_behind(path: &str) -> bool {
    path.starts_with("dense.")
}

impl Export<'_> {
    pub(super) fn sentence(&self, config: &SentenceEncoderConfig, parameters: &Parameters) -> Result<(), TaskError> {
        let mut modules = vec![("Transformer", String::new()), ("Pooling", "1_Pooling".into())];
        modules.extend((2..).zip(&config.dense).map(|(place, _)| ("Dense", format!("{place}_Dense"))));
        if config.normalize {
            modules.push(("Normalize", format!("{}_Normalize", modules.len())));
        }
        let mut width = config.encoder.transformer.d_model;
        self.in_folder("1_Pooling", "config.json", &pooling(config, width).ok_or_else(|| self.unwritable())?)?;
        width *= config.pooling.len();
        for (place, dense) in config.dense.iter().enumerate() {
            let folder = format!("{}_Dense", place + 2);
            self.in_folder(&folder, "config.json", &keys(dense, width))?;
            width = dense.d_out;
            let table =
                Table { rows: vec![WeightMapping::linear("linear", format!("dense.{place}"))], ..Table::default() };
            let own = |path: &str| path.starts_with(&format!("dense.{place}."));
            self.weights(&table, parameters, own, &self.to.join(folder).join("model.safetensors"))?;
        }
        let longest = config.max_text_len.unwrap_or(config.encoder.transformer.max_seq_len);
        self.json("sentence_bert_config.json", &json!({"max_seq_length": longest, "do_lower_case": false}))?;
        let prompts: &BTreeMap<_, _> = &config.prompts;
        let own =
            json!({"prompts": prompts, "default_prompt_name": config.default_prompt, "similarity_fn_name": "cosine"});
        self.json("config_sentence_transformers.json", &own)?;
        // Last: it makes the folder one of a sentence model.
        let module = |(place, (kind, path)): (usize, &(&str, String))| {
            let class = format!("sentence_transformers.models.{kind}");
            json!({"idx": place, "name": place.to_string(), "path": path, "type": class})
        };
        self.json("modules.json", &modules.iter().enumerate().map(module).collect())
    }

    fn in_folder(&self, folder: &str, name: &str, value: &Value) -> Result<(), TaskError> {
        let path = self.to.join(folder);
        std::fs::create_dir_all(&path).map_err(firelight_storage::StorageError::io("create the folder", &path))?;
        self.json(&format!("{folder}/{name}"), value)
    }

    fn unwritable(&self) -> InputError {
        InputError::in_file(&self.run.config(), "describes a way of pooling that sentence-transformers does not have")
    }
}

/// The ways of pooling: flags, which every version reads, or a list where their order is another one. None where one has no name.
fn pooling(config: &SentenceEncoderConfig, width: usize) -> Option<Value> {
    let place = |way: &PoolingConfig| POOLINGS.iter().position(|(_, known)| known == way);
    let places: Vec<usize> = config.pooling.iter().map(place).collect::<Option<_>>()?;
    if places.windows(2).any(|pair| pair[0] >= pair[1]) {
        let names: Vec<&str> = places.iter().map(|&place| newer(POOLINGS[place].0)).collect();
        return Some(json!({"embedding_dimension": width, "pooling_mode": names, "include_prompt": true}));
    }
    let flag = |(name, way): &(&str, _)| (format!("pooling_mode_{name}"), json!(config.pooling.contains(way)));
    let mut keys: Map<String, Value> = POOLINGS.iter().map(flag).collect();
    keys.insert("word_embedding_dimension".into(), json!(width));
    keys.insert("include_prompt".into(), json!(true));
    Some(Value::Object(keys))
}

fn keys(dense: &SentenceDenseConfig, d_in: usize) -> Value {
    let name = ACTIVATIONS.iter().find(|(_, activation)| *activation == dense.activation).map(|(name, _)| name);
    json!({"in_features": d_in, "out_features": dense.d_out, "bias": dense.bias, "activation_function": name})
}
