//! Which sort of tokenizer a file holds: one of those that are trained here, of which more is known than their file says, or another one.

use tokenizers::{ModelWrapper, NormalizerWrapper};

use super::{bpe, byte_level, characters, word_piece, words};

/// Which sort of tokenizer this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerKind {
    /// One token a character.
    Char,
    /// One token a byte; the id is the byte's value.
    Byte,
    /// Byte-level byte pair encoding with the pre-tokenizer of GPT-2.
    Bpe,
    /// The same with a space in front of every text.
    SentenceBpe,
    /// Byte-level Unigram with the pre-tokenizer of GPT-2 and a space in front of every text.
    Unigram,
    /// One token a word or punctuation mark.
    Word,
    /// BERT's pieces of lower-case words.
    WordPiece,
    /// Another one, which does what its file says.
    Other,
}

impl TokenizerKind {
    /// Whether such a tokenizer, trained here, can go on with a text, as a language model does: its tokens hold all spaces.
    /// The others decode a text of its own, without a space in front.
    pub fn continues_text(self) -> bool {
        matches!(self, Self::Char | Self::Byte | Self::Bpe | Self::Other)
    }

    /// Whether it cuts before white space that follows something else, whatever stands around.
    pub(super) fn is_cut_at_white_space(self) -> bool {
        matches!(self, Self::Byte | Self::Bpe | Self::Word | Self::WordPiece)
    }

    /// The kind of a tokenizer.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Self {
        let has_space_in_front =
            matches!(tokenizer.get_normalizer(), Some(NormalizerWrapper::Prepend(front)) if front.prepend == " ");
        let is_plain = tokenizer.get_normalizer().is_none();
        let is_gpt2 = byte_level::is_gpt2(tokenizer);
        match tokenizer.get_model() {
            ModelWrapper::WordLevel(_) if characters::are_tokens(tokenizer) => Self::Char,
            ModelWrapper::WordLevel(_) if words::are_tokens(tokenizer) => Self::Word,
            ModelWrapper::BPE(_) if bpe::is_bytes(tokenizer) => Self::Byte,
            ModelWrapper::BPE(_) if is_gpt2 && is_plain => Self::Bpe,
            ModelWrapper::BPE(_) if is_gpt2 && has_space_in_front => Self::SentenceBpe,
            ModelWrapper::Unigram(_) if is_gpt2 && has_space_in_front => Self::Unigram,
            ModelWrapper::WordPiece(_) if word_piece::is_bert(tokenizer) => Self::WordPiece,
            _ => Self::Other,
        }
    }
}
