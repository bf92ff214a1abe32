//! A trained reader and its tokenizer, loaded from a run folder: a question and a text in, the stretch of the text that answers it out.
//!
//! Source: Devlin et al. 2019, §4.2 and 4.3 (<https://arxiv.org/abs/1810.04805>): the answer is the span of the largest score, and a
//! question without one is answered by the class token. The score is the product of the probabilities of first and last token, among
//! those of the text and the class token, as in Hugging Face's pipeline for question answering.

use std::ops::Range;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use firelight_core::Pass;
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, TaskError};
use serde::Serialize;

use crate::data::QuestionWindow;
use crate::model::{ReadingConfig, SpanReader, SpanReaderConfig};
use crate::pretrained::load;
use crate::reading::{read_texts, rows};
use crate::vocabulary::TextVocabulary;

/// The answer to a question. The names are those of Hugging Face's pipeline for question answering.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundAnswer {
    /// The stretch of the text; empty where the text does not tell.
    pub answer: String,
    /// The probability of its first token times that of its last one.
    pub score: f64,
    /// Where it begins, in characters from 0.
    pub start: usize,
    /// Where it ends: the character behind its last one.
    pub end: usize,
}

/// A trained reader and its tokenizer.
#[derive(Debug)]
pub struct QuestionAnswerer {
    model: SpanReader,
    vocabulary: TextVocabulary,
    reading: ReadingConfig,
}

impl QuestionAnswerer {
    /// Puts a model, a tokenizer and the way in which long texts are read together.
    pub fn new(model: SpanReader, vocabulary: TextVocabulary, reading: ReadingConfig) -> Self {
        Self { model, vocabulary, reading }
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
        let (config, model, vocabulary) = load::<SpanReaderConfig>(folder.as_ref(), checkpoint, device)?;
        Ok(Self::new(model, vocabulary, config.reading))
    }

    /// The model.
    pub fn model(&self) -> &SpanReader {
        &self.model
    }

    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// How long texts are read, and which answers there are.
    pub fn reading(&self) -> ReadingConfig {
        self.reading
    }

    /// The answers to questions, each about the text beside it, as many and in the same order. No company changes one.
    ///
    /// # Errors
    /// If a text has a character that the tokenizer does not know or is too long, with its line, if an answer is no number, or the
    /// device fails.
    pub fn answer<S: AsRef<str>>(&self, questions: &[(S, S)]) -> Result<Vec<FoundAnswer>, TaskError> {
        self.answer_after(0, questions)
    }

    /// As [`answer`](Self::answer), of questions before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn answer_after<S: AsRef<str>>(
        &self,
        before: usize,
        questions: &[(S, S)],
    ) -> Result<Vec<FoundAnswer>, TaskError> {
        let max_len = self.model.encoder.max_seq_len();
        let encode = |(line, (question, context)): (usize, &(S, S))| {
            self.vocabulary.encode_question((question.as_ref(), context.as_ref()), max_len, self.reading.stride, line)
        };
        let windows: Vec<_> = (before + 1..).zip(questions).map(encode).collect::<Result<_, _>>()?;
        let mut logits = span_answers(&self.model, &windows.concat())?.into_iter();
        let answer = |((_, context), windows): (&(S, S), &Vec<QuestionWindow>)| {
            let logits: Vec<[Vec<f64>; 2]> = logits.by_ref().take(windows.len()).collect();
            best_answer(context.as_ref(), windows, &logits, self.reading)
        };
        Ok(questions.iter().zip(&windows).map(answer).collect())
    }
}

/// The scores of all tokens of every window as the first and as the last of an answer, in the order of the windows; those of similar
/// length are read together.
pub(crate) fn span_answers(model: &SpanReader, windows: &[QuestionWindow]) -> Result<Vec<[Vec<f64>; 2]>, TaskError> {
    let device = model.encoder.embedding.weight.device();
    let found = read_texts(windows.iter().map(|window| &window.text), &device, |input, batch| {
        let logits = awake(&device, || model.forward(input, &mut Pass::default()));
        let of_windows = |logits: Tensor<2>| -> Result<Vec<Vec<f64>>, TaskError> {
            let mut found = rows(logits, "the answers")?;
            found.iter_mut().zip(batch).for_each(|(row, &window)| row.truncate(windows[window].text.ids.len()));
            Ok(found)
        };
        Ok(of_windows(logits.start)?.into_iter().zip(of_windows(logits.end)?).map(<[_; 2]>::from).collect())
    })?;
    TaskError::require_finite(found.iter().flatten().flatten().all(|value| value.is_finite()))?;
    Ok(found)
}

