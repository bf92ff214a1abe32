//! Text to token ids and back: a thin type over Hugging Face's `tokenizers` crate, which reads, trains and runs every
//! `tokenizer.json`. [`TokenizerConfig`] names the sorts that are trained here, from the text of a run; any other one is loaded and
//! does what its file says.
//!
//! Three things differ from the crate. What a user types is text, even where it looks like a special token. A file's truncation and
//! padding are off, because they would silently lose or add text. And a long text is cut into parts where that changes no id,
//! because the crate needs some hundred bytes of memory for each byte of text it works on.

mod agreement;
mod bpe;
mod byte_level;
mod byte_pairs;
mod characters;
mod config;
#[cfg(test)]
mod drawn;
mod file;
mod frame;
#[cfg(test)]
mod goldens;
#[cfg(test)]
mod hard_strings;
mod json;
mod kind;
mod offsets;
mod roles;
mod sentence_piece;
mod settings;
mod special;
#[cfg(test)]
mod tests;
mod token_bytes;
mod unigram;
mod vocabulary;
mod windows;
mod word_piece;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokenizers::PostProcessorWrapper;

pub use config::TokenizerConfig;
pub use frame::Frame;
pub use kind::TokenizerKind;
pub use roles::SpecialRole;
pub use sentence_piece::{PieceKind, PieceList};
pub use windows::{Cut, TextWindow, WindowOptions};

use crate::{DataError, TextStream};
use characters::Characters;
use roles::Roles;

/// Turns text into token ids and token ids into text.
///
/// Special tokens have ids that no text is ever turned into, and stand for no text: a task puts them where it needs them, by their
/// [role](SpecialRole).
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// All but its post-processor, which trims the places of tokens too; texts are cut before that.
    inner: Arc<tokenizers::Tokenizer>,
    processor: Option<PostProcessorWrapper>,
    /// The same, reading special tokens in texts; made when somebody asks for it.
    reading_special: OnceLock<Arc<tokenizers::Tokenizer>>,
    kind: TokenizerKind,
    /// Whether a long text may be cut before white space.
    may_cut: bool,
    /// One character a token is a look-up, so that an error can tell where it happened.
    characters: Option<Arc<Characters>>,
    roles: Roles,
    vocab_size: usize,
    /// Where it was read from.
    file: Option<Arc<Path>>,
}

impl Tokenizer {
    /// Makes a tokenizer from a text: its characters, words, most frequent byte pairs, likeliest pieces, or, for bytes,
    /// nothing. One that is there already, in a file, is [loaded](Self::load).
    ///
    /// Equal texts give equal tokenizers. A vocabulary has fewer tokens than asked for if the text has no more pairs or
    /// pieces.
    ///
    /// # Errors
    /// Fails if there is no character or no word that is frequent enough, or if a vocabulary of BPE or Unigram is smaller
    /// than 256 tokens, one of WordPiece smaller than its alphabet, or one larger than this text can fill; and as
    /// [`load`](Self::load).
    pub fn train(config: &TokenizerConfig, text: &str) -> Result<Self, DataError> {
        let inner = match *config {
            TokenizerConfig::File { ref path } => return Self::load(path),
            TokenizerConfig::Char => characters::train(text)?,
            TokenizerConfig::Byte => bpe::bytes()?,
            TokenizerConfig::Bpe { vocab_size } => bpe::train(text, vocab_size)?,
            TokenizerConfig::SentenceBpe { vocab_size } => bpe::train_on_sentences(text, vocab_size)?,
            TokenizerConfig::Unigram { vocab_size } => unigram::train(text, vocab_size)?,
            TokenizerConfig::Word { min_frequency } => words::train(text, min_frequency)?,
            TokenizerConfig::WordPiece { vocab_size } => word_piece::train(text, vocab_size)?,
        };
        Self::of(inner, None).map_err(|reason| DataError::Tokenizer { reason })
    }

