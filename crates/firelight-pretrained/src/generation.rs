//! How a published model is to be decoded: `generation_config.json`, or what models from before it say in `config.json`.

use firelight_generation::GenerationDefaults;
use firelight_storage::{InputError, StorageError, shortened_reason};
use serde_json::{Map, Value};

use crate::HubFolder;

/// The keys of `GenerationConfig` that stood in `config.json` once.
const KEYS: [&str; 26] = [
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "pad_token_id",
    "repetition_penalty",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "max_new_tokens",
];

/// What the makers say.
///
/// # Errors
/// If a file cannot be read, or a key has a value of another kind.
pub(crate) fn defaults(folder: &HubFolder) -> Result<GenerationDefaults, StorageError> {
    let path = folder.path().join("generation_config.json");
    if path.is_file() {
        return GenerationDefaults::of_file(path);
    }
    let said = |key: &&str| folder.config().get(*key).filter(|value| !value.is_null());
    let keys: Map<String, Value> = KEYS.iter().filter_map(|key| Some(((*key).into(), said(key)?.clone()))).collect();
    serde_json::from_value(keys.into()).map_err(|error| {
        let problem =
            format!("says how to decode in a way that is not known: {}", shortened_reason(&error.to_string()));
        InputError::in_file(&folder.config_path(), problem).advise("expected ids, or lists of them").into()
    })
}
