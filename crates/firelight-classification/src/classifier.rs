//! A trained classifier and its tokenizer, loaded from a run folder: texts in, labels with their probabilities or numbers out,
//! as many and in the same order.

use std::path::Path;

use burn::tensor::Device;
use burn::tensor::activation::log_softmax;
use firelight_core::Pass;
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, InputError, TaskError};

use crate::data::EncodedText;
use crate::long_text::{LongText, PartReader, TextPart, merged, weighted_mean};
use crate::loss::ProblemType;
use crate::model::{TextClassifier, TextClassifierConfig};
use crate::pretrained::load;
use crate::reading::{read_texts, rows};
use crate::vocabulary::TextVocabulary;

/// What a classifier says of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Prediction {
    /// One of several classes.
    Label {
        /// The likeliest label.
        label: String,
        /// All labels with their probabilities, in the order of the labels.
        probabilities: Vec<(String, f64)>,
    },
    /// Any number of classes.
    Labels {
        /// The labels that are at least as likely as not, in the order of the labels.
        labels: Vec<String>,
        /// All labels with their probabilities, each its own, in the order of the labels.
        probabilities: Vec<(String, f64)>,
    },
    /// A number.
    Value(f64),
}

impl Prediction {
    /// The labels that it names: one, any number of them, or none where it is a number.
    pub fn labels(&self) -> &[String] {
        match self {
            Self::Label { label, .. } => std::slice::from_ref(label),
            Self::Labels { labels, .. } => labels,
            Self::Value(_) => &[],
        }
    }

    /// The labels that it names with their probabilities.
    pub fn named(&self) -> impl Iterator<Item = (&str, f64)> {
        let is_named = |label: &String| self.labels().contains(label);
        let named = self.probabilities().iter().filter(move |(label, _)| is_named(label));
        named.map(|(label, probability)| (label.as_str(), *probability))
    }

    /// All labels with their probabilities; none where it is a number.
    pub fn probabilities(&self) -> &[(String, f64)] {
        match self {
            Self::Label { probabilities, .. } | Self::Labels { probabilities, .. } => probabilities,
            Self::Value(_) => &[],
        }
    }
}

/// A trained classifier and its tokenizer.
#[derive(Debug)]
pub struct Classifier {
    model: TextClassifier,
    vocabulary: TextVocabulary,
    labels: Vec<String>,
    problem_type: ProblemType,
    long_text: LongText,
}

impl Classifier {
    /// Puts a model, a tokenizer and the names of the classes together, of which one is true.
    ///
    /// # Panics
    /// If there is not a name for each output of the model.
    pub fn new(model: TextClassifier, vocabulary: TextVocabulary, labels: Vec<String>) -> Self {
        let (found, expected) = (labels.len(), model.num_outputs());
        assert!(found == expected, "{found} labels for {expected} outputs");
        Self { model, vocabulary, labels, problem_type: ProblemType::default(), long_text: LongText::default() }
    }

    /// Sets what a label is.
    pub fn with_problem_type(mut self, problem_type: ProblemType) -> Self {
        self.problem_type = problem_type;
        self
    }

    /// Sets how texts are read that are longer than the model reads. Of their parts the mean of the probabilities counts, of several labels
    /// that of each, of a regression that of the numbers.
    ///
    /// # Errors
    /// If a stride is 0, or longer than a window.
    pub fn with_long_text(mut self, long_text: LongText) -> Result<Self, InputError> {
        self.long_text = long_text.checked(self.vocabulary.room(self.model.encoder.max_seq_len()))?;
        Ok(self)
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
        let (config, model, vocabulary) = load::<TextClassifierConfig>(folder.as_ref(), checkpoint, device)?;
        Ok(Self::new(model, vocabulary, config.labels).with_problem_type(config.problem_type))
    }

    /// The model.
    pub fn model(&self) -> &TextClassifier {
        &self.model
    }

    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The names of the classes; of a regression that of its number.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// What a label is.
    pub fn problem_type(&self) -> ProblemType {
        self.problem_type
    }

