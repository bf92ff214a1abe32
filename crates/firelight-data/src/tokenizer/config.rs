//! Which tokenizer a recipe asks for. In TOML: `tokenizer = "char"`, `"byte"`, `"bpe:4096"`, `"word:2"`, or the same in full,
//! `{ kind = "bpe", vocab_size = 4096 }`; `"file:tokenizer.json"` is one that is there already.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::TokenizerKind;
use crate::DataError;

/// The tokenizer of a run.
///
/// For running text: `Bpe`. For pairs of sentences: `SentenceBpe`, or `Unigram`. These two put a space in front of every text
/// and take it away again, so that a word at the beginning of a sentence is the word that it is elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerConfig {
    /// `"char"`: one token for each distinct character of the text, ids in the order of the characters, as in nanoGPT's
    /// `shakespeare_char`.
    #[default]
    Char,
    /// `"byte"`: 256 tokens, the bytes of UTF-8.
    Byte,
    /// `{ kind = "bpe", vocab_size = N }`: byte-level byte pair encoding, trained on the text.
    Bpe {
        /// Number of tokens, 256 or more; the 256 bytes are among them.
        vocab_size: usize,
    },
    /// `{ kind = "sentence_bpe", vocab_size = N }`: the same, trained on the lines of the text, each with a space in front.
    SentenceBpe {
        /// Number of tokens, 256 or more; the 256 bytes are among them.
        vocab_size: usize,
    },
    /// `{ kind = "unigram", vocab_size = N }`: the likeliest pieces of words by a Unigram model of bytes, trained on the lines
    /// of the text, each with a space in front.
    Unigram {
        /// Number of tokens, 256 or more; the 256 bytes are among them.
        vocab_size: usize,
    },
    /// `{ kind = "word", min_frequency = N }`: one token a word or punctuation mark.
    ///
    /// Words are what white space and punctuation leave; decoding puts one space between two of them, and none where a
    /// punctuation mark stood without. Other words than those of the vocabulary are one token, `<unk>`.
    Word {
        /// How often a word has to occur in the text to be in the vocabulary; 1 takes all.
        min_frequency: usize,
    },
    /// `{ kind = "word_piece", vocab_size = N }`: BERT's pieces of words in lower case and without accents, for encoders.
    WordPiece {
        /// Number of tokens; the characters of the text and five special tokens are among them.
        vocab_size: usize,
    },
    /// `{ kind = "file", path = "PATH" }`: a `tokenizer.json` as it is, of this library or of another program. Nothing is trained.
    File {
        /// The file, from where the program is started. A run keeps a copy, so only its first start reads this one.
        path: PathBuf,
    },
}

impl TokenizerConfig {
    /// The kind that such a tokenizer is of; none where a file will tell.
    pub fn kind(&self) -> Option<TokenizerKind> {
        Some(match self {
            Self::Char => TokenizerKind::Char,
            Self::Byte => TokenizerKind::Byte,
            Self::Bpe { .. } => TokenizerKind::Bpe,
            Self::SentenceBpe { .. } => TokenizerKind::SentenceBpe,
            Self::Unigram { .. } => TokenizerKind::Unigram,
            Self::Word { .. } => TokenizerKind::Word,
            Self::WordPiece { .. } => TokenizerKind::WordPiece,
            Self::File { .. } => return None,
        })
    }

    /// The kind, and its number with the key of it.
    fn parts(&self) -> (&'static str, Option<(&'static str, usize)>) {
        match *self {
            Self::File { .. } => (FILE, None),
            Self::Char => ("char", None),
            Self::Byte => ("byte", None),
            Self::Bpe { vocab_size } => ("bpe", Some((VOCAB_SIZE, vocab_size))),
            Self::SentenceBpe { vocab_size } => ("sentence_bpe", Some((VOCAB_SIZE, vocab_size))),
            Self::Unigram { vocab_size } => ("unigram", Some((VOCAB_SIZE, vocab_size))),
            Self::Word { min_frequency } => ("word", Some((MIN_FREQUENCY, min_frequency))),
            Self::WordPiece { vocab_size } => ("word_piece", Some((VOCAB_SIZE, vocab_size))),
        }
    }

    /// The tokenizer of a kind; `number` is asked for by its key where the kind has one.
    fn of_kind<E>(
        kind: &str,
        number: impl FnOnce(&'static str) -> Result<usize, E>,
        unknown: impl FnOnce() -> E,
    ) -> Result<Self, E> {
        Ok(match kind {
            "char" => Self::Char,
            "byte" => Self::Byte,
            "bpe" => Self::Bpe { vocab_size: number(VOCAB_SIZE)? },
            "sentence_bpe" => Self::SentenceBpe { vocab_size: number(VOCAB_SIZE)? },
            "unigram" => Self::Unigram { vocab_size: number(VOCAB_SIZE)? },
            "word" => Self::Word { min_frequency: number(MIN_FREQUENCY)? },
            "word_piece" => Self::WordPiece { vocab_size: number(VOCAB_SIZE)? },
            _ => return Err(unknown()),
        })
    }
}

const FILE: &str = "file";
const VOCAB_SIZE: &str = "vocab_size";
const MIN_FREQUENCY: &str = "min_frequency";

impl fmt::Display for TokenizerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (kind, _) if let Self::File { path } = self => write!(f, "{kind}:{}", path.display()),
            (kind, None) => f.write_str(kind),
            (kind, Some((_, number))) => write!(f, "{kind}:{number}"),
        }
    }
}

