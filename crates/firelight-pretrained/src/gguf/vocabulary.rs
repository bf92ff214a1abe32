//! A tokenizer as the lists of a GGUF file. What lists cannot say goes in as a whole `tokenizer.json`, so that nothing is lost.

use std::collections::HashMap;

use firelight_data::{ChatTemplate, PieceKind, SpecialRole, Tokenizer};
use firelight_storage::TaskError;
use serde_json::{Value as Json, json};

use super::metadata::{List, Metadata, Value};
use super::tokenizer::{
    ADD_BEGIN, ADD_END, CHAT, CUTS, Cut, HUB_FILE, KINDS, MERGES, MODEL, PRE, ROLES, SCORES, SPACE_IN_FRONT, TOKENS,
    TOOL_CHAT, tokenizer_of,
};

/// What SentencePiece has in the place of a space.
const SPACE: &str = "▁";

/// Adds the tokenizer of a model of `size` tokens. Returns whether llama.cpp has tokenizers of its sort.
///
/// # Errors
/// If the tokenizer has no JSON.
pub(crate) fn add_tokenizer(tokenizer: &Tokenizer, size: usize, metadata: &mut Metadata) -> Result<bool, TaskError> {
    let file = tokenizer.to_json()?;
    add_roles(tokenizer, metadata);
    let is_known = add_lists(tokenizer, &file, size, metadata);
    let again = match tokenizer_of(metadata) {
        Ok(Some(again)) => again.to_json().ok(),
        _ => None,
    };
    if again.as_ref() != Some(&file) {
        metadata.insert(HUB_FILE, Value::Text(file.to_string()));
    }
    Ok(is_known)
}

/// Adds the templates of conversations.
pub(crate) fn add_chat(chat: &ChatTemplate, metadata: &mut Metadata) {
    metadata.insert(CHAT, Value::Text(chat.text().into()));
    if let Some(template) = chat.tool_use() {
        metadata.insert(TOOL_CHAT, Value::Text(template.into()));
    }
}

fn add_roles(tokenizer: &Tokenizer, metadata: &mut Metadata) {
    for (key, role) in ROLES {
        if let Some(id) = tokenizer.role(role) {
            metadata.insert(key, Value::Integer(id.into()));
        }
    }
    let frame = tokenizer.frame();
    let begins =
        frame.as_ref().is_some_and(|frame| frame.front().last().copied() == tokenizer.role(SpecialRole::Begin));
    let ends =
        frame.as_ref().and_then(|frame| frame.end()).is_some_and(|end| tokenizer.role(SpecialRole::End) == Some(end));
    let begins = begins && frame.is_some_and(|frame| !frame.front().is_empty());
    metadata.insert(ADD_BEGIN, Value::Flag(begins));
    metadata.insert(ADD_END, Value::Flag(ends));
}

fn add_lists(tokenizer: &Tokenizer, file: &Json, size: usize, metadata: &mut Metadata) -> bool {
    let model = &file["model"];
    let pre = pre_tokenizer_name(file);
    let space_in_front = space_in_front(file).filter(|_| pre.is_none());
    if model["type"] != "BPE" || (pre.is_none() && space_in_front.is_none()) {
        metadata.insert(MODEL, Value::Text("none".into()));
        return false;
    }
    let kind = if pre.is_some() { "gpt2" } else { "llama" };
    let (tokens, kinds) = tokens(tokenizer, file, size);
    metadata.insert(MODEL, Value::Text(kind.into()));
    let merges = merges(model);
    if let Some(pre) = pre {
        metadata.insert(PRE, Value::Text(pre.into()));
        metadata.insert(MERGES, Value::List(List::Texts(merges)));
    } else {
        metadata.insert(SPACE_IN_FRONT, Value::Flag(space_in_front.unwrap_or(true)));
        metadata.insert(SCORES, Value::List(List::Floats(scores(&tokens, &merges))));
    }
    metadata.insert(KINDS, Value::List(List::Integers(kinds.into_iter().map(|kind| kind as i64).collect())));
    metadata.insert(TOKENS, Value::List(List::Texts(tokens)));
    true
}

