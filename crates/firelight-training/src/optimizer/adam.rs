//! Adam, and AdamW, which is Adam that also shrinks the parameter. The arithmetic is [`firelight_kernels::adamw`].
//!
//! Source: Kingma and Ba 2015, algorithm 1 (<https://arxiv.org/abs/1412.6980>); Loshchilov and Hutter 2019, algorithm 2
//! (<https://arxiv.org/abs/1711.05101>). The settings of the original Transformer: Vaswani et al. 2017, §5.3.

use burn::tensor::Tensor;
use firelight_kernels::{AdamWStep, adamw};

use super::hosted::{Decayed, Rule, Step, tensors};
use super::{above_zero, below_one};
use crate::config::Problems;

/// The running means of Adam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConfig {
    /// Decay of the running mean of the gradients. From 0 to below 1.
    pub beta_1: f64,
    /// Decay of the running mean of their squares. From 0 to below 1.
    pub beta_2: f64,
    /// Added to the square root of the running squares. Above 0.
    pub epsilon: f64,
}

impl AdamConfig {
    /// What `kind = "adamw"` begins with: 0.9, 0.99, 1e-8.
    pub const fn adamw() -> Self {
        Self { beta_1: 0.9, beta_2: 0.99, epsilon: 1e-8 }
    }

    /// What `kind = "adam"` begins with, the settings of Vaswani et al. 2017, §5.3: 0.9, 0.98, 1e-9.
    pub const fn vaswani() -> Self {
        Self { beta_1: 0.9, beta_2: 0.98, epsilon: 1e-9 }
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        below_one(problems, "beta_1", self.beta_1);
        below_one(problems, "beta_2", self.beta_2);
        above_zero(problems, "epsilon", self.epsilon);
    }
}

/// AdamW; without decay it is Adam.
pub(super) type AdamRule = Decayed<AdamConfig>;

impl Rule for AdamRule {
    fn state_names(_rank: usize) -> &'static [&'static str] {
        &["moment_1", "moment_2"]
    }

    fn update<const D: usize>(
        &self,
        Step { rate, time }: Step,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Vec<Tensor<D>>>,
    ) -> (Tensor<D>, Vec<Tensor<D>>) {
        let Self { config: AdamConfig { beta_1, beta_2, epsilon }, weight_decay } = *self;
        let step = AdamWStep { learning_rate: rate, beta_1, beta_2, epsilon, weight_decay, time };
        let (parameter, moments) = adamw(parameter, gradient, tensors(state), &step);
        (parameter, moments.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn two_steps_of_adam_by_hand() {
        // beta_1 = 0.5, beta_2 = 0.75, gradients 2 and -1: m = 1, 0 and v = 1, 1; corrected m = 2, 0 and v = 4, 16 / 7.
        // The steps are the rate times 2 / (2 + 1) and 0.
        let config = AdamConfig { beta_1: 0.5, beta_2: 0.75, epsilon: 1.0 };
        let rule = AdamRule { config, weight_decay: 0.0 };
        let device = Device::default();
        let tensor = |value: f32| Tensor::<1>::from_floats([value], &device);
        let (first, state) = rule.update(Step { rate: 0.3, time: 1 }, tensor(1.0), tensor(2.0), None);
        let value = |tensor: &Tensor<1>| tensor.clone().into_scalar::<f32>();
        assert!((value(&first) - 0.8).abs() < 1e-6, "{first}");
        let (second, state) = rule.update(Step { rate: 0.3, time: 2 }, first, tensor(-1.0), Some(state));
        assert!((value(&second) - 0.8).abs() < 1e-6, "{second}");
        assert!(value(&state[0]).abs() < 1e-6 && (value(&state[1]) - 1.0).abs() < 1e-6);
    }
}
