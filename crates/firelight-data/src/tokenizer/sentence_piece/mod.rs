//! SentencePiece models of published folders, as the file that the `tokenizers` crate reads: Unigram and BPE, with the ids that the
//! family of the model gives to pieces, and what it puts around texts.
//!
//! Source: Kudo and Richardson 2018 (<https://arxiv.org/abs/1808.06226>); the texts become ready for the pieces as in `normalizer.cc` of
//! the library.

mod layout;
mod listed;
mod merges;
mod model;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use firelight_storage::{InputError, read_file, read_json};
use prost::Message;
use serde_json::{Value, json};
use tokenizers::normalizers::Precompiled;

use super::file::LIMIT;
use crate::DataError;
use layout::{Entry, FOREIGN, Layout};
pub use listed::{PieceKind, PieceList};
use merges::merges;
use model::{Algorithm, Kind, Model};

/// What stands for a space.
const SPACE: &str = "▁";

/// The names of such files.
pub(super) const FILES: [&str; 4] = ["spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "spm.model"];

/// A tokenizer of the crate's from a model; the folder says of which family it is.
pub(super) fn tokenizer(path: &Path, folder: &Path) -> Result<Value, DataError> {
    let model = read(path)?;
    file(&model, &Layout::of_folder(folder)?).map_err(|reason| unfit(path, &reason).into())
}

/// The tokenizers of Marian's folders, `source.spm` and `target.spm`, whose pieces have the ids of one `vocab.json`.
pub(super) fn of_pair(path: &Path, vocabulary: &Path) -> Result<Value, DataError> {
    let (model, ids) = (read(path)?, read_json::<BTreeMap<String, u32>>(vocabulary, LIMIT)?);
    let is_source = path.file_name().is_some_and(|name| name == "source.spm");
    file(&model, &Layout::Ids { ids, is_source }).map_err(|reason| unfit(path, &reason).into())
}

fn unfit(path: &Path, reason: &str) -> InputError {
    InputError::in_file(path, format!("makes no tokenizer: {reason}")).advise("download the model again")
}

fn read(path: &Path) -> Result<Model, DataError> {
    let model = Model::decode(&*read_file(path, LIMIT)?);
    let model = model.map_err(|_| unfit(path, "it is no SentencePiece model"))?;
    match model.pieces.is_empty() {
        true => Err(unfit(path, "it is no SentencePiece model, or has no pieces").into()),
        false => Ok(model),
    }
}

fn file(model: &Model, layout: &Layout) -> Result<Value, String> {
    if model.has_space_behind() {
        return Err("it has white space behind words, which is not known".into());
    }
    let entries = layout.entries(model)?;
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(&entries, layout),
        "normalizer": normalizer(model, layout)?,
        "pre_tokenizer": apart(model, &entries),
        "post_processor": layout.frame(&entries),
        "decoder": decoder(model, layout),
        "model": pieces(model, &entries)?,
    }))
}

/// Tokens that stand for no text, and those that are pieces wherever they stand.
fn added(entries: &[Entry], layout: &Layout) -> Value {
    // In front of a text of Marian's stands the language to translate into, and the text behind it begins anew.
    let is_apart = matches!(layout, Layout::Ids { .. });
    let is_added =
        |(_, entry): &(usize, &Entry)| matches!(entry.kind, Kind::Unknown | Kind::Control | Kind::UserDefined);
    let token = |(id, entry): (usize, &Entry)| {
        let special = entry.kind != Kind::UserDefined;
        // A mask takes the space before it, as a word would.
        let takes_space = entry.piece == "<mask>" || entry.piece == "[MASK]";
        json!({"id": id, "content": entry.piece, "special": special, "single_word": false, "lstrip": takes_space, "rstrip": false,
            "normalized": !special && !is_apart})
    };
    entries.iter().enumerate().filter(is_added).map(token).collect()
}

