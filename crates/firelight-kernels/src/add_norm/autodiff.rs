//! A residual addition and the norm of its sum in the graph: two operations that stand there by themselves, with outputs that
//! were made together. An operation of Burn's graph has one output; so each keeps its own gradient.

use super::{AddNormExtension, AddNormKernel, NormOfSum};
use crate::graph::{BackwardPass, Operation, record};
use crate::layer_norm::record_layer_norm;
use crate::optional::OptionalFloat;
use crate::rms_norm::record_rms_norm;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: AddNormKernel, C: CheckpointStrategy> AddNormExtension for Autodiff<B, C> {
    fn add_norm(
        x: FloatTensor<Self>,
        branch: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: OptionalFloat<Self>,
        norm: NormOfSum,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let beta = beta.into_option();
        let [x_values, branch_values, gamma_values] = [&x, &branch, &gamma].map(|x| x.clone().into_primitive());
        let beta_values = beta.clone().map(|beta| beta.into_primitive());
        let [sum, normed] = B::sum_and_norm(x_values, branch_values, gamma_values, beta_values, norm);
        let sum = record::<B, C, _, 2>([x, branch], [false; 2], |_| (sum, Sum));
        let inputs = [sum.clone(), gamma];
        let normed = match norm {
            NormOfSum::Layer { epsilon } => record_layer_norm::<B, C>(inputs, beta, epsilon, normed),
            NormOfSum::Rms { epsilon } => record_rms_norm::<B, C>(inputs, epsilon, normed),
        };
        (sum, normed)
    }
}

#[derive(Debug, Clone)]
struct Sum;

impl<B: AddNormKernel> Operation<B, 2> for Sum {
    fn backward(self, pass: BackwardPass<B, 2>) -> [Option<FloatTensor<B>>; 2] {
        [Some(pass.gradient.clone()), Some(pass.gradient)]
    }
}
