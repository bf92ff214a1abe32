//! Texts of ids become batches, the shorter ones padded on the right.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

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

/// A text with its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The text.
    pub text: EncodedText,
    /// The number of its class.
    pub class: usize,
}

/// What one step of a classifier reads.
#[derive(Debug, Clone)]
pub struct TextBatch {
    /// The texts.
    pub input: TextInput,
    /// What is true of them.
    pub targets: SequenceTargets,
}

/// Stacks texts with their classes.
#[derive(Debug, Clone, Copy)]
pub struct TextBatcher;

impl Batcher<Example, TextBatch> for TextBatcher {
    fn batch(&self, examples: Vec<Example>, device: &Device) -> TextBatch {
        let texts: Vec<&EncodedText> = examples.iter().map(|example| &example.text).collect();
        let classes: Vec<i32> = examples.iter().map(|example| example.class as i32).collect();
        let shape = [classes.len()];
        let targets = SequenceTargets::Class(Tensor::from_data(TensorData::new(classes, shape), device));
        TextBatch { input: input_of(&texts, device), targets }
    }
}

/// Texts side by side. There are no segments while no text is a pair, and no padding while all are equally long.
pub(crate) fn input_of(texts: &[&EncodedText], device: &Device) -> TextInput {
    let length = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
    let shape = [texts.len(), length];
    let ints = |value: fn(&EncodedText, usize) -> i32| -> Tensor<2, Int> {
        let values: Vec<i32> = texts.iter().flat_map(|text| (0..length).map(move |t| value(text, t))).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    };
    let is_pair = |text: &&EncodedText| text.second_from < text.ids.len();
    TextInput {
        tokens: ints(|text, t| text.ids.get(t).map_or(0, |&id| id as i32)),
        segments: texts.iter().any(is_pair).then(|| ints(|text, t| i32::from(t >= text.second_from))),
        padding: texts.iter().any(|text| text.ids.len() < length).then(|| padding(texts, shape, device)),
    }
}

/// `[B, T]`, true where a text has ended.
fn padding(texts: &[&EncodedText], [rows, length]: [usize; 2], device: &Device) -> Tensor<2, Bool> {
    let flags: Vec<bool> = texts.iter().flat_map(|text| (0..length).map(move |t| t >= text.ids.len())).collect();
    Tensor::from_bool(TensorData::new(flags, [rows, length]), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(ids: &[u32], second_from: usize, class: usize) -> Example {
        Example { text: EncodedText { ids: ids.into(), second_from, is_cut: false }, class }
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
