//! Adafactor: Adam whose running squares of a matrix are kept as one number per row and one per column, and which has no
//! running mean: almost no state. The size of a step is relative to the size of the parameter.
//!
//! Source: Shazeer and Stern 2018, algorithms 4 and 5 (<https://arxiv.org/abs/1804.04235>); their `R`, `C` and `V` are
//! `row`, `column` and `square` here, as means instead of sums, which changes no quotient. A tensor of more dimensions is a
//! stack of matrices. `torch.optim.Adafactor` differs in `ε₁`, which it does not add to the squares but holds them above.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::hosted::{Decayed, Rule, Step, tensors};
use super::{above_zero, not_negative};
use crate::config::Problems;

/// What the learning rate of a step is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepSize {
    /// Of the parameter's own root mean square; the rate is at most `1 / sqrt(t)`. With a constant rate of 0.01 these are
    /// the steps of the paper, `ρₜ = min(10⁻², 1 / sqrt(t))`.
    #[default]
    Relative,
    /// Of nothing: the rate is the size.
    Absolute,
}

/// The running squares and the bounds of Adafactor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdafactorConfig {
    /// What the learning rate is a share of. Default: of the parameter.
    pub step_size: StepSize,
    /// The running squares forget by `1 - t^-decay_exponent`. Above 0, default 0.8.
    pub decay_exponent: f64,
    /// `ε₁`, added to the squares of the gradients. Above 0, default 1e-30.
    pub epsilon: f64,
    /// `ε₂`, the least root mean square that a parameter is taken to have in relative steps. At least 0, default 1e-3.
    pub epsilon_2: f64,
    /// `d`, the largest root mean square of an update before it is scaled by the rate. Above 0, default 1.
    pub update_clip: f64,
}

impl Default for AdafactorConfig {
    fn default() -> Self {
        Self { step_size: StepSize::Relative, decay_exponent: 0.8, epsilon: 1e-30, epsilon_2: 1e-3, update_clip: 1.0 }
    }
}

impl AdafactorConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        above_zero(problems, "decay_exponent", self.decay_exponent);
        above_zero(problems, "epsilon", self.epsilon);
        not_negative(problems, "epsilon_2", self.epsilon_2);
        above_zero(problems, "update_clip", self.update_clip);
    }
}

/// Adafactor with decoupled decay.
pub(super) type AdafactorRule = Decayed<AdafactorConfig>;

impl Rule for AdafactorRule {
    fn state_names(rank: usize) -> &'static [&'static str] {
        if rank >= 2 { &["row", "column"] } else { &["square"] }
    }

    /// `p = (1 - η λ) p - α U / max(1, RMS(U) / d)` with `U = g / sqrt(V)`.
    fn update<const D: usize>(
        &self,
        step: Step,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Vec<Tensor<D>>>,
    ) -> (Tensor<D>, Vec<Tensor<D>>) {
        let new = (step.time as f64).powf(-self.config.decay_exponent);
        let square = gradient.clone().square() + self.config.epsilon;
        let (square, state) = match D {
            0 | 1 => whole(square, state, new),
            _ => factored(square, state, new),
        };
        let update = gradient / square.sqrt();
        let excess = root_mean_square(&update) / self.config.update_clip;
        let update = update / excess.clamp_min(1.0);
        let update = self.scaled(update, &parameter, step);
        (parameter * (1.0 - step.rate * self.weight_decay) - update, state)
    }
}

impl AdafactorRule {
    /// `α` times the update.
    fn scaled<const D: usize>(&self, update: Tensor<D>, parameter: &Tensor<D>, step: Step) -> Tensor<D> {
        match self.config.step_size {
            StepSize::Relative => {
                let rate = step.rate.min(1.0 / (step.time as f64).sqrt());
                update * (root_mean_square(parameter).clamp_min(self.config.epsilon_2) * rate)
            }
            StepSize::Absolute => update * step.rate,
        }
    }
}

/// The running squares of every element; the share of the `new` ones is given.
fn whole<const D: usize>(square: Tensor<D>, state: Option<Vec<Tensor<D>>>, new: f64) -> (Tensor<D>, Vec<Tensor<D>>) {
    let [old] = tensors(state).unwrap_or_else(|| [square.zeros_like()]);
    let square = old * (1.0 - new) + square * new;
    (square.clone(), vec![square])
}

