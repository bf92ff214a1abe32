//! Tagged sentences: tokens with a tag each, such as the part of a name that a word is. Read from the columns of the CoNLL tasks or
//! from [records](crate::records), strictly: whatever is wrong is an error with its line.
//!
//! Source of columns and tags: Tjong Kim Sang and De Meulder 2003, section 2.2 (<https://aclanthology.org/W03-0419>).
//!
//! ```
//! use firelight_data::tagged::{self, TagScheme, entities};
//!
//! let home = tempfile::tempdir().unwrap();
//! let path = home.path().join("train.conll");
//! std::fs::write(&path, "Ada\tB-PER\nLovelace\tI-PER\nwrote\tO\n\nLondon\tB-LOC\n").unwrap();
//!
//! let sentences = tagged::read(&path, TagScheme::Iob2).unwrap();
//! assert_eq!((sentences.len(), sentences[1].line), (2, 5));
//! let found = entities(&sentences[0].tags);
//! assert_eq!((found[0].kind.as_str(), found[0].tokens.clone()), ("PER", 0..2));
//! ```

mod columns;
mod records;
mod scheme;

use std::path::Path;

use firelight_storage::{InputError, listed, shortened};
use serde::{Deserialize, Serialize};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

pub use scheme::{TagScheme, TaggedEntity, are_of_entities, entities};

use crate::DataError;
use crate::labelled::Labels;

/// A sentence with a tag for each of its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaggedSentence {
    /// The words and marks, as the file cuts them.
    pub tokens: Vec<String>,
    /// The tag of each.
    pub tags: Vec<String>,
    /// The line of the file on which the sentence begins, from 1.
    pub line: usize,
}

/// How a file of tagged sentences is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaggedFormat {
    /// A token a line, the token in the first column and its tag in the last one, with an empty line between sentences.
    Columns,
    /// Records with two lists, `tokens` and `tags`: JSON lines such as `{"tokens": [...], "tags": [...]}`, or Parquet.
    Records,
}

impl TaggedFormat {
    /// The format that a file's ending names: `.conll`, `.txt` and `.tsv`, or `.jsonl`, `.ndjson` and `.parquet`.
    ///
    /// # Errors
    /// Fails if the ending is another one.
    pub fn of(path: &Path) -> Result<Self, DataError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "conll" | "txt" | "tsv" => Ok(Self::Columns),
            "jsonl" | "ndjson" | "parquet" => Ok(Self::Records),
            _ => {
                let expected = ".conll, .txt, .tsv, .jsonl or .parquet";
                let problem = format!("has an ending that tells no format of tagged sentences: expected {expected}");
                Err(InputError::in_file(path, problem).into())
            }
        }
    }

    /// The line of a token of a sentence.
    fn line(self, sentence: &TaggedSentence, token: usize) -> usize {
        match self {
            Self::Columns => sentence.line + token,
            Self::Records => sentence.line,
        }
    }
}

/// Reads the sentences of a file, in their order, with tags of this scheme; those of IOB1 come as IOB2. Lines that begin with
/// `-DOCSTART-` are skipped, and so is a byte order mark.
///
/// # Errors
/// Fails if the file is missing, empty, not UTF-8 or of no known ending, if a line lacks a column or a key, a sentence has no
/// token, or not a tag for each, or if a tag is none of the scheme; always with the line.
pub fn read(path: &Path, scheme: TagScheme) -> Result<Vec<TaggedSentence>, DataError> {
    let format = TaggedFormat::of(path)?;
    let mut sentences = match format {
        TaggedFormat::Columns => columns::read(path)?,
        TaggedFormat::Records => records::read(path)?,
    };
    if sentences.is_empty() {
        let advice = "give a file with a token and its tag a line";
        return Err(InputError::in_file(path, "holds no sentence").advise(advice).into());
    }
    for sentence in &mut sentences {
        scheme.settle(&mut sentence.tags).map_err(|(token, reason)| {
            let problem = format!("has the tag `{}`, which {reason}", shortened(&sentence.tags[token]));
            InputError::at_line(path, format.line(sentence, token), problem)
        })?;
    }
    Ok(sentences)
}

