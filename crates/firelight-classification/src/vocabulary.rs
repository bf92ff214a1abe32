//! The tokenizer of an encoder, with the tokens that it puts around texts.
//!
//! Source: Devlin et al. 2019, §3 (<https://arxiv.org/abs/1810.04805>): `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`,
//! where the pair and the token behind it are the second segment.

use firelight_data::{DataError, Tokenizer};
use firelight_storage::ModelFolder;

use crate::data::EncodedText;
use crate::error::ClassificationError;

/// What stands in the place of a hidden token.
pub(crate) const MASK: &str = "[MASK]";

/// The tokens of their own that an encoder knows: in front of every text, behind every text, and in the place of a hidden one.
const SPECIAL: [&str; 3] = ["[CLS]", "[SEP]", MASK];

/// A tokenizer with the tokens of an encoder.
#[derive(Clone, Debug)]
pub struct TextVocabulary {
    tokenizer: Tokenizer,
    class: u32,
    separator: u32,
    mask: u32,
}

impl TextVocabulary {
    /// Adds the tokens `[CLS]`, `[SEP]` and `[MASK]` where the tokenizer has them not.
    ///
    /// # Errors
    /// If they cannot be added.
    pub fn new(tokenizer: Tokenizer) -> Result<Self, DataError> {
        let missing: Vec<&str> = SPECIAL.into_iter().filter(|token| tokenizer.special(token).is_none()).collect();
        let tokenizer = if missing.is_empty() { tokenizer } else { tokenizer.with_special_tokens(&missing)? };
        let [class, separator, mask] = SPECIAL.map(|token| tokenizer.special(token).unwrap_or_default());
        Ok(Self { tokenizer, class, separator, mask })
    }

    /// Reads the tokenizer of a run folder.
    ///
    /// # Errors
    /// If the file cannot be read, is no tokenizer, or is that of a run of another kind.
    pub fn load(folder: &ModelFolder) -> Result<Self, ClassificationError> {
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        match SPECIAL.into_iter().find(|token| tokenizer.special(token).is_none()) {
            Some(token) => Err(ClassificationError::MissingToken { path: folder.tokenizer(), token }),
            None => Ok(Self::new(tokenizer)?),
        }
    }

    /// Writes the tokenizer into a run folder.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, folder: &ModelFolder) -> Result<(), DataError> {
        self.tokenizer.save(folder.tokenizer())
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The token that stands in the place of a hidden one.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    /// A text in as many pieces of at most `max_len` tokens as it needs, each with the tokens around it; none for an empty text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn pieces(&self, text: &str, max_len: usize) -> Result<Vec<EncodedText>, DataError> {
        let ids = self.tokenizer.encode(text)?;
        let piece = |ids: &[u32]| {
            let ids = [&[self.class], ids, &[self.separator]].concat();
            EncodedText { second_from: ids.len(), ids, is_cut: false }
        };
        Ok(ids.chunks(max_len.saturating_sub(2).max(1)).map(piece).collect())
    }

    /// A text, or a pair, with the tokens around it, cut to `max_len` tokens in all: of a pair the longer text loses its last
    /// tokens, one by one.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(&self, text: &str, pair: Option<&str>, max_len: usize) -> Result<EncodedText, DataError> {
        let pair = pair.map(|pair| self.tokenizer.encode(pair)).transpose()?;
        Ok(self.around().put(self.tokenizer.encode(text)?, pair, max_len))
    }

    /// What stands around texts.
    pub(crate) fn around(&self) -> Around {
        Around { class: self.class, separator: self.separator }
    }
}

/// The tokens that stand around texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    class: u32,
    separator: u32,
}

impl Around {
    /// The tokens of a text, or of a pair, with those around them, cut to `max_len` in all: of a pair the longer text loses its
    /// last tokens, one by one.
    pub(crate) fn put(self, mut first: Vec<u32>, mut second: Option<Vec<u32>>, max_len: usize) -> EncodedText {
        let around = if second.is_some() { 3 } else { 2 };
        let whole = first.len() + second.as_ref().map_or(0, Vec::len) + around;
        let mut over = whole.saturating_sub(max_len);
        while over > 0 && first.len() + second.as_ref().map_or(0, Vec::len) > 0 {
            match &mut second {
                Some(second) if second.len() > first.len() => drop(second.pop()),
                _ => drop(first.pop()),
            }
            over -= 1;
        }
        let mut ids = [&[self.class], &first[..], &[self.separator]].concat();
        let second_from = ids.len();
        if let Some(second) = second {
            ids.extend(second);
            ids.push(self.separator);
        }
        EncodedText { ids, second_from, is_cut: whole > max_len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::TokenizerConfig;

    fn vocabulary() -> TextVocabulary {
        TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Char, "abcdef").unwrap()).unwrap()
    }

    #[test]
    fn texts_and_pairs_stand_between_their_tokens() {
        let vocabulary = vocabulary();
        let text = vocabulary.encode("ab", None, 9).unwrap();
        assert_eq!((text.ids, text.second_from, text.is_cut), (vec![6, 0, 1, 7], 4, false));
        let pair = vocabulary.encode("ab", Some("c"), 9).unwrap();
        assert_eq!((pair.ids, pair.second_from, pair.is_cut), (vec![6, 0, 1, 7, 2, 7], 4, false));
        assert_eq!(vocabulary.mask(), 8);
    }

    #[test]
    fn long_texts_are_cut_and_of_a_pair_the_longer_one() {
        let vocabulary = vocabulary();
        let text = vocabulary.encode("abcdef", None, 4).unwrap();
        assert_eq!((text.ids, text.is_cut), (vec![6, 0, 1, 7], true));
        let pair = vocabulary.encode("abcde", Some("fe"), 7).unwrap();
        assert_eq!((pair.ids, pair.second_from), (vec![6, 0, 1, 7, 5, 4, 7], 4));
        assert_eq!(vocabulary.encode("abc", Some("d"), 1).unwrap().ids, [6, 7, 7]);
    }

    #[test]
    fn a_long_text_comes_in_pieces() {
        let pieces = vocabulary().pieces("abcde", 4).unwrap();
        let ids: Vec<&[u32]> = pieces.iter().map(|piece| piece.ids.as_slice()).collect();
        assert_eq!(ids, [&[6, 0, 1, 7][..], &[6, 2, 3, 7], &[6, 4, 7]]);
        assert!(vocabulary().pieces("", 4).unwrap().is_empty());
    }

    #[test]
    fn the_tokenizer_of_another_task_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), firelight_storage::Existing::Refuse).unwrap();
        Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap().save(folder.tokenizer()).unwrap();
        let error = TextVocabulary::load(&folder).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("has no token `[CLS]`"), "{error}");
        vocabulary().save(&folder).unwrap();
        assert_eq!(TextVocabulary::load(&folder).unwrap().vocab_size(), 9);
    }
}
