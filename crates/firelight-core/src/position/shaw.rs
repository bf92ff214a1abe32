//! Relative positions as vectors: the score of a pair is the product of the query with the key plus a trained vector for
//! their distance, cut at `k` on either side.
//!
//! ```text
//! score(i, j) = q_i · (k_j + w_clip(j - i, -k, k)) / sqrt(E)
//! ```
//!
//! Source: Shaw et al. 2018, §3.1, eq. 4, distances cut as in §3.2, the two products apart as in §3.3
//! (<https://arxiv.org/abs/1803.02155>); our `weight` is their `w^K`, `max_distance` their `k`. Differs from the paper: the
//! term of the values (eq. 3, `w^V`) is left out, which their ablation finds not to be needed, and all layers share one
//! table.

use super::{PositionScheme, Positions, ScoreBias};
use crate::init::{Init, ParamBuilder};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

/// A trained vector per distance, which all heads share.
#[derive(Module, Debug)]
pub struct ShawPosition {
    /// `[2k + 1, E]`, the farthest past first.
    pub weight: Param<Tensor<2>>,
}

impl ShawPosition {
    /// Builds the table at the builder's path.
    pub fn new(max_distance: usize, d_head: usize, init: Init, params: &ParamBuilder) -> Self {
        Self { weight: params.param("weight", [2 * max_distance + 1, d_head], init) }
    }
}

impl PositionScheme for ShawPosition {
    fn bias(&self, queries: &Positions, keys: &Positions, device: &Device) -> Option<ScoreBias> {
        let longest = (self.weight.dims()[0] / 2) as i64;
        let index = queries.distances(keys, device).clamp(-longest, longest) + longest;
        Some(ScoreBias::OfQuery { weight: self.weight.val(), index })
    }
}

/// The products of every query with the vector of each of its distances: `[B, H, Q, K]`.
pub(super) fn products(query: Tensor<4>, weight: Tensor<2>, index: Tensor<3, Int>) -> Tensor<4> {
    let [batch, heads, queries, _] = query.dims();
    let [_, _, keys] = index.dims();
    let products = query.matmul(weight.transpose().unsqueeze::<4>()); // [B, H, Q, 2k + 1]
    products.gather(3, index.unsqueeze_dim::<4>(1).expand([batch, heads, queries, keys]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;
    use firelight_kernels::AttentionOptions;
    use firelight_kernels::assert_close;

    #[test]
    fn distances_pick_their_vectors_by_hand() {
        // k = 1 and E = 1: past 2, here 3, future 5; queries 2 and 20, scaled by a half.
        let device = Device::default();
        let scheme = ShawPosition { weight: Param::from_data([[2.0], [3.0], [5.0]], &device) };
        let bias = |start| {
            let queries = Positions::contiguous(start + 1, 2);
            let keys = Positions::contiguous(start, 3);
            let bias = scheme.bias(&queries, &keys, &device).expect("a bias");
            let query = Tensor::from_floats([[[[2.0], [20.0]]]], &device);
            let options = bias.apply(AttentionOptions::default(), &query, 0.5);
            options.bias.expect("a bias of pairs").into_data()
        };
        let expected = TensorData::from([[[[2.0f32, 3.0, 5.0], [20.0, 20.0, 30.0]]]]);
        assert_close(&bias(0), &expected, 1e-6);
        assert_close(&bias(70), &expected, 1e-6);
    }
}
