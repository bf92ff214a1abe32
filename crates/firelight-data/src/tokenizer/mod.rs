//! Text to token ids and back: characters, bytes, words, byte-level BPE, Unigram or WordPiece. Trained by the task crates from the text
//! of a run, loaded again by everything that needs the model. Saved as `tokenizer.json` in the format of Hugging Face's
//! `tokenizers`, which also trains and runs BPE, Unigram, WordPiece and words here.

mod bpe;
mod byte_level;
mod characters;
mod config;
mod file;
mod offsets;
mod pieces;
mod special;
mod unigram;
mod word_piece;
mod words;

use std::path::Path;
use std::sync::Arc;

use firelight_storage::{read_file, write_atomic};
use tokenizers::{Model, ModelWrapper};

pub use config::TokenizerConfig;
pub(crate) use pieces::{Pieces, Seam};

use crate::{DataError, TextStream};
use characters::Characters;
use pieces::Spacing;

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
}

impl TokenizerKind {
    /// Whether what such a tokenizer decodes may go on with a text, as a language model does: its tokens hold all spaces.
    /// The others decode a text of its own, without a space in front.
    pub fn continues_text(self) -> bool {
        matches!(self, Self::Char | Self::Byte | Self::Bpe)
    }
}

/// Turns text into token ids and token ids into text.
///
/// Special tokens have ids that no text is ever turned into, and stand for no text: a task puts them where it needs them.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// The tokenizer as its file describes it, without the space that is put in front of sentences.
    inner: tokenizers::Tokenizer,
    encoder: Encoder,
    pieces: Arc<Pieces>,
}

