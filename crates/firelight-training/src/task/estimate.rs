//! What a training is going to cost, known before anything is allocated: parameters, arithmetic and memory. A task counts what
//! its model costs; this module derives the costs of a training and formats them.

use std::fmt;

use burn::module::Module;
use burn::tensor::Device;

use super::run::frozen;
use super::{RecipeOf, Task, blocks};
use crate::TrainingConfig;
use crate::communicator::sums_kept;
use crate::freeze::{trained_beside, trained_by_paths};
use crate::path::shapes_of;

/// Bytes of a 32-bit float.
const FLOAT: usize = 4;

/// Numbers that an optimiser keeps of each that is trained: those of Adam, which has the most.
const MOMENTS: usize = 2;

/// Logits of more floats than this are computed in blocks and never lie in memory whole.
const LOGITS_IN_BLOCKS: usize = 16 << 20;

/// What one batch of a model costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchCost {
    /// Numbers that the model has.
    pub parameters: usize,
    /// Floating point operations of one training token, forward and backward.
    pub flops_per_token: f64,
    /// Activations of one token that the layers keep for the backward pass, in numbers.
    pub activations_per_token: usize,
    /// Logits of one token.
    pub logits_per_token: usize,
    /// The most tokens of one batch, padding included.
    pub tokens: usize,
}

impl BatchCost {
    /// What the parameters of a model alone tell about batches of so many items, each of them one target that every matrix is
    /// multiplied with once: 6 floating point operations for each of its numbers, 2 forward and 4 backward (Kaplan et al. 2020,
    /// Scaling Laws for Neural Language Models, section 2.1, <https://arxiv.org/abs/2001.08361>). Of activations only a lower bound
    /// is known, the smaller side of every matrix. A model that reads many positions of an item costs that much more.
    pub fn of_parameters<M: Module>(model: &M, items: usize) -> Self {
        let shapes = shapes_of(model);
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let matrices = || shapes.iter().map(|(_, shape)| shape.as_slice()).filter(|shape| shape.len() > 1);
        Self {
            parameters: shapes.iter().map(|(_, shape)| count(shape)).sum(),
            flops_per_token: 6.0 * matrices().map(count).sum::<usize>() as f64,
            activations_per_token: matrices().filter_map(|shape| shape.iter().min()).sum(),
            logits_per_token: 0,
            tokens: items,
        }
    }
}

/// What a training costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Numbers that the model has.
    pub parameters: usize,
    /// Those that are trained.
    pub trained: usize,
    /// Floating point operations of one training token, forward and backward, as if all were trained.
    pub flops_per_token: f64,
    /// The most training tokens of one optimiser step.
    pub tokens_per_step: usize,
    /// Optimiser steps.
    pub steps: usize,
    /// Bytes of weights, gradients, their sums over the batches of a step, and the optimiser's moments.
    pub state_bytes: usize,
    /// Bytes that the forward pass of one batch keeps for the backward pass.
    pub activation_bytes: usize,
}

impl Estimate {
    /// What the training of a recipe takes, of a model of this structure.
    pub fn of<T: Task>(recipe: &RecipeOf<T>, config: &T::Config, device: &Device) -> Self {
        Self::new(T::batch_cost(recipe, config, device), &recipe.training)
    }

    /// What training a model of this cost takes.
    pub fn new(cost: BatchCost, training: &TrainingConfig) -> Self {
        let all = cost.tokens.saturating_mul(cost.logits_per_token);
        // Logits and their gradient, where they are not computed in blocks.
        let logits = if all > LOGITS_IN_BLOCKS { LOGITS_IN_BLOCKS } else { 2 * all };
        Self {
            parameters: cost.parameters,
            trained: cost.parameters,
            flops_per_token: cost.flops_per_token,
            tokens_per_step: cost.tokens.saturating_mul(training.gradient_accumulation_steps),
            steps: training.steps,
            state_bytes: state_bytes(training, cost.parameters, cost.parameters),
            activation_bytes: cost
                .tokens
                .saturating_mul(cost.activations_per_token)
                .saturating_add(logits)
                .saturating_mul(FLOAT),
        }
    }

    /// Bytes of everything that is counted.
    pub fn bytes(&self) -> usize {
        self.state_bytes.saturating_add(self.activation_bytes)
    }

    /// The same on each of `world` ranks that share the moments: its part of them is the mean, for the shares are about equal.
    pub(super) fn bytes_on(&self, world: usize) -> usize {
        let moments = self.trained.saturating_mul(MOMENTS * FLOAT);
        self.bytes().saturating_sub(moments - moments.div_ceil(world.max(1)))
    }

    /// The same for a model of so many parameters, of which a part is trained, and another one lies in blocks: its numbers and bytes. Of
    /// these there is no moving average.
    pub(super) fn of_part(
        self,
        training: &TrainingConfig,
        (parameters, (in_blocks, block_bytes)): (usize, (usize, usize)),
        trained: usize,
    ) -> Self {
        let floats = state_bytes(training, parameters.saturating_sub(in_blocks), trained);
        Self { parameters, trained, state_bytes: floats.saturating_add(block_bytes), ..self }
    }
}