impl FromStr for TokenizerConfig {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let unknown = || DataError::TokenizerName { name: name.into() };
        if let Some((FILE, path)) = name.split_once(':') {
            return if path.is_empty() { Err(unknown()) } else { Ok(Self::File { path: path.into() }) };
        }
        let (kind, number) = name.split_once(':').map_or((name, None), |(kind, number)| (kind, Some(number)));
        let read = |_| number.and_then(|number| number.parse().ok()).ok_or_else(unknown);
        let config = Self::of_kind(kind, read, unknown)?;
        if config.parts().1.is_some() == number.is_some() { Ok(config) } else { Err(unknown()) }
    }
}

impl Serialize for TokenizerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, number) = self.parts();
        let mut table = match (self, number) {
            (Self::File { .. }, _) | (_, Some(_)) => serializer.serialize_map(Some(2))?,
            _ => return serializer.serialize_str(kind),
        };
        table.serialize_entry("kind", kind)?;
        if let Self::File { path } = self {
            table.serialize_entry("path", path)?;
        }
        if let Some((key, number)) = number {
            table.serialize_entry(key, &number)?;
        }
        table.end()
    }
}

impl<'de> Deserialize<'de> for TokenizerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrTable)
    }
}

/// The table form as it is written; which number belongs to it depends on the kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: String,
    vocab_size: Option<usize>,
    min_frequency: Option<usize>,
    path: Option<PathBuf>,
}

impl Table {
    fn number(&mut self, key: &'static str) -> Option<usize> {
        if key == VOCAB_SIZE { self.vocab_size.take() } else { self.min_frequency.take() }
    }
}

/// Reads either form, with an error that tells both.
struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = TokenizerConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"char\", \"byte\", \"file:PATH\" or { kind = \"bpe\", vocab_size = N }")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<TokenizerConfig, E> {
        name.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TokenizerConfig, A::Error> {
        let mut table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let (kind, path) = (table.kind.clone(), table.path.take());
        let unknown = || de::Error::custom(DataError::TokenizerName { name: kind.clone() });
        let read = |key| table.number(key).ok_or_else(|| de::Error::missing_field(key));
        let config = match path.clone().filter(|_| kind == FILE) {
            Some(path) => TokenizerConfig::File { path },
            None if kind == FILE => return Err(de::Error::missing_field("path")),
            None => TokenizerConfig::of_kind(&kind, read, unknown)?,
        };
        let left = [VOCAB_SIZE, MIN_FREQUENCY].into_iter().find(|key| table.number(key).is_some());
        let left = left.or(path.filter(|_| kind != FILE).map(|_| "path"));
        match left {
            Some(key) => Err(de::Error::custom(format!("a `{kind}` tokenizer takes no {key}"))),
            None => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, to_string};

    #[test]
    fn both_forms_are_read_and_one_is_written() {
        let bpe = TokenizerConfig::Bpe { vocab_size: 512 };
        for (text, config) in [
            (r#""char""#, TokenizerConfig::Char),
            (r#"{"kind":"byte"}"#, TokenizerConfig::Byte),
            (r#""bpe:512""#, bpe.clone()),
            (r#"{"kind":"bpe","vocab_size":512}"#, bpe.clone()),
            (r#""sentence_bpe:512""#, TokenizerConfig::SentenceBpe { vocab_size: 512 }),
            (r#"{"kind":"unigram","vocab_size":512}"#, TokenizerConfig::Unigram { vocab_size: 512 }),
            (r#""word_piece:512""#, TokenizerConfig::WordPiece { vocab_size: 512 }),
            (r#""word:2""#, TokenizerConfig::Word { min_frequency: 2 }),
            (r#"{"kind":"word","min_frequency":2}"#, TokenizerConfig::Word { min_frequency: 2 }),
            (r#""file:a:b.json""#, TokenizerConfig::File { path: "a:b.json".into() }),
            (r#"{"kind":"file","path":"a:b.json"}"#, TokenizerConfig::File { path: "a:b.json".into() }),
        ] {
            assert_eq!(from_str::<TokenizerConfig>(text).unwrap(), config);
            assert_eq!(from_str::<TokenizerConfig>(&to_string(&config).unwrap()).unwrap(), config);
            assert_eq!(config.to_string().parse::<TokenizerConfig>().unwrap(), config);
        }
        assert_eq!(to_string(&bpe).unwrap(), r#"{"kind":"bpe","vocab_size":512}"#);
    }

    #[test]
    fn other_forms_are_refused_with_the_known_ones() {
        let message = |text: &str| from_str::<TokenizerConfig>(text).unwrap_err().to_string();
        assert!(message(r#""words""#).contains("`words` is no tokenizer: expected `char`, `byte`, `bpe:N`"));
        for name in ["word", "bpe:", "bpe:x", "char:3", "word:-1", "file", "file:"] {
            assert!(message(&format!("{name:?}")).contains("is no tokenizer"), "{name}");
        }
        assert!(message("3").contains(r#"expected "char", "byte", "file:PATH" or { kind = "bpe", vocab_size = N }"#));
        assert!(message(r#"{"kind":"bpe"}"#).contains("missing field `vocab_size`"));
        assert!(message(r#"{"kind":"char","vocab_size":9}"#).contains("takes no vocab_size"));
        assert!(message(r#"{"kind":"bpe","vocab_size":9,"min_frequency":1}"#).contains("takes no min_frequency"));
        assert!(message(r#"{"kind":"word","vocab_size":9}"#).contains("missing field `min_frequency`"));
        assert!(message(r#"{"kind":"file"}"#).contains("missing field `path`"));
        assert!(
            message(r#"{"kind":"file","path":"a","vocab_size":9}"#).contains("a `file` tokenizer takes no vocab_size")
        );
        assert!(message(r#"{"kind":"char","path":"a"}"#).contains("a `char` tokenizer takes no path"));
        assert!(message(r#"{"kind":"bpe","vocab":9}"#).contains("unknown field `vocab`"));
    }
}
