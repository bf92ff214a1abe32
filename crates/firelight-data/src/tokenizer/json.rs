//! A tokenizer as a `tokenizer.json`: loaded, made of one in memory, saved, and fitted to the size of a model.

use std::ffi::OsStr;
use std::path::Path;

use firelight_storage::{InputError, read_file, shortened_reason, write_atomic};

use super::{Tokenizer, failure, file, roles};
use crate::DataError;

impl Tokenizer {
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
    pub(super) fn made(
        file: &serde_json::Value,
        place: &Path,
        named: Option<&roles::Named>,
    ) -> Result<Self, DataError> {
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
}
