//! Texts of ids become batches with what is true of them, the shorter ones padded on the right.

use std::ops::Range;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Tensor, TensorData};
use firelight_data::{TextWindow, right_padded};

use crate::encoder::TextInput;
use crate::loss::SequenceTargets;

/// A text, or a pair of texts, as an encoder reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedText {
    /// Its tokens, with those around it.
    pub ids: Vec<u32>,
    /// Where the second segment begins; behind the end, where there is none.
    pub second_from: usize,
    /// Whether tokens were left out because it is too long.
    pub is_cut: bool,
}

/// Words, or as many of a sentence as fit, as an encoder reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedWords {
    /// Their tokens, with those around them.
    pub text: EncodedText,
    /// The place of each word's first token, which speaks for the word.
    pub places: Vec<usize>,
}

/// A question with its text, or a window on a long one, as an encoder reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionWindow {
    /// The tokens, with those around them.
    pub text: EncodedText,
    /// The place of the text's first token in the window.
    pub from: usize,
    /// The bytes of the text that each of its tokens in the window stands for.
    pub stretches: Vec<Range<usize>>,
}

impl QuestionWindow {
    /// A window on a pair of a question and a text.
    pub(crate) fn of(window: TextWindow) -> Self {
        let (second_from, places) = (window.second_from(), window.places_of(1));
        let (from, stretches) = (places.start, window.offsets[places].to_vec());
        Self { text: EncodedText { ids: window.ids, second_from, is_cut: false }, from, stretches }
    }

    /// The places of the first and of the last token of an answer, which are these bytes of the text; none where the window does not
    /// hold it as a whole.
    pub fn places_of(&self, answer: Range<usize>) -> Option<[usize; 2]> {
        let first = self.stretches.iter().position(|stretch| stretch.end > answer.start)?;
        let last = self.stretches.iter().rposition(|stretch| stretch.start < answer.end)?;
        let is_whole = self.stretches[first].start <= answer.start && self.stretches[last].end >= answer.end;
        (is_whole && first <= last).then(|| [first, last].map(|token| self.from + token))
    }
}

/// What is true of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// The number of its class.
    Class(usize),
    /// Of every class, whether it holds.
    Classes(Vec<bool>),
    /// Its number.
    Number(f64),
}

impl Target {
    /// The class, 1 or 0 for every class, or the number.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        match self {
            Self::Class(class) => vec![*class as f64],
            Self::Classes(flags) => flags.iter().map(|&flag| f64::from(u8::from(flag))).collect(),
            Self::Number(number) => vec![*number],
        }
    }
}

/// A text with what is true of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// The text.
    pub text: EncodedText,
    /// What is true of it; of the same kind in all examples of a batch.
    pub target: Target,
}

/// What one step of a classifier reads.
#[derive(Debug, Clone)]
pub struct TextBatch {
    /// The texts.
    pub input: TextInput,
    /// What is true of them.
    pub targets: SequenceTargets,
}

/// Stacks texts with what is true of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextBatcher;

impl Batcher<Example, TextBatch> for TextBatcher {
    fn batch(&self, examples: Vec<Example>, device: &Device) -> TextBatch {
        let texts: Vec<&EncodedText> = examples.iter().map(|example| &example.text).collect();
        TextBatch { input: input_of(&texts, device), targets: targets_of(&examples, device) }
    }
}

/// What is true of the texts side by side, of the kind of the first.
fn targets_of(examples: &[Example], device: &Device) -> SequenceTargets {
    let rows: Vec<Vec<f64>> = examples.iter().map(|example| example.target.numbers()).collect();
    let (shape, values) = ([rows.len(), rows.first().map_or(0, Vec::len)], rows.concat());
    let table = || -> Tensor<2> {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    };
    match examples.first().map(|example| &example.target) {
        Some(Target::Classes(_)) => SequenceTargets::Classes(table()),
        Some(Target::Number(_)) => SequenceTargets::Numbers(table()),
        Some(Target::Class(_)) | None => {
            let classes: Vec<i32> = values.iter().map(|&class| class as i32).collect();
            SequenceTargets::Class(Tensor::from_data(TensorData::new(classes, [shape[0]]), device))
        }
    }
}

/// Texts side by side. There are no segments while no text is a pair, and no padding while all are equally long.
pub(crate) fn input_of(texts: &[&EncodedText], device: &Device) -> TextInput {
    let rows: Vec<&[u32]> = texts.iter().map(|text| &text.ids[..]).collect();
    let (tokens, padding) = right_padded(&rows, device);
    let segments = || {
        let [rows, length] = tokens.dims();
        let of_row = |text: &&EncodedText| (0..length).map(|t| i32::from(t >= text.second_from)).collect::<Vec<_>>();
        let segments: Vec<i32> = texts.iter().flat_map(of_row).collect();
        Tensor::from_data(TensorData::new(segments, [rows, length]), device)
    };
    let is_pair = |text: &&EncodedText| text.second_from < text.ids.len();
    TextInput { segments: texts.iter().any(is_pair).then(segments), tokens, padding }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Int;

    fn example(ids: &[u32], second_from: usize, class: usize) -> Example {
        Example { text: EncodedText { ids: ids.into(), second_from, is_cut: false }, target: Target::Class(class) }
    }

    #[test]
    fn flags_and_numbers_are_rows() {
        let device = Device::default();
        let batch = |targets: [Target; 2]| {
            let of = |target| Example { target, ..example(&[5], 1, 0) };
            TextBatcher.batch(targets.map(of).into(), &device).targets
        };
        let flags = batch([Target::Classes(vec![true, false, true]), Target::Classes(vec![false; 3])]);
        let SequenceTargets::Classes(flags) = flags else { panic!("flags") };
        assert_eq!(flags.dims(), [2, 3]);
        assert_eq!(flags.try_to_vec_as::<f32>().unwrap(), [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        let SequenceTargets::Numbers(numbers) = batch([2.5, -1.0].map(Target::Number)) else { panic!("numbers") };
        assert_eq!((numbers.dims(), numbers.try_to_vec_as::<f32>().unwrap()), ([2, 1], vec![2.5, -1.0]));
    }

    #[test]
    fn segments_and_padding_are_there_where_they_are_needed() {
        let device = Device::default();
        let ids = |tensor: Tensor<2, Int>| tensor.try_to_vec_as::<i64>().unwrap();
        let batch = TextBatcher.batch(vec![example(&[5, 6, 7], 3, 1), example(&[8, 9, 4, 3], 2, 0)], &device);
        assert_eq!(ids(batch.input.tokens), [5, 6, 7, 0, 8, 9, 4, 3]);
        assert_eq!(batch.input.segments.map(ids).unwrap()[4..], [0, 0, 1, 1]);
        assert_eq!(batch.input.padding.map(|padding| ids(padding.int())), Some(vec![0, 0, 0, 1, 0, 0, 0, 0]));
        let SequenceTargets::Class(classes) = batch.targets else { panic!("classes") };
        assert_eq!(classes.try_to_vec_as::<i64>().unwrap(), [1, 0]);
        let plain = TextBatcher.batch(vec![example(&[5], 1, 0)], &device).input;
        assert!(plain.segments.is_none() && plain.padding.is_none());
    }
}