    /// Turns text into ids, without any special token: what looks like one is text.
    ///
    /// # Errors
    /// Fails at the first character outside the vocabulary of a [`TokenizerKind::Char`], and where a file from elsewhere has no token
    /// for what it does not know.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match (&self.characters, self.kind) {
            (Some(characters), _) => characters.encode(text),
            (None, TokenizerKind::Byte) => Ok(text.bytes().map(u32::from).collect()),
            (None, _) => byte_level::encode_parts(&self.inner, &self.parts(text)),
        }
    }

    /// Bytes at the beginning of a text that give the same ids, however the text goes on: it may be encoded in parts, this one and what
    /// follows.
    pub fn settled(&self, text: &str) -> usize {
        match self.kind {
            TokenizerKind::Char | TokenizerKind::Byte => text.len(),
            _ => text.len() - self.parts(text).last().map_or(0, |last| last.len()),
        }
    }

    /// Turns text into ids, where the special tokens that it spells are special tokens: for prompts that a program puts together.
    /// None is added around it.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(&["</s>"]).unwrap();
    /// assert_eq!(bytes.encode_with_special("a</s>").unwrap(), [97, 256]);
    /// assert_eq!(bytes.encode("a</s>").unwrap().len(), 5);
    /// ```
    ///
    /// # Errors
    /// Fails where the vocabulary lacks something and has no token for what it does not know.
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let reading = self.reading_special.get_or_init(|| {
            let mut inner = tokenizers::Tokenizer::clone(&self.inner);
            inner.set_encode_special_tokens(false);
            Arc::new(inner)
        });
        Ok(guarded(|| reading.encode_fast(text, false))?.get_ids().to_vec())
    }

    /// Turns ids into text, as the file says. Special tokens and ids that are none are skipped; bytes that are no UTF-8 become U+FFFD.
    ///
    /// For characters, bytes, BPE and Unigram of this library this is the text that was encoded. Words outside a vocabulary of words
    /// are lost and the white space between words is one space each; WordPiece loses case and accents too, and puts spaces around
    /// marks.
    pub fn decode(&self, ids: &[u32]) -> String {
        decode(&self.inner, ids)
    }

    /// Starts to decode ids one by one.
    pub fn stream(&self) -> TextStream {
        self.stream_after(&[])
    }

    /// Starts to decode ids that go on with others, such as a prompt: some tokenizers leave out the space in front of a text, which
    /// these ids do not begin.
    pub fn stream_after(&self, before: &[u32]) -> TextStream {
        TextStream::new(self.inner.clone(), before)
    }

    /// How many ids are real: each is below it, and there may be holes. A model may know more; the rest is never produced or read.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The token of an id as the file spells it, for display; none for an id that is no token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Which sort of tokenizer this is.
    pub fn kind(&self) -> TokenizerKind {
        self.kind
    }

    /// Makes a tokenizer of the crate's, with what is said of its special tokens beside its file; the error is what is wrong with it.
    fn of(mut inner: tokenizers::Tokenizer, named: Option<&roles::Named>) -> Result<Self, String> {
        // What a user types is text, even where it looks like a special token.
        inner.set_encode_special_tokens(true);
        let (kind, roles) = (TokenizerKind::of(&inner), Roles::of(&inner, named));
        let processor = inner.get_post_processor().cloned();
        inner.with_padding(None).with_post_processor(None::<PostProcessorWrapper>);
        Ok(Self {
            processor,
            kind,
            roles,
            may_cut: kind.is_cut_at_white_space() && !byte_level::takes_white_space(&inner),
            characters: (kind == TokenizerKind::Char).then(|| Arc::new(Characters::of(&inner))),
            vocab_size: file::vocab_size(&inner)?,
            reading_special: OnceLock::new(),
            inner: Arc::new(inner),
            file: None,
        })
    }

    /// The tokenizer as it stands in its file.
    fn file(&self) -> tokenizers::Tokenizer {
        let mut inner = tokenizers::Tokenizer::clone(&self.inner);
        inner.with_post_processor(self.processor.clone());
        inner
    }

    /// The parts of a text that can be encoded one by one.
    fn parts<'a>(&self, text: &'a str) -> Vec<&'a str> {
        match self.kind {
            _ if !self.may_cut => vec![text],
            TokenizerKind::WordPiece => word_piece::parts(text).collect(),
            _ => byte_level::parts(text).collect(),
        }
    }
}

/// Converts an error of the `tokenizers` crate, which has no types.
fn failure(error: tokenizers::Error) -> DataError {
    DataError::Tokenizer { reason: error.to_string() }
}

/// The text of ids; none where the file's decoder fails.
pub(crate) fn decode(tokenizer: &tokenizers::Tokenizer, ids: &[u32]) -> String {
    guarded(|| tokenizer.decode(ids, true)).unwrap_or_default()
}

/// Runs what the crate does with a text. A part of a file that is damaged, such as a precompiled normalizer, makes it panic here.
pub(crate) fn guarded<R>(work: impl FnOnce() -> tokenizers::Result<R>) -> Result<R, DataError> {
    let panicked = |_| DataError::Tokenizer { reason: "the `tokenizers` crate panics: its file may be damaged".into() };
    catch_unwind(AssertUnwindSafe(work)).map_err(panicked)?.map_err(failure)
}
