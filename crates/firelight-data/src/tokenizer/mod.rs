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
mod kind;
mod offsets;
mod roles;
mod sentence_piece;
mod settings;
mod special;
mod token_bytes;
mod unigram;
mod vocabulary;
mod windows;
mod word_piece;
mod words;

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use firelight_storage::{InputError, read_file, shortened_reason, write_atomic};
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

    /// Reads any `tokenizer.json`, written by [`save`](Self::save) or by another program, and what `special_tokens_map.json` and
    /// `tokenizer_config.json` beside it say of special tokens.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or is no tokenizer.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let foreign = |reason: String| {
            let problem = format!("is no tokenizer that can be read: {}", shortened_reason(&reason));
            InputError::in_file(path, problem).advise("give a tokenizer.json")
        };
        let mut inner = file::parse(&read_file(path, file::LIMIT)?).map_err(foreign)?;
        let named = roles::beside(path)?;
        roles::mark_special(&mut inner, &named);
        Ok(Self { file: Some(path.into()), ..Self::of(inner, Some(&named)).map_err(foreign)? })
    }

    /// A tokenizer out of what a `tokenizer.json` would hold; `place` is the file that it was made from, for messages.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    /// let same = Tokenizer::of_json(&bytes.to_json().unwrap(), "model.gguf").unwrap();
    /// assert_eq!(same.encode("abc").unwrap(), [97, 98, 99]);
    /// ```
    ///
    /// # Errors
    /// Fails if it is no tokenizer.
    pub fn of_json(file: &serde_json::Value, place: impl AsRef<Path>) -> Result<Self, DataError> {
        Self::made(file, place.as_ref(), None)
    }

    /// The same, with what is said of its special tokens beside the file that it was made from.
    fn made(file: &serde_json::Value, place: &Path, named: Option<&roles::Named>) -> Result<Self, DataError> {
        let unfit = |reason: String| {
            let problem = format!("makes no tokenizer: {}", shortened_reason(&reason));
            InputError::in_file(place, problem).advise("download the model again")
        };
        let mut inner = file::parse(file.to_string().as_bytes()).map_err(unfit)?;
        named.into_iter().for_each(|named| roles::mark_special(&mut inner, named));
        Ok(Self { file: Some(place.into()), ..Self::of(inner, named).map_err(unfit)? })
    }

    /// What [`save`](Self::save) writes into a `tokenizer.json`.
    ///
    /// # Errors
    /// Fails if a part of the tokenizer has no JSON.
    pub fn to_json(&self) -> Result<serde_json::Value, DataError> {
        let text = self.file().to_string(false).map_err(failure)?;
        serde_json::from_str(&text).map_err(|error| failure(error.into()))
    }

    /// The same without the added tokens from the id `size` on, for which a model of `size` tokens has no vectors. Models of text are published
    /// with the tokenizer of a larger model, which also has tokens for images. What such a token spells is read as text. Other tokens stay:
    /// [`fits`](Self::fits) tells whether there are too many.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    /// let tokenizer = bytes.with_special_tokens(&["<end>", "<image>"]).unwrap();
    /// let texts = tokenizer.without_added_from(257).unwrap();
    /// assert_eq!((texts.vocab_size(), texts.token(256).as_deref(), texts.token(257)), (257, Some("<end>"), None));
    /// ```
    ///
    /// # Errors
    /// Fails if a part of the tokenizer has no JSON.
    pub fn without_added_from(self, size: usize) -> Result<Self, DataError> {
        if self.vocab_size <= size {
            return Ok(self);
        }
        let mut file = self.to_json()?;
        if let Some(added) = file.get_mut("added_tokens").and_then(serde_json::Value::as_array_mut) {
            added.retain(|token| token["id"].as_u64().is_none_or(|id| id < size as u64));
        }
        let place = self.file.clone().unwrap_or_else(|| Path::new("tokenizer.json").into());
        Ok(Self { roles: self.roles.below(size), ..Self::of_json(&file, place)? })
    }

    /// Makes sure that a model of `size` tokens, which `config` describes, knows all of its tokens.
    ///
    /// # Errors
    /// Fails if it has more.
    pub fn fits(&self, size: usize, config: &Path) -> Result<(), InputError> {
        match self.vocab_size() {
            found if found <= size => Ok(()),
            found => {
                let name = self.file.as_deref().and_then(Path::file_name).unwrap_or(OsStr::new("the tokenizer"));
                let name = name.to_string_lossy();
                let problem = format!("is for a vocabulary of {size} tokens, but {name} beside it has {found}");
                Err(InputError::in_file(config, problem).advise("restore the tokenizer that belongs to this model"))
            }
        }
    }

    /// Writes the tokenizer to `path`, replacing a file that is there. Roles of special tokens that this file alone does not tell
    /// go into `special_tokens_map.json` beside it.
    ///
    /// # Errors
    /// Fails if a file cannot be written; an older one is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), DataError> {
        let inner = self.file();
        let mut text = inner.to_string(true).map_err(failure)?;
        text.push('\n');
        self.roles.save_beside(path.as_ref(), &inner)?;
        Ok(write_atomic(path, text)?)
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
            assert!(error.to_string().contains("is no tokenizer") && error.is_user_error(), "{error}");
            error.to_string()
        };
        message("");
        message(&whole[..whole.len() / 2]);
        message(r#"{"d_model": 128}"#);
        assert!(message(&whole.replace("\"w\": 15", "\"w\": 4294967294")).contains("its largest id is 4294967294"));
        assert!(message(&whole.replace("\"w\": 15", "\"w\": 14")).contains("has the id 14, as another one has"));
        assert!(Tokenizer::load(home.path().join("none")).unwrap_err().is_user_error());
    }

    #[test]
    fn every_file_that_the_crate_reads_does_what_it_says() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        let load = |file: &str| {
            fs::write(&path, file).unwrap();
            Tokenizer::load(&path).unwrap()
        };
        let unigram = r#"{"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], ["a", -1.0], ["ab", -1.5]]}}"#;
        let unigram = load(unigram);
        assert_eq!((unigram.kind(), unigram.encode("abac").unwrap()), (TokenizerKind::Other, vec![2, 1, 0]));
        // Ids may have holes, and what is not in the vocabulary an error that names no file of ours.
        let words = r#"{"version": "1.0", "truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0}, "added_tokens": [],
            "pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"a": 7, "b": 3}}}"#;
        let words = load(words);
        assert_eq!((words.encode("a b a").unwrap(), words.vocab_size()), (vec![7, 3, 7], 8));
        assert_eq!(words.decode(&[7, 5, 3]), "a b");
        assert!(words.encode("c").is_err());
    }

    #[test]
    fn a_text_goes_on_where_tokens_hold_its_spaces() {
        let going_on: Vec<bool> = CONFIGS.iter().map(|config| config.kind().unwrap().continues_text()).collect();
        assert_eq!(going_on, [true, true, true, false, false, false]);
        assert!(!TokenizerKind::WordPiece.continues_text());
    }

    #[test]
    fn an_id_that_is_no_token_stands_for_no_text() {
        for config in CONFIGS {
            let tokenizer = trained(config);
            let beyond = tokenizer.vocab_size() as u32;
            let ids = [&[beyond][..], &tokenizer.encode("low").unwrap(), &[u32::MAX]].concat();
            assert_eq!((tokenizer.decode(&ids).as_str(), tokenizer.stream().read(&ids).as_str()), ("low", "low"));
            assert_eq!(tokenizer.token(beyond), None);
            assert!(tokenizer.token(beyond - 1).is_some());
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
