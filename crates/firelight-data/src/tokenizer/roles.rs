//! What special tokens are for. A file says it in several places, none of them complete: the files of `transformers` beside it name
//! roles, its post-processor puts some tokens around texts, its model knows the unknown one, and the others are known by how they
//! are usually spelt.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, listed, read_file, shortened_reason, write_atomic};
use serde_json::Value;
use tokenizers::{AddedToken, ModelWrapper};

use super::frame::Frame;
use super::{Tokenizer, failure};
use crate::DataError;

/// What a special token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecialRole {
    /// In front of a text, in whose place a model says what is true of the whole: `[CLS]`, RoBERTa's `<s>`.
    Class,
    /// Behind each text: `[SEP]`, RoBERTa's `</s>`.
    Separator,
    /// In the place of a hidden token: `[MASK]`, `<mask>`.
    Mask,
    /// Behind the shorter texts of a batch: `[PAD]`, `<pad>`.
    Padding,
    /// In front of a text that is written: `<s>`, `<bos>`.
    Begin,
    /// Behind a text that is written: `</s>`, `<eos>`.
    End,
    /// In the place of what the vocabulary lacks: `[UNK]`, `<unk>`.
    Unknown,
}

/// The tokens that files beside a tokenizer name, by the key of their role.
pub(super) type Named = BTreeMap<&'static str, String>;

/// The ids by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Roles([Option<u32>; 7]);

/// Spelling of `transformers`' files of special tokens, later ones before earlier ones.
const BESIDE: [&str; 2] = ["tokenizer_config.json", SPECIAL_TOKENS_MAP];
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";

/// No file of special tokens is larger, in bytes.
const LIMIT: u64 = 1 << 26;

impl SpecialRole {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Class, Self::Separator, Self::Mask, Self::Padding, Self::Begin, Self::End, Self::Unknown];

    /// The key in `special_tokens_map.json` and `tokenizer_config.json`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Class => "cls_token",
            Self::Separator => "sep_token",
            Self::Mask => "mask_token",
            Self::Padding => "pad_token",
            Self::Begin => "bos_token",
            Self::End => "eos_token",
            Self::Unknown => "unk_token",
        }
    }

    /// How it is spelt where nothing else says which token it is, the clearest first.
    fn spellings(self) -> &'static [&'static str] {
        match self {
            Self::Class => &["[CLS]", "<cls>"],
            Self::Separator => &["[SEP]", "<sep>"],
            Self::Mask => &["[MASK]", "<mask>"],
            Self::Padding => &["[PAD]", "<pad>"],
            Self::Begin => &["<s>", "<bos>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"],
            Self::End => &["</s>", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>"],
            Self::Unknown => &["[UNK]", "<unk>"],
        }
    }
}

impl fmt::Display for SpecialRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class => "classification",
            Self::Separator => "separator",
            Self::Mask => "mask",
            Self::Padding => "padding",
            Self::Begin => "begin",
            Self::End => "end",
            Self::Unknown => "unknown",
        })
    }
}

impl Roles {
    /// The roles of a tokenizer; what is named goes before what its file says.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer, named: Option<&Named>) -> Self {
        let frame = tokenizer.get_post_processor().and_then(Frame::of);
        let [front, behind] = frame.map_or([None; 2], |frame| frame.ends());
        Self(SpecialRole::ALL.map(|role| {
            let name = named.and_then(|named| named.get(role.key()));
            let spelt = |role: SpecialRole| role.spellings().iter().find_map(|token| special(tokenizer, token));
            // A text that is written neither begins nor ends with tokens that are spelt as BERT's.
            let other_than = |end: Option<u32>, role| end.filter(|&id| Some(id) != spelt(role));
            name.and_then(|token| tokenizer.token_to_id(token)).or_else(|| match role {
                SpecialRole::Class => spelt(role).or(front).or_else(|| special(tokenizer, "<s>")),
                SpecialRole::Separator => spelt(role).or(behind).or_else(|| special(tokenizer, "</s>")),
                SpecialRole::Padding => spelt(role).or(tokenizer.get_padding().map(|padding| padding.pad_id)),
                SpecialRole::Begin => spelt(role).or(other_than(front, SpecialRole::Class)),
                SpecialRole::End => spelt(role).or(other_than(behind, SpecialRole::Separator)),
                SpecialRole::Unknown => unknown(tokenizer).or_else(|| spelt(role)),
                SpecialRole::Mask => spelt(role),
            })
        }))
    }

    /// Those of a vocabulary of `size` tokens.
    pub(super) fn below(self, size: usize) -> Self {
        Self(self.0.map(|id| id.filter(|&id| (id as usize) < size)))
    }

    fn get(&self, role: SpecialRole) -> Option<u32> {
        self.0[role as usize]
    }

    /// These roles, and for the others those of `more`.
    pub(super) fn or(self, more: Self) -> Self {
        Self(SpecialRole::ALL.map(|role| self.get(role).or(more.get(role))))
    }

    /// Writes `special_tokens_map.json` beside a tokenizer, if its file alone does not tell these roles.
    pub(super) fn save_beside(&self, path: &Path, tokenizer: &tokenizers::Tokenizer) -> Result<(), DataError> {
        let Some(map) = sibling(path, SPECIAL_TOKENS_MAP).filter(|_| *self != Self::of(tokenizer, None)) else {
            return Ok(());
        };
        let token = |role: SpecialRole| Some((role.key(), tokenizer.id_to_token(self.get(role)?)?));
        let tokens: BTreeMap<_, _> = SpecialRole::ALL.into_iter().filter_map(token).collect();
        let text = serde_json::to_string_pretty(&tokens).map_err(|error| failure(error.into()))?;
        Ok(write_atomic(map, text + "\n")?)
    }
}

