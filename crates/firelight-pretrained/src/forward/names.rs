//! Which arguments a model reads, by their names in `transformers`: one that it does not know is an error, not silence.

use firelight_classification::TextEncoder;
use firelight_core::{Position, Transformer};
use firelight_storage::{InputError, TaskError, listed, shortened};

use super::Arrays;
use crate::AutoModel;

/// Names that are less alike are not taken for misspelt ones.
const LIKENESS: f64 = 0.8;

const OF_TEXTS: &[&str] = &["input_ids", "attention_mask"];
const OF_ENCODERS: &[&str] = &["input_ids", "attention_mask", "token_type_ids"];
const OF_PAIRS: &[&str] = &["input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"];
const OF_IMAGES: &[&str] = &["pixel_values"];
const OF_BOTH: &[&str] = &["input_ids", "attention_mask", "pixel_values"];
const POSITIONS: &str = "position_ids";

/// # Errors
/// If there is an argument that the model does not read, with those that it does.
pub(super) fn check(model: &AutoModel, inputs: &Arrays) -> Result<(), TaskError> {
    let known = known(model);
    let strange = inputs.iter().map(|(name, _)| name).filter(|name| !known.contains(name));
    let strange: Vec<String> = strange.map(|name| described(name, &known)).collect();
    if strange.is_empty() {
        return Ok(());
    }
    let problem = format!("the model has no argument {}", listed(strange));
    let quoted: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    Err(InputError::new(problem).advise(format!("known are {}", quoted.join(", "))).into())
}

/// The arguments of a model.
fn known(model: &AutoModel) -> Vec<&'static str> {
    let (names, is_counted) = match model {
        AutoModel::Language(model) => (OF_TEXTS, is_counted(&model.transformer)),
        AutoModel::ImageText(model) => (OF_BOTH, is_counted(&model.text.transformer)),
        AutoModel::Image(_) | AutoModel::ImageEncoder(_) => (OF_IMAGES, false),
        AutoModel::Seq2Seq(_) => (OF_PAIRS, false),
        AutoModel::Encoder(model) => (OF_ENCODERS, is_turned(&model.encoder)),
        AutoModel::Masked(model) => (OF_ENCODERS, is_turned(&model.encoder)),
        AutoModel::Sequence(model) => (OF_ENCODERS, is_turned(&model.encoder)),
        AutoModel::Token(model) => (OF_ENCODERS, is_turned(&model.encoder)),
        AutoModel::Span(model) => (OF_ENCODERS, is_turned(&model.encoder)),
    };
    names.iter().copied().chain(is_counted.then_some(POSITIONS)).collect()
}

/// Whether a stack knows where a token stands.
fn is_counted(stack: &Transformer) -> bool {
    std::iter::once(&stack.position).chain(&stack.layer_positions).any(|scheme| !matches!(scheme, Position::None(_)))
}

/// The tables of RoBERTa, MPNet and their kin begin with rows that are not kept, so that a number means another row there than in BERT;
/// the model does not tell which it is. Rotations begin at 0 everywhere.
fn is_turned(encoder: &TextEncoder) -> bool {
    matches!(encoder.transformer.position, Position::Rotary(_))
}

/// A name, and the known one that was meant, perhaps.
fn described(name: &str, known: &[&str]) -> String {
    let scored = known.iter().map(|known| (strsim::jaro_winkler(name, known), *known));
    let nearest = scored.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(likeness, _)| *likeness >= LIKENESS);
    let meant = nearest.map_or(String::new(), |(_, known)| format!(" (did you mean `{known}`?)"));
    format!("`{}`{meant}", shortened(name))
}
