//! A model of a run folder written as Hugging Face has it. A family is one that a structure can be written for if its `config.json`, read
//! back, gives the structure again: nothing can be lost on the way out that is not told.

mod decoder;
mod encoder;
mod gguf;
mod image;
mod image_text;
mod names;
mod peft;
mod plain;
mod sentence;
mod seq2seq;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firelight_core::ImagePooling;
use firelight_storage::{InputError, ModelFolder, TaskError, listed};
use serde_json::{Map, Value, json};

use crate::family::{FAMILIES, describe};
use crate::{Description, HubFolder, Structure};
use plain::plain;

/// A structure as a family writes it.
pub(crate) struct Published {
    /// `config.json`.
    config: Map<String, Value>,
    /// What the family says of it.
    description: Description,
}

/// The class of the model in `transformers`, which says what head it has: its beginning for each family that is written.
const CLASSES: &[(&str, &str)] = &[
    ("gpt2", "GPT2"),
    ("llama", "Llama"),
    ("mistral", "Mistral"),
    ("qwen2", "Qwen2"),
    ("qwen3", "Qwen3"),
    ("gemma", "Gemma"),
    ("gemma2", "Gemma2"),
    ("gemma3_text", "Gemma3"),
    ("smollm3", "SmolLM3"),
    ("olmo2", "Olmo2"),
    ("phi3", "Phi3"),
    ("gpt_neox", "GPTNeoX"),
    ("mixtral", "Mixtral"),
    ("qwen3_moe", "Qwen3Moe"),
    ("gpt_oss", "GptOss"),
    ("deepseek_v3", "DeepseekV3"),
    ("starcoder2", "Starcoder2"),
    ("bert", "Bert"),
    ("distilbert", "DistilBert"),
    ("roberta", "Roberta"),
    ("electra", "Electra"),
    ("albert", "Albert"),
    ("mpnet", "MPNet"),
    ("modernbert", "ModernBert"),
    ("vit", "ViT"),
    ("deit", "DeiT"),
    ("dinov2", "Dinov2"),
    ("clip", "CLIP"),
    ("t5", "T5"),
    ("bart", "Bart"),
    ("mbart", "MBart"),
    ("marian", "Marian"),
];

/// What `config.json` says of a structure, by the names that a family has for it; none where it has no such models.
fn keys(structure: &Structure, model_type: &str) -> Option<Map<String, Value>> {
    match structure {
        Structure::Language(model) => Some(decoder::keys(model)),
        Structure::Image(_) | Structure::ImageEncoder(_) => image::keys(structure),
        Structure::ImageText(model) => (model_type == "clip").then(|| image_text::keys(model)).flatten(),
        Structure::Seq2Seq(model) => seq2seq::keys(model, model_type),
        _ => (encoder::is_gated(structure) == (model_type == "modernbert"))
            .then(|| encoder::keys(structure, model_type))
            .flatten(),
    }
}

/// The end of the class.
fn head(structure: &Structure, model_type: &str) -> &'static str {
    match structure {
        Structure::Language(_) if model_type == "gpt2" => "LMHeadModel",
        Structure::Language(_) => "ForCausalLM",
        Structure::Masked(_) => "ForMaskedLM",
        Structure::Sequence(_) => "ForSequenceClassification",
        Structure::Token(_) => "ForTokenClassification",
        Structure::Span(_) => "ForQuestionAnswering",
        Structure::Seq2Seq(_) if model_type == "marian" => "MTModel",
        Structure::Seq2Seq(_) => "ForConditionalGeneration",
        Structure::Image(model) if model.vit.pooling == ImagePooling::Distilled => "ForImageClassificationWithTeacher",
        Structure::Image(_) => "ForImageClassification",
        Structure::Encoder(_) | Structure::ImageEncoder(_) | Structure::ImageText(_) => "Model",
    }
}

impl Published {
    /// The first family whose `config.json` gives the structure again, and whose tensors hold parameters of these shapes.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn of(
        structure: &Structure,
        shapes: &BTreeMap<String, Vec<usize>>,
        folder: &ModelFolder,
    ) -> Result<Self, TaskError> {
        let candidates = CLASSES.iter().filter(|(name, _)| FAMILIES.iter().any(|(known, _)| known == name));
        let mut found = candidates.filter_map(|(model_type, class)| {
            let mut config = keys(structure, model_type)?;
            config.insert("model_type".into(), json!(model_type));
            config.insert("architectures".into(), json!([format!("{class}{}", head(structure, model_type))]));
            // Of no folder, so that no file beside it is read.
            let folder = HubFolder::of(PathBuf::from("\0"), Value::Object(config.clone()));
            let mut description = describe(&folder).ok()?;
            description.structure.fit_to_tensors(|path| shapes.contains_key(path));
            let is_same = plain(&description.structure) == plain(structure);
            (is_same && description.table.written(shapes).is_ok()).then_some(Self { config, description })
        });
        found.next().ok_or_else(|| unwritable(folder).into())
    }
}

fn unwritable(folder: &ModelFolder) -> InputError {
    let families: Vec<String> = CLASSES.iter().map(|(name, _)| name.to_string()).collect();
    let problem = "describes a model that no published family has in every detail";
    InputError::in_file(&folder.config(), problem)
        .advise(format!("written are the structures of {}", listed(&families)))
}

/// Writes the model of a run folder into a new folder that `transformers` loads.
pub(crate) struct Export<'a> {
    /// The run.
    pub(crate) run: &'a ModelFolder,
    /// The file of its weights.
    pub(crate) weights: &'a Path,
    /// The folder to make.
    pub(crate) to: &'a Path,
}
