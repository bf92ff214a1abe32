//! Folders with a `vocab.json` and a `merges.txt`: byte-level BPE of GPT-2, RoBERTa, GPT-NeoX, Qwen and CLIP, whose texts become ready for the
//! pairs in the way of each family.

use std::collections::HashSet;
use std::path::Path;

use firelight_storage::{InputError, read_json, read_text_file, shortened};
use serde_json::{Map, Value, json};

use super::file::LIMIT;
use super::settings::Settings;
use super::vocabulary::pair;
use crate::DataError;

/// The special tokens of RoBERTa, by which its files are told from GPT-2's.
const ROBERTA: [&str; 5] = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"];
const GPT2: [&str; 1] = ["<|endoftext|>"];
const GPT_NEOX: [&str; 2] = ["<|endoftext|>", "<|padding|>"];
const CLIP: [&str; 2] = ["<|startoftext|>", "<|endoftext|>"];

/// What ends a word of CLIP's.
const END_OF_WORD: &str = "</w>";

/// The words of Qwen2 and Qwen3, and those of CLIP.
const QWEN_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CLIP_WORDS: &str = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Gpt2,
    GptNeoX,
    Qwen,
    Roberta,
    Clip,
}

/// The file that the crate reads, of a vocabulary and its merges.
pub(super) fn byte_pairs(vocabulary: &Path, merges: &Path, settings: &Settings) -> Result<Value, DataError> {
    let ids = own_ids(vocabulary)?;
    let text = read_text_file(merges, LIMIT)?;
    let pairs: Vec<&str> = text.lines().filter(|line| !line.starts_with("#version") && !line.is_empty()).collect();
    let family = Family::of(&ids, settings);
    let spaced = settings.says("add_prefix_space", false);
    let is_clip = family == Family::Clip;
    Ok(json!({
        "version": "1.0",
        "added_tokens": settings.added(&ids, family.special()),
        "normalizer": family.normalizer(),
        "pre_tokenizer": family.pre_tokenizer(spaced),
        "post_processor": family.post_processor(&ids, spaced),
        "decoder": level(false, true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": is_clip.then_some(CLIP[1]), "continuing_subword_prefix": "",
            "end_of_word_suffix": if is_clip { END_OF_WORD } else { "" }, "fuse_unk": false, "vocab": ids, "merges": pairs,
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

impl Family {
    /// Two of them are known by their tokens; GPT-2's is what nobody says otherwise of.
    fn of(ids: &Map<String, Value>, settings: &Settings) -> Self {
        let family = settings.family();
        if ids.keys().any(|token| token.ends_with(END_OF_WORD)) {
            return Self::Clip;
        }
        if ROBERTA.iter().all(|token| ids.contains_key(*token)) {
            return Self::Roberta;
        }
        match family.as_str() {
            "gptneox" | "gpt_neox" => Self::GptNeoX,
            family if family.starts_with("qwen") => Self::Qwen,
            _ => Self::Gpt2,
        }
    }

    fn special(self) -> &'static [&'static str] {
        match self {
            Self::Gpt2 | Self::Qwen => &GPT2,
            Self::GptNeoX => &GPT_NEOX,
            Self::Roberta => &ROBERTA,
            Self::Clip => &CLIP,
        }
    }

    fn normalizer(self) -> Value {
        let composed = json!({"type": "NFC"});
        match self {
            Self::Gpt2 | Self::Roberta => Value::Null,
            Self::GptNeoX | Self::Qwen => composed,
            Self::Clip => {
                let spaces = json!({"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "});
                json!({"type": "Sequence", "normalizers": [composed, spaces, {"type": "Lowercase"}]})
            }
        }
    }

    fn pre_tokenizer(self, spaced: bool) -> Value {
        let words = |pattern: &str, behavior: &str, level: Value| {
            let is_inverted = self == Self::Clip;
            let split =
                json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": is_inverted});
            json!({"type": "Sequence", "pretokenizers": [split, level]})
        };
        match self {
            Self::Qwen => words(QWEN_WORDS, "Isolated", level(spaced, false)),
            Self::Clip => words(CLIP_WORDS, "Removed", level(false, true)),
            Self::Gpt2 | Self::GptNeoX | Self::Roberta => level(spaced, true),
        }
    }

    fn post_processor(self, ids: &Map<String, Value>, spaced: bool) -> Value {
        let frame = |[class, separator]: [&str; 2], trims: bool, spaced: bool| {
            json!({
                "type": "RobertaProcessing", "sep": pair(ids, separator), "cls": pair(ids, class), "trim_offsets": trims,
                "add_prefix_space": spaced,
            })
        };
        match self {
            Self::Roberta => frame(["<s>", "</s>"], true, spaced),
            Self::Clip => frame(CLIP, false, false),
            Self::Gpt2 | Self::GptNeoX | Self::Qwen => level(false, true),
        }
    }
}

/// Bytes spelt in printable characters, in the words of GPT-2 or as they come.
fn level(spaced: bool, cuts_words: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": spaced, "trim_offsets": true, "use_regex": cuts_words})
}

#[cfg(test)]
mod tests {
    use crate::{DataError, SpecialRole, Tokenizer};
    use std::fs;

    const MERGES: (&str, &str) = ("merges.txt", "#version: 0.2\na b\n");
    const PAIRS: (&str, &str) = ("vocab.json", r#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#);

    fn of(files: &[(&str, &str)]) -> Result<Tokenizer, DataError> {
        let home = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(home.path().join(name), text).unwrap());
        Tokenizer::of_folder(home.path()).map(|found| found.expect("a tokenizer"))
    }

    #[test]
    fn byte_pairs_of_gpt_2_and_of_roberta_are_told_apart() {
        let tokenizer = of(&[PAIRS, MERGES]).unwrap();
        assert_eq!(tokenizer.encode("aab").unwrap(), [0, 2]);
        assert_eq!((tokenizer.role(SpecialRole::End), tokenizer.frame().is_some()), (Some(3), false));
        let vocabulary = r#"{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "ab": 6, "<mask>": 7}"#;
        let tokenizer = of(&[("vocab.json", vocabulary), MERGES]).unwrap();
        assert_eq!(tokenizer.encode("ab").unwrap(), [6]);
        let frame = tokenizer.frame().expect("a frame");
        assert_eq!((frame.begin(), tokenizer.role(SpecialRole::Mask)), (1, Some(7)));
    }

    #[test]
    fn words_of_clip_end_with_a_mark_and_have_no_case() {
        let vocabulary =
            r#"{"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3, "a</w>": 4, "<|startoftext|>": 5, "<|endoftext|>": 6}"#;
        let tokenizer = of(&[("vocab.json", vocabulary), ("merges.txt", "#version: 0.2\na b</w>\n")]).unwrap();
        assert_eq!(tokenizer.encode("AB  a").unwrap(), [3, 4]);
        assert_eq!(tokenizer.frame().expect("a frame").put(&[3], None).0, [5, 3, 6]);
    }

    #[test]
    fn the_words_of_qwen_are_those_of_its_family_whoever_names_it() {
        // Its words take one sign in front of letters, GPT-2's a space alone.
        let vocabulary = r#"{"a": 0, "-": 1, "-a": 2}"#;
        let files = [("vocab.json", vocabulary), ("merges.txt", "#version: 0.2\n- a\n")];
        assert_eq!(of(&files).unwrap().encode("-a").unwrap(), [1, 0]);
        for said in [
            ("config.json", r#"{"model_type": "qwen3"}"#),
            ("tokenizer_config.json", r#"{"tokenizer_class": "Qwen2Tokenizer"}"#),
        ] {
            assert_eq!(of(&[files[0], files[1], said]).unwrap().encode("-a").unwrap(), [2], "{said:?}");
        }
    }

    #[test]
    fn added_tokens_of_the_settings_are_read() {
        let settings = r#"{"added_tokens_decoder": {"4": {
            "content": "<x>", "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true}}}"#;
        let tokenizer = of(&[PAIRS, MERGES, ("tokenizer_config.json", settings)]).unwrap();
        assert_eq!(tokenizer.encode_with_special("ab<x>").unwrap(), [2, 4]);
        assert_eq!(tokenizer.vocab_size(), 5);
    }

    #[test]
    fn what_makes_no_tokenizer_is_told() {
        let error = of(&[("vocab.json", r#"{"a": 0}"#), MERGES]).unwrap_err().to_string();
        assert!(error.contains("merges.txt` makes no tokenizer"), "{error}");
        for ids in [r#"{"a": 0, "b": 0}"#, r#"{"a": 0, "b": -1}"#, r#"{"a": 0, "b": 4294967296}"#] {
            let error = of(&[("vocab.json", ids), MERGES]).unwrap_err().to_string();
            assert!(error.contains("vocab.json` gives the token \"b\" the id "), "{error}");
            assert!(error.contains("; expected a whole number that no other token has"), "{error}");
        }
        assert!(of(&[("vocab.json", "[]"), MERGES]).unwrap_err().to_string().contains("vocab.json"));
        assert!(of(&[MERGES]).unwrap_err().to_string().contains("vocab.json"));
    }
}
