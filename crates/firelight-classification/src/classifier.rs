//! A trained classifier and its tokenizer, loaded from a run folder: texts in, labels with their probabilities out, as many and
//! in the same order.

use std::path::Path;

use burn::tensor::Device;
use burn::tensor::activation::log_softmax;
use firelight_core::Pass;
use firelight_data::Batching;
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, ModelFolder, load_weights};

use crate::data::{EncodedText, input_of};
use crate::error::ClassificationError;
use crate::loss::Outcome;
use crate::model::{TextClassifier, TextClassifierConfig};
use crate::vocabulary::TextVocabulary;

/// What a classifier says of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The likeliest label.
    pub label: String,
    /// All labels with their probabilities, in the order of the labels.
    pub probabilities: Vec<(String, f64)>,
}

/// A trained classifier and its tokenizer.
#[derive(Debug)]
pub struct Classifier {
    model: TextClassifier,
    vocabulary: TextVocabulary,
    labels: Vec<String>,
}

impl Classifier {
    /// Puts a model, a tokenizer and the names of the classes together.
    ///
    /// # Panics
    /// If there is not a name for each output of the model.
    pub fn new(model: TextClassifier, vocabulary: TextVocabulary, labels: Vec<String>) -> Self {
        let (found, expected) = (labels.len(), model.num_outputs());
        assert!(found == expected, "{found} labels for {expected} outputs");
        Self { model, vocabulary, labels }
    }

    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of this task, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, ClassificationError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(
        folder: impl AsRef<Path>,
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<Self, ClassificationError> {
        let folder = ModelFolder::open(folder)?;
        let config: TextClassifierConfig = folder.read_config(crate::TASK)?;
        config.validate().map_err(|error| ClassificationError::Config { path: folder.config(), error })?;
        if config.outcome != Outcome::SingleLabel {
            return Err(ClassificationError::Outcome { path: folder.config() });
        }
        let weights = folder.weights(checkpoint)?;
        let vocabulary = TextVocabulary::load(&folder)?;
        let (size, found) = (config.encoder.vocab_size, vocabulary.vocab_size());
        if size != found {
            return Err(ClassificationError::Vocabulary { path: folder.config(), size, found });
        }
        let mut model = config.init(device);
        load_weights(&mut model, weights)?;
        Ok(Self::new(model, vocabulary, config.labels))
    }

    /// The model.
    pub fn model(&self) -> &TextClassifier {
        &self.model
    }

    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The names of the classes.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The label of every text, with the probabilities of all. Neither company nor order changes one. A text that is too long
    /// is cut, as in training. To an encoder of two segments a tab parts the texts of a pair.
    ///
    /// # Errors
    /// If a text has a character that the tokenizer does not know, with its line, or the device fails.
    pub fn classify<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Prediction>, ClassificationError> {
        self.classify_after(0, texts)
    }

    /// As [`classify`](Self::classify), of texts before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`classify`](Self::classify).
    pub fn classify_after<S: AsRef<str>>(
        &self,
        before: usize,
        texts: &[S],
    ) -> Result<Vec<Prediction>, ClassificationError> {
        let encoded = (before + 1..)
            .zip(texts)
            .map(|(line, text)| self.encode(text.as_ref()).map_err(|error| ClassificationError::Line { line, error }));
        let found = log_probabilities(&self.model, &encoded.collect::<Result<Vec<_>, _>>()?)?;
        Ok(found.iter().map(|row| self.prediction(row)).collect())
    }

    /// A text, or a pair, as [`classify`](Self::classify) takes it.
    pub fn line_of(&self, text: &str, pair: Option<&str>) -> String {
        pair.map_or(text.to_string(), |pair| format!("{text}\t{pair}"))
    }

    fn encode(&self, text: &str) -> Result<EncodedText, firelight_data::DataError> {
        let is_of_pairs = self.model.encoder.segment_embedding.is_some();
        let (text, pair) = match text.split_once('\t') {
            Some((text, pair)) if is_of_pairs => (text, Some(pair)),
            _ => (text, None),
        };
        self.vocabulary.encode(text, pair, self.model.encoder.max_seq_len())
    }

    fn prediction(&self, row: &[f64]) -> Prediction {
        let best = likeliest(row);
        let probabilities = self.labels.iter().cloned().zip(row.iter().map(|value| value.exp())).collect();
        Prediction { label: self.labels[best].clone(), probabilities }
    }
}

/// The number of the largest value, the first of equal ones.
fn likeliest(row: &[f64]) -> usize {
    (0..row.len()).fold(0, |best, class| if row[class] > row[best] { class } else { best })
}

/// The logarithms of the probabilities of all classes, a row for each text; texts of similar length are read together.
pub(crate) fn log_probabilities(
    model: &TextClassifier,
    texts: &[EncodedText],
) -> Result<Vec<Vec<f64>>, ClassificationError> {
    let device = model.encoder.embedding.weight.device();
    let mut found = vec![Vec::new(); texts.len()];
    for batch in batches(texts, Batching::TOKENS_TO_READ) {
        let input = input_of(&batch.iter().map(|&index| &texts[index]).collect::<Vec<_>>(), &device);
        let logits = awake(&device, || model.forward(&input, &mut Pass::default()));
        let classes = logits.dims()[1];
        let rows: Vec<f64> =
            log_softmax(logits, 1).try_into_vec_as().map_err(ClassificationError::device("the probabilities"))?;
        if rows.iter().any(|value| value.is_nan()) {
            return Err(ClassificationError::NotFinite);
        }
        batch.iter().zip(rows.chunks(classes)).for_each(|(&index, row)| found[index] = row.to_vec());
    }
    Ok(found)
}

/// The texts by their place, the longest first, in batches of about so many tokens.
pub(crate) fn batches(texts: &[EncodedText], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(texts[index].ids.len()));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * texts[batch[0]].ids.len() <= budget => batch.push(index),
            _ => batches.push(vec![index]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::TextEncoderConfig;
    use crate::heads::SequenceHeadConfig;
    use crate::pooling::{PoolerConfig, PoolingConfig};
    use firelight_core::{Init, WeightInit};
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_storage::Existing;

    fn classifier(n_segments: usize) -> Classifier {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let encoder = TextEncoderConfig::modern(12, 16, 2, 1).with_n_segments(n_segments);
        let encoder = encoder.with_stack(|stack| stack.with_init(wide).with_max_seq_len(9));
        let config = TextClassifierConfig::new(encoder, ["x", "y", "z"])
            .with_head(SequenceHeadConfig::new(PoolerConfig::plain(PoolingConfig::Mean)));
        let vocabulary = TextVocabulary::new(tokenizer).unwrap();
        Classifier::new(config.init(&Device::default()), vocabulary, config.labels)
    }

    #[test]
    fn company_and_order_change_no_label() {
        let classifier = classifier(0);
        let texts = ["abc", "", "hgfedcba", "a", "bb dd"];
        let together = classifier.classify(&texts).unwrap();
        for (text, found) in texts.iter().zip(&together) {
            let alone = classifier.classify(&[text]).unwrap().remove(0);
            assert_eq!(alone.label, found.label);
            for (one, other) in alone.probabilities.iter().zip(&found.probabilities) {
                assert!(one.0 == other.0 && (one.1 - other.1).abs() < 1e-6, "{alone:?} {found:?}");
            }
            let sum: f64 = found.probabilities.iter().map(|(_, probability)| probability).sum();
            assert!((sum - 1.0).abs() < 1e-6);
        }
        let chance = |found: &Prediction| found.probabilities[0].1;
        assert!((chance(&together[0]) - chance(&together[1])).abs() > 0.1, "the texts differ: {together:?}");
    }

    #[test]
    fn a_long_text_is_cut_and_a_tab_parts_a_pair() {
        let texts = classifier(0);
        assert_eq!(texts.classify(&["abcdefgha"]).unwrap(), texts.classify(&["abcdefg"]).unwrap());
        let pairs = classifier(2);
        assert_ne!(pairs.classify(&["ab\tcd"]).unwrap(), pairs.classify(&["abcd"]).unwrap());
    }

    #[test]
    fn a_model_of_several_labels_is_not_asked_for_one() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        let config = TextClassifierConfig::new(TextEncoderConfig::modern(12, 16, 2, 1), ["x", "y"]);
        folder.write_config(crate::TASK, &TextClassifierConfig { outcome: Outcome::MultiLabel, ..config }).unwrap();
        let error = Classifier::load(folder.path()).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("a classifier names one label"), "{error}");
    }

    #[test]
    fn a_model_without_numbers_gives_no_label() {
        let mut damaged = classifier(0);
        let embedding = &mut damaged.model.encoder.embedding;
        embedding.weight = embedding.weight.clone().map(|weight| weight * f32::NAN);
        let error = damaged.classify(&["abc"]).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("its weights are damaged"), "{error}");
    }

    #[test]
    fn a_character_that_is_unknown_is_found_in_its_line() {
        let error = classifier(0).classify(&["a", "bz"]).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with("line 2: the character 'z'"), "{error}");
    }
}
