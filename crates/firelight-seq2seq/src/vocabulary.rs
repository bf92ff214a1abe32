//! The tokenizers of a run: one for both sides, or one each, and the tokens around sources and targets. Whatever reads a source reads it
//! with the frame that is chosen here.

use std::fmt;

use firelight_data::{DataError, EncodedPair, Frame, Pair, SpecialRole, Tokenizer};
use firelight_storage::{InputError, ModelFolder, TaskError};

/// The tokens that are added to a tokenizer without them: in front of every target, and behind every source and every target.
const ENDS: [(SpecialRole, &str); 2] = [(SpecialRole::Begin, "<s>"), (SpecialRole::End, "</s>")];

/// The ids around sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// In front of every target.
    pub(crate) start: u32,
    /// Around every source: what its tokenizer puts there, `<s> A </s>` of BART for instance, or the end token alone where it puts nothing.
    pub(crate) source: Frame,
    /// Behind every target.
    pub(crate) target: u32,
}

/// The tokenizers of source and target.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// Of the source, where it has its own.
    source: Option<Tokenizer>,
    /// Of the target, or of both.
    target: Tokenizer,
    ends: Ends,
}

impl Vocabulary {
    /// One tokenizer for both sides, or two, to which the tokens `<s>` and `</s>` are added where they have none for begin and end.
    ///
    /// # Errors
    /// If they cannot be added.
    pub fn new(source: Option<Tokenizer>, target: Tokenizer) -> Result<Self, DataError> {
        Self::of(source.map(|source| source.ensure_roles(&ENDS)).transpose()?, target.ensure_roles(&ENDS)?)
    }

    fn of(source: Option<Tokenizer>, target: Tokenizer) -> Result<Self, DataError> {
        let (start, end) = (target.need(SpecialRole::Begin)?, target.need(SpecialRole::End)?);
        let ends = Ends { start, source: around(source.as_ref().unwrap_or(&target))?, target: end };
        Ok(Self { source, target, ends })
    }

    /// Reads the tokenizers of a run folder: one for both sides if they are `joint` and it holds no other, or one each.
    ///
    /// # Errors
    /// If a file is missing, cannot be read, is no tokenizer, or has no tokens for begin and end.
    pub fn load(folder: &ModelFolder, joint: bool) -> Result<Self, TaskError> {
        let source = folder.source_tokenizer();
        if !joint && !source.is_file() {
            let problem = "is missing, the tokenizer of the source: restore the file that belongs to this run";
            return Err(InputError::in_file(&source, problem).into());
        }
        // Two tokenizers may have one vocabulary of ids, as Marian's.
        let source = source.is_file().then(|| Tokenizer::load(&source)).transpose()?;
        Ok(Self::of(source, Tokenizer::load(folder.tokenizer())?)?)
    }

    /// Writes the tokenizers into a run folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: &ModelFolder) -> Result<(), DataError> {
        if let Some(source) = &self.source {
            source.save(folder.source_tokenizer())?;
        }
        self.target.save(folder.tokenizer())
    }

    /// The tokenizer of the source.
    pub fn source(&self) -> &Tokenizer {
        self.source.as_ref().unwrap_or(&self.target)
    }

    /// The tokenizer of the target.
    pub fn target(&self) -> &Tokenizer {
        &self.target
    }

    /// Whether both sides have one tokenizer.
    pub fn is_joint(&self) -> bool {
        self.source.is_none()
    }

    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// The ids of a pair, without the tokens around them.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(&self, pair: &Pair) -> Result<EncodedPair, DataError> {
        EncodedPair::encode(pair, self.source(), self.target())
    }

    /// The ids of a text to translate. A character that the tokenizer lacks is its unknown token, where it has one; in pairs to
    /// train on it is an error.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub(crate) fn encode_source(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let source = self.source();
        match (source.encode(text), source.role(SpecialRole::Unknown)) {
            (Err(DataError::UnknownCharacter { .. }), Some(unknown)) => {
                let known = |character: char| source.encode(character.encode_utf8(&mut [0; 4])).ok()?.first().copied();
                Ok(text.chars().map(|character| known(character).unwrap_or(unknown)).collect())
            }
            (found, _) => found,
        }
    }

    /// The ids of pairs in their order; `before` of them lie before the first in its file.
    ///
    /// # Errors
    /// As [`encode`](Self::encode), with the line of the pair.
    pub fn encode_all(&self, pairs: &[Pair], before: usize) -> Result<Vec<EncodedPair>, TaskError> {
        let encoded = pairs.iter().enumerate().map(|(index, pair)| (index + before, pair));
        let encoded = encoded.map(|(index, pair)| self.encode(pair).map_err(TaskError::in_line(index + 1)));
        encoded.collect()
    }
}

/// What stands around the texts of a source.
fn around(tokenizer: &Tokenizer) -> Result<Frame, DataError> {
    tokenizer.frame().map_or_else(|| tokenizer.need(SpecialRole::End).map(Frame::behind), Ok)
}