/// How text becomes ids. Characters and bytes need no machinery, the others run through the `tokenizers` crate.
#[derive(Clone, Debug)]
enum Encoder {
    Char(Characters),
    Byte,
    Bpe,
    SentenceBpe,
    Unigram,
    Word,
    WordPiece,
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
        let sentences = matches!(config, TokenizerConfig::SentenceBpe { .. } | TokenizerConfig::Unigram { .. });
        Self::from_inner(inner, sentences).map_err(|reason| DataError::Tokenizer { reason })
    }

    /// Reads a `tokenizer.json`, written by [`save`](Self::save) or by another program.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is no tokenizer, or is one of another kind than [`TokenizerKind`] lists.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let foreign = |reason| DataError::TokenizerFile { path: path.into(), reason };
        let mut inner = file::parse(&read_file(path, file::LIMIT)?).map_err(foreign)?;
        // A file may ask for cut or padded ids, which would silently lose or add text.
        inner.with_padding(None).with_truncation(None).map_err(|error| foreign(error.to_string()))?;
        let is_for_sentences = byte_level::take_space(&mut inner);
        Self::from_inner(inner, is_for_sentences).map_err(foreign)
    }

    /// Writes the tokenizer to `path`, replacing a file that is there.
    ///
    /// # Errors
    /// Fails if the file cannot be written; an older file is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), DataError> {
        let mut text = self.file().to_string(true).map_err(failure)?;
        text.push('\n');
        Ok(write_atomic(path, text)?)
    }

    /// Turns text into ids.
    ///
    /// # Errors
    /// Fails at the first character outside the vocabulary of a [`TokenizerKind::Char`]. [`TokenizerKind::Word`] and
    /// [`TokenizerKind::WordPiece`] have a token for unknown words, and the others know every text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match &self.encoder {
            Encoder::Char(characters) => characters.encode(text),
            Encoder::Byte => Ok(text.bytes().map(u32::from).collect()),
            Encoder::Bpe | Encoder::Word => byte_level::encode(&self.inner, text),
            Encoder::SentenceBpe | Encoder::Unigram => byte_level::encode(&self.inner, &byte_level::with_space(text)),
            Encoder::WordPiece => byte_level::encode_parts(&self.inner, word_piece::parts(text).collect()),
        }
    }

    /// Turns ids into text. Special tokens are skipped; bytes that are no UTF-8, and ids outside the vocabulary, become
    /// U+FFFD.
    ///
    /// This is the text that was encoded, except that words outside a vocabulary of words are lost and the white space
    /// between words is one space each; WordPiece loses case and accents too, and puts spaces around marks.
    pub fn decode(&self, ids: &[u32]) -> String {
        let (mut bytes, mut seam) = (Vec::new(), Seam::default());
        ids.iter().for_each(|&id| self.pieces.append(id, &mut seam, &mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Starts to decode ids one by one.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.pieces.clone())
    }

    /// Number of ids: each is below it.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The token of an id as the file spells it, for display; none for an id outside the vocabulary.
    ///
    /// All but characters and words spell bytes as printable characters, a space as `\u{120}` for instance. Words mark with
    /// U+FFED where no space stands between them.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether a token goes on with the word of the token before it: with WordPiece a `##` piece, with bytes, characters, BPE and
    /// Unigram one that does not begin with white space. Special tokens and whole words never do.
    pub fn continues_word(&self, id: u32) -> bool {
        !matches!(self.encoder, Encoder::Word) && self.pieces.continues_word(id)
    }

    /// Which sort of tokenizer this is.
    pub fn kind(&self) -> TokenizerKind {
        match self.encoder {
            Encoder::Char(_) => TokenizerKind::Char,
            Encoder::Byte => TokenizerKind::Byte,
            Encoder::Bpe => TokenizerKind::Bpe,
            Encoder::SentenceBpe => TokenizerKind::SentenceBpe,
            Encoder::Unigram => TokenizerKind::Unigram,
            Encoder::Word => TokenizerKind::Word,
            Encoder::WordPiece => TokenizerKind::WordPiece,
        }
    }

    /// The tokenizer as it stands in its file.
    fn file(&self) -> tokenizers::Tokenizer {
        let mut inner = self.inner.clone();
        if self.is_for_sentences() {
            byte_level::write_space(&mut inner);
        }
        inner
    }

    /// Whether every text gets a space in front.
    fn is_for_sentences(&self) -> bool {
        matches!(self.encoder, Encoder::SentenceBpe | Encoder::Unigram)
    }

    /// Recognises the kind of a tokenizer; the error is what was found instead.
    fn from_inner(mut inner: tokenizers::Tokenizer, is_for_sentences: bool) -> Result<Self, String> {
        // What a user types is text, even where it looks like a special token.
        inner.set_encode_special_tokens(true);
        let encoder = Encoder::recognise(&inner, is_for_sentences)?;
        let pieces = match &encoder {
            Encoder::Char(_) => Pieces::of_characters(&inner)?,
            Encoder::Word => Pieces::of_words(&inner)?,
            Encoder::WordPiece => Pieces::of_word_pieces(&inner)?,
            Encoder::Byte | Encoder::Bpe => Pieces::of_bytes(&inner, Spacing::Written)?,
            Encoder::SentenceBpe | Encoder::Unigram => Pieces::of_bytes(&inner, Spacing::InFront)?,
        };
        Ok(Self { inner, encoder, pieces: Arc::new(pieces) })
    }
}

impl Encoder {
    fn recognise(inner: &tokenizers::Tokenizer, is_for_sentences: bool) -> Result<Self, String> {
        match (inner.get_model(), is_for_sentences) {
            (ModelWrapper::WordLevel(model), false) => match inner.get_normalizer() {
                Some(_) => words::recognise(inner, model).map(|()| Self::Word),
                None => Characters::recognise(inner, &model.get_vocab()).map(Self::Char),
            },
            (ModelWrapper::BPE(_), false) if bpe::is_bytes(inner) => Ok(Self::Byte),
            (ModelWrapper::BPE(_), false) => byte_level::recognise(inner, "BPE").map(|()| Self::Bpe),
            (ModelWrapper::BPE(_), true) => byte_level::recognise(inner, "BPE").map(|()| Self::SentenceBpe),
            (ModelWrapper::Unigram(_), true) => byte_level::recognise(inner, "Unigram").map(|()| Self::Unigram),
            (ModelWrapper::Unigram(_), false) => Err("its Unigram model puts no space in front of a text".into()),
            (ModelWrapper::WordLevel(_), true) => Err("its WordLevel model puts a space in front of a text".into()),
            (ModelWrapper::WordPiece(model), false) => word_piece::recognise(inner, model).map(|()| Self::WordPiece),
            (ModelWrapper::WordPiece(_), true) => Err("its WordPiece model puts a space in front of a text".into()),
        }
    }
}