/// The tags of the sentences that a model is trained on, sorted.
///
/// # Errors
/// Fails if there are fewer than two different ones.
pub fn tags_of<'a>(sentences: impl IntoIterator<Item = &'a TaggedSentence>) -> Result<Labels, DataError> {
    let tags = sentences.into_iter().flat_map(|sentence| &sentence.tags);
    let mut names: Vec<String> = tags.cloned().collect();
    names.sort_unstable();
    names.dedup();
    Labels::new(names)
}

/// The numbers of the tags of sentences, which were read from `path`.
///
/// # Errors
/// Fails at the first tag that is not among these, with its line.
pub fn tag_ids(tags: &Labels, path: &Path, sentences: &[TaggedSentence]) -> Result<Vec<Vec<usize>>, DataError> {
    let format = TaggedFormat::of(path)?;
    let id = |sentence: &TaggedSentence, (token, tag): (usize, &String)| {
        let unknown = || {
            let problem = format!(
                "has the tag `{}` of the token `{}`, which the training did not have: the known tags are {}",
                shortened(tag),
                shortened(&sentence.tokens[token]),
                listed(tags.names())
            );
            InputError::at_line(path, format.line(sentence, token), problem)
        };
        tags.id(tag).ok_or_else(|| unknown().into())
    };
    let of_sentence =
        |sentence: &TaggedSentence| sentence.tags.iter().enumerate().map(|tag| id(sentence, tag)).collect();
    sentences.iter().map(of_sentence).collect()
}