/// A text that the model cannot read at once: the line, counted from 1, and its sentence where it is one, and what it is.
pub(crate) fn too_long((line, side): (impl fmt::Display, &str), tokens: usize, max_seq_len: usize) -> InputError {
    let problem = format!(
        "line {line} has {tokens} tokens, special tokens of the {side} included, but the model reads {max_seq_len}"
    );
    InputError::new(problem).advise(
        "shorten it, train with a larger model.max_seq_len, or cut it with --truncate where it is only translated",
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::data::PairBatcher;
    use burn::data::dataloader::batcher::Batcher;
    use burn::tensor::Device;
    use firelight_data::TokenizerConfig;
    use firelight_storage::Existing;
    use serde_json::{Map, Value, json};

    fn tokenizer(text: &str) -> Tokenizer {
        Tokenizer::train(&TokenizerConfig::Char, text).unwrap()
    }

    /// The characters `a` and `b` and the tokens `<s>`, `</s>` and `de`, of the ids 0 to 4, of which these stand around a text.
    pub(crate) fn framed(front: &[&str], back: &[&str]) -> Tokenizer {
        let names = ["<s>", "</s>", "de"];
        let plain = tokenizer("ab").with_special_tokens(&names).unwrap();
        let part = |kind: &str, id: &str| json!({kind: {"id": id, "type_id": 0}});
        let special = |ids: &[&str]| ids.iter().map(|id| part("SpecialToken", id)).collect::<Vec<Value>>();
        let around = |text: Vec<Value>| [special(front), text, special(back)].concat();
        let token = |name: &str| (name.to_owned(), json!({"id": name, "ids": [plain.special(name)], "tokens": [name]}));
        let tokens: Map<String, Value> = names.into_iter().map(token).collect();
        let mut file = plain.to_json().unwrap();
        file["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": around(vec![part("Sequence", "A")]),
            "pair": around(vec![part("Sequence", "A"), part("Sequence", "B")]),
            "special_tokens": tokens,
        });
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tokenizer.json");
        std::fs::write(&path, file.to_string()).unwrap();
        Tokenizer::load(&path).unwrap()
    }

    #[test]
    fn a_source_is_read_with_what_its_tokenizer_puts_around_it() {
        let cases: [(Tokenizer, &[i64]); 4] = [
            (framed(&["<s>"], &["</s>"]), &[2, 0, 1, 3]),  // BART's way
            (framed(&[], &["</s>", "de"]), &[0, 1, 3, 4]), // mBART's way
            (framed(&["de"], &["</s>"]), &[4, 0, 1, 3]),   // that of later mBARTs
            (tokenizer("ab"), &[0, 1, 3]),                 // nothing, so that the end is added
        ];
        for (tokenizer, expected) in cases {
            for source in [None, Some(tokenizer.clone())] {
                let target = if source.is_some() { self::tokenizer("ab") } else { tokenizer.clone() };
                let vocabulary = Vocabulary::new(source, target).unwrap();
                let pair = vocabulary.encode(&Pair::new("ab", "b")).unwrap();
                assert_eq!((&pair.source[..], &pair.target[..]), (&[0, 1][..], &[1][..]));
                let batch = PairBatcher::of(&vocabulary).batch(vec![pair], &Device::default());
                let ids = [batch.source, batch.inputs, batch.targets].map(|ids| ids.try_into_vec_as::<i64>().unwrap());
                assert_eq!(ids, [expected.to_vec(), vec![2, 1], vec![1, 3]], "targets have no frame");
            }
        }
    }

    #[test]
    fn the_ends_stand_behind_the_vocabulary_and_come_back_from_the_folder() {
        let home = tempfile::tempdir().unwrap();
        for source in [None, Some(tokenizer("abcd"))] {
            let folder = ModelFolder::create(home.path().join(source.is_some().to_string()), Existing::Refuse).unwrap();
            let joint = source.is_none();
            let vocabulary = Vocabulary::new(source, tokenizer("xyz")).unwrap();
            assert_eq!(vocabulary.ends().start, 3);
            assert_eq!(vocabulary.ends().source, Frame::behind(if joint { 4 } else { 5 }));
            assert_eq!(vocabulary.ends().target, 4);
            vocabulary.save(&folder).unwrap();
            let loaded = Vocabulary::load(&folder, joint).unwrap();
            assert_eq!((loaded.ends(), loaded.is_joint()), (vocabulary.ends(), joint));
            let _ = std::fs::remove_file(folder.source_tokenizer());
            let lost = Vocabulary::load(&folder, joint).err().map(|error| error.to_string());
            assert_eq!(lost.is_none(), joint);
            assert!(lost.is_none_or(|error| error.contains("source_tokenizer.json` is missing")));
        }
    }

    #[test]
    fn a_tokenizer_without_the_ends_is_no_tokenizer_of_a_run() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        tokenizer("abc").save(folder.tokenizer()).unwrap();
        let error = Vocabulary::load(&folder, true).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("has no begin token"), "{error}");
    }
}
