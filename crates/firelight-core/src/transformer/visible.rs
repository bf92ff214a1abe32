//! What is known of the tokens that a pass can see, those in the cache included.

use super::SequenceInput;
use crate::pass::Pass;
use crate::position::Positions;
use burn::tensor::{Bool, Device, Int, Tensor};
use firelight_kernels::{AttentionMask, PairRule};
use std::ops::Range;

/// The tokens of a pass, and the padding and documents of all up to them, `[B, K]`.
pub(super) struct VisibleTokens {
    tokens: Range<usize>,
    device: Device,
    padding: Option<Tensor<2, Bool>>,
    documents: Option<Tensor<2, Int>>,
    /// `[1 | B, K, A]`.
    coordinates: Option<Tensor<3>>,
    /// What holds in every layer.
    rule: PairRule,
}

impl VisibleTokens {
    /// For a pass of `[B, T]` tokens, whose flags join those in the cache.
    pub(super) fn new(input: &SequenceInput, pass: &mut Pass, [batch, seq_len]: [usize; 2], device: Device) -> Self {
        let start = pass.start();
        let documents = pass.documents(input.documents.clone(), [batch, seq_len]);
        let of_documents = documents.as_ref().map_or(PairRule::Full, PairRule::documents);
        Self {
            tokens: start..start + seq_len,
            device,
            padding: pass.padding(input.padding.clone(), [batch, seq_len]),
            documents,
            coordinates: pass.coordinates(input.coordinates.clone(), [batch, seq_len]),
            rule: input.rule.clone().and(of_documents),
        }
    }

    /// The tokens of the pass, by their place in the row.
    pub(super) fn tokens(&self) -> Range<usize> {
        self.tokens.clone()
    }

    /// Where they are computed.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The positions of the last `len` tokens.
    pub(super) fn positions(&self, len: usize) -> Positions {
        if let Some(coordinates) = &self.coordinates {
            let values = coordinates.clone().narrow(1, self.tokens.end - len, len);
            return Positions::Coordinates { values, len: self.tokens.end };
        }
        let tokens = self.tokens.end - len..self.tokens.end;
        Positions::of(self.documents.as_ref(), self.padding.as_ref(), tokens)
    }

    /// `[B, T]`, true where a token of the pass begins a document: the last one before it that is no padding is of another, or there
    /// is none. Padding begins none.
    pub(super) fn document_starts(&self) -> Option<Tensor<2, Bool>> {
        let documents = self.documents.clone()?;
        let ([batch, keys], device) = (documents.dims(), documents.device());
        // Counted from 1, so that 0 is no token.
        let places = Tensor::<1, Int>::arange(1..keys as i64 + 1, &device).unsqueeze::<2>().expand([batch, keys]);
        let places = match &self.padding {
            Some(padding) => places.mask_fill(padding.clone(), 0),
            None => places,
        };
        let first = Tensor::<2, Int>::zeros([batch, 1], &device);
        let before = Tensor::cat(vec![first, places.clone().cummax(1)], 1).narrow(1, 0, keys); // [B, K]
        let others = documents.clone().gather(1, (before.clone() - 1).clamp_min(0)).not_equal(documents);
        let starts = others.bool_or(before.equal_scalar(0)).bool_and(places.not_equal_scalar(0));
        Some(starts.narrow(1, self.tokens.start, self.tokens.len()))
    }

    /// Hides padding, and what holds in every layer, among the last `len` tokens from the tokens of the pass.
    pub(super) fn mask(&self, len: usize) -> AttentionMask {
        let start = self.tokens.end - len;
        let padding = self.padding.clone().map(|padding| padding.narrow(1, start, len));
        let padding = padding.map_or(AttentionMask::none(), AttentionMask::padding);
        AttentionMask::rule(self.rule.clone()).starting_at(start).and(padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts<const K: usize>(documents: [i64; K], padding: Option<[bool; K]>, tokens: Range<usize>) -> Vec<bool> {
        let device = Device::default();
        let visible = VisibleTokens {
            tokens,
            device: device.clone(),
            padding: padding.map(|padding| Tensor::<1, Bool>::from_bool(padding, &device).unsqueeze()),
            documents: Some(Tensor::<1, Int>::from_ints(documents, &device).unsqueeze()),
            coordinates: None,
            rule: PairRule::Full,
        };
        visible.document_starts().expect("documents").into_data().iter().collect()
    }

    #[test]
    fn a_document_begins_behind_another_whatever_padding_stands_between() {
        assert_eq!(starts([7, 7, 3, 3, 7], None, 0..5), [true, false, true, false, true]);
        let padding = Some([true, false, false, true, false, false, true]);
        let (no, yes) = (false, true);
        assert_eq!(starts([9, 4, 4, 9, 4, 5, 6], padding, 0..7), [no, yes, no, no, no, yes, no]);
        assert_eq!(starts([9, 4, 4, 9, 4, 5, 6], padding, 4..7), [no, yes, no]);
    }
}