/// What spells a special token in a text is no piece: it is cut behind its first character. A BPE merges none.
fn apart(model: &Model, entries: &[Entry]) -> Value {
    let special = entries.iter().filter(|entry| matches!(entry.kind, Kind::Unknown | Kind::Control | Kind::Byte));
    let ends = |entry: &Entry| {
        let mut characters = entry.piece.chars();
        Some((characters.next()?, characters.as_str().to_string())).filter(|(_, rest)| !rest.is_empty())
    };
    let pattern = |(first, rest): (char, String)| {
        format!("(?<={})(?={})", regex::escape(first.encode_utf8(&mut [0; 4])), regex::escape(&rest))
    };
    let patterns: Vec<String> = special.filter_map(ends).map(pattern).collect();
    match model.algorithm() {
        Some(Algorithm::Unigram) if !patterns.is_empty() => {
            json!({"type": "Split", "pattern": {"Regex": patterns.join("|")}, "behavior": "Removed", "invert": false})
        }
        _ => Value::Null,
    }
}

/// Characters are replaced, then spaces are counted, then they become visible.
fn normalizer(model: &Model, layout: &Layout) -> Result<Value, String> {
    let (charsmap, add_dummy_prefix, remove_extra_whitespaces) = model.normalizer();
    let mut steps = layout.normalizers();
    if !charsmap.is_empty() {
        let map =
            Precompiled::from(charsmap).map_err(|error| format!("its table of characters is damaged: {error:?}"))?;
        steps.push(serde_json::to_value(map).map_err(|error| error.to_string())?);
    }
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    if remove_extra_whitespaces {
        steps.push(replace(json!({"Regex": "^ +| +$"}), ""));
        steps.push(replace(json!({"Regex": " {2,}"}), " "));
    }
    if add_dummy_prefix {
        steps.push(json!({"type": "Prepend", "prepend": SPACE}));
    }
    steps.push(replace(json!({"String": " "}), SPACE));
    if remove_extra_whitespaces {
        // Those that stand in the text as they are, too.
        steps.push(replace(json!({"Regex": "▁+$"}), ""));
    }
    steps.extend(layout.marks(model));
    Ok(json!({"type": "Sequence", "normalizers": steps}))
}

/// Spaces become spaces and bytes characters. The space in front goes where one was put there, and all of them where texts have none.
fn decoder(model: &Model, layout: &Layout) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if matches!(layout, Layout::Ids { is_source: true, .. }) {
        steps.push(json!({"type": "Replace", "pattern": {"String": FOREIGN}, "content": ""}));
    }
    let in_front = match model.normalizer() {
        (_, _, true) => usize::from(u16::MAX),
        (_, add_dummy_prefix, _) => usize::from(add_dummy_prefix),
    };
    if in_front > 0 {
        steps.push(json!({"type": "Strip", "content": " ", "start": in_front, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}

fn pieces(model: &Model, entries: &[Entry]) -> Result<Value, String> {
    let unknown = entries.iter().position(|entry| entry.kind == Kind::Unknown);
    let unknown = unknown.ok_or("it has no piece for what is unknown")?;
    match model.algorithm() {
        Some(Algorithm::Unigram) => {
            let vocab: Vec<(&str, f32)> = entries.iter().map(|entry| (entry.piece.as_str(), entry.score)).collect();
            Ok(json!({"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": model.has_bytes()}))
        }
        Some(Algorithm::Bpe) => {
            let vocab: BTreeMap<&str, usize> =
                entries.iter().enumerate().map(|(id, entry)| (entry.piece.as_str(), id)).collect();
            Ok(
                json!({"type": "BPE", "dropout": null, "unk_token": entries[unknown].piece, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": model.has_bytes(), "ignore_merges": false,
                "vocab": vocab, "merges": merges(entries)}),
            )
        }
        other => Err(format!("it is trained for {other:?}; known are Unigram and Bpe")),
    }
}
