//! Attention from the operations of a backend, on blocks of queries: the scores of a block are formed, used and forgotten,
//! so memory is linear in the number of tokens while the products stay large enough for a GPU.
//!
//! Source: the weights are computed again in the backward pass as in Dao 2023, FlashAttention-2, algorithm 2
//! (<https://arxiv.org/abs/2307.08691>). Differs in that a block holds all keys that its queries see, and no others that are
//! worth a copy to leave out, so that its softmax is finished at once.

mod backward;
mod block;
#[cfg(feature = "cube")]
mod dropout;
#[cfg(all(test, feature = "flex", any(feature = "cube", feature = "ndarray")))]
pub(super) mod dropped;
mod float;
mod forward;
#[cfg(any(feature = "cube", all(test, feature = "ndarray")))]
mod routes;

pub(super) use {
    backward::{backward, sinks_gradient},
    forward::forward,
};

/// Scores that a block holds at once: 64 MiB in single precision, several times over in the backward pass.
pub(super) const SCORES: usize = 16 * 1024 * 1024;

/// Queries that a block of a sparse rule has at least, so that its products do not get too thin.
const SPARSE_QUERIES: usize = 128;

/// Ranges of keys that the keys of a block are compared with on the device; where a query sees more, its pairs come from the
/// host.
const COMPARED: usize = 8;
