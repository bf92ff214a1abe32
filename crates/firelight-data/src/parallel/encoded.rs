//! Pairs as ids, without any special token: a task adds begin and end where its model wants them.

use super::Pair;
use crate::{DataError, Tokenizer};

/// The ids of a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EncodedPair {
    /// Ids of the source.
    pub source: Vec<u32>,
    /// Ids of the target.
    pub target: Vec<u32>,
}

impl EncodedPair {
    /// The ids of a pair by the tokenizers of its sides, which may be one and the same.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(pair: &Pair, source: &Tokenizer, target: &Tokenizer) -> Result<Self, DataError> {
        Ok(Self { source: source.encode(&pair.source)?, target: target.encode(&pair.target)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;

    #[test]
    fn every_side_has_its_tokenizer() {
        let [lower, upper] = ["ab", "AB"].map(|text| Tokenizer::train(&TokenizerConfig::Char, text).unwrap());
        let pair = EncodedPair::encode(&Pair::new("ba", "AB"), &lower, &upper).unwrap();
        assert_eq!(pair, EncodedPair { source: vec![1, 0], target: vec![0, 1] });
        assert!(EncodedPair::encode(&Pair::new("ba", "ab"), &lower, &upper).is_err());
    }
}