    /// The label of every text, or its labels, with the probabilities of all, or its number. Neither company nor order changes
    /// one. A text that is too long is cut, as in training, or read as [`with_long_text`](Self::with_long_text) says. To an encoder of two
    /// segments a tab parts the texts of a pair.
    ///
    /// # Errors
    /// If a text has a character that the tokenizer does not know, or the other text of its pair leaves no room for a part of it, with its
    /// line, if an answer is no number, or the device fails.
    pub fn classify<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Prediction>, TaskError> {
        self.classify_after(0, texts)
    }

    /// As [`classify`](Self::classify), of texts before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`classify`](Self::classify).
    pub fn classify_after<S: AsRef<str>>(&self, before: usize, texts: &[S]) -> Result<Vec<Prediction>, TaskError> {
        let parts = (before + 1..).zip(texts);
        let parts = parts.map(|(line, text)| self.parts(text.as_ref()).map_err(TaskError::in_line(line)));
        let parts: Vec<Vec<TextPart>> = parts.collect::<Result<_, _>>()?;
        let found = answers(&self.model, self.problem_type, parts.iter().flatten().map(|part| &part.text))?;
        let found = merged(&parts, found, |rows, weights| mean_answer(self.problem_type, rows, weights));
        Ok(found.iter().map(|row| self.prediction(row)).collect())
    }

    /// A text, or a pair, as [`classify`](Self::classify) takes it.
    pub fn line_of(&self, text: &str, pair: Option<&str>) -> String {
        pair.map_or(text.to_string(), |pair| format!("{text}\t{pair}"))
    }

    /// What is read of a text, or of a pair.
    fn parts(&self, text: &str) -> Result<Vec<TextPart>, firelight_data::DataError> {
        let is_of_pairs = self.model.encoder.segment_embedding.is_some();
        let texts = match text.split_once('\t') {
            Some((text, pair)) if is_of_pairs => (text, Some(pair)),
            _ => (text, None),
        };
        let max_len = self.model.encoder.max_seq_len();
        PartReader { vocabulary: &self.vocabulary, max_len, long_text: self.long_text }.parts("", texts)
    }

    /// A row of [`answers`] in words.
    fn prediction(&self, row: &[f64]) -> Prediction {
        let named = |probability: fn(f64) -> f64| {
            self.labels.iter().cloned().zip(row.iter().map(|&answer| probability(answer))).collect()
        };
        match self.problem_type {
            ProblemType::SingleLabel => {
                Prediction::Label { label: self.labels[likeliest(row)].clone(), probabilities: named(f64::exp) }
            }
            ProblemType::MultiLabel => {
                let held = self.labels.iter().zip(row).filter(|(_, logit)| is_held(**logit));
                let labels = held.map(|(label, _)| label.clone()).collect();
                Prediction::Labels { labels, probabilities: named(sigmoid) }
            }
            ProblemType::Regression => Prediction::Value(row[0]),
        }
    }
}