/// The words and marks of a text, as stretches of its bytes: white space parts them, and every punctuation mark stands alone, as
/// in BERT's tokenizer.
pub fn words_of(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut parts = PreTokenizedString::from(text);
    match BertPreTokenizer.pre_tokenize(&mut parts) {
        Ok(()) => {
            let splits = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
            splits.into_iter().map(|(_, (begin, end), _)| begin..end).collect()
        }
        Err(error) => unreachable!("cutting at white space and marks cannot fail: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read_as(name: &str, content: &str, scheme: TagScheme) -> Result<Vec<TaggedSentence>, DataError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        fs::write(&path, content).unwrap();
        read(&path, scheme)
    }

    fn sentence(tokens: &str, tags: &str, line: usize) -> TaggedSentence {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        TaggedSentence { tokens: words(tokens), tags: words(tags), line }
    }

    #[test]
    fn columns_and_json_lines_hold_the_same_sentences() {
        let expected = |lines: [usize; 2]| {
            [sentence("Ada \u{c9}va wrote", "B-PER I-PER O", lines[0]), sentence("London", "B-LOC", lines[1])]
        };
        let blanks = "\u{feff}-DOCSTART- -X- -X- O\n\nAda NNP I-NP B-PER\r\n\u{c9}va  NNP I-NP I-PER\nwrote VB I-VP O \n\n \n\
                      -DOCSTART-\nLondon NNP I-NP B-LOC";
        assert_eq!(read_as("a.txt", blanks, TagScheme::Iob2).unwrap(), expected([3, 9]));
        let tabs = "Ada\tB-PER\n\u{c9}va\tI-PER\nwrote\tO\n\nLondon\tB-LOC\n";
        assert_eq!(read_as("a.conll", tabs, TagScheme::Iob2).unwrap(), expected([1, 5]));
        let json = "{\"tokens\": [\"Ada\", \"\u{c9}va\", \"wrote\"], \"tags\": [\"B-PER\", \"I-PER\", \"O\"], \"id\": 3}\n\n\
                    {\"tags\": [\"B-LOC\"], \"tokens\": [\"London\"]}\n";
        assert_eq!(read_as("a.JSONL", json, TagScheme::Iob2).unwrap(), expected([1, 3]));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line_and_the_way_out() {
        let message = |name: &str, content: &str| {
            let error = read_as(name, content, TagScheme::Iob2).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        let check =
            |found: String, parts: &[&str]| parts.iter().for_each(|part| assert!(found.contains(part), "{found}"));
        check(message("a.csv", "a,O"), &["a.csv", "expected .conll, .txt, .tsv, .jsonl or .parquet"]);
        check(message("a.txt", ""), &["is empty"]);
        check(message("a.txt", "\n-DOCSTART- O\n\n"), &["no sentence"]);
        check(message("a.txt", "a O\nb\n"), &["line 2 of `", "one column", "a token and its tag"]);
        check(message("a.txt", "a N O\nb O\n"), &["line 2 of `", "has 2 columns", "expected 3"]);
        check(message("a.tsv", "a\tO\n\tO\n"), &["line 2 of `", "token 2", "is empty"]);
        check(message("a.txt", "a O\n\nb O\nc PER\n"), &["line 4 of `", "`PER`", "scheme = \"plain\""]);
        check(message("a.txt", "a O\nb I-PER\n"), &["line 2 of `", "`I-PER`", "begins with `B-PER`", "\"iob1\""]);
        check(message("a.txt", "a B-LOC\nb I-PER\n"), &["line 2 of `", "`I-PER`", "behind `B-LOC`"]);
        check(message("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": []}"), &["line 1 of `", "1 token", "0 tags"]);
        check(message("a.jsonl", "{\"tokens\": [], \"tags\": []}"), &["line 1 of `", "no token"]);
        check(message("a.jsonl", "{\"tokens\": [\"\"], \"tags\": [\"O\"]}"), &["line 1 of `", "token 1", "is empty"]);
        check(message("a.jsonl", "{\"tokens\": \"a\", \"tags\": []}"), &["its `tokens` is a text and not a list"]);
        check(message("a.jsonl", "{\"tokens\": [1], \"tags\": [[]]}"), &["its `tags` has an array among its texts"]);
        check(message("a.jsonl", "{\"tokens\": [\"a\"], \"ner\": []}"), &["lacks the key `tags`"]);
        check(message("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [\"I-A\"]}"), &["line 1 of `", "`I-A`"]);
        let long = message("a.txt", &format!("a O\nb B-{0}\nc I-{0}x\n", "y".repeat(1_000_000)));
        assert!(long.starts_with("line 3 of `") && long.len() < 600, "{long}");
    }

    #[test]
    fn a_tag_unseen_in_training_is_named_with_its_line_and_token() {
        let tags = tags_of(&[sentence("a b c", "O B-A O", 1)]).unwrap();
        assert_eq!(tags.names(), ["B-A", "O"]);
        let path = Path::new("dev.conll");
        assert_eq!(tag_ids(&tags, path, &[sentence("x y", "B-A O", 1)]).unwrap(), [[0, 1]]);
        let error = tag_ids(&tags, path, &[sentence("x y", "O B-B", 7)]).unwrap_err().to_string();
        for part in ["line 8 of `dev.conll`", "`B-B`", "`y`", "B-A, O"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(tags_of(&[sentence("a", "O", 1)]).unwrap_err().to_string().contains("there is 1 label (O)"));
    }

    #[test]
    fn a_text_is_cut_at_white_space_and_marks() {
        let text = "In S\u{e3}o Paulo, (U.N.)  don't\u{a0}\u{4e2d}";
        let words: Vec<&str> = words_of(text).into_iter().map(|range| &text[range]).collect();
        let expected = ["In", "S\u{e3}o", "Paulo", ",", "(", "U", ".", "N", ".", ")", "don", "'", "t", "\u{4e2d}"];
        assert_eq!(words, expected);
        assert!(words_of(" \n").is_empty() && words_of("").is_empty());
    }
}
