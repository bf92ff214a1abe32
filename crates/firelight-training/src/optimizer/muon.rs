//! Muon: momentum whose matrix is replaced by the nearest orthogonal one, so that a step moves all directions alike. For
//! the matrices inside the blocks; the other parameters have AdamW.
//!
//! Source: Jordan et al. 2024, Muon (<https://kellerjordan.github.io/posts/muon/>), the momentum as a running mean as in
//! `torch.optim.Muon`, which changes no direction. The scale that matches AdamW: Liu et al. 2025, Muon is Scalable for LLM
//! Training, §2.2 (<https://arxiv.org/abs/2502.16982>). Burn's matrices are `[in, out]`, the transpose of theirs.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::adam::AdamConfig;
use super::hosted::{Decayed, Rule, Step, tensors};
use super::{above_zero, below_one};
use crate::config::Problems;

/// The coefficients of the iteration, which trade exactness for speed: singular values end between about 0.7 and 1.2.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// The least norm that a matrix is divided by.
const EPSILON: f64 = 1e-7;

/// How the size of a step depends on the shape of its matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UpdateScale {
    /// `sqrt(max(1, out / in))`, so that outputs change alike whatever the shape.
    #[default]
    AspectRatio,
    /// `0.2 sqrt(max(in, out))`, so that elements change as much as under AdamW: its rate and decay fit.
    AdamwRms,
}

impl UpdateScale {
    /// The factor of a matrix `[.., rows, columns]`, the first of which are its inputs.
    fn of(self, [rows, columns]: [usize; 2]) -> f64 {
        let [inputs, outputs] = [rows, columns].map(|size| size as f64);
        match self {
            Self::AspectRatio => (outputs / inputs).max(1.0).sqrt(),
            Self::AdamwRms => 0.2 * inputs.max(outputs).sqrt(),
        }
    }
}

/// The settings of Muon, and of the AdamW beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// Decay of the running mean of the gradients, which is Nesterov's. From 0 to below 1, default 0.95.
    pub momentum: f64,
    /// Iterations of Newton and Schulz. From 1 to 99, default 5.
    pub newton_schulz_steps: usize,
    /// How the size of a step depends on the shape of its matrix. Default: on the aspect ratio.
    pub update_scale: UpdateScale,
    /// The peak learning rate of the parameters under AdamW, which the schedule scales alike. Above 0, default 0.001.
    pub adamw_learning_rate: f64,
    /// The running means of AdamW.
    pub adamw: AdamConfig,
}

impl Default for MuonConfig {
    fn default() -> Self {
        Self {
            momentum: 0.95,
            newton_schulz_steps: 5,
            update_scale: UpdateScale::AspectRatio,
            adamw_learning_rate: 1e-3,
            adamw: AdamConfig::adamw(),
        }
    }
}

impl MuonConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        below_one(problems, "momentum", self.momentum);
        let steps = self.newton_schulz_steps;
        problems.require((1..100).contains(&steps), "newton_schulz_steps", steps, "from 1 to 99");
        above_zero(problems, "adamw_learning_rate", self.adamw_learning_rate);
        self.adamw.check(problems);
    }
}

/// Muon with decoupled decay, for tensors of two dimensions and more.
pub(super) type MuonRule = Decayed<MuonConfig>;

impl Rule for MuonRule {
    fn state_names(_rank: usize) -> &'static [&'static str] {
        &["momentum_mean"]
    }

    /// `m = μ m + (1 - μ) g`, `p = (1 - η λ) p - η s orthogonal((1 - μ) g + μ m)` with the scale `s`.
    fn update<const D: usize>(
        &self,
        Step { rate, .. }: Step,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Vec<Tensor<D>>>,
    ) -> (Tensor<D>, Vec<Tensor<D>>) {
        let MuonConfig { momentum, newton_schulz_steps, update_scale, .. } = self.config;
        let [mean] = tensors(state).unwrap_or_else(|| [gradient.zeros_like()]);
        let gradient = gradient * (1.0 - momentum);
        let mean = mean * momentum + gradient.clone();
        let direction = orthogonal(gradient + mean.clone() * momentum, newton_schulz_steps);
        let scale = rate * update_scale.of(matrix_of(parameter.dims()));
        (parameter * (1.0 - rate * self.weight_decay) - direction * scale, vec![mean])
    }
}

/// The last two dimensions.
fn matrix_of<const D: usize>(dims: [usize; D]) -> [usize; 2] {
    let [.., rows, columns] = dims[..] else { panic!("Muon updates matrices, not a tensor of the shape {dims:?}") };
    [rows, columns]
}