/// The id of a special token.
pub(super) fn special(tokenizer: &tokenizers::Tokenizer, token: &str) -> Option<u32> {
    let id = tokenizer.token_to_id(token)?;
    is_special(tokenizer, id).then_some(id)
}

/// Whether an id is that of a special token.
pub(super) fn is_special(tokenizer: &tokenizers::Tokenizer, id: u32) -> bool {
    tokenizer.get_added_vocabulary().get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
}

/// What the model puts in the place of what it does not know.
fn unknown(tokenizer: &tokenizers::Tokenizer) -> Option<u32> {
    let token = match tokenizer.get_model() {
        ModelWrapper::WordLevel(model) => Some(&model.unk_token),
        ModelWrapper::WordPiece(model) => Some(&model.unk_token),
        ModelWrapper::BPE(model) => model.unk_token.as_ref(),
        ModelWrapper::Unigram(_) => None,
    };
    tokenizer.token_to_id(token?)
}

/// The path of a file that belongs to a tokenizer: `source_tokenizer.json` has its own `source_special_tokens_map.json`.
fn sibling(path: &Path, name: &str) -> Option<PathBuf> {
    let prefix = path.file_name()?.to_str()?.strip_suffix("tokenizer.json")?;
    Some(path.with_file_name(format!("{prefix}{name}")))
}

/// The roles that the files beside a tokenizer name.
pub(super) fn beside(path: &Path) -> Result<Named, DataError> {
    let mut named = Named::new();
    for path in BESIDE.iter().filter_map(|name| sibling(path, name)).filter(|path| path.is_file()) {
        let wrong = |error: serde_json::Error| {
            let problem = format!("does not say what special tokens are for: {}", shortened_reason(&error.to_string()));
            InputError::in_file(&path, problem).advise("restore it, or take it away")
        };
        let file: Value = serde_json::from_slice(&read_file(&path, LIMIT)?).map_err(wrong)?;
        for role in SpecialRole::ALL {
            let token = &file[role.key()];
            let token = token.as_str().or_else(|| token["content"].as_str());
            token.and_then(|token| named.insert(role.key(), token.into()));
        }
    }
    Ok(named)
}

/// Makes tokens special that a file beside the tokenizer names so, as `transformers` does: no text gives them.
pub(super) fn mark_special(tokenizer: &mut tokenizers::Tokenizer, named: &Named) {
    let known = |token: &&String| tokenizer.token_to_id(token).is_some() && special(tokenizer, token).is_none();
    let tokens: Vec<AddedToken> = named.values().filter(known).map(|token| AddedToken::from(token, true)).collect();
    tokenizer.add_special_tokens(&tokens);
}

impl Tokenizer {
    /// The id of the special token of a role, wherever it stands; none if there is no such token.
    pub fn role(&self, role: SpecialRole) -> Option<u32> {
        self.roles.get(role)
    }

    /// The same for a task that cannot do without it.
    ///
    /// ```
    /// use firelight_data::{SpecialRole, Tokenizer, TokenizerConfig};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(&["<pad>", "</s>"]).unwrap();
    /// assert_eq!(bytes.need(SpecialRole::End).unwrap(), 257);
    /// let error = bytes.need(SpecialRole::Mask).unwrap_err().to_string();
    /// assert!(error.starts_with("the tokenizer has no mask token, only the special tokens <pad>, </s>"), "{error}");
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such token.
    pub fn need(&self, role: SpecialRole) -> Result<u32, DataError> {
        self.role(role).ok_or_else(|| self.lacking(role).into())
    }

    fn lacking(&self, role: SpecialRole) -> InputError {
        let file = self.file.as_ref().map_or(String::new(), |file| format!(" `{}`", file.display()));
        let special: Vec<String> = self.special_tokens().into_iter().map(|(_, token)| token).collect();
        let found = match special.as_slice() {
            [] => "and no special token at all".to_owned(),
            special => format!("only the special tokens {}", listed(special)),
        };
        InputError::new(format!("the tokenizer{file} has no {role} token, {found}")).advise(format!(
            "name one as {:?} in a special_tokens_map.json beside its file, or take another tokenizer",
            role.key()
        ))
    }

