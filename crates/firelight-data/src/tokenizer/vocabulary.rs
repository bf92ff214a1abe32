//! Tokenizers of folders without `tokenizer.json`: BERT's `vocab.txt`, GPT-2's and RoBERTa's `vocab.json` with `merges.txt`, models of
//! SentencePiece, and Marian's two of them. What they leave unsaid is what the classes of `transformers` say: `BertTokenizer`,
//! `GPT2Tokenizer`, `RobertaTokenizer`, `T5Tokenizer` and so on.

use std::collections::HashSet;
use std::path::Path;

use firelight_storage::{InputError, read_json, read_text_file, shortened};
use serde_json::{Map, Value, json};

use super::file::LIMIT;
use super::{Tokenizer, roles, sentence_piece};
use crate::DataError;

/// Marian's two models of SentencePiece.
const SOURCE: &str = "source.spm";
const TARGET: &str = "target.spm";

/// The special tokens of BERT, and those of RoBERTa, by which its files are told from GPT-2's.
const BERT: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const ROBERTA: [&str; 5] = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"];
const GPT2: [&str; 1] = ["<|endoftext|>"];

impl Tokenizer {
    /// The tokenizer of a model's folder: its `tokenizer.json`, else what its `vocab.txt`, its `vocab.json` and `merges.txt`, or its model
    /// of SentencePiece make; none where it has none of them. Marian's is that of the target, `target.spm`.
    ///
    /// ```
    /// use firelight_data::Tokenizer;
    ///
    /// let home = tempfile::tempdir().unwrap();
    /// assert!(Tokenizer::of_folder(home.path()).unwrap().is_none());
    /// let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "##es", "and"];
    /// std::fs::write(home.path().join("vocab.txt"), tokens.join("\n")).unwrap();
    /// let tokenizer = Tokenizer::of_folder(home.path()).unwrap().unwrap();
    /// assert_eq!(tokenizer.encode("Foxes and hens").unwrap(), [5, 6, 7, 1]);
    /// ```
    ///
    /// # Errors
    /// Fails if a file cannot be read, or is no tokenizer.
    pub fn of_folder(folder: impl AsRef<Path>) -> Result<Option<Self>, DataError> {
        let folder = folder.as_ref();
        let [whole, words, pairs, target] =
            ["tokenizer.json", "vocab.txt", "merges.txt", TARGET].map(|name| folder.join(name));
        if whole.is_file() {
            return Self::load(whole).map(Some);
        }
        let pieces = sentence_piece::FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
        let (path, file) = match pieces {
            Some(path) => (path.clone(), sentence_piece::tokenizer(&path, folder)?),
            None if target.is_file() => (target.clone(), sentence_piece::of_pair(&target, &folder.join("vocab.json"))?),
            None if words.is_file() => (words.clone(), word_piece(&words, lowers(folder)?)?),
            None if pairs.is_file() => (pairs.clone(), byte_pairs(&folder.join("vocab.json"), &pairs)?),
            None => return Ok(None),
        };
        Self::made(&file, &path, Some(&roles::beside(&whole)?)).map(Some)
    }

    /// The tokenizer of the texts to translate, where a model's folder has one of their own: `source_tokenizer.json`, or Marian's
    /// `source.spm`, whose ids are those of the target's.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or is no tokenizer.
    pub fn of_source(folder: impl AsRef<Path>) -> Result<Option<Self>, DataError> {
        let folder = folder.as_ref();
        let [own, source, whole] = ["source_tokenizer.json", SOURCE, "tokenizer.json"].map(|name| folder.join(name));
        if own.is_file() {
            return Self::load(own).map(Some);
        }
        if !source.is_file() || whole.is_file() {
            return Ok(None);
        }
        let file = sentence_piece::of_pair(&source, &folder.join("vocab.json"))?;
        Self::made(&file, &source, Some(&roles::beside(&whole)?)).map(Some)
    }
}

/// Whether a folder of BERT's kind reads lower case: `do_lower_case`, which is true where nobody says otherwise.
fn lowers(folder: &Path) -> Result<bool, DataError> {
    let path = folder.join("tokenizer_config.json");
    if !path.is_file() {
        return Ok(true);
    }
    let keys: Value = read_json(&path, LIMIT)?;
    Ok(keys["do_lower_case"].as_bool().unwrap_or(true))
}

fn word_piece(path: &Path, lowercase: bool) -> Result<Value, DataError> {
    let text = read_text_file(path, LIMIT)?;
    let ids: Map<String, Value> = text.lines().enumerate().map(|(id, token)| (token.into(), json!(id))).collect();
    if let Some(missing) = ["[UNK]", "[CLS]", "[SEP]"].into_iter().find(|token| !ids.contains_key(*token)) {
        let problem = format!("lacks the token {missing}");
        return Err(InputError::in_file(path, problem).advise("expected a vocabulary of BERT's kind").into());
    }
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(&ids, &BERT),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": pair(&ids, "[SEP]"), "cls": pair(&ids, "[CLS]")},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": ids,
        },
    }))
}

