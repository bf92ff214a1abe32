//! Special tokens: ids behind the vocabulary for begin, end, padding and the like. A task puts them into its sequences
//! itself; no text is encoded as one, and decoding skips them. In the file they are `added_tokens` with `special: true`.

use std::sync::Arc;

use tokenizers::AddedToken;

use super::{Tokenizer, roles};
use firelight_storage::{InputError, shortened};

use crate::DataError;

impl Tokenizer {
    /// Adds special tokens, with the next ids behind the vocabulary, in this order.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    /// let tokenizer = bytes.with_special_tokens(&["<pad>", "<s>", "</s>"]).unwrap();
    /// assert_eq!(tokenizer.special("</s>"), Some(258));
    /// assert_eq!(tokenizer.decode(&[257, 72, 105, 258, 256]), "Hi");
    /// assert_eq!(tokenizer.encode("</s>").unwrap().len(), 4); // text, as everything that a user types
    /// ```
    ///
    /// # Errors
    /// Fails if a token is empty, occurs twice, or is in the vocabulary already.
    pub fn with_special_tokens(self, tokens: &[&str]) -> Result<Self, DataError> {
        self.check_special(tokens)?;
        let expected = self.vocab_size() + tokens.len();
        let tokens: Vec<AddedToken> = tokens.iter().map(|&token| AddedToken::from(token, true)).collect();
        let tokenizer = self.changed(|inner| {
            inner.add_special_tokens(&tokens);
        })?;
        let reason = || "its vocabulary leaves out ids, so that none can be added behind it".into();
        match tokenizer.vocab_size() == expected {
            true => Ok(tokenizer),
            false => Err(DataError::Tokenizer { reason: reason() }),
        }
    }

    /// The tokenizer with a change. Roles that were named beside its file stay.
    pub(super) fn changed(self, change: impl FnOnce(&mut tokenizers::Tokenizer)) -> Result<Self, DataError> {
        let (roles, file) = (self.roles, self.file);
        let mut inner = Arc::unwrap_or_clone(self.inner);
        inner.with_post_processor(self.processor);
        change(&mut inner);
        let changed = Self::of(inner, None).map_err(|reason| DataError::Tokenizer { reason })?;
        Ok(Self { roles: roles.or(changed.roles), file, ..changed })
    }

    /// Adds those of the special tokens that are not there yet, as [`with_special_tokens`](Self::with_special_tokens) does.
    /// WordPiece has some from its training.
    ///
    /// # Errors
    /// Fails if a token is empty, occurs twice, or is in the vocabulary as a token of text.
    pub fn ensure_special_tokens(self, tokens: &[&str]) -> Result<Self, DataError> {
        let missing: Vec<&str> = tokens.iter().copied().filter(|token| self.special(token).is_none()).collect();
        if missing.is_empty() { Ok(self) } else { self.with_special_tokens(&missing) }
    }

    /// The id of a special token; none if it is not one.
    pub fn special(&self, token: &str) -> Option<u32> {
        roles::special(&self.inner, token)
    }

