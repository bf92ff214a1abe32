//! The projections from the residual stream to queries, keys and values: three matrices, or one.

use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Whether queries, keys and values have a matrix each, or share one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProjectionKind {
    /// Three matrices, `[D, H E]`, `[D, G E]`, `[D, G E]`.
    #[default]
    Separate,
    /// One matrix, `[D, (H + 2 G) E]`, as GPT-2's `c_attn`.
    Fused,
}

/// The widths of the three outputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    pub(super) d_model: usize,
    /// `H E`.
    pub(super) query: usize,
    /// `G E`, of the keys and again of the values.
    pub(super) key: usize,
}

impl ProjectionKind {
    pub(super) fn init_with(self, widths: Widths, bias: bool, init: Init, params: &ParamBuilder) -> Projection {
        let Widths { d_model, query, key } = widths;
        let linear = |name: &str, width: usize| {
            LinearConfig::new(d_model, width).with_bias(bias).with_init(init).init_with(&params.scope(name))
        };
        match self {
            Self::Separate => Projection::Separate(SeparateProjection {
                query: linear("query", query),
                key: linear("key", key),
                value: linear("value", key),
            }),
            Self::Fused => Projection::Fused(FusedProjection { qkv: linear("qkv", query + 2 * key), d_query: query }),
        }
    }
}

/// Queries, keys and values as linear maps.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per layer, and Burn's modules cannot be boxed")]
pub enum Projection {
    /// A matrix each.
    Separate(SeparateProjection),
    /// One matrix.
    Fused(FusedProjection),
}

/// Three matrices.
#[derive(Module, Debug)]
pub struct SeparateProjection {
    /// `[D, H E]`.
    pub query: Linear,
    /// `[D, G E]`.
    pub key: Linear,
    /// `[D, G E]`.
    pub value: Linear,
}

/// One matrix whose columns are the queries', then the keys', then the values'.
#[derive(Module, Debug)]
pub struct FusedProjection {
    /// `[D, (H + 2 G) E]`.
    pub qkv: Linear,
    d_query: usize,
}

impl Projection {
    /// Queries, keys and values of the same `x`, `[B, T, D] -> 3 x [B, T, H E | G E]`.
    pub(super) fn project(&self, x: Tensor<3>) -> [Tensor<3>; 3] {
        match self {
            Self::Separate(_) => {
                let [key, value] = self.keys_and_values(x.clone());
                [self.queries(x), key, value]
            }
            Self::Fused(fused) => {
                let d_key = fused.d_key();
                let qkv = fused.qkv.forward(x);
                let key_start = fused.d_query;
                [
                    qkv.clone().narrow(2, 0, key_start),
                    qkv.clone().narrow(2, key_start, d_key),
                    qkv.narrow(2, key_start + d_key, d_key),
                ]
            }
        }
    }

    /// The queries alone, `[B, T, H E]`.
    pub(super) fn queries(&self, x: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Separate(separate) => separate.query.forward(x),
            Self::Fused(fused) => fused.qkv.forward_columns(x, 0, fused.d_query),
        }
    }

    /// Keys and values alone, 2 x `[B, S, G E]`.
    pub(super) fn keys_and_values(&self, memory: Tensor<3>) -> [Tensor<3>; 2] {
        match self {
            Self::Separate(separate) => [separate.key.forward(memory.clone()), separate.value.forward(memory)],
            Self::Fused(fused) => {
                let (start, d_key) = (fused.d_query, fused.d_key());
                let both = fused.qkv.forward_columns(memory, start, start + 2 * d_key);
                [both.clone().narrow(2, 0, d_key), both.narrow(2, d_key, d_key)]
            }
        }
    }
}

impl FusedProjection {
    /// `G E`.
    fn d_key(&self) -> usize {
        (self.qkv.weight.shape()[1] - self.d_query) / 2
    }
}
