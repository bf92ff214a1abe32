//! A `tokenizer.json` on its way to the `tokenizers` crate, which panics on some files and takes others for another tokenizer than they
//! describe.

use std::collections::HashSet;
use std::panic::catch_unwind;

use serde_json::Value;

/// A vocabulary may leave out as many ids as it has tokens, and some more.
const MAX_IDS_PER_TOKEN: usize = 2;
const MAX_HOLES: usize = 1 << 16;

/// No tokenizer is larger, in bytes.
pub(super) const LIMIT: u64 = 1 << 30;

/// Reads a tokenizer; the error is what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    // The crate panics on a decoder that is no whole JSON.
    let mut file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if let Some(merge) = short_merge(&file["model"]) {
        return Err(format!("its merge {merge} lacks the prefix of a token that goes on with a word"));
    }
    let is_random = |share: &&mut Value| share.as_f64().is_some_and(|share| share != 0.0);
    let tokenizer = match file.pointer_mut("/model/dropout").filter(is_random) {
        Some(random) => {
            *random = Value::Null; // equal texts give equal ids
            build(file.to_string().as_bytes())?
        }
        None => build(bytes)?,
    };
    let Some(moved) = moved_token(&file, &tokenizer) else { return Ok(tokenizer) };
    // The crate gives added tokens the next ids, whatever the file says, except to those in the vocabulary of the model.
    fill_holes(&mut file);
    let tokenizer = build(file.to_string().as_bytes())?;
    if moved_token(&file, &tokenizer).is_none() { Ok(tokenizer) } else { Err(moved) }
}

fn build(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    // For panics that nobody knows of yet: a broken file is the user's to mend, whatever the crate makes of it.
    let parsed = catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes));
    let parsed = parsed.map_err(|_| "the `tokenizers` crate panics on it".to_string())?;
    let mut tokenizer = parsed.map_err(|error| without_types(&error.to_string()))?;
    tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
    Ok(tokenizer)
}

/// One more than the largest id; the error is what is wrong with the ids. Far more ids than tokens would cost a row each in every
/// model, and two tokens of one id could not be told apart in decoding.
pub(super) fn vocab_size(tokenizer: &tokenizers::Tokenizer) -> Result<usize, String> {
    let vocabulary = tokenizer.get_vocab(true);
    let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
    if size > MAX_IDS_PER_TOKEN * vocabulary.len() + MAX_HOLES {
        return Err(format!("its largest id is {}, but it has only {} tokens", size - 1, vocabulary.len()));
    }
    let mut seen = HashSet::new();
    match vocabulary.iter().find(|(_, id)| !seen.insert(**id)) {
        Some((token, id)) => Err(format!("its token {token:?} has the id {id}, as another one has")),
        None => Ok(size),
    }
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

/// A merge whose second token is shorter than the prefix that the crate cuts off.
fn short_merge(model: &Value) -> Option<&Value> {
    let prefix = model["continuing_subword_prefix"].as_str().map_or(0, str::len);
    let second = |merge: &Value| match merge {
        Value::String(pair) => pair.split_once(' ').map(|(_, second)| second.to_owned()),
        pair => pair[1].as_str().map(str::to_owned),
    };
    let is_short = |merge: &&Value| second(merge).is_some_and(|second| second.get(prefix..).is_none());
    model["merges"].as_array()?.iter().find(is_short)
}

/// Puts the added tokens into the vocabulary of the model, where it leaves their ids out.
fn fill_holes(file: &mut Value) {
    let added = file["added_tokens"].as_array().cloned().unwrap_or_default();
    let Some(vocabulary) = file.pointer_mut("/model/vocab").and_then(Value::as_object_mut) else { return };
    let taken: HashSet<u64> = vocabulary.values().filter_map(Value::as_u64).collect();
    for token in added {
        if let (Some(content), Some(id)) = (token["content"].as_str(), token["id"].as_u64())
            && !taken.contains(&id)
        {
            vocabulary.entry(content).or_insert(id.into());
        }
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
    use crate::{Tokenizer, TokenizerConfig};

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
            assert!(error.is_user_error());
            assert!(error.to_string().starts_with(&format!("`{}` is no tokenizer", path.display())), "{error}");
            assert!(error.to_string().contains("at line 1 column"), "serde_json says where: {error}");
        }
    }

    #[test]
    fn other_json_is_an_error() {
        for json in ["0", "null", "[]", "{}", "{\"model\": 3}", "{\"model\": {\"dropout\": 0.1}}"] {
            assert!(parse(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn no_type_of_rust_is_named() {
        let reason = "data did not match any variant of untagged enum PreTokenizerUntagged at line 14 column 3";
        assert_eq!(without_types(reason), "no known PreTokenizer at line 14 column 3");
        assert_eq!(without_types("EOF"), "EOF");
    }

    #[test]
    fn what_the_crate_panics_on_is_refused() {
        assert!(changed(|_| {}).is_ok());
        for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
            assert!(changed(|file| file["model"][key] = "".into()).is_ok(), "as in GPT-2's own file");
        }
        let reason = changed(|file| file["model"]["continuing_subword_prefix"] = "####".into()).unwrap_err();
        assert!(reason.contains("lacks the prefix"), "{reason}");
        let precompiled = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
        assert!(changed(|file| file["normalizer"] = precompiled.clone()).is_err());
        // A table without an entry is found out with the first text.
        let empty = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="});
        let damaged = changed(|file| file["normalizer"] = empty).unwrap();
        let error = Tokenizer::of(damaged, None).unwrap().encode("abc").unwrap_err();
        assert!(error.to_string().contains("panics"), "{error}");
    }

    #[test]
    fn no_merge_is_left_out_at_random() {
        let tokenizer = changed(|file| file["model"]["dropout"] = 0.9.into()).unwrap();
        let ids = || tokenizer.encode("abcabc", false).unwrap().get_ids().to_vec();
        assert!((0..20).all(|_| ids() == [257, 257]));
    }

    #[test]
    fn an_added_token_has_the_id_that_the_file_says() {
        let tokenizer = changed(|file| file["added_tokens"][0]["id"] = 300.into()).unwrap();
        assert_eq!((tokenizer.token_to_id("</s>"), vocab_size(&tokenizer)), (Some(300), Ok(301)));
        let reason = changed(|file| file["added_tokens"][0]["id"] = 97.into()).unwrap_err();
        assert_eq!(reason, "its added token \"</s>\" should have the id 97, but with its vocabulary it has the id 258");
    }
}
