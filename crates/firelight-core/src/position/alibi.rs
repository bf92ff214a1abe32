//! Attention with linear biases: every score is lowered in proportion to the distance of query and key, by a slope of
//! the head's own, so that a model reads texts longer than those it was trained on. No parameters, any length.
//!
//! ```text
//! score(i, j) = q_i · k_j / sqrt(E) - m_h |i - j|        m_h = 2^(-8h/H), h = 1 ..= H
//! ```
//!
//! Source: Press et al. 2022, §3 (<https://arxiv.org/abs/2108.12409>); slopes of head counts that are no power of two as
//! in their published code. Differs from the paper: where the future is visible the distance counts in both directions.

use super::{PositionScheme, Positions, ScoreBias};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

/// Lowers scores by distance.
#[derive(Module, Debug)]
pub struct Alibi {
    n_heads: usize,
}

impl Alibi {
    /// For `n_heads` query heads.
    pub fn new(n_heads: usize) -> Self {
        Self { n_heads }
    }

    /// The slopes of the heads, the steepest first: `2^(-8i/H)` for `i` in `1 ..= H` where `H` is a power of two. Other
    /// counts take the slopes of the power of two below, then those that lie between them.
    pub fn slopes(&self) -> Vec<f32> {
        let below = 1 << self.n_heads.max(1).ilog2();
        let slope = |i: usize, heads: usize| 2f64.powf(-8.0 * i as f64 / heads as f64) as f32;
        let between = (1..2 * below).step_by(2).map(|i| slope(i, 2 * below));
        (1..=below).map(|i| slope(i, below)).chain(between).take(self.n_heads).collect()
    }
}

impl PositionScheme for Alibi {
    fn bias(&self, queries: &Positions, keys: &Positions, device: &Device) -> Option<ScoreBias> {
        let slopes = Tensor::<1>::from_floats(self.slopes().as_slice(), device);
        if let Some(distances) = queries.common_distances(keys) {
            let distances = Tensor::<1, Int>::arange(distances, device).abs().float().unsqueeze::<2>(); // [1, Q + K - 1]
            return Some(ScoreBias::ByDistance(distances * slopes.neg().unsqueeze_dim(1)));
        }
        let slopes = slopes.reshape([1, self.n_heads, 1, 1]);
        let distances = queries.distances(keys, device).abs().float().unsqueeze_dim::<4>(1); // [1 | B, 1, Q, K]
        Some(ScoreBias::Fixed(distances * slopes.neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;
    use firelight_kernels::assert_close;

    fn bias(queries: &Positions, keys: &Positions) -> TensorData {
        match Alibi::new(2).bias(queries, keys, &Device::default()) {
            Some(ScoreBias::Fixed(bias)) => bias.into_data(),
            Some(ScoreBias::ByDistance(bias)) => bias.into_data(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn slopes_by_hand() {
        assert_eq!(Alibi::new(2).slopes(), [0.0625, 0.003_906_25]); // 2^-4, 2^-8
        // Two of two heads, then the first of four.
        assert_eq!(Alibi::new(3).slopes(), [0.0625, 0.003_906_25, 0.25]);
    }

    #[test]
    fn the_last_of_three_tokens_by_hand() {
        let bias = bias(&Positions::contiguous(2, 1), &Positions::contiguous(0, 3));
        let expected = TensorData::from([[-0.125f32, -0.0625, 0.0], [-0.007_812_5, -0.003_906_25, 0.0]]);
        assert_close(&bias, &expected, 1e-7);
    }

    #[test]
    fn biases_depend_on_the_distance_alone() {
        let at = |start| Positions::contiguous(start, 4);
        bias(&at(0), &at(0)).assert_eq(&bias(&at(90), &at(90)), true);
        let index = Tensor::<2, Int>::from_ints([[5, 6, 7, 8]], &Device::default());
        let row = Positions::PerRow { index, bound: 9 };
        let (pairs, distances) = (bias(&row, &row), bias(&at(0), &at(0)));
        let (pairs, distances): (Vec<f32>, Vec<f32>) = (pairs.iter().collect(), distances.iter().collect());
        for (place, bias) in pairs.into_iter().enumerate() {
            let (head, query, key) = (place / 16, place / 4 % 4, place % 4);
            assert_eq!(bias, distances[7 * head + 3 + key - query]);
        }
    }
}