    /// The special tokens with their ids, in the order of these.
    pub fn special_tokens(&self) -> Vec<(u32, String)> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder().iter();
        let special = added.filter(|(_, token)| token.special);
        let mut tokens: Vec<_> = special.map(|(id, token)| (*id, token.content.clone())).collect();
        tokens.sort_unstable();
        tokens
    }

    /// Whether an id is that of a special token.
    pub fn is_special(&self, id: u32) -> bool {
        roles::is_special(&self.inner, id)
    }

    fn check_special(&self, tokens: &[&str]) -> Result<(), DataError> {
        for (number, &token) in tokens.iter().enumerate() {
            let reason = match token {
                "" => "is empty",
                _ if tokens[..number].contains(&token) => "is given twice",
                _ if self.inner.token_to_id(token).is_some() => "is a token of the vocabulary already",
                _ => continue,
            };
            let problem = format!("the special token {:?} {reason}", shortened(token));
            return Err(InputError::new(problem).advise("give another name, such as \"</s>\"").into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokenizerConfig, TokenizerKind};
    use proptest::prelude::*;

    const TEXT: &str = "low lower </s> lowest <pad>\nnew <s>newer newest\n";

    const CONFIGS: [TokenizerConfig; 6] = [
        TokenizerConfig::Char,
        TokenizerConfig::Byte,
        TokenizerConfig::Bpe { vocab_size: 270 },
        TokenizerConfig::SentenceBpe { vocab_size: 270 },
        TokenizerConfig::Unigram { vocab_size: 270 },
        TokenizerConfig::Word { min_frequency: 1 },
    ];

    fn with_specials(config: &TokenizerConfig) -> Tokenizer {
        Tokenizer::train(config, TEXT).unwrap().with_special_tokens(&["<pad>", "<s>", "</s>"]).unwrap()
    }

    #[test]
    fn special_tokens_are_ids_behind_the_vocabulary_that_no_text_gives() {
        for config in CONFIGS {
            let plain = Tokenizer::train(&config, TEXT).unwrap();
            let tokenizer = with_specials(&config);
            let first = plain.vocab_size() as u32;
            assert_eq!(tokenizer.vocab_size(), plain.vocab_size() + 3, "{config}");
            let ids = ["<pad>", "<s>", "</s>", "low"].map(|token| tokenizer.special(token));
            assert!(
                tokenizer.is_special(first) && !tokenizer.is_special(first - 1) && !tokenizer.is_special(first + 3)
            );
            assert_eq!(ids, [Some(first), Some(first + 1), Some(first + 2), None]);
            assert_eq!(tokenizer.encode(TEXT).unwrap(), plain.encode(TEXT).unwrap());
            assert_eq!(tokenizer.kind(), plain.kind());
        }
    }

    #[test]
    fn decoding_skips_them_at_once_and_in_a_stream() {
        for config in CONFIGS {
            let tokenizer = with_specials(&config);
            let [pad, begin, end] = ["<pad>", "<s>", "</s>"].map(|token| tokenizer.special(token).unwrap());
            let ids = tokenizer.encode("new lower").unwrap();
            let middle = ids.len() / 2;
            let framed = [&[begin], &ids[..middle], &[pad], &ids[middle..], &[end, pad]].concat();
            assert_eq!(tokenizer.decode(&framed), "new lower", "{config}");
            let mut stream = tokenizer.stream();
            assert_eq!(framed.iter().filter_map(|&id| stream.push(id)).collect::<String>(), "new lower");
            assert_eq!(stream.finish(), None);
        }
    }

    #[test]
    fn they_come_back_from_the_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        for config in CONFIGS {
            let tokenizer = with_specials(&config);
            tokenizer.save(&path).unwrap();
            let loaded = Tokenizer::load(&path).unwrap();
            assert_eq!((loaded.kind(), loaded.vocab_size()), (tokenizer.kind(), tokenizer.vocab_size()));
            assert_eq!(loaded.special("</s>"), tokenizer.special("</s>"));
            assert_eq!(loaded.encode(TEXT).unwrap(), tokenizer.encode(TEXT).unwrap());
            let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
            assert!(!theirs.get_added_tokens_decoder().is_empty());
            assert!(theirs.get_added_tokens_decoder().values().all(|token| token.special));
            assert_eq!(theirs.token_to_id("</s>"), tokenizer.special("</s>"));
        }
    }

    #[test]
    fn names_that_the_vocabulary_cannot_take_are_refused() {
        let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        assert_eq!(bytes.kind(), TokenizerKind::Byte);
        for (names, reason) in [
            (["<s>", ""], "the special token \"\" is empty"),
            (["<s>", "<s>"], "the special token \"<s>\" is given twice"),
            (["<s>", "a"], "the special token \"a\" is a token of the vocabulary already"),
        ] {
            let error = bytes.clone().with_special_tokens(&names).unwrap_err();
            assert!(error.to_string().starts_with(reason) && error.is_user_error(), "{error}");
        }
        let twice = bytes.with_special_tokens(&["<s>"]).unwrap().with_special_tokens(&["<s>"]);
        assert!(twice.unwrap_err().to_string().contains("the special token \"<s>\""));
    }

    proptest! {
        #[test]
        fn a_stream_gives_what_decoding_gives(ids in prop::collection::vec(0_u32..290, 0..40)) {
            thread_local!(static ALL: [Tokenizer; 6] = CONFIGS.map(|config| with_specials(&config)));
            ALL.with(|all| for tokenizer in all {
                let mut stream = tokenizer.stream();
                let mut text: String = ids.iter().filter_map(|&id| stream.push(id)).collect();
                text.extend(stream.finish());
                assert_eq!(text, tokenizer.decode(&ids), "{:?}", tokenizer.kind());
            });
        }
    }
}