fn byte_pairs(vocabulary: &Path, merges: &Path) -> Result<Value, DataError> {
    let ids = own_ids(vocabulary)?;
    if ids.keys().any(|token| token.ends_with("</w>")) {
        let problem = "marks the ends of words, as CLIP's: it is read as a tokenizer.json alone";
        return Err(InputError::in_file(vocabulary, problem)
            .advise("download that, too, or save it by `transformers`")
            .into());
    }
    let text = read_text_file(merges, LIMIT)?;
    let pairs: Vec<&str> = text.lines().filter(|line| !line.starts_with("#version") && !line.is_empty()).collect();
    let is_roberta = ROBERTA.iter().all(|token| ids.contains_key(*token));
    let special: &[&str] = if is_roberta { &ROBERTA } else { &GPT2 };
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let frame = json!({
        "type": "RobertaProcessing", "sep": pair(&ids, "</s>"), "cls": pair(&ids, "<s>"), "trim_offsets": true, "add_prefix_space": false,
    });
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(&ids, special),
        "pre_tokenizer": level,
        "post_processor": if is_roberta { frame } else { level.clone() },
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": false, "vocab": ids, "merges": pairs,
        },
    }))
}

/// The tokens of a vocabulary, each with an id of its own: what is wrong with them is told of this file, not of the merges.
fn own_ids(path: &Path) -> Result<Map<String, Value>, DataError> {
    let ids: Map<String, Value> = read_json(path, LIMIT)?;
    let mut seen = HashSet::new();
    let mut is_own = |id: &Value| id.as_u64().is_some_and(|id| id <= u64::from(u32::MAX) && seen.insert(id));
    if let Some((token, id)) = ids.iter().find(|(_, id)| !is_own(id)) {
        let problem = format!("gives the token \"{}\" the id {}", shortened(token), shortened(&id.to_string()));
        let advice = "expected a whole number that no other token has: download the model again";
        return Err(InputError::in_file(path, problem).advise(advice).into());
    }
    Ok(ids)
}

/// A token with its id, as post-processors have it.
fn pair(ids: &Map<String, Value>, token: &str) -> Value {
    json!([token, ids.get(token).cloned().unwrap_or(json!(0))])
}

/// The special tokens that a vocabulary has.
fn added(ids: &Map<String, Value>, special: &[&str]) -> Value {
    let token = |token: &&str| {
        // A mask takes the space before it, as a word would.
        let takes_space = *token == "<mask>";
        Some(json!({
            "id": ids.get(*token)?, "content": token, "special": true, "single_word": false, "lstrip": takes_space,
            "rstrip": false, "normalized": false,
        }))
    };
    special.iter().filter_map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpecialRole;
    use std::fs;

    fn of(files: &[(&str, &str)]) -> Result<Tokenizer, DataError> {
        let home = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(home.path().join(name), text).unwrap());
        Tokenizer::of_folder(home.path()).map(|found| found.expect("a tokenizer"))
    }

    const WORDS: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfox\n##es\nFox\n";

    #[test]
    fn a_vocabulary_of_bert_has_its_frame_and_its_case() {
        let tokenizer = of(&[("vocab.txt", WORDS)]).unwrap();
        assert_eq!(tokenizer.encode("Foxes FOX").unwrap(), [5, 6, 5]);
        let roles = [SpecialRole::Class, SpecialRole::Separator, SpecialRole::Mask, SpecialRole::Padding];
        assert_eq!(roles.map(|role| tokenizer.role(role)), [2, 3, 4, 0].map(Some));
        let cased = of(&[("vocab.txt", WORDS), ("tokenizer_config.json", r#"{"do_lower_case": false}"#)]).unwrap();
        assert_eq!(cased.encode("Foxes FOX").unwrap(), [7, 6, 1]);
    }

    #[test]
    fn byte_pairs_of_gpt_2_and_of_roberta_are_told_apart() {
        let gpt2 = [
            ("vocab.json", r#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#),
            ("merges.txt", "#version: 0.2\na b\n"),
        ];
        let tokenizer = of(&gpt2).unwrap();
        assert_eq!(tokenizer.encode("aab").unwrap(), [0, 2]);
        assert_eq!((tokenizer.role(SpecialRole::End), tokenizer.frame().is_some()), (Some(3), false));
        let vocabulary = r#"{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "ab": 6, "<mask>": 7}"#;
        let tokenizer = of(&[("vocab.json", vocabulary), gpt2[1]]).unwrap();
        assert_eq!(tokenizer.encode("ab").unwrap(), [6]);
        let frame = tokenizer.frame().expect("a frame");
        assert_eq!((frame.begin(), tokenizer.role(SpecialRole::Mask)), (1, Some(7)));
    }

    #[test]
    fn what_makes_no_tokenizer_is_told() {
        let merges = [("vocab.json", r#"{"a": 0}"#), ("merges.txt", "#version: 0.2\na b\n")];
        let error = of(&[("vocab.json", r#"{"a": 0, "a</w>": 1}"#), merges[1]]).unwrap_err().to_string();
        assert!(error.contains("vocab.json` marks the ends of words, as CLIP's"), "{error}");
        let error = of(&merges).unwrap_err().to_string();
        assert!(error.contains("merges.txt` makes no tokenizer"), "{error}");
        for ids in [r#"{"a": 0, "b": 0}"#, r#"{"a": 0, "b": -1}"#, r#"{"a": 0, "b": 4294967296}"#] {
            let error = of(&[("vocab.json", ids), merges[1]]).unwrap_err().to_string();
            assert!(error.contains("vocab.json` gives the token \"b\" the id "), "{error}");
            assert!(error.contains("; expected a whole number that no other token has"), "{error}");
        }
        assert!(of(&[("vocab.json", "[]"), merges[1]]).unwrap_err().to_string().contains("vocab.json"));
        assert!(of(&[merges[1]]).unwrap_err().to_string().contains("vocab.json"));
        let empty = of(&[("vocab.txt", "")]).unwrap_err().to_string();
        assert!(empty.contains("vocab.txt` lacks the token [UNK]; expected a vocabulary of BERT's kind"), "{empty}");
    }
}
