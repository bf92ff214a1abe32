//! How a query and a key become a score: their dot product times a factor, and two trained scores of other kinds.
//!
//! Sources: `1 / sqrt(E)` Vaswani et al. 2017, §3.2.1 (<https://arxiv.org/abs/1706.03762>); bilinear Luong et al. 2015,
//! §3.1, "general" (<https://arxiv.org/abs/1508.04025>); additive Bahdanau et al. 2015, §3.1 and appendix A.1.2
//! (<https://arxiv.org/abs/1409.0473>). Different here: each head has parameters of its own, and the trained maps stand
//! before the rotation of rotary positions, so that bilinear scores still depend on distances only.

use super::mechanism::Heads;
use crate::init::{Init, ParamBuilder};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Factor of the scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScoreScale {
    /// `1 / sqrt(E)`: the scores of random queries and keys have variance 1 whatever the width of a head.
    #[default]
    InverseSqrt,
    /// A number of one's own, as Gemma 2's `1 / sqrt(D / H)` beside a different `E`.
    Constant(f64),
    /// 1: the plain dot product, as in Luong et al. 2015 (<https://arxiv.org/abs/1508.04025>), §3.1.
    None,
}

impl ScoreScale {
    /// The factor in the kernel's terms, where `None` is `1 / sqrt(E)`.
    pub(super) fn factor(self) -> Option<f64> {
        match self {
            Self::InverseSqrt => None,
            Self::Constant(factor) => Some(factor),
            Self::None => Some(1.0),
        }
    }

    /// The factor as a number, for heads of width `d_head`.
    pub(super) fn value(self, d_head: usize) -> f64 {
        self.factor().unwrap_or(1.0 / (d_head as f64).sqrt())
    }

    /// Whether the scores are finite and depend on the queries.
    pub(super) fn is_usable(self) -> bool {
        self.factor().is_none_or(|factor| factor.is_finite() && factor != 0.0)
    }
}

/// `qᵀ W k` for each head, times the [`ScoreScale`]; Luong et al. have none. Our `W` is their `W_a`.
///
/// The matrix joins the query, so that all that serves dot products serves these scores, caches and kernels included.
#[derive(Module, Debug)]
pub struct BilinearScore {
    /// `[E, H E]`: `W` of head `h` is the columns from `h E` on.
    pub weight: Param<Tensor<2>>,
}

impl BilinearScore {
    pub(super) fn new(heads: Heads, init: Init, params: &ParamBuilder) -> Self {
        Self { weight: params.param("weight", [heads.d_head, heads.n_heads * heads.d_head], init) }
    }

    /// `qᵀ W`, `[B, H, T, E]`.
    pub(super) fn query(&self, query: Tensor<4>) -> Tensor<4> {
        per_head(query, self.weight.val())
    }
}

/// `vᵀ tanh(W q + U k)` for each head, without a scale. Our `W`, `U` and `v` are their `W_a`, `U_a` and `v_a`.
///
/// Every pair has a hidden layer of its own, `[B, H, Q, K, E]`: for comparison and short sequences.
#[derive(Module, Debug)]
pub struct AdditiveScore {
    /// `[E, H E]`: `W` of head `h` is the columns from `h E` on.
    pub query: Param<Tensor<2>>,
    /// `[E, G E]`: `U` of key head `g` is the columns from `g E` on.
    pub key: Param<Tensor<2>>,
    /// `[H, E]`: the `v` of each head.
    pub vector: Param<Tensor<2>>,
}

impl AdditiveScore {
    pub(super) fn new(heads: Heads, init: Init, params: &ParamBuilder) -> Self {
        let Heads { n_heads, n_kv_heads, d_head } = heads;
        Self {
            query: params.param("query", [d_head, n_heads * d_head], init),
            key: params.param("key", [d_head, n_kv_heads * d_head], init),
            vector: params.param("vector", [n_heads, d_head], init),
        }
    }

