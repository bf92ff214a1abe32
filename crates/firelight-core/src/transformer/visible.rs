//! What is known of the tokens that a pass can see, those in the cache included.

use super::SequenceInput;
use crate::document_starts::DocumentStarts;
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

    /// Which tokens of the pass begin a document.
    pub(super) fn document_starts(&self) -> Option<DocumentStarts> {
        let documents = self.documents.clone()?;
        Some(DocumentStarts::of(documents, self.padding.clone(), self.tokens.clone()))
    }

    /// Hides padding, and what holds in every layer, among the last `len` tokens from the tokens of the pass.
    pub(super) fn mask(&self, len: usize) -> AttentionMask {
        let start = self.tokens.end - len;
        let padding = self.padding.clone().map(|padding| padding.narrow(1, start, len));
        let padding = padding.map_or(AttentionMask::none(), AttentionMask::padding);
        AttentionMask::rule(self.rule.clone()).starting_at(start).and(padding)
    }
}
