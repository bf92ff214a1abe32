//! What a layer reads beside the residual stream. It is the same for all tokens of a pass, and made once: see
//! `transformer/contexts.rs`.

use crate::position::{Rotation, ScoreBias};
use burn::tensor::{Bool, Int, Tensor};
use firelight_kernels::AttentionMask;

/// What a layer reads beside the residual stream. The same for all tokens of a pass, and shared by its layers.
#[derive(Debug, Clone, Default)]
pub struct LayerContext {
    /// Mask, score bias and rotation of the self-attention, over the tokens that the layer's [`State`](crate::State) has at hand.
    pub attention: AttentionContext,
    /// The encoder's output, in decoders with cross-attention.
    pub memory: Option<Memory>,
    /// `[B, T]`, true where a token of this pass is padding: neither experts nor recurrences read it.
    pub padding: Option<Tensor<2, Bool>>,
    /// `[B, T]`, the document of each token of this pass, where a row holds several: a recurrence begins anew with each.
    pub documents: Option<Tensor<2, Int>>,
}

/// Mask, score bias and rotation of one pass. The default is plain attention to everything.
#[derive(Debug, Clone, Default)]
pub struct AttentionContext {
    /// The pairs that are left out.
    pub mask: AttentionMask,
    /// Added to the scores.
    pub bias: Option<ScoreBias>,
    /// Turns queries and keys by their positions.
    pub rotation: Option<Rotation>,
}

impl AttentionContext {
    /// A context with a mask alone.
    pub fn masked(mask: AttentionMask) -> Self {
        Self { mask, ..Self::default() }
    }
}

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
    pub(crate) fn check(&self, x: [usize; 3]) {
        let shape @ [batch, source_len, width] = self.hidden.dims();
        assert!([batch, width] == [x[0], x[2]], "memory {shape:?} does not fit the embeddings {x:?} in batch or width");
        let padding = self.padding.as_ref().map_or([batch, source_len], Tensor::dims);
        assert!(padding == [batch, source_len], "padding {padding:?} of the memory is not [B, S] of its {shape:?}");
    }
}
