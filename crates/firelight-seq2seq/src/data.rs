//! Pairs of ids become batches. Teacher forcing is built here and nowhere else: the decoder reads the target shifted by one,
//! with the start token in front, and is to predict the target with the end token behind.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Bool, Device, Int, Tensor};
pub(crate) use firelight_data::right_padded;
use firelight_data::{EncodedPair, Frame};

use crate::vocabulary::{Ends, Vocabulary};

/// What one step of a model reads.
#[derive(Debug, Clone)]
pub struct PairBatch {
    /// `[B, S]`, each source with the tokens that stand around it: an end token behind it, and what its tokenizer puts there.
    pub source: Tensor<2, Int>,
    /// `[B, S]`, true where a source has ended; none while all are equally long.
    pub source_padding: Option<Tensor<2, Bool>>,
    /// `[B, T]`, each target with the start token in front.
    pub inputs: Tensor<2, Int>,
    /// `[B, T]`, each target with the end token behind it.
    pub targets: Tensor<2, Int>,
    /// `[B, T]`, true where a target has ended; none while all are equally long. Targets are padded on the right, where a causal
    /// decoder cannot see the padding, so that it matters to the loss alone.
    pub padding: Option<Tensor<2, Bool>>,
}

/// Stacks pairs, the shorter ones padded on the right.
#[derive(Debug, Clone)]
pub struct PairBatcher {
    ends: Ends,
}

impl PairBatcher {
    /// A batcher that puts these tokens around the sequences: `start` in front of targets, the others behind.
    pub fn new(start: u32, source_end: u32, target_end: u32) -> Self {
        Self { ends: Ends { start, source: Frame::behind(source_end), target: target_end } }
    }

    /// A batcher that puts around sequences what the tokenizers of a run put there.
    ///
    /// ```
    /// use burn::data::dataloader::batcher::Batcher;
    /// use firelight_data::{Pair, Tokenizer, TokenizerConfig};
    /// use firelight_seq2seq::{PairBatcher, Vocabulary};
    ///
    /// let vocabulary = Vocabulary::new(None, Tokenizer::train(&TokenizerConfig::Char, "abc")?)?;
    /// let pair = vocabulary.encode(&Pair::new("ab", "c"))?;
    /// let batch = PairBatcher::of(&vocabulary).batch(vec![pair], &Default::default());
    /// assert_eq!(batch.source.dims(), [1, 3]); // the end token is behind the text
    /// # Ok::<(), firelight_data::DataError>(())
    /// ```
    pub fn of(vocabulary: &Vocabulary) -> Self {
        Self { ends: vocabulary.ends().clone() }
    }
}

impl Batcher<EncodedPair, PairBatch> for PairBatcher {
    fn batch(&self, pairs: Vec<EncodedPair>, device: &Device) -> PairBatch {
        let Ends { start, source, target } = &self.ends;
        let sources: Vec<Vec<u32>> = pairs.iter().map(|pair| source.put(&pair.source, None).0).collect();
        let (source, source_padding) = right_padded(&sources, device);
        let [inputs, targets] = shifted(pairs.iter().map(|pair| &pair.target[..]), [*start, *target]);
        let (inputs, padding) = right_padded(&inputs, device);
        let (targets, _) = right_padded(&targets, device);
        PairBatch { source, source_padding, inputs, targets, padding }
    }
}

/// What the decoder reads of every target, and what it is to predict: `start` in front, and `end` behind.
pub(crate) fn shifted<'a>(targets: impl Iterator<Item = &'a [u32]>, [start, end]: [u32; 2]) -> [Vec<Vec<u32>>; 2] {
    let both = targets.map(|target| ([&[start], target].concat(), [target, &[end]].concat()));
    let (inputs, targets) = both.unzip();
    [inputs, targets]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(source: &[u32], target: &[u32]) -> EncodedPair {
        EncodedPair { source: source.into(), target: target.into() }
    }

    #[test]
    fn targets_are_shifted_once_and_padding_is_marked_on_both_sides() {
        let batcher = PairBatcher::new(7, 8, 9);
        let batch = batcher.batch(vec![pair(&[1, 2, 3], &[4]), pair(&[5], &[6, 4])], &Device::default());
        let ids = |tensor: Tensor<2, Int>| tensor.try_to_vec_as::<i64>().unwrap();
        let flags = |padding: Option<Tensor<2, Bool>>| padding.map(|padding| ids(padding.int()));
        assert_eq!(ids(batch.source), [1, 2, 3, 8, 5, 8, 0, 0]);
        assert_eq!(flags(batch.source_padding), Some(vec![0, 0, 0, 0, 0, 0, 1, 1]));
        assert_eq!(ids(batch.inputs), [7, 4, 0, 7, 6, 4]);
        assert_eq!(ids(batch.targets), [4, 9, 0, 6, 4, 9]);
        assert_eq!(flags(batch.padding), Some(vec![0, 0, 1, 0, 0, 0]));
    }

    #[test]
    fn pairs_of_one_length_have_no_padding() {
        let batch = PairBatcher::new(0, 1, 1).batch(vec![pair(&[2], &[3]), pair(&[4], &[5])], &Device::default());
        assert!(batch.source_padding.is_none() && batch.padding.is_none());
    }
}
