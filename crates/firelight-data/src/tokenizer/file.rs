//! A `tokenizer.json` on its way to the `tokenizers` crate. What the crate panics on, and what it would take for another
//! tokenizer than the file describes, is refused before it sees it.

use std::panic::catch_unwind;

use serde_json::Value;

/// No tokenizer is larger, in bytes.
pub(super) const LIMIT: u64 = 1 << 30;

/// Reads a tokenizer; the error is what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    // The crate panics on a decoder that is no whole JSON.
    let file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if let Some(reason) = problem(&file) {
        return Err(reason);
    }
    // For panics that nobody knows of yet: a broken file is the user's to mend, whatever the crate makes of it.
    let parsed = catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes));
    let parsed = parsed.map_err(|_| "the `tokenizers` crate panics on it".to_string())?;
    let tokenizer = parsed.map_err(|error| without_types(&error.to_string()))?;
    moved_token(&file, &tokenizer).map_or(Ok(tokenizer), Err)
}

/// What serde says of a part of a tokenizer, without the names of Rust's types.
fn without_types(reason: &str) -> String {
    let Some((before, after)) = reason.split_once("data did not match any variant of untagged enum ") else {
        return reason.into();
    };
    let (part, rest) = after.split_once(' ').unwrap_or((after, ""));
    let part = part.trim_end_matches("Untagged").trim_end_matches("Wrapper");
    format!("{before}no known {part} {rest}").trim_end().into()
}

/// What no tokenizer here may have.
fn problem(file: &Value) -> Option<String> {
    if is_precompiled(&file["normalizer"]) {
        return Some("it changes the text before it encodes it (a precompiled normalizer)".into());
    }
    let model = &file["model"];
    if !model["dropout"].is_null() && model["dropout"].as_f64() != Some(0.0) {
        return Some("its BPE model leaves merges out at random (dropout): set it to null".into());
    }
    let affix = |key: &&str| model[*key].as_str().is_some_and(|affix| !affix.is_empty());
    let affixed = ["continuing_subword_prefix", "end_of_word_suffix"].into_iter().find(affix);
    let affixed = affixed.filter(|_| model["merges"].is_array());
    affixed.map(|key| format!("its BPE model marks the tokens of a word ({key})"))
}

/// Whether a normalizer, or one within it, is precompiled: the crate panics where such a one is damaged.
fn is_precompiled(normalizer: &Value) -> bool {
    match normalizer {
        Value::Object(fields) => {
            fields.get("type").is_some_and(|kind| kind == "Precompiled") || fields.values().any(is_precompiled)
        }
        Value::Array(all) => all.iter().any(is_precompiled),
        _ => false,
    }
}

/// A token that the file adds under another id than the crate gives it. A model would take it for another one.
fn moved_token(file: &Value, tokenizer: &tokenizers::Tokenizer) -> Option<String> {
    let added = file["added_tokens"].as_array()?;
    let moved = added.iter().find_map(|token| {
        let (content, id) = (token["content"].as_str()?, token["id"].as_u64()?);
        let given = tokenizer.token_to_id(content);
        (given.map(u64::from) != Some(id)).then_some((content, id, given))
    });
    let (content, id, given) = moved?;
    let given = given.map_or("is no token".into(), |given| format!("has the id {given}"));
    Some(format!("its added token {content:?} should have the id {id}, but with its vocabulary it {given}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataError, Tokenizer, TokenizerConfig};

    /// The file of a byte-level BPE with a special token, changed.
    fn changed(change: impl FnOnce(&mut Value)) -> Result<tokenizers::Tokenizer, String> {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Bpe { vocab_size: 258 }, "abc abc abc").unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["</s>"]).unwrap();
        let mut file = serde_json::to_value(tokenizer.file()).unwrap();
        change(&mut file);
        parse(&serde_json::to_vec(&file).unwrap())
    }

    #[test]
    fn what_is_cut_short_is_an_error_with_its_file_and_no_panic() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        for cut in ["{\"decoder\":", "{\"decoder\": {\"type\"", "{\"decoder\": [[", "\u{0}", "{"] {
            std::fs::write(&path, cut).unwrap();
            let error = Tokenizer::load(&path).unwrap_err();
            assert!(matches!(error, DataError::TokenizerFile { .. }) && error.is_user_error());
            assert!(error.to_string().starts_with(&format!("`{}` is no tokenizer", path.display())), "{error}");
            assert!(error.to_string().contains("at line 1 column"), "serde_json says where: {error}");
        }
    }

    #[test]
    fn no_type_of_rust_is_named() {
        let reason = "data did not match any variant of untagged enum PreTokenizerUntagged at line 14 column 3";
        assert_eq!(without_types(reason), "no known PreTokenizer at line 14 column 3");
        assert_eq!(without_types("EOF"), "EOF");
    }

    #[test]
    fn what_the_crate_panics_on_is_refused_before() {
        assert!(changed(|_| {}).is_ok());
        let precompiled = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
        let reason = changed(|file| file["normalizer"] = precompiled.clone()).unwrap_err();
        assert!(reason.contains("precompiled"), "{reason}");
        let nested = serde_json::json!({"type": "Sequence", "normalizers": [precompiled]});
        assert!(changed(|file| file["normalizer"] = nested).unwrap_err().contains("precompiled"));
        for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
            assert!(changed(|file| file["model"][key] = "####".into()).unwrap_err().contains(key));
            assert!(changed(|file| file["model"][key] = "".into()).is_ok(), "as in GPT-2's own file");
        }
    }

    #[test]
    fn a_tokenizer_that_would_mean_something_else_is_refused() {
        for dropout in [0.1, 7.0] {
            assert!(changed(|file| file["model"]["dropout"] = dropout.into()).unwrap_err().contains("at random"));
        }
        assert!(changed(|file| file["model"]["dropout"] = 0.0.into()).is_ok());
        let reason = changed(|file| file["added_tokens"][0]["id"] = 300.into()).unwrap_err();
        assert_eq!(
            reason,
            "its added token \"</s>\" should have the id 300, but with its vocabulary it has the id 258"
        );
    }
}