/// Converts an error of the `tokenizers` crate, which has no types.
fn failure(error: tokenizers::Error) -> DataError {
    DataError::Tokenizer { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const TEXT: &str = "low lower lowest\nnew newer newest\nwide wider widest\n\n  slow slower slowest, 12 123\n";

    fn trained(config: TokenizerConfig) -> Tokenizer {
        Tokenizer::train(&config, TEXT).unwrap()
    }

    const CONFIGS: [TokenizerConfig; 6] = [
        TokenizerConfig::Char,
        TokenizerConfig::Byte,
        TokenizerConfig::Bpe { vocab_size: 280 },
        TokenizerConfig::SentenceBpe { vocab_size: 280 },
        TokenizerConfig::Unigram { vocab_size: 280 },
        TokenizerConfig::Word { min_frequency: 1 },
    ];

    /// The text as this tokenizer gives it back.
    fn kept(tokenizer: &Tokenizer, text: &str) -> String {
        match tokenizer.kind() {
            TokenizerKind::Word => text.split_whitespace().collect::<Vec<_>>().join(" "),
            _ => text.to_owned(),
        }
    }

    #[test]
    fn a_saved_tokenizer_is_the_same_after_loading() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        for config in CONFIGS {
            let tokenizer = trained(config);
            tokenizer.save(&path).unwrap();
            let loaded = Tokenizer::load(&path).unwrap();
            assert_eq!(loaded.kind(), tokenizer.kind());
            assert_eq!(loaded.vocab_size(), tokenizer.vocab_size());
            assert_eq!(loaded.encode(TEXT).unwrap(), tokenizer.encode(TEXT).unwrap());
            assert_eq!(loaded.decode(&loaded.encode(TEXT).unwrap()), kept(&loaded, TEXT));

            let first = fs::read(&path).unwrap();
            loaded.save(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), first);
        }
    }

    #[test]
    fn a_tokenizer_in_a_file_is_taken_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        let special = trained(TokenizerConfig::Bpe { vocab_size: 280 }).with_special_tokens(&["</s>"]).unwrap();
        special.save(&path).unwrap();
        let config = TokenizerConfig::File { path: path.clone() };
        assert_eq!(config.kind(), None);
        let taken = Tokenizer::train(&config, "another text").unwrap();
        assert_eq!((taken.kind(), taken.special("</s>")), (TokenizerKind::Bpe, special.special("</s>")));
        assert_eq!(taken.encode(TEXT).unwrap(), special.encode(TEXT).unwrap());
        fs::remove_file(&path).unwrap();
        let error = Tokenizer::train(&config, TEXT).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("tokenizer.json"), "{error}");
    }

    #[test]
    fn the_file_means_the_same_to_the_tokenizers_crate() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        for config in CONFIGS {
            let tokenizer = trained(config);
            tokenizer.save(&path).unwrap();
            let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
            let ids = theirs.encode(TEXT, true).unwrap().get_ids().to_vec();
            assert_eq!(ids, tokenizer.encode(TEXT).unwrap(), "{:?}", tokenizer.kind());
            assert_eq!(theirs.decode(&ids, true).unwrap(), kept(&tokenizer, TEXT));
        }
    }

    #[test]
    fn broken_and_foreign_files_are_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        trained(TokenizerConfig::Char).save(&path).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let message = |content: &str| {
            fs::write(&path, content).unwrap();
            let error = Tokenizer::load(&path).unwrap_err();
            assert!(matches!(error, DataError::TokenizerFile { .. }) && error.is_user_error(), "{error}");
            error.to_string()
        };
        message("");
        message(&whole[..whole.len() / 2]);
        message(r#"{"d_model": 128}"#);
        assert!(message(&whole.replace("\"l\":", "\"lo\":")).contains("the token \"lo\" is not one character"));
        assert!(message(&whole.replace("\"w\": 15", "\"w\": 4294967294")).contains("its largest id is 4294967294"));
        assert!(message(&whole.replace("\"w\": 15", "\"w\": 14")).contains("has the id 14, as another one has"));
        let unigram = r#"{"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}}"#;
        assert!(message(unigram).contains("its Unigram model puts no space in front of a text"));
        trained(TokenizerConfig::Word { min_frequency: 1 }).save(&path).unwrap();
        let words = fs::read_to_string(&path).unwrap();
        assert!(message(&words.replace("WhitespaceSplit", "Whitespace")).contains("cuts neither"));
        assert!(message(&words.replace("\"<unk>\":", "\"gone\":")).contains("lacks the token \"<unk>\""));
        assert!(Tokenizer::load(home.path().join("none")).unwrap_err().is_user_error());
    }

    #[test]
    fn a_text_goes_on_where_tokens_hold_its_spaces() {
        let going_on: Vec<bool> = CONFIGS.iter().map(|config| config.kind().unwrap().continues_text()).collect();
        assert_eq!(going_on, [true, true, true, false, false, false]);
        assert!(!TokenizerKind::WordPiece.continues_text());
    }

    #[test]
    fn an_id_outside_the_vocabulary_decodes_to_a_replacement_character() {
        for config in CONFIGS {
            let tokenizer = trained(config);
            assert_eq!(tokenizer.decode(&[tokenizer.vocab_size() as u32]), "\u{fffd}");
            assert_eq!(tokenizer.token(tokenizer.vocab_size() as u32), None);
            assert!(tokenizer.token(tokenizer.vocab_size() as u32 - 1).is_some());
        }
    }

    #[test]
    fn a_token_without_white_space_in_front_continues_a_word() {
        let continues = |config, text| {
            let tokenizer = Tokenizer::train(&config, "low lower\nlowest").unwrap();
            let ids = tokenizer.encode(text).unwrap();
            ids.iter().map(|&id| tokenizer.continues_word(id)).collect::<Vec<_>>()
        };
        assert_eq!(continues(TokenizerConfig::Byte, "a b\nc"), [true, false, true, false, true]);
        assert_eq!(continues(TokenizerConfig::SentenceBpe { vocab_size: 256 }, "a b"), [false, true, false, true]);
        assert_eq!(continues(TokenizerConfig::Word { min_frequency: 1 }, "low, low"), [false; 3]);
        // Of `low` only the letters, and the marked letters behind the first.
        assert_eq!(continues(TokenizerConfig::WordPiece { vocab_size: 18 }, "lo w"), [false, true, false]);
    }

    proptest! {
        #[test]
        fn bytes_bpe_and_unigram_round_trip_any_text(text in "\\PC*|[a-z \n\t\u{a0}]*|.*") {
            thread_local!(static LOSSLESS: [Tokenizer; 4] = [
                TokenizerConfig::Byte,
                TokenizerConfig::Bpe { vocab_size: 300 },
                TokenizerConfig::SentenceBpe { vocab_size: 300 },
                TokenizerConfig::Unigram { vocab_size: 300 },
            ].map(trained));
            LOSSLESS.with(|all| for tokenizer in all {
                let ids = tokenizer.encode(&text).unwrap();
                assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                assert_eq!(tokenizer.decode(&ids), text);
            });
        }
    }
}
