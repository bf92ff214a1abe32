//! The projections from the residual stream to queries, keys and values: three matrices, or one.

use crate::cost::Cost;
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Whether queries, keys and values have a matrix each, or share one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProjectionKind {
    /// Three matrices, `[D, H E]`, `[D, G E]`, `[D, G W]`.
    #[default]
    Separate,
    /// One matrix, `[D, (H + G) E + G W]`, as GPT-2's `c_attn`.
    Fused,
}

/// The widths of the three outputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    pub(super) d_model: usize,
    /// `H E`.
    pub(super) query: usize,
    /// `G E`.
    pub(super) key: usize,
    /// `G W`.
    pub(super) value: usize,
}

impl ProjectionKind {
    pub(super) fn init_with(self, widths: Widths, bias: bool, init: Init, params: &ParamBuilder) -> Projection {
        let Widths { d_model, query, key, value } = widths;
        let linear = |name: &str, width: usize| {
            LinearConfig::new(d_model, width).with_bias(bias).with_init(init).init_with(&params.scope(name))
        };
        match self {
            Self::Separate => Projection::Separate(SeparateProjection {
                query: linear("query", query),
                key: linear("key", key),
                value: linear("value", value),
            }),
            Self::Fused => {
                let qkv = linear("qkv", query + key + value);
                Projection::Fused(FusedProjection { qkv, d_query: query, d_key: key })
            }
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
    /// `[D, G W]`.
    pub value: Linear,
}

/// One matrix whose columns are the queries', then the keys', then the values', as `c_attn` of GPT-2 (Radford et al. 2019).
#[derive(Module, Debug)]
pub struct FusedProjection {
    /// `[D, (H + G) E + G W]`.
    pub qkv: Linear,
    d_query: usize,
    d_key: usize,
}

impl Projection {
    /// Queries, keys and values of the same `x`, `[B, T, D] -> [B, T, H E], [B, T, G E], [B, T, G W]`.
    pub(super) fn project(&self, x: Tensor<3>) -> [Tensor<3>; 3] {
        match self {
            Self::Separate(_) => {
                let [key, value] = self.keys_and_values(x.clone());
                [self.queries(x), key, value]
            }
            Self::Fused(fused) => {
                let qkv = fused.qkv.forward(x);
                fused.parts().map(|part| qkv.clone().narrow(2, part.start, part.len()))
            }
        }
    }

    /// The same maps with one matrix, number for number, with adapters merged into it. The parameters are new ones: gradients
    /// and optimiser state stay behind.
    ///
    /// # Panics
    /// If some of the three have a bias and others have not.
    pub fn into_fused(self) -> Self {
        let Self::Separate(SeparateProjection { query, key, value }) = self else { return self };
        let (d_query, d_key) = (query.widths()[1], key.widths()[1]);
        let layers = [query, key, value];
        let biases: Vec<_> = layers.iter().filter_map(|layer| layer.bias.as_ref().map(Param::val)).collect();
        assert!(
            [0, 3].contains(&biases.len()),
            "{} of the three projections have a bias: all or none fuse",
            biases.len()
        );
        let weights = layers.iter().map(Linear::merged_weight).collect();
        let weight = Param::from_tensor(Tensor::cat(weights, 1));
        let bias = (!biases.is_empty()).then(|| Param::from_tensor(Tensor::cat(biases, 0)));
        Self::Fused(FusedProjection { qkv: Linear { weight: weight.into(), bias, adapter: None }, d_query, d_key })
    }

    /// The same maps with three matrices, number for number. The parameters are new ones, as in
    /// [`into_fused`](Self::into_fused).
    pub fn into_separate(self) -> Self {
        let Self::Fused(fused) = self else { return self };
        let weight = fused.qkv.merged_weight();
        let [query, key, value] = fused.parts().map(|part| Linear {
            weight: Param::from_tensor(weight.clone().narrow(1, part.start, part.len())).into(),
            bias: (fused.qkv.bias.as_ref())
                .map(|bias| Param::from_tensor(bias.val().narrow(0, part.start, part.len()))),
            adapter: None,
        });
        Self::Separate(SeparateProjection { query, key, value })
    }

    /// The widths of all queries, keys and values: `[H E, G E, G W]`.
    pub(super) fn widths(&self) -> [usize; 3] {
        match self {
            Self::Separate(SeparateProjection { query, key, value }) => {
                [query, key, value].map(|part| part.widths()[1])
            }
            Self::Fused(fused) => fused.parts().map(|part| part.len()),
        }
    }

    /// What it costs a token: it keeps all of them.
    pub(super) fn costs(&self) -> Vec<Cost> {
        let named = |name: &str, layer: &Linear| Cost::of(layer).with_activations(layer.widths()[1]).named(name);
        match self {
            Self::Separate(SeparateProjection { query, key, value }) => {
                vec![named("query", query), named("key", key), named("value", value)]
            }
            Self::Fused(fused) => vec![named("qkv", &fused.qkv)],
        }
    }

    /// The queries alone, `[B, T, H E]`.
    pub(super) fn queries(&self, x: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Separate(separate) => separate.query.forward(x),
            Self::Fused(fused) => fused.qkv.forward_columns(x, 0, fused.d_query),
        }
    }

    /// Keys and values alone, `[B, S, G E]` and `[B, S, G W]`.
    pub(super) fn keys_and_values(&self, source: Tensor<3>) -> [Tensor<3>; 2] {
        match self {
            Self::Separate(separate) => [separate.key.forward(source.clone()), separate.value.forward(source)],
            Self::Fused(fused) => {
                let [_, key, value] = fused.parts();
                let both = fused.qkv.forward_columns(source, key.start, value.end);
                [both.clone().narrow(2, 0, key.len()), both.narrow(2, key.len(), value.len())]
            }
        }
    }
}

impl FusedProjection {
    /// The columns of the queries, of the keys and of the values.
    fn parts(&self) -> [Range<usize>; 3] {
        let (keys, values) = (self.d_query, self.d_query + self.d_key);
        [0..keys, keys..values, values..self.qkv.widths()[1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::AdapterConfig;
    use burn::tensor::{Device, Distribution, TensorData};
    use firelight_kernels::assert_close;

    fn numbers(projection: &Projection) -> Vec<TensorData> {
        let Projection::Separate(SeparateProjection { query, key, value }) = projection else {
            panic!("three matrices")
        };
        let of = |layer: &Linear| {
            let bias = layer.bias.as_ref().map(|bias| bias.val().into_data());
            std::iter::once(layer.weight.val().into_data()).chain(bias).collect::<Vec<_>>()
        };
        [query, key, value].into_iter().flat_map(of).collect()
    }

    #[test]
    fn there_and_back_is_the_same_bit_for_bit() {
        // Two of six heads for keys and values: 12 query columns, 4 of keys, 6 of values.
        let widths = Widths { d_model: 6, query: 12, key: 4, value: 6 };
        for bias in [true, false] {
            let params = ParamBuilder::new(&Device::default(), 3);
            let mut separate = ProjectionKind::Separate.init_with(widths, bias, Init::default(), &params);
            if let (true, Projection::Separate(parts)) = (bias, &mut separate) {
                parts.query.bias = Some(params.param("query_bias", [12], Init::default()));
                parts.key.bias = Some(params.param("key_bias", [4], Init::default()));
                parts.value.bias = Some(params.param("value_bias", [6], Init::default()));
            }
            let before = numbers(&separate);
            assert_eq!(before.len(), if bias { 6 } else { 3 });
            let fused = separate.into_fused();
            assert!(matches!(&fused, Projection::Fused(fused) if fused.qkv.weight.dims() == [6, 22]));
            assert_eq!(numbers(&fused.into_separate()), before);
        }
    }
    #[test]
    fn adapters_are_merged_into_the_other_form() {
        let device = Device::default();
        let params = ParamBuilder::new(&device, 1).with_adapters(&AdapterConfig::new(2).with_targets(["*"]));
        let widths = Widths { d_model: 6, query: 12, key: 4, value: 6 };
        let x = Tensor::<3>::random([1, 4, 6], Distribution::Normal(0.0, 1.0), &device);
        for kind in [ProjectionKind::Separate, ProjectionKind::Fused] {
            let mut one = kind.init_with(widths, true, Init::default(), &params);
            let layers = match &mut one {
                Projection::Separate(parts) => vec![&mut parts.query, &mut parts.key, &mut parts.value],
                Projection::Fused(fused) => vec![&mut fused.qkv],
            };
            for layer in layers {
                let adapter = layer.adapter.as_mut().expect("a target");
                adapter.up = Param::from_tensor(adapter.up.val().ones_like());
            }
            let other =
                if kind == ProjectionKind::Separate { one.clone().into_fused() } else { one.clone().into_separate() };
            for (one, other) in one.project(x.clone()).into_iter().zip(other.project(x.clone())) {
                assert_close(&other, &one, 1e-5);
            }
        }
    }
}