/// The likeliest answer of all windows on a text. Where there may be none, it is none if that is likelier in every window.
pub(crate) fn best_answer(
    context: &str,
    windows: &[QuestionWindow],
    logits: &[[Vec<f64>; 2]],
    reading: ReadingConfig,
) -> FoundAnswer {
    let (mut best, mut none) = ((f64::NEG_INFINITY, 0..0), f64::INFINITY);
    for (window, logits) in windows.iter().zip(logits) {
        let choices = |side: &Vec<f64>| {
            let own = &side[window.from..][..window.stretches.len()];
            log_softmax(&[&side[..1], own].concat())
        };
        let [starts, ends] = [choices(&logits[0]), choices(&logits[1])];
        none = none.min(starts[0] + ends[0]);
        for (first, start) in starts[1..].iter().enumerate() {
            for (more, end) in ends[1 + first..].iter().take(reading.max_answer_len).enumerate() {
                if start + end > best.0 {
                    let stretch = window.stretches[first].start..window.stretches[first + more].end;
                    let stretch = trimmed(context, stretch);
                    best = if stretch.is_empty() { best } else { (start + end, stretch) };
                }
            }
        }
    }
    let (score, stretch) = if reading.unanswerable && none >= best.0 { (none, 0..0) } else { best };
    let start = context[..stretch.start].chars().count();
    let answer = context[stretch].to_owned();
    FoundAnswer { score: score.exp(), start, end: start + answer.chars().count(), answer }
}

/// The stretch without the white space at its ends.
pub(crate) fn trimmed(context: &str, stretch: Range<usize>) -> Range<usize> {
    let text = context.get(stretch.clone()).unwrap_or_default();
    let begin = stretch.start + text.len() - text.trim_start().len();
    begin..begin + text.trim().len()
}

/// The logarithms of the probabilities.
pub(crate) fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = logits.iter().map(|logit| (logit - most).exp()).sum::<f64>().ln();
    logits.iter().map(|logit| logit - most - total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::EncodedText;
    use crate::encoder::TextEncoderConfig;
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_data::{Tokenizer, TokenizerConfig};

    fn reader(stride: Option<usize>) -> QuestionAnswerer {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ?\u{e9}").unwrap();
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let encoder = TextEncoderConfig::modern(14, 16, 2, 1).with_n_segments(2);
        let encoder = encoder.with_stack(|stack| stack.with_init(wide).with_max_seq_len(16));
        let reading = ReadingConfig { stride, max_answer_len: 3, unanswerable: false };
        let model =
            SpanReaderConfig::new(encoder).with_reading(reading).init_with(&ParamBuilder::new(&Device::default(), 0));
        QuestionAnswerer::new(model, TextVocabulary::new(tokenizer).unwrap(), reading)
    }

    #[test]
    fn company_and_order_change_no_answer_and_long_texts_are_read_in_windows() {
        let reader = reader(Some(4));
        let questions = [("a?", "bc de"), ("b?", "h\u{e9}gf edc ba a bcdefgh ab cd ef"), ("", "a"), ("ab?", "bb dd")];
        let together = reader.answer(&questions).unwrap();
        assert_eq!(together.len(), questions.len());
        for (question, found) in questions.iter().zip(&together) {
            let alone = reader.answer(&[*question]).unwrap().remove(0);
            assert!(alone.answer == found.answer && (alone.score - found.score).abs() < 1e-6, "{alone:?} {found:?}");
            let stretch: String = question.1.chars().skip(found.start).take(found.end - found.start).collect();
            assert!(stretch == found.answer && (1..=3).contains(&stretch.chars().count()), "{found:?}");
            assert!((0.0..=1.0).contains(&found.score));
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_reported_with_its_line() {
        let message = |question: &str, stride: Option<usize>| {
            let error = reader(stride).answer(&[("a?", "b"), (question, "bcdefgh abcdefgh")]).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        let long = message("a?", None);
        for part in ["line 2", "21 tokens", "max_seq_len = 16", "data.stride"] {
            assert!(long.contains(part), "{long}");
        }
        let error = reader(None).answer_after(10, &[("a?", "bcdefgh abcdefgh")]).unwrap_err();
        assert!(error.to_string().contains("line 11"), "{error}");
        let question = message("abcdefgh abcd", Some(4));
        assert!(question.contains("line 2") && question.contains("no room"), "{question}");
    }

    #[test]
    fn no_answer_is_given_where_it_is_the_likeliest_in_every_window() {
        let reading = ReadingConfig { stride: None, max_answer_len: 2, unanswerable: true };
        let text = EncodedText { ids: vec![0; 7], second_from: 3, is_cut: false };
        let window = QuestionWindow { text, from: 3, stretches: vec![0..1, 2..3, 3..5] };
        let logits =
            |class: f64| [vec![class, 9.0, 9.0, 1.0, 2.0, 0.0, 9.0], vec![class, 9.0, 9.0, 0.0, 0.0, 2.0, 9.0]];
        let best = |class: &[f64]| {
            let windows = vec![window.clone(); class.len()];
            let logits: Vec<_> = class.iter().map(|class| logits(*class)).collect();
            best_answer("a bcd", &windows, &logits, reading).answer
        };
        assert_eq!(best(&[0.0]), "bcd", "the question is no part of an answer");
        assert_eq!((best(&[5.0]), best(&[5.0, 0.0])), (String::new(), "bcd".into()));
    }
}
