//! Attention from the operations of a backend, on blocks of queries: the scores of a block are formed, used and forgotten,
//! so memory is linear in the number of tokens while the products stay large enough for a GPU.
//!
//! Source: the weights are computed again in the backward pass as in Dao 2023, FlashAttention-2, algorithm 2
//! (<https://arxiv.org/abs/2307.08691>). Differs in that a block holds all keys that its queries see, so that its softmax
//! is finished at once.

mod backward;
mod block;
mod float;
mod forward;

use super::extension::{AttentionExtension, AttentionKernel, Inputs, Settings};
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::tensor::FloatTensor;
pub(super) use {backward::backward, forward::forward};

/// Scores that a block holds at once: 64 MiB in single precision, several times over in the backward pass.
pub(super) const SCORES: usize = 16 * 1024 * 1024;

/// Queries that a block of a narrow window has at least, so that its products do not get too thin.
const WINDOW_QUERIES: usize = 128;

/// Lets a backend compute attention in blocks.
macro_rules! in_blocks {
    ($backend:ty) => {
        impl AttentionKernel for $backend {}

        impl AttentionExtension for $backend {
            fn attention(
                query: FloatTensor<Self>,
                key: FloatTensor<Self>,
                value: FloatTensor<Self>,
                bias: OptionalFloat<Self>,
                padding: OptionalBool<Self>,
                hidden: OptionalBool<Self>,
                settings: Settings,
            ) -> FloatTensor<Self> {
                let (bias, padding, hidden) = (bias.into_option(), padding.into_option(), hidden.into_option());
                forward::output::<Self>(&Inputs { query, key, value, bias, padding, hidden, settings })
            }
        }
    };
}

#[cfg(feature = "cube")]
in_blocks!(burn::backend::Cube);

// A CPU backend without kernels of its own, for a test of the blocks without a GPU.
#[cfg(all(test, feature = "ndarray"))]
#[allow(deprecated)]
mod on_ndarray {
    use super::*;

    in_blocks!(burn::backend::NdArray);
}