    /// Gives a role to a token, whatever the file says.
    ///
    /// # Errors
    /// Fails if the id is no token.
    pub fn with_role(mut self, role: SpecialRole, id: u32) -> Result<Self, DataError> {
        match self.token(id) {
            Some(_) => self.roles.0[role as usize] = Some(id),
            None => return Err(DataError::Tokenizer { reason: format!("it has no token {id} for the {role}") }),
        }
        Ok(self)
    }

    /// Adds a special token for each of these roles that has none, with the next ids behind the vocabulary, in this order.
    ///
    /// # Errors
    /// Fails if a token is in the vocabulary as a token of text.
    pub fn ensure_roles(self, roles: &[(SpecialRole, &str)]) -> Result<Self, DataError> {
        let missing: Vec<&str> =
            roles.iter().filter(|(role, _)| self.role(*role).is_none()).map(|(_, token)| *token).collect();
        if missing.is_empty() { Ok(self) } else { self.with_special_tokens(&missing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;
    use SpecialRole::{Begin, Class, End, Mask, Padding, Separator, Unknown};

    fn bytes(tokens: &[&str]) -> Tokenizer {
        Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(tokens).unwrap()
    }

    fn found(tokenizer: &Tokenizer) -> Vec<(SpecialRole, u32)> {
        SpecialRole::ALL.into_iter().filter_map(|role| Some((role, tokenizer.role(role)?))).collect()
    }

    #[test]
    fn roles_are_known_by_their_usual_spellings() {
        let bert = bytes(&["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]);
        let expected = [(Class, 258), (Separator, 259), (Mask, 260), (Padding, 256), (Unknown, 257)];
        assert_eq!(found(&bert), expected);
        assert_eq!(found(&bert.with_frame(258, 259).unwrap().0), expected, "a written text does not begin with [CLS]");
        let gpt = bytes(&["<|endoftext|>"]);
        assert_eq!(found(&gpt), [(Begin, 256), (End, 256)]);
        let llama = bytes(&["<unk>", "<s>", "</s>"]);
        assert_eq!(found(&llama), [(Class, 257), (Separator, 258), (Begin, 257), (End, 258), (Unknown, 256)]);
    }

    #[test]
    fn what_stands_around_texts_has_roles_whatever_its_name() {
        let tokenizer = bytes(&["<x>", "<front>", "<behind>"]).with_frame(257, 258).unwrap().0;
        assert_eq!(found(&tokenizer), [(Class, 257), (Separator, 258), (Begin, 257), (End, 258)]);
    }

    #[test]
    fn the_files_beside_it_go_before_and_what_they_say_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        bytes(&["<s>", "</s>", "<fin>"]).save(&path).unwrap();
        assert!(!home.path().join("special_tokens_map.json").exists(), "the file says it all");
        let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
        write("tokenizer_config.json", r#"{"eos_token": {"content": "<fin>"}, "pad_token": "a", "cls_token": null}"#);
        write("special_tokens_map.json", r#"{"mask_token": "<lacking>", "unk_token": "<s>"}"#);
        let loaded = Tokenizer::load(&path).unwrap();
        let expected = [(Class, 256), (Separator, 257), (Padding, 97), (Begin, 256), (End, 258), (Unknown, 256)];
        assert_eq!(found(&loaded), expected);
        assert!(loaded.is_special(97) && loaded.decode(&[97, 98]) == "b", "a token with a role is no text");

        let copy = home.path().join("run").join("source_tokenizer.json");
        std::fs::create_dir(copy.parent().unwrap()).unwrap();
        loaded.save(&copy).unwrap();
        assert!(copy.with_file_name("source_special_tokens_map.json").exists());
        assert_eq!(found(&Tokenizer::load(&copy).unwrap()), expected);

        write("special_tokens_map.json", "{");
        let error = Tokenizer::load(&path).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("special_tokens_map.json"), "{error}");
    }

    #[test]
    fn a_role_that_is_lacking_is_named_with_its_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        bytes(&[]).save(&path).unwrap();
        let error = Tokenizer::load(&path).unwrap().need(Separator).unwrap_err();
        let expected =
            format!("the tokenizer `{}` has no separator token, and no special token at all", path.display());
        assert!(error.is_user_error() && error.to_string().starts_with(&expected), "{error}");
        assert!(error.to_string().contains("\"sep_token\""), "{error}");
    }

    #[test]
    fn a_role_that_is_given_stays_with_the_tokenizer() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        bytes(&["<pad>", "</s>"]).with_role(Begin, 256).unwrap().save(&path).unwrap();
        let loaded = Tokenizer::load(&path).unwrap();
        assert_eq!((loaded.role(Begin), loaded.role(Padding)), (Some(256), Some(256)));
        assert!(loaded.with_role(End, 999).unwrap_err().to_string().contains("no token 999 for the end"));
    }

    #[test]
    fn tokens_are_added_for_the_roles_that_have_none() {
        let tokenizer = bytes(&["<s>", "</s>"]).ensure_roles(&[(Class, "[CLS]"), (Mask, "[MASK]")]).unwrap();
        assert_eq!((tokenizer.role(Class), tokenizer.role(Mask), tokenizer.vocab_size()), (Some(256), Some(258), 259));
    }
}
