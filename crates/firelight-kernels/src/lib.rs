//! The differentiable operations that a Transformer lives on, each behind one signature for every Burn backend.
//!
//! `firelight-core` computes through these functions and nothing else, so an operation is made faster here without a
//! caller noticing. Every operation is a folder: `mod.rs` holds the signature, the shapes and the source, and says which
//! gradient belongs to which input, as `graph.rs` records it; `reference.rs` the composite of Burn primitives, which runs on
//! every backend, differentiates by itself, and is the oracle of any faster path; `flex.rs` the passes over memory of the CPU
//! backend, and `cube.rs` the kernels of the GPU backends, if it has any. [`kernel_path`] tells which of the two runs on a device.
//!
//! Letters in shapes: `B` batch, `H` query heads, `G` key/value heads, `Q` queries, `K` keys, `E` head size,
//! `N` rows, `V` classes.
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use firelight_kernels::{AttentionMask, AttentionOptions, attention};
//!
//! let device = Device::flex();
//! let query = Tensor::<4>::random([1, 4, 3, 8], Distribution::Default, &device); // [B, H, Q, E]
//! let memory = Tensor::<4>::random([1, 2, 5, 8], Distribution::Default, &device); // [B, G, K, E]
//! let options = AttentionOptions::default().with_mask(AttentionMask::causal());
//! let output = attention(query, memory.clone(), memory, &options);
//! assert_eq!(output.dims(), [1, 4, 3, 8]);
//! ```
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "flex")]
mod activation;
mod adamw;
mod add_norm;
mod attention;
mod awake;
mod blocks;
mod cast;
mod causal_convolution;
mod closeness;
mod cross_entropy;
#[cfg(feature = "cube")]
mod cube;
mod dropout;
mod eight_bits;
mod embedding;
#[cfg(feature = "flex")]
mod flex;
mod gated;
mod gelu;
#[cfg(feature = "extension")]
mod graph;
#[cfg(feature = "flex")]
mod half;
#[cfg(all(test, feature = "flex"))]
mod laws;
mod layer_norm;
mod linear;
mod linear_cross_entropy;
mod linear_recurrence;
mod logits;
mod matmul_precision;
#[cfg(feature = "extension")]
mod optional;
mod path;
mod quantized;
mod recompute;
mod rms_norm;
mod rotary;
mod rule;
mod silu;
mod square_sum;
#[cfg(all(test, feature = "flex"))]
mod testing;

pub use adamw::{AdamWStep, adamw};
pub use add_norm::{add_layer_norm, add_rms_norm};
pub use attention::{AttentionMask, AttentionOptions, attention, attention_from_scores, attention_with_weights};
pub use awake::awake;
pub use blocks::BlockFormat;
pub use cast::cast;
pub use causal_convolution::causal_convolution;
pub use closeness::{Difference, Numbers, assert_close, assert_same_bits};
pub use cross_entropy::{CrossEntropyOptions, cross_entropy};
#[cfg(feature = "cuda")]
pub use cube::cache_compiled_kernels;
pub use dropout::dropout;
pub use eight_bits::{dequantize_rows, quantize_rows};
pub use embedding::embedding;
pub use gated::{Gate, gated};
pub use gelu::{GeluForm, gelu};
pub use layer_norm::layer_norm;
pub use linear::linear;
pub use linear_cross_entropy::linear_cross_entropy;
pub use linear_recurrence::linear_recurrence;
pub use logits::{LogitMap, LogitMatrix};
pub use matmul_precision::MatmulPrecision;
pub use path::{KernelPath, is_gpu, kernel_path};
pub use quantized::{dequantized, quantized_embedding, quantized_linear, supports_quantized_matmul};
pub use recompute::{can_recompute, recomputed};
pub use rms_norm::rms_norm;
pub use rotary::{RotaryPairs, rotary};
pub use rule::{Documents, KeyRanges, MaskRule, PairRule, RandomBlocks, Tile};
pub use silu::silu;
pub use square_sum::square_sum;
