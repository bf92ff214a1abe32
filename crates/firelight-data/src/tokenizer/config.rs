//! Which tokenizer a recipe asks for. In TOML: `tokenizer = "char"`, `"byte"`, `"bpe:4096"`, or the same in full,
//! `{ kind = "bpe", vocab_size = 4096 }`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::DataError;

/// The tokenizer of a run.
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
}

impl fmt::Display for TokenizerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Char => f.write_str("char"),
            Self::Byte => f.write_str("byte"),
            Self::Bpe { vocab_size } => write!(f, "bpe:{vocab_size}"),
        }
    }
}

impl FromStr for TokenizerConfig {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let unknown = || DataError::TokenizerName { name: name.into() };
        match (name, name.strip_prefix("bpe:")) {
            ("char", _) => Ok(Self::Char),
            ("byte", _) => Ok(Self::Byte),
            (_, Some(size)) => size.parse().map(|vocab_size| Self::Bpe { vocab_size }).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl Serialize for TokenizerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bpe { vocab_size } => {
                let mut table = serializer.serialize_map(Some(2))?;
                table.serialize_entry("kind", "bpe")?;
                table.serialize_entry("vocab_size", vocab_size)?;
                table.end()
            }
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for TokenizerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrTable)
    }
}

/// The table form as it is written; `vocab_size` belongs to bpe alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: String,
    vocab_size: Option<usize>,
}

/// Reads either form, with an error that tells both.
struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = TokenizerConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"char\", \"byte\" or { kind = \"bpe\", vocab_size = N }")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<TokenizerConfig, E> {
        name.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TokenizerConfig, A::Error> {
        let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
        match (table.kind.as_str(), table.vocab_size) {
            ("bpe", Some(vocab_size)) => Ok(TokenizerConfig::Bpe { vocab_size }),
            ("bpe", None) => Err(de::Error::missing_field("vocab_size")),
            (kind, None) => self.visit_str(kind),
            (kind, Some(_)) => Err(de::Error::custom(format!("a `{kind}` tokenizer takes no vocab_size"))),
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
        assert!(message(r#""word""#).contains("`word` is no tokenizer: expected `char`, `byte` or `bpe:N`"));
        assert!(message("3").contains(r#"expected "char", "byte" or { kind = "bpe", vocab_size = N }"#));
        assert!(message(r#"{"kind":"bpe"}"#).contains("missing field `vocab_size`"));
        assert!(message(r#"{"kind":"char","vocab_size":9}"#).contains("takes no vocab_size"));
        assert!(message(r#"{"kind":"bpe","vocab":9}"#).contains("unknown field `vocab`"));
    }
}