/// The name of the way in which a byte-level BPE cuts texts; none where it cuts otherwise, or changes texts before.
pub(crate) fn pre_tokenizer_name(file: &Json) -> Option<&'static str> {
    let found = without_offsets(&file["pre_tokenizer"]);
    let (cut, names) = CUTS.iter().find(|(cut, _)| without_offsets(&cut.file()) == found)?;
    let normalizer = &file["normalizer"];
    let is_plain = normalizer.is_null() || *normalizer == cut.normalizer();
    // LLaMA 3 takes whole words that it has before any merge; others that are cut so do not.
    let is_dbrx = *cut == Cut::Llama3 && file["model"]["ignore_merges"] != true;
    is_plain.then_some(if is_dbrx { "dbrx" } else { names[0] })
}

/// Whether texts begin with a space, where they are made ready for pieces as those of lists are; none where they are not.
fn space_in_front(file: &Json) -> Option<bool> {
    // Gemma's files cut at spaces, of which none are left.
    let cut = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    if !file["pre_tokenizer"].is_null() && file["pre_tokenizer"] != cut {
        return None;
    }
    let prepend = json!({"type": "Prepend", "prepend": SPACE});
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let normalizer = &file["normalizer"];
    match normalizer["normalizers"].as_array().map_or(std::slice::from_ref(normalizer), Vec::as_slice) {
        [only] if *only == replace => Some(false),
        [first, second] if *first == prepend && *second == replace => Some(true),
        _ => None,
    }
}

/// A part of a tokenizer without what changes the places of tokens in a text alone.
fn without_offsets(part: &Json) -> Json {
    match part {
        Json::Object(keys) => {
            let kept = keys.iter().filter(|(key, _)| *key != "trim_offsets");
            Json::Object(kept.map(|(key, value)| (key.clone(), without_offsets(value))).collect())
        }
        Json::Array(parts) => parts.iter().map(without_offsets).collect(),
        other => other.clone(),
    }
}

/// The tokens by their ids, and what they are for; ids that are no tokens have names that no text has.
fn tokens(tokenizer: &Tokenizer, file: &Json, size: usize) -> (Vec<String>, Vec<PieceKind>) {
    let added: HashMap<u64, bool> = file["added_tokens"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|token| Some((token["id"].as_u64()?, token["special"] == true)))
        .collect();
    let has_bytes = file["model"]["byte_fallback"] == true;
    let unknown = tokenizer.role(SpecialRole::Unknown);
    let kind = |id: u32, token: &str| match added.get(&u64::from(id)) {
        Some(_) if unknown == Some(id) => PieceKind::Unknown,
        Some(true) => PieceKind::Control,
        Some(false) => PieceKind::UserDefined,
        None if has_bytes && token.len() == 6 && token.starts_with("<0x") => PieceKind::Byte,
        None => PieceKind::Normal,
    };
    let ids = 0..size.max(tokenizer.vocab_size()) as u32;
    ids.map(|id| match tokenizer.token(id) {
        Some(token) => {
            let kind = kind(id, &token);
            (token, kind)
        }
        None => (format!("[PAD{id}]"), PieceKind::Unused),
    })
    .unzip()
}

/// Pairs as one text each; newer files have them as lists.
fn merges(model: &Json) -> Vec<String> {
    let merge = |merge: &Json| match merge {
        Json::String(pair) => pair.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap_or_default(), pair[1].as_str().unwrap_or_default()),
    };
    model["merges"].as_array().into_iter().flatten().map(merge).collect()
}