    /// `W q`, `[B, H, T, E]`.
    pub(super) fn query(&self, query: Tensor<4>) -> Tensor<4> {
        per_head(query, self.query.val())
    }

    /// `U k`, `[B, G, T, E]`.
    pub(super) fn key(&self, key: Tensor<4>) -> Tensor<4> {
        per_head(key, self.key.val())
    }

    /// The scores of queries and keys that have passed their maps, `[B, H, Q, E], [B, G, K, E] -> [B, H, Q, K]`.
    pub(super) fn scores(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        let ([batch, heads, queries, width], [_, groups, keys, _]) = (query.dims(), key.dims());
        let query = query.reshape([batch, groups, heads / groups * queries, 1, width]);
        let key = key.reshape([batch, groups, 1, keys, width]);
        let hidden = (query + key).tanh().reshape([batch, heads, queries * keys, width]);
        let vector = self.vector.val().reshape([1, heads, width, 1]);
        hidden.matmul(vector).reshape([batch, heads, queries, keys])
    }
}

/// A matrix for each head: `[B, H, T, E], [E, H E] -> [B, H, T, E]`.
fn per_head(x: Tensor<4>, weight: Tensor<2>) -> Tensor<4> {
    let [_, heads, _, d_head] = x.dims();
    let matrices = weight.reshape([d_head, heads, d_head]).swap_dims(0, 1); // [H, E, E]
    x.matmul(matrices.unsqueeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, TensorData};
    use firelight_kernels::assert_close;

    fn check(found: Tensor<4>, expected: TensorData) {
        assert_close(&found, &expected, 1e-6);
    }

    #[test]
    fn a_bilinear_score_by_hand() {
        // The first head's W swaps the channels, the second's doubles them: qᵀ W = [2, 1] and [2, 4]; times k = [3, 5].
        let device = Device::default();
        let score = BilinearScore { weight: Param::from_data([[0.0, 1.0, 2.0, 0.0], [1.0, 0.0, 0.0, 2.0]], &device) };
        let query = score.query(Tensor::from_floats([[[[1.0, 2.0]], [[1.0, 2.0]]]], &device));
        check(query.clone(), TensorData::from([[[[2.0f32, 1.0]], [[2.0, 4.0]]]]));
        let key = Tensor::<4>::from_floats([[[[3.0, 5.0]], [[3.0, 5.0]]]], &device);
        check(query.matmul(key.swap_dims(2, 3)), TensorData::from([[[[11.0f32]], [[26.0]]]]));
    }

    #[test]
    fn additive_scores_by_hand() {
        // Two heads share one key head: 2 tanh(.5 + .25) = 1.270298 and 3 tanh(-.5 + .25) = -.734756.
        let device = Device::default();
        let score = AdditiveScore {
            query: Param::from_data([[1.0, -1.0]], &device),
            key: Param::from_data([[0.5]], &device),
            vector: Param::from_data([[2.0], [3.0]], &device),
        };
        let query = score.query(Tensor::from_floats([[[[0.5]], [[0.5]]]], &device));
        let key = score.key(Tensor::from_floats([[[[0.5]]]], &device));
        check(score.scores(query, key), TensorData::from([[[[1.270_298f32]], [[-0.734_756]]]]));
    }

    #[test]
    fn grouped_additive_scores_are_those_of_repeated_keys() {
        let device = Device::default();
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device);
        let heads = Heads { n_heads: 4, n_kv_heads: 2, d_head: 3 };
        let score = AdditiveScore::new(heads, Init::Normal { std: 1.0 }, &ParamBuilder::new(&device, 1));
        let (query, key) = (random([2, 4, 5, 3]), random([2, 2, 6, 3]));
        let repeated = Tensor::cat([0, 0, 1, 1].map(|group| key.clone().narrow(1, group, 1)).to_vec(), 1);
        check(score.scores(query.clone(), key), score.scores(query, repeated).into_data());
    }
}
