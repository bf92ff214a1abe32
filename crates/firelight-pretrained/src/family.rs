//! The families of published models, by their `model_type`.

use firelight_storage::{InputError, listed, shortened};
use serde_json::{Map, Value};

use crate::families::FAMILIES;
use crate::{HubFolder, Keys, Structure, Table};

/// What a family says of a checkpoint from its `config.json` alone.
#[derive(Clone, Debug)]
pub struct Description {
    /// The model.
    pub structure: Structure,
    /// Where its parameters lie.
    pub table: Table,
}

/// Makes the description of a checkpoint.
pub type Describe = fn(&Keys<'_>) -> Result<Description, InputError>;

/// Makes what `config.json` says of a structure, by the names that a family has for it; none where it has no such models.
pub(crate) type Express = fn(&Structure) -> Option<ConfigKeys>;

/// What `config.json` says.
pub(crate) type ConfigKeys = Map<String, Value>;

/// A family of published models: all that is known of it but its tokenizers.
pub(crate) struct Family {
    /// Its `model_type`.
    pub(crate) name: &'static str,
    /// The class of its models in `transformers`.
    pub(crate) class: Class,
    /// What it says of a checkpoint.
    pub(crate) describe: Describe,
    /// What it says of a structure: `describe` backwards.
    pub(crate) keys: Express,
}

/// What the classes of a family are called in `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// They begin with this; the end says what head a model has, as in most families: `LlamaForCausalLM`.
    Begins(&'static str),
    /// There is one, and it ends as in no other family.
    Is(&'static str),
    /// Such models are written as those of another family.
    Another,
}

/// Families that are known and not read, with the reason. A name that goes on behind `_`, such as `gemma4_text`, is of the same family.
const REFUSED: &[(&str, &str)] = &[
    ("gemma3", "it reads images as well; models of text alone (gemma3_text) are read"),
    ("gemma3n", "its layers have embeddings of their own and share keys and values"),
    ("gemma4", "its layers have embeddings of their own and share keys and values"),
    ("qwen3_next", "its gated delta layers are not converted yet"),
    ("qwen3_5", "its gated delta layers are not converted yet"),
    ("qwen2_vl", "it reads images and videos as well"),
    ("qwen2_5_vl", "it reads images and videos as well"),
    ("qwen3_vl", "it reads images and videos as well"),
    ("clip_text_model", "it is one tower of CLIP, of which both are read"),
    ("clip_vision_model", "it is one tower of CLIP, of which both are read"),
    ("siglip", "it pools patches by attention"),
    ("mamba", "it has no attention"),
    ("mamba2", "it has no attention"),
];

/// The names of the families that are read, sorted.
pub fn family_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    names.sort_unstable();
    names
}

/// What the family of a folder says of it.
///
/// # Errors
/// If the family is unknown or refused, or `config.json` says something that is not known.
pub fn describe(folder: &HubFolder) -> Result<Description, InputError> {
    let Some(name) = folder.model_type() else {
        let problem = "lacks the key `model_type`, which says of what family the model is";
        return Err(InputError::in_file(&folder.config_path(), problem).advise("download it again"));
    };
    let Some(family) = FAMILIES.iter().find(|family| family.name == name) else {
        return Err(refused(folder, name));
    };
    let description = (family.describe)(&Keys::of(folder))?;
    check_head(folder, &description.structure)?;
    Ok(description)
}

/// Why a family is not read.
fn refused(folder: &HubFolder, name: &str) -> InputError {
    let is_of = |family: &str| name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    if let Some((_, reason)) = REFUSED.iter().find(|(family, _)| is_of(family)) {
        let problem = format!("describes a {name}, which is not read: {reason}");
        return InputError::in_file(&folder.config_path(), problem);
    }
    let problem = format!("has the unknown model_type \"{name}\"");
    InputError::in_file(&folder.config_path(), problem).advise(format!("known are {}", listed(family_names())))
}

/// Refuses a model whose class has another head than the one that writes text: its weights would be missing, or left out silently. A class
/// without a head, such as `GPT2Model`, is read where the head repeats the embedding.
fn check_head(folder: &HubFolder, structure: &Structure) -> Result<(), InputError> {
    let (heads, tied): (&[&str], bool) = match structure {
        Structure::Language(model) => (&["ForCausalLM", "LMHeadModel"], model.tied),
        Structure::Seq2Seq(_) => {
            let tied = Keys::of(folder).or("tie_word_embeddings", true)?;
            (&["ForConditionalGeneration", "MTModel", "LMHeadModel"], tied)
        }
        _ => return Ok(()),
    };
    let Some(class) = folder.architecture() else { return Ok(()) };
    let why = match () {
        () if heads.iter().any(|head| class.ends_with(head)) => return Ok(()),
        () if class.ends_with("EncoderModel") => "which has no decoder",
        () if !class.ends_with("Model") || class.ends_with("HeadsModel") => "whose head is not read",
        () if tied => return Ok(()),
        () => "which has no head, and tie_word_embeddings = false",
    };
    let problem = format!("has architectures = [\"{}\"], {why}", shortened(class));
    let advice = format!("expected a class that ends in {}", heads.join(", "));
    Err(InputError::in_file(&folder.config_path(), problem).advise(advice))
}
