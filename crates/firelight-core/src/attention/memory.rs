//! What cross-attention reads: the output of an encoder.

use burn::tensor::{Bool, Tensor};

/// The output of an encoder, as a decoder's cross-attention reads it.
#[derive(Debug, Clone)]
pub struct Memory {
    /// `[B, S, D]`.
    pub hidden: Tensor<3>,
    /// `[B, S]`, true where the source is padding.
    pub padding: Option<Tensor<2, Bool>>,
}

impl Memory {
    /// A memory `[B, S, D]` without padding.
    pub fn new(hidden: Tensor<3>) -> Self {
        Self { hidden, padding: None }
    }

    /// Sets which source tokens are padding, `[B, S]`.
    pub fn with_padding(mut self, padding: Option<Tensor<2, Bool>>) -> Self {
        self.padding = padding;
        self
    }

    /// It must fit the embeddings `x`, `[B, T, D]`, that read it.
    pub(super) fn check(&self, x: [usize; 3]) {
        let shape @ [batch, source_len, width] = self.hidden.dims();
        assert!([batch, width] == [x[0], x[2]], "memory {shape:?} does not fit the embeddings {x:?} in batch or width");
        let padding = self.padding.as_ref().map_or([batch, source_len], Tensor::dims);
        assert!(padding == [batch, source_len], "padding {padding:?} of the memory is not [B, S] of its {shape:?}");
    }
}