/// The score of a piece is minus the place of the first merge that makes it; those that none makes are behind all others.
fn scores(tokens: &[String], merges: &[String]) -> Vec<f32> {
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, merge) in merges.iter().enumerate() {
        places.entry(merge.replace(' ', "")).or_insert(place);
    }
    let place = |token: &String| places.get(token).copied().unwrap_or(merges.len());
    tokens.iter().map(|token| -(place(token) as f32) - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use firelight_data::PieceList;

    use super::*;

    fn added(file: &Json) -> (Metadata, bool) {
        let mut metadata = Metadata::of(Path::new("a.gguf"));
        let tokenizer = Tokenizer::of_json(file, "a.json").unwrap();
        let is_known = add_tokenizer(&tokenizer, 8, &mut metadata).unwrap();
        (metadata, is_known)
    }

    fn pieces(space_in_front: bool) -> Json {
        let normal = |text: &str, score: f32| (text.to_string(), score, PieceKind::Normal);
        let mut pieces = vec![("<unk>".to_string(), 0.0, PieceKind::Unknown), ("<0x0A>".into(), 0.0, PieceKind::Byte)];
        pieces.extend([normal("▁a", -1.0), normal("▁", -2.0), normal("a", -3.0)]);
        let list = PieceList { pieces, space_in_front, ..PieceList::default() };
        Tokenizer::of_pieces(&list, "a.gguf").unwrap().to_json().unwrap()
    }

    fn bytes(cut: Cut, normalizer: &Json) -> Json {
        json!({"version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": cut.file(),
            "post_processor": null, "decoder": null, "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})
    }

    /// What a tokenizer is written as, where llama.cpp has its sort; none goes in whole alone.
    fn sort(file: &Json) -> Option<String> {
        let (metadata, is_known) = added(file);
        let sort = metadata.text(MODEL).unwrap().map(str::to_string);
        assert_eq!(is_known, metadata.get(TOKENS).is_some());
        assert!(is_known || metadata.get(HUB_FILE).is_some(), "it would be lost");
        sort.filter(|_| is_known)
    }

    #[test]
    fn a_piece_that_no_merge_makes_is_behind_those_that_one_makes() {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = scores(&texts(&["<s>", "a", "ab", "abc"]), &texts(&["a b", "ab c"]));
        assert_eq!(found, [-3.0, -3.0, -1.0, -2.0]);
    }

    #[test]
    fn pieces_are_known_where_texts_are_made_ready_as_those_of_lists_are() {
        for space_in_front in [false, true] {
            let file = pieces(space_in_front);
            let (metadata, is_known) = added(&file);
            assert!(is_known);
            assert_eq!(metadata.text(MODEL), Ok(Some("llama")));
            assert_eq!(metadata.flag(SPACE_IN_FRONT), Ok(Some(space_in_front)));
        }
        let (whole, llama) = (pieces(false), Some("llama".to_string()));
        let changed = |key: &str, value: Json| {
            let mut file = whole.clone();
            file[key] = value;
            sort(&file)
        };
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let split = |behavior: &str| json!({"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": false});
        assert_eq!(changed("normalizer", replace.clone()), llama, "Gemma's");
        assert_eq!(changed("pre_tokenizer", split("MergedWithPrevious")), llama, "Gemma's");
        assert_eq!(changed("pre_tokenizer", split("Isolated")), None);
        assert_eq!(changed("normalizer", Json::Null), None);
        let lower = json!({"type": "Sequence", "normalizers": [{"type": "Lowercase"}, replace]});
        assert_eq!(changed("normalizer", lower), None);
    }

    #[test]
    fn bytes_are_known_where_texts_are_not_changed_before() {
        let (gpt2, composed) = (Some("gpt2".to_string()), json!({"type": "NFC"}));
        assert_eq!(sort(&bytes(Cut::Gpt2, &Json::Null)), gpt2);
        assert_eq!(sort(&bytes(Cut::Qwen2, &composed)), gpt2);
        assert_eq!(sort(&bytes(Cut::Qwen2, &Json::Null)), gpt2);
        assert_eq!(sort(&bytes(Cut::Gpt2, &composed)), None);
        assert_eq!(sort(&bytes(Cut::Qwen2, &json!({"type": "Lowercase"}))), None);
        let (metadata, _) = added(&bytes(Cut::Llama3, &Json::Null));
        assert_eq!(metadata.text(PRE), Ok(Some("dbrx")), "no whole words");
    }
}