/// Whether a label of this logit holds: whether its probability is at least one half.
pub(crate) fn is_held(logit: f64) -> bool {
    logit >= 0.0
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

/// The logit of a probability.
fn logit(probability: f64) -> f64 {
    (probability / (1.0 - probability)).ln()
}

/// The answer whose probabilities, or whose number, are the means of those of several [`answers`] with these weights.
fn mean_answer(problem_type: ProblemType, rows: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let mean = |probability: fn(f64) -> f64, answer: fn(f64) -> f64| -> Vec<f64> {
        let of_row = |row: &Vec<f64>| row.iter().map(|&value| probability(value)).collect();
        let probabilities: Vec<Vec<f64>> = rows.iter().map(of_row).collect();
        weighted_mean(&probabilities, weights).into_iter().map(answer).collect()
    };
    match problem_type {
        ProblemType::SingleLabel => mean(f64::exp, f64::ln),
        ProblemType::MultiLabel => mean(sigmoid, logit),
        ProblemType::Regression => weighted_mean(rows, weights),
    }
}

/// The number of the largest value, the first of equal ones.
pub(crate) fn likeliest(row: &[f64]) -> usize {
    (0..row.len()).fold(0, |best, class| if row[class] > row[best] { class } else { best })
}

/// The logarithms of the probabilities of all classes, of several labels their logits, of a regression its number: a row for
/// each text; texts of similar length are read together.
pub(crate) fn answers<'a>(
    model: &TextClassifier,
    problem_type: ProblemType,
    texts: impl IntoIterator<Item = &'a EncodedText>,
) -> Result<Vec<Vec<f64>>, TaskError> {
    let device = model.encoder.embedding.weight.device();
    let is_single = problem_type == ProblemType::SingleLabel;
    // The logarithm of a probability of 0 is no damage.
    let is_answer = |value: &f64| value.is_finite() || (is_single && !value.is_nan());
    read_texts(texts, &device, |input, _| {
        let outputs = awake(&device, || model.forward(input, &mut Pass::default()));
        let found: Vec<Vec<f64>> = rows(if is_single { log_softmax(outputs, 1) } else { outputs }, "the answers")?;
        TaskError::require_finite(found.iter().flatten().all(is_answer))?;
        Ok(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::input_of;
    use crate::encoder::TextEncoderConfig;
    use crate::heads::SequenceHeadConfig;
    use crate::pooling::{PoolerConfig, PoolingConfig};
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;

    fn classifier(n_segments: usize) -> Classifier {
        classifier_of(n_segments, &["x", "y", "z"])
    }

    fn classifier_of(n_segments: usize, labels: &[&str]) -> Classifier {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let encoder = TextEncoderConfig::modern(12, 16, 2, 1).with_n_segments(n_segments);
        let encoder = encoder.with_stack(|stack| stack.with_init(wide).with_max_seq_len(9));
        let config = TextClassifierConfig::new(encoder, labels.iter().copied())
            .with_problem_type(if labels.len() == 1 { ProblemType::Regression } else { ProblemType::SingleLabel })
            .with_head(SequenceHeadConfig::new(PoolerConfig::plain(PoolingConfig::Mean)));
        let vocabulary = TextVocabulary::new(tokenizer).unwrap();
        Classifier::new(config.init_with(&ParamBuilder::new(&Device::default(), 0)), vocabulary, config.labels)
            .with_problem_type(config.problem_type)
    }

    #[test]
    fn company_and_order_change_no_label() {
        let classifier = classifier(0);
        let texts = ["abc", "", "hgfedcba", "a", "bb dd"];
        let together = classifier.classify(&texts).unwrap();
        assert_eq!(together.len(), texts.len());
        for (text, found) in texts.iter().zip(&together) {
            let alone = classifier.classify(&[text]).unwrap().remove(0);
            assert_eq!(alone.labels(), found.labels());
            assert_eq!((alone.probabilities().len(), found.probabilities().len()), (3, 3));
            for (one, other) in alone.probabilities().iter().zip(found.probabilities()) {
                assert!(one.0 == other.0 && (one.1 - other.1).abs() < 1e-6, "{alone:?} {found:?}");
            }
            let sum: f64 = found.probabilities().iter().map(|(_, probability)| probability).sum();
            assert!((sum - 1.0).abs() < 1e-6);
        }
        let chance = |found: &Prediction| found.probabilities()[0].1;
        assert!((chance(&together[0]) - chance(&together[1])).abs() > 0.1, "the texts differ: {together:?}");
    }

    #[test]
    fn a_long_text_is_cut_and_a_tab_parts_a_pair() {
        let texts = classifier(0);
        assert_eq!(texts.classify(&["abcdefgha"]).unwrap(), texts.classify(&["abcdefg"]).unwrap());
        let pairs = classifier(2);
        assert_ne!(pairs.classify(&["ab\tcd"]).unwrap(), pairs.classify(&["abcd"]).unwrap());
    }

    fn probabilities(found: &Prediction) -> Vec<f64> {
        found.probabilities().iter().map(|(_, probability)| *probability).collect()
    }

    #[test]
    fn a_long_text_has_the_mean_probabilities_of_its_windows() {
        let windows = classifier(0).with_long_text(LongText::Windows { stride: Some(5) }).unwrap();
        let found = windows.classify(&["abc", "abcdefghab"]).unwrap();
        // Windows of 7 and 5 tokens share two: 5 tokens and two halves, two halves and 3 tokens.
        let parts = classifier(0).classify(&["abcdefg", "fghab"]).unwrap();
        let [first, second] = [&parts[0], &parts[1]].map(probabilities);
        let expected: Vec<f64> = first.iter().zip(&second).map(|(a, b)| 0.6 * a + 0.4 * b).collect();
        assert_close(&probabilities(&found[1]), &expected, 1e-5);
        assert!((probabilities(&found[1]).iter().sum::<f64>() - 1.0).abs() < 1e-5, "{found:?}");
        let error = classifier(0).with_long_text(LongText::Windows { stride: Some(8) }).unwrap_err().to_string();
        assert!(error.starts_with("stride is 8, expected at least 1 and at most 7"), "{error}");
    }

    #[test]
    fn a_text_that_fits_has_the_same_answer_however_long_ones_are_read() {
        let texts = ["abc", "", "gfedcba"];
        let expected = classifier(0).classify(&texts).unwrap();
        for long_text in
            [LongText::Windows { stride: None }, LongText::Windows { stride: Some(1) }, LongText::Sentences]
        {
            assert_eq!(classifier(0).with_long_text(long_text).unwrap().classify(&texts).unwrap(), expected);
        }
    }

    #[test]
    fn answers_are_averaged_by_hand_as_what_they_are() {
        let mean = |problem_type, rows: [[f64; 2]; 2]| mean_answer(problem_type, &rows.map(Vec::from), &[3.0, 1.0]);
        let found = mean(ProblemType::SingleLabel, [[0.5, 0.5], [0.9, 0.1]].map(|row| row.map(f64::ln)));
        assert_close(&found.into_iter().map(f64::exp).collect::<Vec<_>>(), &[0.6, 0.4], 1e-12);
        // Probabilities of 0.5 and 0.25, and of certainty and one half.
        let found = mean(ProblemType::MultiLabel, [[0.0, 1e3], [-3_f64.ln(), 0.0]]);
        assert_close(&found.into_iter().map(sigmoid).collect::<Vec<_>>(), &[0.4375, 0.875], 1e-12);
        assert_eq!(mean(ProblemType::MultiLabel, [[-1e3, 1e3]; 2]), [f64::NEG_INFINITY, f64::INFINITY]);
        assert_close(&mean(ProblemType::Regression, [[1.0, -4.0], [3.0, 0.0]]), &[1.5, -3.0], 1e-12);
    }

    #[test]
    fn several_labels_are_those_at_least_as_likely_as_not() {
        let classifier = classifier(0).with_problem_type(ProblemType::MultiLabel);
        let found = classifier.prediction(&[0.0, -3_f64.ln(), 1e3]);
        assert_eq!(found.labels(), ["x", "z"]);
        let chances: Vec<f64> = found.probabilities().iter().map(|(_, probability)| *probability).collect();
        assert!(chances[0] == 0.5 && (chances[1] - 0.25).abs() < 1e-15 && chances[2] == 1.0, "{chances:?}");
        assert_eq!(classifier.prediction(&[-1.0; 3]).labels(), [""; 0]);
    }

    #[test]
    fn a_regression_gives_the_output_itself() {
        let classifier = classifier_of(0, &["value"]);
        let input = input_of(&[&classifier.parts("abc").unwrap()[0].text], &Device::default());
        let output = classifier.model.forward(&input, &mut Pass::default()).into_scalar::<f64>();
        let found = classifier.classify(&["abc"]).unwrap();
        assert_eq!(found, [Prediction::Value(output)]);
        assert!(found[0].labels().is_empty() && found[0].probabilities().is_empty());
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
        let error = classifier(0).classify_after(10, &["a", "bz"]).unwrap_err();
        assert!(error.to_string().starts_with("line 12: the character 'z'"), "{error}");
    }

    #[test]
    fn a_pair_is_a_line_with_a_tab() {
        let pairs = classifier(2);
        assert_eq!((pairs.line_of("ab", None), pairs.line_of("ab", Some("cd"))), ("ab".into(), "ab\tcd".into()));
        let of_line = pairs.classify(&[pairs.line_of("ab", Some("cd"))]).unwrap();
        assert_ne!(of_line, pairs.classify(&[pairs.line_of("cd", Some("ab"))]).unwrap());
        assert_eq!(pairs.model.num_outputs(), 3);
    }
}
