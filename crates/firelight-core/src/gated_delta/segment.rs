//! The tokens of a pass in segments. What one operation writes about a segment the next one finds in the caches of a CPU; a long
//! text at once would go through main memory with each.

use crate::context::LayerContext;
use burn::tensor::{Bool, Int, Tensor};

/// Tokens of a row.
const LENGTH: usize = 1024;

/// Some tokens of a pass, which follow those of the segment before.
pub(super) struct Segment {
    /// `[B, T, D]`.
    pub(super) x: Tensor<3>,
    /// `[B, T]`.
    pub(super) padding: Option<Tensor<2, Bool>>,
    /// `[B, T]`.
    pub(super) documents: Option<Tensor<2, Int>>,
}

impl Segment {
    /// All of a pass, in order.
    pub(super) fn all(x: Tensor<3>, context: &LayerContext) -> Vec<Self> {
        Self { x, padding: context.padding.clone(), documents: context.documents.clone() }.cut()
    }

    /// By halves: the backward pass of a cut writes a gradient of all that it is cut from, which for each segment from the whole would
    /// be the square of their number.
    fn cut(self) -> Vec<Self> {
        let segments = self.x.dims()[1].div_ceil(LENGTH);
        if segments < 2 {
            return vec![self];
        }
        let (middle, end) = (segments / 2 * LENGTH, self.x.dims()[1]);
        [(0, middle), (middle, end - middle)]
            .map(|(start, length)| self.part(start, length).cut())
            .into_iter()
            .flatten()
            .collect()
    }

    fn part(&self, start: usize, length: usize) -> Self {
        Self {
            x: self.x.clone().narrow(1, start, length),
            padding: self.padding.clone().map(|padding| padding.narrow(1, start, length)),
            documents: self.documents.clone().map(|documents| documents.narrow(1, start, length)),
        }
    }
}