/// What a training costs; `model` is built where only it shows how much of it is trained.
pub(super) fn cost_of<T: Task>(
    recipe: &RecipeOf<T>,
    config: &T::Config,
    device: &Device,
    model: impl FnOnce() -> T::Net,
) -> Estimate {
    let estimate = Estimate::of::<T>(recipe, config, device);
    if !T::has_adapters(config) && recipe.training.freeze.is_empty() {
        return estimate;
    }
    let model = model();
    let frozen = frozen::<T>(recipe, config, &model);
    let blocks = blocks::size(&model, &blocks::of_base::<T>(recipe, config, &model));
    estimate.of_part(&recipe.training, (model.num_params(), blocks), trained_beside(model, &frozen))
}

/// The same without a word on what has a gradient of its own accord, so that no parameter is drawn for it.
pub(super) fn cost_by_paths<T: Task>(recipe: &RecipeOf<T>, config: &T::Config, device: &Device) -> Estimate {
    let estimate = Estimate::of::<T>(recipe, config, device);
    if !T::has_adapters(config) {
        return estimate;
    }
    let model = T::model(config, recipe.seed, device);
    let frozen = frozen::<T>(recipe, config, &model);
    let blocks = blocks::size(&model, &blocks::of_base::<T>(recipe, config, &model));
    let frozen = [frozen, blocks::adapted(&model).into_iter().collect()].concat(); // whatever a recipe says
    estimate.of_part(&recipe.training, (model.num_params(), blocks), trained_by_paths(&model, &frozen))
}

/// Weights, with one copy more of them where a moving average is kept; gradients and two moments of what is trained, and the
/// sums of the gradients that are kept where a step has several batches.
fn state_bytes(training: &TrainingConfig, parameters: usize, trained: usize) -> usize {
    let weights = if training.ema_decay > 0.0 { 2 } else { 1 };
    let gradients = 1 + sums_kept(training.gradient_accumulation_steps);
    parameters.saturating_mul(weights).saturating_add(trained.saturating_mul(gradients + MOMENTS)).saturating_mul(FLOAT)
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // The sum of what is shown, which is up to one more than the rounded sum.
        let [state, activations] = [self.state_bytes, self.activation_bytes].map(|bytes| bytes.div_ceil(1 << 20));
        let is_part = self.trained < self.parameters;
        let trained = if is_part { format!(", {} of them trained", self.trained) } else { String::new() };
        write!(
            f,
            "{} parameters{trained}, {:.1} MFLOP per token, {} tokens a step, {:.2e} FLOP in {} steps, about {} MiB: {} for weights, \
             gradients and moments, {} for activations",
            self.parameters,
            self.flops_per_token / 1e6,
            self.tokens_per_step,
            self.flops_per_token * self.tokens_per_step as f64 * self.steps as f64,
            self.steps,
            state + activations,
            state,
            activations
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_tell_the_least_that_a_batch_costs() {
        let model = burn::nn::LinearConfig::new(3, 5).init(&burn::tensor::Device::flex());
        let found = BatchCost::of_parameters(&model, 7);
        let flops_per_token = 6.0 * 15.0; // the bias is no product
        let expected =
            BatchCost { parameters: 20, flops_per_token, activations_per_token: 3, logits_per_token: 0, tokens: 7 };
        assert_eq!(found, expected);
    }

    #[test]
    fn blocks_count_by_their_bytes_and_have_no_average() {
        let cost =
            BatchCost { parameters: 0, flops_per_token: 1.0, activations_per_token: 0, logits_per_token: 0, tokens: 1 };
        let training = TrainingConfig { ema_decay: 0.9, ..TrainingConfig::default() };
        let estimate = Estimate::new(cost, &training).of_part(&training, (100, (64, 68)), 6);
        assert_eq!((estimate.parameters, estimate.trained), (100, 6));
        assert_eq!(estimate.state_bytes, 68 + 4 * (2 * 36 + 3 * 6));
    }

    #[test]
    fn ranks_that_share_the_moments_need_less_each() {
        let cost =
            BatchCost { parameters: 9, flops_per_token: 1.0, activations_per_token: 1, logits_per_token: 1, tokens: 1 };
        let estimate = Estimate::new(cost, &TrainingConfig::default());
        assert_eq!(estimate.bytes_on(1), estimate.bytes());
        assert_eq!(estimate.bytes_on(4), estimate.bytes() - 4 * 2 * 9 * 3 / 4);
    }

    #[test]
    fn the_memory_that_is_shown_is_the_sum_of_its_parts() {
        let cost =
            BatchCost { parameters: 9, flops_per_token: 1.0, activations_per_token: 1, logits_per_token: 1, tokens: 1 };
        let estimate = Estimate::new(cost, &TrainingConfig::default());
        let halves = Estimate { state_bytes: 5 << 19, activation_bytes: 5 << 19, ..estimate }; // 2.5 MiB each
        let expected = "about 6 MiB: 3 for weights, gradients and moments, 3 for activations";
        assert!(halves.to_string().ends_with(expected), "{halves}");
    }
}
