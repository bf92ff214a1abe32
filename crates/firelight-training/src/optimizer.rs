//! The optimiser of a recipe: AdamW that decays matrices only. [`OptimizerConfig::init`] gives Burn's `ModuleOptimizer`,
//! so it also serves a plain `Learner`.
//!
//! Source: Loshchilov and Hutter 2019, Decoupled Weight Decay Regularization, algorithm 2
//! (<https://arxiv.org/abs/1711.05101>). Biases, gains and other vectors are not decayed, as in GPT-2 and after.

use burn::module::{Module, ModuleVisitor, Param, ParamGroup, ParamId};
use burn::optim::ModuleOptimizer;
use burn::tensor::Tensor;
use firelight_kernels::AdamWStep;
use serde::{Deserialize, Serialize};

use crate::adamw::HostedAdamW;
use crate::config::{Problems, SettingsError};

/// The update rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    #[default]
    AdamW,
}

/// The `[optimizer]` section of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// The update rule: `adamw`.
    pub kind: OptimizerKind,
    /// The peak learning rate, which the schedule scales. Above 0, default 0.001.
    pub learning_rate: f64,
    /// Decay of the running mean of the gradients. From 0 to below 1, default 0.9.
    pub beta_1: f64,
    /// Decay of the running mean of their squares. From 0 to below 1, default 0.99.
    pub beta_2: f64,
    /// Added to the square root of the running squares. Above 0, default 1e-8.
    pub epsilon: f64,
    /// Decay of the matrices, as a share per unit of learning rate. At least 0, default 0.1.
    pub weight_decay: f64,
    /// The largest norm of all gradients together; 0 does not clip. At least 0, default 1.
    pub clip_norm: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::AdamW,
            learning_rate: 1e-3,
            beta_1: 0.9,
            beta_2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
        }
    }
}

impl OptimizerConfig {
    /// The optimiser of the parameters of `model`. It knows them by their ids: build it after weights are loaded.
    ///
    /// `clip_norm` is not its business: see [`clip_global_norm`](crate::clip_global_norm).
    pub fn init<M: Module>(&self, model: &M) -> ModuleOptimizer {
        let mut vectors = Vectors::default();
        model.visit(&mut vectors);
        self.without_groups().with_group(ParamGroup::from_ids(vectors.ids), self.rule(0.0), None)
    }

    /// The optimiser of no model in particular, to look into a saved state with.
    pub(crate) fn without_groups(&self) -> ModuleOptimizer {
        self.rule(self.weight_decay).into()
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let mut problems = Problems::of("optimizer");
        let mut check =
            |holds, key, value: f64, expected| problems.require(holds && value.is_finite(), key, value, expected);
        check(self.learning_rate > 0.0, "learning_rate", self.learning_rate, "above 0 and finite");
        for (key, beta) in [("beta_1", self.beta_1), ("beta_2", self.beta_2)] {
            check((0.0..1.0).contains(&beta), key, beta, "in [0, 1)");
        }
        check(self.epsilon > 0.0, "epsilon", self.epsilon, "above 0 and finite");
        check(self.weight_decay >= 0.0, "weight_decay", self.weight_decay, "at least 0 and finite");
        check(self.clip_norm >= 0.0, "clip_norm", self.clip_norm, "at least 0 and finite");
        problems.into_result()
    }

    /// The update of one parameter; its learning rate and its number are those of each step.
    pub(crate) fn rule(&self, weight_decay: f64) -> HostedAdamW {
        let OptimizerKind::AdamW = self.kind;
        let Self { learning_rate, beta_1, beta_2, epsilon, .. } = *self;
        HostedAdamW { rule: AdamWStep { learning_rate, beta_1, beta_2, epsilon, weight_decay, time: 0 } }
    }
}

/// The parameters that are no matrices.
#[derive(Default)]
struct Vectors {
    ids: Vec<ParamId>,
}

impl ModuleVisitor for Vectors {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if D < 2 {
            self.ids.push(param.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::LinearConfig;
    use burn::optim::GradientsParams;
    use burn::tensor::Device;

    #[test]
    fn decay_shrinks_matrices_and_spares_vectors() {
        let device = Device::default().autodiff();
        let mut model = LinearConfig::new(1, 1).init(&device);
        model.weight = Param::from_tensor(Tensor::<2>::from_floats([[2.0]], &device));
        model.bias = Some(Param::from_tensor(Tensor::<1>::from_floats([2.0], &device)));
        let mut gradients = GradientsParams::new();
        let inner = device.inner();
        gradients.register(model.weight.id, Tensor::<2>::from_floats([[0.5]], &inner));
        gradients.register(model.bias.as_ref().unwrap().id, Tensor::<1>::from_floats([0.5], &inner));

        // The first step of Adam moves by the learning rate against the sign: 2 - 0.1, and the matrix shrinks first by
        // the factor 1 - 0.1 * 0.5.
        let config = OptimizerConfig { weight_decay: 0.5, ..OptimizerConfig::default() };
        let model = config.init(&model).step(0.1, model, gradients);
        let weight = model.weight.val().try_into_vec_as::<f64>().unwrap()[0];
        let bias = model.bias.unwrap().val().try_into_vec_as::<f64>().unwrap()[0];
        assert!((weight - 1.8).abs() < 1e-6, "{weight}");
        assert!((bias - 1.9).abs() < 1e-6, "{bias}");
    }

    #[test]
    fn every_bad_field_is_listed() {
        let config =
            OptimizerConfig { learning_rate: 0.0, beta_2: 1.5, clip_norm: f64::NAN, ..OptimizerConfig::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "optimizer.learning_rate = 0 must be above 0 and finite; optimizer.beta_2 = 1.5 must be in [0, 1); \
             optimizer.clip_norm = NaN must be at least 0 and finite"
        );
        OptimizerConfig::default().validate().unwrap();
    }
}
