//! Tokenizers of folders without `tokenizer.json`: the `vocab.txt` of BERT and MPNet, a `vocab.json` with `merges.txt`, models of SentencePiece,
//! and Marian's two of them. What they leave unsaid is what the classes of `transformers` say: `BertTokenizer`, `MPNetTokenizer`,
//! `GPT2Tokenizer`, `RobertaTokenizer`, `Qwen2Tokenizer`, `CLIPTokenizer`, `T5Tokenizer` and so on.

use std::path::Path;

use firelight_storage::{InputError, read_text_file};
use serde_json::{Map, Value, json};

use super::byte_pairs::byte_pairs;
use super::file::LIMIT;
use super::settings::Settings;
use super::{Tokenizer, roles, sentence_piece};
use crate::DataError;

/// Marian's two models of SentencePiece.
const SOURCE: &str = "source.spm";
const TARGET: &str = "target.spm";

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
        let settings = || Settings::of_folder(folder);
        let pieces = sentence_piece::FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
        let (path, file) = match pieces {
            Some(path) => (path.clone(), sentence_piece::tokenizer(&path, folder)?),
            None if target.is_file() => (target.clone(), sentence_piece::of_pair(&target, &folder.join("vocab.json"))?),
            None if words.is_file() => (words.clone(), word_piece(&words, &settings()?)?),
            None if pairs.is_file() => (pairs.clone(), byte_pairs(&folder.join("vocab.json"), &pairs, &settings()?)?),
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

/// The tokens of a family of WordPiece vocabularies: those that are special, what stands around texts, and that of unknown words.
struct Words {
    special: &'static [&'static str],
    class: &'static str,
    separator: &'static str,
}

const BERT: Words =
    Words { special: &["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], class: "[CLS]", separator: "[SEP]" };
const MPNET: Words = Words { special: &["<s>", "<pad>", "</s>", UNKNOWN, "<mask>"], class: "<s>", separator: "</s>" };
const UNKNOWN: &str = "[UNK]";

fn word_piece(path: &Path, settings: &Settings) -> Result<Value, DataError> {
    let text = read_text_file(path, LIMIT)?;
    let ids: Map<String, Value> = text.lines().enumerate().map(|(id, token)| (token.into(), json!(id))).collect();
    let is_mpnet = settings.family() == "mpnet";
    let words = if is_mpnet { MPNET } else { BERT };
    if let Some(missing) = [UNKNOWN, words.class, words.separator].into_iter().find(|token| !ids.contains_key(*token)) {
        let (problem, kind) = (format!("lacks the token {missing}"), if is_mpnet { "MPNet" } else { "BERT" });
        return Err(InputError::in_file(path, problem)
            .advise(format!("expected a vocabulary of {kind}'s kind"))
            .into());
    }
    let mut frame =
        json!({"type": "BertProcessing", "sep": pair(&ids, words.separator), "cls": pair(&ids, words.class)});
    if is_mpnet {
        frame["type"] = json!("RobertaProcessing");
        frame["trim_offsets"] = json!(true);
        frame["add_prefix_space"] = json!(false);
    }
    Ok(json!({
        "version": "1.0",
        "added_tokens": settings.added(&ids, words.special),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "lowercase": settings.says("do_lower_case", true),
            "handle_chinese_chars": settings.says("tokenize_chinese_chars", true),
            "strip_accents": settings.keys["strip_accents"].as_bool(),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": frame,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": UNKNOWN, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": ids,
        },
    }))
}

/// A token with its id, as post-processors have it.
pub(super) fn pair(ids: &Map<String, Value>, token: &str) -> Value {
    json!([token, ids.get(token).cloned().unwrap_or(json!(0))])
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
    fn accents_stay_and_chinese_is_no_word_each_where_the_settings_say_so() {
        let settings = ("tokenizer_config.json", r#"{"strip_accents": false, "tokenize_chinese_chars": false}"#);
        let vocabulary = "[UNK]\n[CLS]\n[SEP]\ne\n\u{e9}\n\u{4e2d}\n##\u{6587}\n\u{6587}\n";
        let encoded = |files: &[(&str, &str)]| of(files).unwrap().encode("\u{c9} \u{4e2d}\u{6587}").unwrap();
        assert_eq!(encoded(&[("vocab.txt", vocabulary)]), [3, 5, 7]);
        assert_eq!(encoded(&[("vocab.txt", vocabulary), settings]), [4, 5, 6]);
    }

    #[test]
    fn a_vocabulary_of_mpnet_has_the_frame_of_roberta() {
        let vocabulary = "<s>\n<pad>\n</s>\n<unk>\n[PAD]\n[UNK]\n[CLS]\n[SEP]\nfox\n<mask>\n";
        let family = ("config.json", r#"{"model_type": "mpnet"}"#);
        let tokenizer = of(&[("vocab.txt", vocabulary), family]).unwrap();
        assert_eq!(tokenizer.frame().expect("a frame").put(&[8], None).0, [0, 8, 2]);
        assert_eq!(tokenizer.frame().expect("a frame").put(&[8], Some(&[8])).0, [0, 8, 2, 2, 8, 2]);
        let roles = [SpecialRole::Class, SpecialRole::Separator, SpecialRole::Mask, SpecialRole::Unknown];
        assert_eq!(roles.map(|role| tokenizer.role(role)), [0, 2, 9, 5].map(Some));
        let error = of(&[("vocab.txt", WORDS), family]).unwrap_err().to_string();
        assert!(error.contains("lacks the token <s>; expected a vocabulary of MPNet's kind"), "{error}");
    }

    #[test]
    fn what_makes_no_tokenizer_is_told() {
        let empty = of(&[("vocab.txt", "")]).unwrap_err().to_string();
        assert!(empty.contains("vocab.txt` lacks the token [UNK]; expected a vocabulary of BERT's kind"), "{empty}");
    }
}
