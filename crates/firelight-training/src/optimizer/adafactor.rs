//! Adafactor: Adam whose running squares of a matrix are kept as one number per row and one per column, and which has no
//! running mean: almost no state. The size of a step is relative to the size of the parameter.
//!
//! Source: Shazeer and Stern 2018, algorithms 4 and 5 (<https://arxiv.org/abs/1804.04235>); their `R`, `C` and `V` are
//! `row`, `column` and `square` here, as means instead of sums, which changes no quotient. A tensor of more dimensions is a
//! stack of matrices. `torch.optim.Adafactor` differs in `ε₁`, which it does not add to the squares but holds them above.
//!
//! Burn's optimiser takes the step. Its state alone is ours, because Burn puts a state that is read from a file on the default device.

use burn::optim::{self, AdafactorState, Optimizer};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::hosted::{Decayed, Rule, Step};
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
        let state = state.and_then(|tensors| state_of(step.time - 1, tensors));
        let (parameter, state) = self.of_burn().step(step.rate, parameter, gradient, state);
        let tensors = |state: AdafactorState<D>| [Some(state.second_moment), state.column_second_moment];
        (parameter, state.into_iter().flat_map(tensors).flatten().collect())
    }
}

impl AdafactorRule {
    fn of_burn(&self) -> optim::Adafactor {
        let AdafactorConfig { step_size, decay_exponent, epsilon, epsilon_2, update_clip } = self.config;
        let is_relative = step_size == StepSize::Relative;
        optim::AdafactorConfig::new()
            .with_epsilon_1(positive(epsilon))
            .with_epsilon_2(positive(epsilon_2))
            .with_clip_threshold(positive(update_clip))
            .with_decay_rate(-decay_exponent)
            .with_relative_step(is_relative)
            .with_scale_parameter(is_relative)
            .with_weight_decay(self.weight_decay as f32)
            .build()
    }
}

/// The nearest number that Burn takes: a bound of zero is refused, and the least number above it bounds as little.
fn positive(value: f64) -> f32 {
    (value as f32).clamp(f32::MIN_POSITIVE, f32::MAX)
}

/// Burn's state after `time` steps: the squares, or those of rows, `[.., R, 1]`, and of columns, `[.., 1, C]`.
fn state_of<const D: usize>(time: usize, tensors: Vec<Tensor<D>>) -> Option<AdafactorState<D>> {
    let mut tensors = tensors.into_iter();
    Some(AdafactorState { time, second_moment: tensors.next()?, column_second_moment: tensors.next() })
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

    #[test]
    fn a_parameter_of_zeros_stays_where_relative_steps_have_no_least_size() {
        let config = AdafactorConfig { epsilon_2: 0.0, ..AdafactorConfig::default() };
        let (device, rule) = (Device::default(), AdafactorRule { config, weight_decay: 0.1 });
        let zeros = || Tensor::<1>::zeros([2], &device);
        let (moved, _) = rule.update(Step { rate: 0.01, time: 1 }, zeros(), zeros() + 1.0, None);
        assert!(values(&moved).iter().all(|value| value.abs() < 1e-30), "{moved}");
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
            let size = values(&(moved - parameter).square().mean().sqrt())[0];
            prop_assert!(size <= 0.1001, "{}", size);
        }
    }
}
