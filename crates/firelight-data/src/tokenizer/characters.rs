//! One token a character, in the order of the characters. In the file this is a WordLevel model behind a pre-tokenizer
//! that cuts everywhere; encoding itself is a look-up, so that an error can tell where it happened.

use std::collections::{BTreeSet, HashMap};

use tokenizers::decoders::fuse::Fuse;
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{Model, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::failure;
use firelight_storage::InputError;

use crate::DataError;

/// Matches any one character, line feeds too, in the regular expressions of Rust and of Oniguruma alike.
const ANY_CHARACTER: &str = r"[\s\S]";

/// The vocabulary, by character.
#[derive(Clone, Debug)]
pub(super) struct Characters(HashMap<char, u32>);

/// Makes a tokenizer of the distinct characters of a text.
pub(super) fn train(text: &str) -> Result<tokenizers::Tokenizer, DataError> {
    let characters: BTreeSet<char> = text.chars().collect();
    if characters.is_empty() {
        let problem = "a character tokenizer needs a text to take its characters from, but the text is empty";
        return Err(InputError::new(problem).into());
    }
    let vocabulary = (0..).zip(characters).map(|(id, character)| (character.to_string(), id)).collect();
    let model = WordLevel::builder().vocab(vocabulary).build().map_err(failure)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(every_character().map_err(failure)?)).with_decoder(Some(Fuse::new()));
    Ok(tokenizer)
}

/// The pre-tokenizer that cuts between any two characters.
fn every_character() -> tokenizers::Result<Split> {
    Split::new(SplitPattern::Regex(ANY_CHARACTER.into()), SplitDelimiterBehavior::Isolated, false)
}

/// Whether a WordLevel tokenizer is one of characters.
pub(super) fn are_tokens(tokenizer: &tokenizers::Tokenizer) -> bool {
    let cuts = match tokenizer.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::Split(split)) => every_character().is_ok_and(|every| every == *split),
        _ => false,
    };
    cuts && tokenizer.get_normalizer().is_none()
        && tokenizer.get_model().get_vocab().keys().all(|token| single(token).is_some())
}

impl Characters {
    /// The vocabulary of such a tokenizer.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Self {
        let vocabulary = tokenizer.get_model().get_vocab();
        Self(vocabulary.iter().filter_map(|(token, &id)| Some((single(token)?, id))).collect())
    }

    /// The ids of a text's characters.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        text.char_indices()
            .map(|(offset, character)| {
                self.0.get(&character).copied().ok_or_else(|| self.unknown(&text[..offset], character))
            })
            .collect()
    }

    /// The error for a character, with the place that the text before it tells.
    fn unknown(&self, before: &str, character: char) -> DataError {
        let line_start = before.rfind('\n').map_or(0, |offset| offset + 1);
        DataError::UnknownCharacter {
            character,
            position: before.chars().count(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            vocab_size: self.0.len(),
        }
    }
}

/// The character that is all of a token.
fn single(token: &str) -> Option<char> {
    let mut characters = token.chars();
    characters.next().filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use crate::{DataError, Tokenizer, TokenizerConfig, TokenizerKind};

    #[test]
    fn ids_follow_the_order_of_the_characters() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "hello, \u{e9}\n").unwrap();
        // '\n' ' ' ',' 'e' 'h' 'l' 'o' 'é'
        assert_eq!((tokenizer.kind(), tokenizer.vocab_size()), (TokenizerKind::Char, 8));
        assert_eq!(tokenizer.encode("oh \u{e9}\n").unwrap(), [6, 4, 1, 7, 0]);
        assert_eq!(tokenizer.decode(&[4, 3, 5, 5, 6]), "hello");
        assert_eq!(tokenizer.token(7).as_deref(), Some("\u{e9}"));
    }

    #[test]
    fn a_character_outside_the_vocabulary_is_located() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "ab\u{e9}\n").unwrap();
        let error = tokenizer.encode("\u{e9}a\n\u{e9}b\u{e9}Zab").unwrap_err();
        assert!(
            matches!(
                error,
                DataError::UnknownCharacter { character: 'Z', position: 6, line: 2, column: 4, vocab_size: 4 }
            ),
            "{error}"
        );
        let first = tokenizer.encode("?").unwrap_err();
        assert!(matches!(first, DataError::UnknownCharacter { position: 0, line: 1, column: 1, .. }), "{first}");
    }

    #[test]
    fn no_text_has_no_characters() {
        let error = Tokenizer::train(&TokenizerConfig::Char, "").unwrap_err();
        assert!(error.to_string().contains("the text is empty") && error.is_user_error(), "{error}");
    }
}
