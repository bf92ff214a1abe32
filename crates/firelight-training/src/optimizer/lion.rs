//! Lion: the sign of a running mean of the gradients, so that every element moves by the learning rate. Half of Adam's
//! state.
//!
//! Source: Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2
//! (<https://arxiv.org/abs/2302.06675>). As they advise, the rate that the recipes begin with is a tenth of AdamW's, and
//! the decay ten times its (§5).
//!
//! Burn's Lion is the same rule, but takes `1 - β` in single precision, where 1 - 0.99 has six digits, and reads its state onto the default
//! device; to translate the state would take as many lines as the rule.

use burn::tensor::Tensor;

use super::below_one;
use super::hosted::{Decayed, Rule, Step, tensors};
use crate::config::Problems;

/// The running mean of Lion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionConfig {
    /// Share of the running mean in the direction of a step; the rest is the gradient's. From 0 to below 1, default 0.9.
    pub beta_1: f64,
    /// Decay of the running mean of the gradients. From 0 to below 1, default 0.99.
    pub beta_2: f64,
}

impl Default for LionConfig {
    fn default() -> Self {
        Self { beta_1: 0.9, beta_2: 0.99 }
    }
}

impl LionConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        below_one(problems, "beta_1", self.beta_1);
        below_one(problems, "beta_2", self.beta_2);
    }
}

/// Lion with decoupled decay.
pub(super) type LionRule = Decayed<LionConfig>;

impl Rule for LionRule {
    fn state_names(_rank: usize) -> &'static [&'static str] {
        &["momentum"]
    }

    /// `p = p - η (sign(β₁ m + (1 - β₁) g) + λ p)`, then `m = β₂ m + (1 - β₂) g`.
    fn update<const D: usize>(
        &self,
        Step { rate, .. }: Step,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Vec<Tensor<D>>>,
    ) -> (Tensor<D>, Vec<Tensor<D>>) {
        let LionConfig { beta_1, beta_2 } = self.config;
        let [momentum] = tensors(state).unwrap_or_else(|| [gradient.zeros_like()]);
        let direction = (momentum.clone() * beta_1 + gradient.clone() * (1.0 - beta_1)).sign();
        let parameter = parameter * (1.0 - rate * self.weight_decay) - direction * rate;
        (parameter, vec![momentum * beta_2 + gradient * (1.0 - beta_2)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use proptest::prelude::*;

    fn tensor(values: &[f32]) -> Tensor<1> {
        Tensor::from_floats(values, &Device::default())
    }

    fn update(rule: LionRule, parameter: &[f32], gradient: &[f32], momentum: &[f32]) -> [Vec<f32>; 2] {
        let step = Step { rate: 0.1, time: 1 };
        let (parameter, state) = rule.update(step, tensor(parameter), tensor(gradient), Some(vec![tensor(momentum)]));
        [parameter, state[0].clone()].map(|tensor| tensor.try_into_vec_as().unwrap())
    }

    #[test]
    fn one_step_by_hand() {
        // 0.5 m + 0.5 g is 1.5, -1 and 0: the signs are 1, -1 and 0, after a decay by 0.1 * 0.5 of the parameter.
        let rule = LionRule { config: LionConfig { beta_1: 0.5, beta_2: 0.75 }, weight_decay: 0.5 };
        let [parameter, momentum] = update(rule, &[2.0, 2.0, 2.0], &[1.0, -4.0, -2.0], &[2.0, 2.0, 2.0]);
        for (found, expected) in parameter.iter().zip([1.8, 2.0, 1.9]) {
            assert!((found - expected).abs() < 1e-6, "{parameter:?}");
        }
        assert_eq!(momentum, [1.75, 0.5, 1.0]);
    }

    proptest! {
        #[test]
        fn every_element_moves_by_the_rate_whatever_the_size_of_its_gradient(
            gradient in prop::collection::vec(prop_oneof![0.001_f32..1e3, -1e3_f32..-0.001], 1..20)
        ) {
            let rule = LionRule { config: LionConfig::default(), weight_decay: 0.0 };
            let zeros = vec![0.0; gradient.len()];
            let [parameter, _] = update(rule, &zeros, &gradient, &zeros);
            for (moved, gradient) in parameter.iter().zip(&gradient) {
                prop_assert!((moved + 0.1 * gradient.signum()).abs() < 1e-7);
            }
        }
    }
}
