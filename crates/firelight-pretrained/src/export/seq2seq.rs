//! What an encoder-decoder is called in `config.json`, by the names that all families have. What only one has is in its file.

use firelight_seq2seq::Tying;
use serde_json::json;

use super::extended;
use crate::Structure;
use crate::family::ConfigKeys;

/// The keys that encoder-decoders share; none where the structure is none.
pub(crate) fn seq2seq_keys(structure: &Structure) -> Option<ConfigKeys> {
    let Structure::Seq2Seq(model) = structure else { return None };
    let keys = json!({
        "is_encoder_decoder": true,
        "vocab_size": model.target_vocab_size,
        "d_model": model.stacks.decoder.d_model,
        "decoder_start_token_id": model.start_token,
        "tie_word_embeddings": model.tying == Tying::All,
    });
    Some(extended(ConfigKeys::new(), keys))
}
