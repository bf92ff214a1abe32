//! What a training is going to cost, known before anything is allocated. A task counts; here is how it is told.

use std::fmt;

/// What a training costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Numbers that are trained.
    pub parameters: usize,
    /// Floating point operations of one training token, forward and backward.
    pub flops_per_token: usize,
    /// The most training tokens of one optimiser step.
    pub tokens_per_step: usize,
    /// Optimiser steps.
    pub steps: usize,
    /// Bytes of weights, gradients and the optimiser's moments.
    pub state_bytes: usize,
    /// Bytes that the forward pass of one batch keeps for the backward pass.
    pub activation_bytes: usize,
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mebibytes = |bytes: usize| bytes.div_ceil(1 << 20);
        write!(
            f,
            "{} parameters, {:.1} MFLOP per token, {} tokens a step, {:.2e} FLOP in {} steps, about {} MiB: {} for weights, \
             gradients and moments, {} for activations",
            self.parameters,
            self.flops_per_token as f64 / 1e6,
            self.tokens_per_step,
            self.flops_per_token as f64 * self.tokens_per_step as f64 * self.steps as f64,
            self.steps,
            mebibytes(self.state_bytes + self.activation_bytes),
            mebibytes(self.state_bytes),
            mebibytes(self.activation_bytes)
        )
    }
}
