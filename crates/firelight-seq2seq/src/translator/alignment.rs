//! Which tokens of a line and of its translation belong together.

use std::ops::Range;

use burn::tensor::Tensor;
use firelight_core::Pass;
use firelight_data::Tokenizer;
use firelight_storage::TaskError;
use serde::Serialize;

use super::{Translation, Translator};
use crate::data::right_padded;
use crate::inference::cross_attention;

/// A token of a translation and the one of its line that it looked at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlignedTokens {
    /// The place of the line's token, from 0; what its tokenizer puts in front of the line does not count.
    pub source: usize,
    /// The place of the translation's token, from 0.
    pub target: usize,
    /// The line's token as its tokenizer spells it.
    pub source_token: String,
    /// The translation's token as its tokenizer spells it.
    pub target_token: String,
}

impl Translator {
    /// Which token of the source each token of a translation looked at most: places of `(source, target)`, one for each
    /// token of the target. A line that was cut for the translation is cut here, too.
    ///
    /// It is the weights of the last layer but one (Garg et al. 2019), which are no proof of what a model relies on.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn align(&self, line: &str, translation: &Translation) -> Result<Vec<(usize, usize)>, TaskError> {
        let source = self.source(1, line, true)?;
        if source.is_empty() || translation.ids.is_empty() {
            return Ok(Vec::new());
        }
        let weights = self.weights(&source, &translation.ids).try_into_vec_as::<f32>();
        let weights = weights.map_err(TaskError::device("the weights of an alignment"))?;
        let text = self.text_of(&source);
        let nearest = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or_default();
        Ok(weights.chunks(source.len()).enumerate().map(|(t, row)| (nearest(&row[text.clone()]), t)).collect())
    }

    /// The tokens behind the places of [`align`](Self::align), for people to read.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    pub fn align_tokens(&self, line: &str, translation: &Translation) -> Result<Vec<AlignedTokens>, TaskError> {
        let (read, pairs) = (self.source(1, line, true)?, self.align(line, translation)?);
        let ids = if read.is_empty() { &read[..] } else { &read[self.text_of(&read)] };
        let spelled = |tokenizer: &Tokenizer, id| tokenizer.token(id).unwrap_or_default();
        let named = |(source, target): (usize, usize)| AlignedTokens {
            source,
            target,
            source_token: spelled(self.vocabulary.source(), ids[source]),
            target_token: spelled(self.vocabulary.target(), translation.ids[target]),
        };
        Ok(pairs.into_iter().map(named).collect())
    }

    /// Where the text stands in a source that is not empty.
    fn text_of(&self, source: &[u32]) -> Range<usize> {
        let frame = &self.vocabulary.ends().source;
        frame.begin()..source.len() + frame.begin() - frame.size(false)
    }

    /// The weights with which the tokens of a target looked at those of a source, `[T, S]`.
    fn weights(&self, source: &[u32], target: &[u32]) -> Tensor<2> {
        let (row, _) = right_padded(&[source], &self.model.embedding.weight.device());
        let read = self.model.encode(row, None, &mut Pass::default());
        cross_attention(&self.model, read, target)
    }
}

#[cfg(test)]
mod tests {
    use crate::translator::TranslateOptions;
    use crate::translator::tests::translator;
    use firelight_kernels::assert_close;

    #[test]
    fn every_token_of_a_translation_is_aligned_with_one_of_the_line() {
        let translator = translator();
        let found =
            translator.translate_with(&["abc"], &TranslateOptions::greedy(), |_| ()).unwrap().remove(0).remove(0);
        let pairs = translator.align("abc", &found).unwrap();
        assert!(!pairs.is_empty() && pairs.len() == found.ids.len());
        assert!(pairs.iter().enumerate().all(|(t, pair)| pair.0 < 3 && pair.1 == t), "{pairs:?}");
        let named = translator.align_tokens("abc", &found).unwrap();
        assert_eq!(named.iter().map(|pair| (pair.source, pair.target)).collect::<Vec<_>>(), pairs);
        assert!(named.iter().all(|pair| pair.source_token == ["a", "b", "c"][pair.source]), "{named:?}");
        let spelled: String = named.iter().map(|pair| pair.target_token.as_str()).collect();
        assert_eq!(spelled, found.text);
        // By hand: the place of the largest mean weight, the end token left out.
        let source = translator.source(0, "abc", false).unwrap();
        let weights: Vec<f32> = translator.weights(&source, &found.ids).try_into_vec_as().unwrap();
        let first = &weights[..3];
        assert!(first.iter().all(|weight| *weight <= first[pairs[0].0]), "{first:?}");
        assert_close(&[weights[..4].iter().sum::<f32>()], &[1.0_f32], 1e-5); // a mean of weights is a weight
        assert!(translator.align("", &found).unwrap().is_empty());
    }
}
