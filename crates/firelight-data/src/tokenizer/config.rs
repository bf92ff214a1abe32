//! Which tokenizer a recipe asks for. In TOML: `tokenizer = "char"`, `"byte"`, `"bpe:4096"`, `"word:2"`, or the same in full,
//! `{ kind = "bpe", vocab_size = 4096 }`; `"file:tokenizer.json"` is one that is there already.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::TokenizerKind;
use firelight_storage::{InputError, shortened};

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
    /// Whether it is that of a file, and nothing is trained.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }

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

    /// The kind, and what it takes, under the key of it.
    fn parts(&self) -> (&'static str, Option<(&'static str, Argument<'_>)>) {
        let vocabulary = |&vocab_size| Some((VOCAB_SIZE, Argument::Number(vocab_size)));
        match self {
            Self::Char => ("char", None),
            Self::Byte => ("byte", None),
            Self::Bpe { vocab_size } => ("bpe", vocabulary(vocab_size)),
            Self::SentenceBpe { vocab_size } => ("sentence_bpe", vocabulary(vocab_size)),
            Self::Unigram { vocab_size } => ("unigram", vocabulary(vocab_size)),
            Self::Word { min_frequency } => ("word", Some((MIN_FREQUENCY, Argument::Number(*min_frequency)))),
            Self::WordPiece { vocab_size } => ("word_piece", vocabulary(vocab_size)),
            Self::File { path } => ("file", Some((PATH, Argument::Path(path)))),
        }
    }

    /// The tokenizer of a kind with what is given.
    fn of_kind<E>(kind: &str, given: &mut impl Given<E>) -> Result<Self, E> {
        Ok(match kind {
            "char" => Self::Char,
            "byte" => Self::Byte,
            "bpe" => Self::Bpe { vocab_size: given.number(VOCAB_SIZE)? },
            "sentence_bpe" => Self::SentenceBpe { vocab_size: given.number(VOCAB_SIZE)? },
            "unigram" => Self::Unigram { vocab_size: given.number(VOCAB_SIZE)? },
            "word" => Self::Word { min_frequency: given.number(MIN_FREQUENCY)? },
            "word_piece" => Self::WordPiece { vocab_size: given.number(VOCAB_SIZE)? },
            "file" => Self::File { path: given.path(PATH)? },
            _ => return Err(given.unknown()),
        })
    }
}

const VOCAB_SIZE: &str = "vocab_size";
const MIN_FREQUENCY: &str = "min_frequency";
const PATH: &str = "path";

/// What a kind takes beside its name.
#[derive(Serialize)]
#[serde(untagged)]
enum Argument<'a> {
    Number(usize),
    Path(&'a Path),
}

impl fmt::Display for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// What stands beside the name of a kind; each part is taken away as it is read.
trait Given<E> {
    fn number(&mut self, key: &'static str) -> Result<usize, E>;
    fn path(&mut self, key: &'static str) -> Result<PathBuf, E>;
    fn unknown(&self) -> E;
}

impl fmt::Display for TokenizerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (kind, None) => f.write_str(kind),
            (kind, Some((_, argument))) => write!(f, "{kind}:{argument}"),
        }
    }
}

/// The short form: a name, and behind a colon its argument.
struct Name<'a> {
    whole: &'a str,
    argument: Option<&'a str>,
}

impl Given<DataError> for Name<'_> {
    fn number(&mut self, _: &'static str) -> Result<usize, DataError> {
        self.argument.take().and_then(|number| number.parse().ok()).ok_or_else(|| self.unknown())
    }

    fn path(&mut self, _: &'static str) -> Result<PathBuf, DataError> {
        self.argument.take().filter(|path| !path.is_empty()).map(PathBuf::from).ok_or_else(|| self.unknown())
    }

    fn unknown(&self) -> DataError {
        no_tokenizer(self.whole).into()
    }
}

impl FromStr for TokenizerConfig {
    type Err = DataError;

    fn from_str(whole: &str) -> Result<Self, DataError> {
        let (kind, argument) = whole.split_once(':').map_or((whole, None), |(kind, argument)| (kind, Some(argument)));
        let mut name = Name { whole, argument };
        let config = Self::of_kind(kind, &mut name)?;
        if name.argument.is_none() { Ok(config) } else { Err(name.unknown()) }
    }
}

impl Serialize for TokenizerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, argument) = self.parts();
        let Some((key, argument)) = argument else { return serializer.serialize_str(kind) };
        let mut table = serializer.serialize_map(Some(2))?;
        table.serialize_entry("kind", kind)?;
        table.serialize_entry(key, &argument)?;
        table.end()
    }
}

impl<'de> Deserialize<'de> for TokenizerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrTable)
    }
}

/// The table form as it is written; which of the others belongs to it depends on the kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: String,
    vocab_size: Option<usize>,
    min_frequency: Option<usize>,
    path: Option<PathBuf>,
}

impl Table {
    /// The key of something that nobody took.
    fn left(&self) -> Option<&'static str> {
        let vocab_size = self.vocab_size.map(|_| VOCAB_SIZE);
        vocab_size.or(self.min_frequency.map(|_| MIN_FREQUENCY)).or(self.path.as_ref().map(|_| PATH))
    }
}

impl<E: de::Error> Given<E> for Table {
    fn number(&mut self, key: &'static str) -> Result<usize, E> {
        let number = if key == VOCAB_SIZE { self.vocab_size.take() } else { self.min_frequency.take() };
        number.ok_or_else(|| E::missing_field(key))
    }

    fn path(&mut self, key: &'static str) -> Result<PathBuf, E> {
        self.path.take().ok_or_else(|| E::missing_field(key))
    }

    fn unknown(&self) -> E {
        E::custom(no_tokenizer(&self.kind))
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
        let kind = table.kind.clone();
        let config = TokenizerConfig::of_kind(&kind, &mut table)?;
        match table.left() {
            Some(key) => Err(de::Error::custom(format!("a `{kind}` tokenizer takes no {key}"))),
            None => Ok(config),
        }
    }
}

/// A name that no tokenizer has.
fn no_tokenizer(name: &str) -> InputError {
    InputError::new(format!(
        "`{}` is no tokenizer: expected `char`, `byte`, `bpe:N`, `sentence_bpe:N`, `unigram:N` or `word_piece:N` with N tokens, \
         such as `bpe:4096`, `word:N` with the words that occur N times or more, or `file:PATH` with a tokenizer.json",
        shortened(name)
    ))
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
