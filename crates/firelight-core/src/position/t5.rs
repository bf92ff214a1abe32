//! Relative position buckets: a trained bias per head and bucket of distances, added to the scores. Near distances have
//! a bucket each, farther ones share buckets that widen with the logarithm of the distance.
//!
//! ```text
//! score(i, j) = q_i · k_j / sqrt(E) + weight[bucket(i - j), h]
//! bucket(d)   = d                                                    where d < N/2
//!             = min(N - 1, N/2 + floor(N/2 ln(2d/N) / ln(2 max/N)))   beyond
//! ```
//!
//! with `N` buckets and `max` the distance of the last; in both directions each has half of the buckets.
//!
//! Source: Raffel et al. 2020, §2.1 (<https://arxiv.org/abs/1910.10683>); the buckets are those of the published code.
//! As there, all layers share one table. Differs from T5: scores are still divided by the root of the head's width.

use super::{PositionScheme, Positions, ScoreBias};
use crate::init::{Init, ParamBuilder};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

/// A trained bias per bucket and head.
#[derive(Module, Debug)]
pub struct T5Bias {
    /// `[n_buckets, H]`.
    pub weight: Param<Tensor<2>>,
    max_distance: usize,
    bidirectional: bool,
}

impl T5Bias {
    /// Builds the table at the builder's path.
    pub fn new(
        [n_buckets, n_heads]: [usize; 2],
        max_distance: usize,
        bidirectional: bool,
        init: Init,
        params: &ParamBuilder,
    ) -> Self {
        Self { weight: params.param("weight", [n_buckets, n_heads], init), max_distance, bidirectional }
    }

    /// The bucket of a key that stands `distance` tokens after the query, negative for the past.
    pub fn bucket(&self, distance: i64) -> usize {
        let [all, _] = self.weight.dims();
        let length = distance.unsigned_abs() as usize;
        match (self.bidirectional, distance > 0) {
            (false, false) => self.near_or_far(length, all),
            (false, true) => 0,
            (true, false) => self.near_or_far(length, all / 2),
            (true, true) => all / 2 + self.near_or_far(length, all / 2),
        }
    }

    /// The first half of `buckets` holds one distance each, the second grows to `max_distance`. In float32 as the
    /// published code, so that distances at an edge fall to the same side.
    fn near_or_far(&self, length: usize, buckets: usize) -> usize {
        let near = buckets / 2;
        if length < near {
            return length;
        }
        let width = (self.max_distance as f64 / near as f64).ln() as f32;
        let far = (length as f32 / near as f32).ln() / width * (buckets - near) as f32;
        (near + far as usize).min(buckets - 1)
    }

    /// The buckets of all pairs, `[1 | B, Q * K]`: distances beyond the longest have its bucket.
    fn buckets(&self, distances: Tensor<3, Int>, device: &Device) -> Tensor<2, Int> {
        let [rows, queries, keys] = distances.dims();
        let longest = self.max_distance as i64;
        let buckets: Vec<i64> = (-longest..=longest).map(|distance| self.bucket(distance) as i64).collect();
        let index = distances.clamp(-longest, longest) + longest;
        let buckets = Tensor::<1, Int>::from_ints(buckets.as_slice(), device);
        buckets.select(0, index.reshape([rows * queries * keys])).reshape([rows, queries * keys])
    }
}

impl PositionScheme for T5Bias {
    fn bias(&self, queries: &Positions, keys: &Positions, device: &Device) -> Option<ScoreBias> {
        if let Some(distances) = queries.common_distances(keys) {
            let buckets: Vec<i64> = distances.map(|distance| self.bucket(distance) as i64).collect();
            let buckets = Tensor::<1, Int>::from_ints(buckets.as_slice(), device).unsqueeze::<2>();
            let biases = firelight_kernels::embedding(self.weight.val(), buckets); // [1, Q + K - 1, H]
            return Some(ScoreBias::ByDistance(biases.squeeze_dim::<2>(0).transpose()));
        }
        let distances = queries.distances(keys, device);
        let [rows, n_queries, n_keys] = distances.dims();
        let [_, heads] = self.weight.dims();
        let biases = firelight_kernels::embedding(self.weight.val(), self.buckets(distances, device));
        let biases = biases.reshape([rows, n_queries, n_keys, heads]).permute([0, 3, 1, 2]); // [1 | B, H, Q, K]
        Some(ScoreBias::Fixed(biases))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    fn scheme(bidirectional: bool) -> T5Bias {
        let weight = Param::from_data([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0]], &Device::default());
        T5Bias { weight, max_distance: 16, bidirectional }
    }

    #[test]
    fn buckets_by_hand() {
        // Eight buckets to 16: four near, then 4 + floor(4 ln(d / 4) / ln 4): 4 and 5 in one, 6 and 7, 8 to 11, 12 on.
        let past = scheme(false);
        let buckets = |distances: [i64; 8]| distances.map(|distance| past.bucket(distance));
        assert_eq!(buckets([3, 0, -3, -4, -5, -6, -8, -12]), [0, 0, 3, 4, 4, 5, 6, 7]);
        // Four for each side, two of them near.
        let both = scheme(true);
        assert_eq!([-1, 0, 1, 2, 100].map(|distance| both.bucket(distance)), [1, 0, 5, 6, 7]);
    }

    #[test]
    fn biases_are_those_of_the_distance_wherever_it_stands() {
        let bias = |start, past| {
            let queries = Positions::contiguous(start, 1);
            let keys = Positions::contiguous(start - past, past + 1);
            match scheme(false).bias(&queries, &keys, &Device::default()) {
                Some(ScoreBias::ByDistance(bias)) => bias.into_data(),
                other => panic!("{other:?}"),
            }
        };
        bias(4, 4).assert_eq(&TensorData::from([[4.0f32, 3.0, 2.0, 1.0, 0.0]]), false);
        bias(40, 30).assert_eq(&bias(95, 30), true);
    }
}
