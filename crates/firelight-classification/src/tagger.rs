//! A trained classifier of tokens and its tokenizer, loaded from a run folder: texts or words in, a tag with its probability for
//! each word out, and the entities that the tags spell.

use std::path::Path;

use burn::tensor::Device;
use burn::tensor::activation::log_softmax;
use firelight_core::Pass;
use firelight_data::tagged::{are_of_entities, entities, words_of};
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, TaskError};
use serde::Serialize;

use crate::classifier::likeliest;
use crate::data::EncodedWords;
use crate::model::{TokenClassifier, TokenClassifierConfig};
use crate::pretrained::load;
use crate::reading::{read_texts, rows};
use crate::vocabulary::TextVocabulary;

/// A word of a text, or a mark, with its tag.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaggedToken {
    /// The word as the text has it.
    pub token: String,
    /// The likeliest tag.
    pub tag: String,
    /// The probability of the tag.
    pub probability: f64,
}

/// An entity of a text. The names are those of Hugging Face's pipeline for token classification that aggregates tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entity {
    /// Its type, such as `PER`.
    pub entity_group: String,
    /// The mean of the probabilities of its tags.
    pub score: f64,
    /// The stretch of the text.
    pub word: String,
    /// Where it begins, in characters from 0.
    pub start: usize,
    /// Where it ends: the character behind its last one.
    pub end: usize,
}

/// What is said of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tagging {
    /// Its words and marks with their tags.
    pub tokens: Vec<TaggedToken>,
    /// The entities, where the tags are of entities.
    pub entities: Vec<Entity>,
}

/// A trained [`TokenClassifier`] with its tokenizer and the names of its tags: from texts to tags and entities. The network alone reads ids,
/// as [`TextClassifier`](crate::TextClassifier) is the network of a [`Classifier`](crate::Classifier).
#[doc(alias = "TokenClassificationPipeline")]
#[derive(Debug)]
pub struct Tagger {
    model: TokenClassifier,
    vocabulary: TextVocabulary,
    tags: Vec<String>,
}

impl Tagger {
    /// Puts a model, a tokenizer and the names of the tags together.
    ///
    /// # Panics
    /// If there is not a name for each class of the model.
    pub fn new(model: TokenClassifier, vocabulary: TextVocabulary, tags: Vec<String>) -> Self {
        let (found, expected) = (tags.len(), model.num_classes());
        assert!(found == expected, "{found} tags for {expected} classes");
        Self { model, vocabulary, tags }
    }

    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of this task, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let (config, model, vocabulary) = load::<TokenClassifierConfig>(folder.as_ref(), checkpoint, device)?;
        Ok(Self::new(model, vocabulary, config.labels))
    }

    /// The model.
    pub fn model(&self) -> &TokenClassifier {
        &self.model
    }

    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The names of the tags.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// The words and the entities of every text, as many and in the same order. White space parts words, and every punctuation mark
    /// stands alone. Neither company nor order changes an answer; a text that is too long is read in parts.
    ///
    /// # Errors
    /// If a text has a character that the tokenizer does not know, with its line, if an answer is no number, or the device fails.
    pub fn tag<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Tagging>, TaskError> {
        self.tag_after(0, texts)
    }

    /// As [`tag`](Self::tag), of texts before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`tag`](Self::tag).
    pub fn tag_after<S: AsRef<str>>(&self, before: usize, texts: &[S]) -> Result<Vec<Tagging>, TaskError> {
        let words_in =
            |text: &S| words_of(text.as_ref()).into_iter().map(|word| text.as_ref()[word].to_owned()).collect();
        let words: Vec<Vec<String>> = texts.iter().map(words_in).collect();
        let found = self.tag_words_after(before, &words)?;
        Ok(texts.iter().zip(found).map(|(text, tokens)| self.tagging(text.as_ref(), tokens)).collect())
    }

    /// The tag of every word of sentences that are cut into words already, as those of a training.
    ///
    /// # Errors
    /// As [`tag`](Self::tag).
    pub fn tag_words<S: AsRef<str>>(&self, sentences: &[Vec<S>]) -> Result<Vec<Vec<TaggedToken>>, TaskError> {
        self.tag_words_after(0, sentences)
    }

    fn tag_words_after<S: AsRef<str>>(
        &self,
        before: usize,
        sentences: &[Vec<S>],
    ) -> Result<Vec<Vec<TaggedToken>>, TaskError> {
        let max_len = self.model.encoder.max_seq_len();
        let encode = |(line, words): (usize, &Vec<S>)| {
            self.vocabulary.encode_words(words, max_len).map_err(TaskError::in_line(line))
        };
        let parts: Vec<_> = (before + 1..).zip(sentences).map(encode).collect::<Result<_, _>>()?;
        let mut rows = word_answers(&self.model, &parts.concat())?.into_iter();
        let tagged = |words: &Vec<S>| {
            words.iter().zip(rows.by_ref()).map(|(word, row)| self.tagged(word.as_ref(), &row)).collect()
        };
        Ok(sentences.iter().map(tagged).collect())
    }

    fn tagged(&self, token: &str, row: &[f64]) -> TaggedToken {
        let tag = likeliest(row);
        TaggedToken { token: token.into(), tag: self.tags[tag].clone(), probability: row[tag].exp() }
    }

    fn tagging(&self, text: &str, tokens: Vec<TaggedToken>) -> Tagging {
        let (tags, words): (Vec<&str>, _) = (tokens.iter().map(|token| token.tag.as_str()).collect(), words_of(text));
        let found = if are_of_entities(&self.tags) { entities(&tags) } else { Vec::new() };
        let entity = |found: firelight_data::tagged::TaggedEntity| {
            let of_tags = &tokens[found.tokens.clone()];
            let stretch = words[found.tokens.start].start..words[found.tokens.end - 1].end;
            let start = text[..stretch.start].chars().count();
            Entity {
                entity_group: found.kind,
                score: of_tags.iter().map(|token| token.probability).sum::<f64>() / of_tags.len() as f64,
                start,
                end: start + text[stretch.clone()].chars().count(),
                word: text[stretch].to_owned(),
            }
        };
        let entities = found.into_iter().map(entity).collect();
        Tagging { tokens, entities }
    }
}