/// The running squares as the product of rows, `[.., R, 1]`, and columns, `[.., 1, C]`.
fn factored<const D: usize>(square: Tensor<D>, state: Option<Vec<Tensor<D>>>, new: f64) -> (Tensor<D>, Vec<Tensor<D>>) {
    let means = [square.clone().mean_dim(D - 1), square.mean_dim(D - 2)];
    let [old_row, old_column] = tensors(state).unwrap_or_else(|| [means[0].zeros_like(), means[1].zeros_like()]);
    let [row, column] = means.map(|mean| mean * new);
    let (row, column) = (old_row * (1.0 - new) + row, old_column * (1.0 - new) + column);
    let share = row.clone() / row.clone().mean_dim(D - 2);
    (share * column.clone(), vec![row, column])
}

/// `sqrt(mean(x²))`, with every dimension of size 1.
fn root_mean_square<const D: usize>(x: &Tensor<D>) -> Tensor<D> {
    x.clone().square().mean().sqrt().reshape([1; D])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::alone;
    use burn::tensor::{Device, Distribution};
    use proptest::prelude::*;

    fn rule(step_size: StepSize) -> AdafactorRule {
        AdafactorRule { config: AdafactorConfig { step_size, ..AdafactorConfig::default() }, weight_decay: 0.0 }
    }

    fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
        tensor.clone().try_into_vec_as().unwrap()
    }

    #[test]
    fn a_matrix_by_hand() {
        // The squares are 1, 4 and 9, 36: rows 2.5 and 22.5, columns 5 and 20, which is of rank 1, so U is the signs. The
        // parameter's RMS is 2, the rate 0.01: the step is 0.02.
        let device = Device::default();
        let gradient = Tensor::<2>::from_floats([[1.0, -2.0], [3.0, 6.0]], &device);
        let parameter = Tensor::<2>::from_floats([[2.0, 2.0], [-2.0, 2.0]], &device);
        let (moved, state) = rule(StepSize::Relative).update(Step { rate: 0.01, time: 1 }, parameter, gradient, None);
        for (found, expected) in values(&moved).iter().zip([1.98, 2.02, -2.02, 1.98]) {
            assert!((found - expected).abs() < 1e-5, "{moved}");
        }
        assert_eq!((values(&state[0]), values(&state[1])), (vec![2.5, 22.5], vec![5.0, 20.0]));
    }

    #[test]
    fn a_vector_keeps_every_square_and_a_late_step_is_at_most_the_inverse_root_of_its_number() {
        // At t = 10,000 the rate is 1 / 100 at most, and the share of the new squares 10,000^-0.8 = 10^-3.2.
        let device = Device::default();
        let tensor = |values: [f32; 2]| Tensor::<1>::from_floats(values, &device);
        let step = Step { rate: 1.0, time: 10_000 };
        let state = Some(vec![tensor([4.0, 1.0])]);
        let (moved, state) = rule(StepSize::Relative).update(step, tensor([1.0, 1.0]), tensor([1.0, -1.0]), state);
        let new = 10_f64.powf(-3.2) as f32;
        let squares = [4.0 - 3.0 * new, 1.0];
        for (found, expected) in values(&state[0]).iter().zip(squares) {
            assert!((found - expected).abs() < 1e-6);
        }
        for (found, expected) in values(&moved).iter().zip([1.0 - 0.01 / squares[0].sqrt(), 1.01]) {
            assert!((found - expected).abs() < 1e-6, "{moved}");
        }
    }

    proptest! {
        #[test]
        fn no_update_is_larger_than_the_rate_times_its_clip(scale in 0.01_f32..100.0, time in 1_usize..1000) {
            let _alone = alone();
            let device = Device::default();
            let random = || Tensor::<3>::random([2, 3, 4], Distribution::Normal(0.0, 1.0), &device);
            let (_, state) = rule(StepSize::Absolute).update(Step { rate: 0.1, time: 1 }, random(), random(), None);
            let parameter = random();
            let step = Step { rate: 0.1, time };
            let (moved, _) =
                rule(StepSize::Absolute).update(step, parameter.clone(), random() * scale, Some(state));
            let size = values(&root_mean_square(&(moved - parameter)))[0];
            prop_assert!(size <= 0.1001, "{}", size);
        }
    }
}