/// Every matrix of `x` with its singular values near 1: the quintic iteration of Newton and Schulz.
fn orthogonal<const D: usize>(x: Tensor<D>, steps: usize) -> Tensor<D> {
    let dims = x.dims();
    let [rows, columns] = matrix_of(dims);
    let stack = x.reshape([dims.iter().product::<usize>() / (rows * columns).max(1), rows, columns]); // [N, in, out]
    // The Gram matrix is that of the shorter side.
    let wide = if rows > columns { stack.swap_dims(1, 2) } else { stack };
    let norm = wide.clone().square().sum_dim(2).sum_dim(1).sqrt();
    let wide = (0..steps).fold(wide / norm.clamp_min(EPSILON), |x, _| newton_schulz(x));
    let stack = if rows > columns { wide.swap_dims(1, 2) } else { wide };
    stack.reshape(dims)
}

/// `a X + (b A + c A²) X` with `A = X Xᵀ`: singular values `σ` become `a σ + b σ³ + c σ⁵`.
fn newton_schulz(x: Tensor<3>) -> Tensor<3> {
    let [a, b, c] = COEFFICIENTS;
    let gram = x.clone().matmul(x.clone().swap_dims(1, 2));
    let polynomial = gram.clone() * b + gram.clone().matmul(gram) * c;
    polynomial.matmul(x.clone()) + x * a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::alone;
    use burn::tensor::{Device, Distribution};
    use firelight_kernels::assert_close;
    use proptest::prelude::*;

    fn rule(config: MuonConfig) -> MuonRule {
        MuonRule { config, weight_decay: 0.0 }
    }

    #[test]
    fn a_diagonal_matrix_by_hand() {
        // One iteration on diag(3, 4), whose norm is 5: the singular values are the polynomial at 0.6 and 0.8.
        let device = Device::default();
        let gradient = Tensor::<2>::from_floats([[3.0, 0.0], [0.0, 4.0]], &device);
        let config = MuonConfig { newton_schulz_steps: 1, ..MuonConfig::default() };
        let (moved, state) = rule(config).update(Step { rate: 0.1, time: 1 }, gradient.zeros_like(), gradient, None);
        let at = |x: f64| 3.4445 * x - 4.7750 * x.powi(3) + 2.0315 * x.powi(5);
        assert_close(&moved.flatten::<1>(0, 1), &[-0.1 * at(0.6), 0.0, 0.0, -0.1 * at(0.8)], 1e-6);
        assert_close(&state[0].to_data(), &[0.15, 0.0, 0.0, 0.2], 1e-6);
    }

    #[test]
    fn a_matrix_with_more_outputs_than_inputs_takes_the_longer_step() {
        assert_eq!(UpdateScale::AspectRatio.of([128, 512]), 2.0);
        assert_eq!(UpdateScale::AspectRatio.of([512, 128]), 1.0);
        assert_eq!(UpdateScale::AdamwRms.of([100, 25]), 2.0);
        assert_eq!(UpdateScale::AdamwRms.of([25, 100]), 2.0);
    }

    #[test]
    fn the_scale_that_matches_adamw_has_its_size() {
        // A full-rank orthogonal update has a root mean square of 1 / sqrt(max(in, out)), so the scaled one of 0.2.
        let _alone = alone();
        let device = Device::default();
        let gradient = Tensor::<2>::random([96, 32], Distribution::Normal(0.0, 1.0), &device);
        let config = MuonConfig { update_scale: UpdateScale::AdamwRms, ..MuonConfig::default() };
        let (moved, _) = rule(config).update(Step { rate: 1.0, time: 1 }, gradient.zeros_like(), gradient, None);
        let size = moved.square().mean().sqrt().into_scalar::<f32>();
        assert!((0.14..0.25).contains(&size), "{size}");
    }

    #[test]
    fn matrices_in_a_stack_are_updated_each_on_its_own() {
        let _alone = alone();
        let device = Device::default();
        let stack = Tensor::<3>::random([3, 4, 6], Distribution::Normal(0.0, 1.0), &device);
        let all = orthogonal(stack.clone(), 5);
        for i in 0..3 {
            let one = orthogonal(stack.clone().narrow(0, i, 1).squeeze_dim::<2>(0), 5);
            let same = all.clone().narrow(0, i, 1).squeeze_dim::<2>(0);
            assert_close(&same, &one, 1e-5);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_direction_is_nearly_orthogonal_and_turns_with_its_transpose(rows in 1_usize..12, columns in 1_usize..12) {
            let _alone = alone();
            let device = Device::default();
            let matrix = Tensor::<2>::random([rows, columns], Distribution::Normal(0.0, 1.0), &device);
            let found = orthogonal(matrix.clone(), 5);
            let turned = orthogonal(matrix.clone().transpose(), 5).transpose();
            assert_close(&found, &turned, 1e-3);
            // The trace of gᵀ orthogonal(g) is the sum of the singular values times factors in (0, 1.3).
            let trace = (found.clone() * matrix.clone()).sum().into_scalar::<f32>();
            let norm = matrix.square().sum().sqrt().into_scalar::<f32>();
            let most = 1.3 * norm * (rows.min(columns) as f32).sqrt();
            prop_assert!(trace > 0.5 * norm && trace < most, "{trace} of {norm}");
        }
    }
}