/// The logarithms of the probabilities of all tags, a row for each word of all parts, in their order; parts of similar length are read
/// together.
pub(crate) fn word_answers(model: &TokenClassifier, parts: &[EncodedWords]) -> Result<Vec<Vec<f64>>, TaskError> {
    let device = model.encoder.embedding.weight.device();
    let found: Vec<Vec<Vec<f64>>> = read_texts(parts.iter().map(|part| &part.text), &device, |input, batch| {
        let logits = awake(&device, || model.forward(input, &mut Pass::default())); // [B, T, C]
        let length = logits.dims()[1];
        let answers = rows(log_softmax(logits, 2).flatten(0, 1), "the answers")?; // [B * T, C]
        let of_words = |(answers, &part): (&[Vec<f64>], &usize)| {
            parts[part].places.iter().map(|&place| answers[place].clone()).collect()
        };
        Ok(answers.chunks(length).zip(batch).map(of_words).collect())
    })?;
    let found = found.concat();
    // The logarithm of a probability of 0 is no damage.
    TaskError::require_finite(!found.iter().flatten().any(|value| value.is_nan()))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::TextEncoderConfig;
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_data::{Tokenizer, TokenizerConfig};

    fn tagger(tags: &[&str], max_seq_len: usize) -> Tagger {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh .\u{e9}").unwrap();
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let encoder = TextEncoderConfig::modern(14, 16, 2, 1);
        let encoder = encoder.with_stack(|stack| stack.with_init(wide).with_max_seq_len(max_seq_len));
        let config = TokenClassifierConfig::new(encoder, tags.iter().copied());
        Tagger::new(
            config.init_with(&ParamBuilder::new(&Device::default(), 0)),
            TextVocabulary::new(tokenizer).unwrap(),
            config.labels,
        )
    }

    #[test]
    fn company_order_and_padding_change_no_tag() {
        let tagger = tagger(&["x", "y", "z"], 32);
        let texts = ["abc de", "", "h.gf edc ba a b", "a", "bb dd"];
        let together = tagger.tag(&texts).unwrap();
        let words: Vec<usize> = together.iter().map(|found| found.tokens.len()).collect();
        assert_eq!(words, [2, 0, 7, 1, 2]);
        for (text, found) in texts.iter().zip(&together) {
            let alone = tagger.tag(&[text]).unwrap().remove(0);
            assert_eq!(alone.tokens.len(), found.tokens.len());
            for (one, other) in alone.tokens.iter().zip(&found.tokens) {
                assert!((&one.token, &one.tag) == (&other.token, &other.tag), "{one:?} {other:?}");
                assert!((one.probability - other.probability).abs() < 1e-6, "{one:?} {other:?}");
            }
            assert!(found.entities.is_empty(), "the tags are of no entities");
        }
    }

    #[test]
    fn a_long_text_is_read_in_parts_and_none_of_its_words_is_lost() {
        let tagger = tagger(&["x", "y"], 8);
        let found = tagger.tag_words(&[vec!["abc", "de", "fghabcdefgh", "a"], vec!["de"]]).unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [4, 1]);
        let alone = tagger.tag_words(&[vec!["abc", "de"]]).unwrap();
        assert_eq!(alone[0], found[0][..2], "the first part of 6 tokens");
    }

    #[test]
    fn entities_are_stretches_of_the_text_in_characters() {
        let tagger = tagger(&["B-A", "I-A", "O"], 32);
        let text = "\u{e9}a b.\u{e9}  c";
        let tag = |(token, tag): (&str, &str)| TaggedToken { token: token.into(), tag: tag.into(), probability: 0.5 };
        let tokens = [("\u{e9}a", "O"), ("b", "B-A"), (".", "I-A"), ("\u{e9}", "I-A"), ("c", "B-A")].map(tag);
        let found = tagger.tagging(text, tokens.to_vec()).entities;
        let entity =
            |word: &str, start, end| Entity { entity_group: "A".into(), score: 0.5, word: word.into(), start, end };
        assert_eq!(found, [entity("b.\u{e9}", 3, 6), entity("c", 8, 9)]);
    }

    #[test]
    fn what_cannot_be_read_or_answered_is_reported() {
        let mut damaged = tagger(&["x", "y"], 32);
        let error = damaged.tag(&["a", "bz"]).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with("line 2: the character 'z'"), "{error}");
        let error = damaged.tag_after(10, &["a", "bz"]).unwrap_err();
        assert!(error.to_string().starts_with("line 12: the character 'z'"), "{error}");
        assert_eq!(damaged.tag_after(10, &["ab"]).unwrap(), damaged.tag(&["ab"]).unwrap());
        let embedding = &mut damaged.model.encoder.embedding;
        embedding.weight = embedding.weight.clone().map(|weight| weight * f32::NAN);
        assert!(damaged.tag(&["abc"]).unwrap_err().to_string().contains("its weights are damaged"));
    }
}
