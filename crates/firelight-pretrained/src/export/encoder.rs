//! What an encoder is called in `config.json`, by the names that several families have. What only one has is in its file.

use firelight_classification::{ProblemType, TextEncoderConfig};
use serde_json::{Value, json};

use super::{extended, names};
use crate::Structure;
use crate::family::ConfigKeys;

/// The keys that encoders share; none where the structure is none.
pub(crate) fn encoder_keys(structure: &Structure) -> Option<ConfigKeys> {
    let (encoder, head) = match structure {
        Structure::Encoder(model) => (&model.encoder, json!({})),
        Structure::Masked(model) => (&model.encoder, json!({"tie_word_embeddings": model.head.tied})),
        Structure::Sequence(model) => {
            let mut keys = names::labels(&model.labels);
            keys["problem_type"] = json!(problem_type(model.problem_type));
            (&model.encoder, keys)
        }
        Structure::Token(model) => (&model.encoder, names::labels(&model.labels)),
        Structure::Span(model) => (&model.encoder, json!({})),
        _ => return None,
    };
    let parts = [own(encoder), names::stack(&encoder.transformer), head];
    let mut keys = parts.into_iter().fold(ConfigKeys::new(), extended);
    keys.retain(|_, value| !value.is_null());
    Some(keys)
}

fn problem_type(problem: ProblemType) -> &'static str {
    match problem {
        ProblemType::SingleLabel => "single_label_classification",
        ProblemType::MultiLabel => "multi_label_classification",
        _ => "regression",
    }
}

/// The keys of encoders that are not those of every [stack](names::stack).
fn own(encoder: &TextEncoderConfig) -> Value {
    let stack = &encoder.transformer;
    let block = &stack.first().block;
    json!({
        "vocab_size": encoder.vocab_size,
        // Families without segments do not have the key; the others need one at least.
        "type_vocab_size": Some(encoder.n_segments).filter(|segments| *segments > 0),
        "embedding_size": stack.d_embedding(),
        "max_position_embeddings": stack.max_seq_len,
        "hidden_dropout_prob": block.dropout,
        "attention_probs_dropout_prob": block.attention.dropout,
        "attention_dropout": block.attention.dropout,
    })
}
