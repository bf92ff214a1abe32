//! A model of a run folder written as Hugging Face has it. A family is one that a structure can be written for if its `config.json`, read
//! back, gives the structure again: nothing can be lost on the way out that is not told.

mod decoder;
mod encoder;
mod gguf;
mod image;
pub(crate) mod names;
mod peft;
mod plain;
mod sentence;
mod seq2seq;
mod write;

pub(crate) use write::MARIAN;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firelight_core::ImagePooling;
use firelight_storage::{InputError, ModelFolder, TaskError, listed};
use serde_json::{Value, json};

use crate::families::FAMILIES;
use crate::family::{Class, ConfigKeys, Family, describe};
use crate::{Description, HubFolder, Structure};
pub(crate) use decoder::{decoder_keys, dense_layers};
pub(crate) use encoder::encoder_keys;
pub(crate) use image::{image_keys, patches};
use plain::plain;
pub(crate) use seq2seq::seq2seq_keys;

/// A structure as a family writes it.
pub(crate) struct Published {
    /// `config.json`.
    config: ConfigKeys,
    /// What the family says of it.
    description: Description,
}

/// Keys and those that a family has of its own, which replace others of their name.
pub(crate) fn extended(mut keys: ConfigKeys, own: Value) -> ConfigKeys {
    if let Value::Object(own) = own {
        keys.extend(own);
    }
    keys
}

/// `config.json` of a structure as a family writes it; none where it has no such models, or they are written as another family's.
fn config(family: &Family, structure: &Structure) -> Option<ConfigKeys> {
    let class = match family.class {
        Class::Begins(name) => format!("{name}{}", head(structure)),
        Class::Is(name) => name.to_string(),
        Class::Another => return None,
    };
    let own = json!({"model_type": family.name, "architectures": [class]});
    Some(extended((family.keys)(structure)?, own))
}

/// What a family says of such a `config.json`.
fn read_back(config: &ConfigKeys) -> Result<Description, InputError> {
    // Of no folder, so that no file beside it is read.
    describe(&HubFolder::of(PathBuf::from("\0"), Value::Object(config.clone())))
}

/// The end of the class.
fn head(structure: &Structure) -> &'static str {
    match structure {
        Structure::Language(_) => "ForCausalLM",
        Structure::Masked(_) => "ForMaskedLM",
        Structure::Sequence(_) => "ForSequenceClassification",
        Structure::Token(_) => "ForTokenClassification",
        Structure::Span(_) => "ForQuestionAnswering",
        Structure::Seq2Seq(_) => "ForConditionalGeneration",
        Structure::Image(model) if model.vit.pooling == ImagePooling::Distilled => "ForImageClassificationWithTeacher",
        Structure::Image(_) => "ForImageClassification",
        Structure::Encoder(model) if model.discriminator.is_some() => "ForPreTraining",
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
        let mut found = FAMILIES.iter().filter_map(|family| {
            let config = config(family, structure)?;
            let mut description = read_back(&config).ok()?;
            description.structure.fit_to_tensors(|path| shapes.contains_key(path));
            let is_same = plain(&description.structure) == plain(structure);
            (is_same && description.table.written(shapes).is_ok()).then_some(Self { config, description })
        });
        found.next().ok_or_else(|| unwritable(folder).into())
    }
}

fn unwritable(folder: &ModelFolder) -> InputError {
    let written = FAMILIES.iter().filter(|family| family.class != Class::Another);
    let families: Vec<&str> = written.map(|family| family.name).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::tests::folders_of;

    /// A family's keys are its `describe` backwards, even for models that another family would write.
    #[test]
    fn what_a_family_says_of_a_structure_it_reads_as_that() {
        for family in FAMILIES.iter().filter(|family| family.class != Class::Another) {
            for folder in folders_of(family) {
                let name = folder.path().display();
                let structure = describe(&folder).unwrap_or_else(|error| panic!("{name}: {error}")).structure;
                let config = config(family, &structure).unwrap_or_else(|| panic!("{name} is not written"));
                let read = read_back(&config).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(plain(&read.structure), plain(&structure), "{name}");
                let padding = |read: &Structure| read.encoder().and_then(|encoder| encoder.uncounted_padding);
                assert_eq!(padding(&read.structure), padding(&structure), "{name}");
                let class = folder.architecture();
                assert!(class.is_none_or(|class| config["architectures"][0] == class), "{name}: {config:?}");
            }
        }
    }

    /// What was trained here has heads of the usual width without saying so.
    #[test]
    fn t5_is_written_with_heads_of_the_usual_width() {
        let family = FAMILIES.iter().find(|family| family.name == "t5").unwrap();
        for folder in folders_of(family) {
            let mut structure = describe(&folder).unwrap().structure;
            for stack in structure.stacks_mut() {
                *stack = stack.clone().each_layer(|layer| layer.block.attention.d_head = None);
            }
            let config = config(family, &structure).unwrap();
            assert_eq!(config["d_kv"].as_u64(), Some(16 / config["num_heads"].as_u64().unwrap()));
            assert_eq!(plain(&read_back(&config).unwrap().structure), plain(&structure));
        }
    }

    #[test]
    fn modernbert_is_written_with_every_gate() {
        let family = FAMILIES.iter().find(|family| family.name == "modernbert").unwrap();
        for folder in folders_of(family) {
            for gate in ["gelu", "gelu_pytorch_tanh", "relu", "silu"] {
                let said = json!({"hidden_activation": gate});
                let said = extended(folder.config().as_object().cloned().unwrap(), said);
                let structure = read_back(&said).unwrap().structure;
                let config = config(family, &structure).unwrap();
                assert_eq!(config["hidden_activation"], gate);
                assert_eq!(plain(&read_back(&config).unwrap().structure), plain(&structure));
            }
        }
    }
}
