//! A residual addition and the norm of its sum in the graph: two operations that stand there by themselves, with outputs that
//! were made together. An operation of Burn's graph has one output; so each keeps its own gradient.

use super::{AddNormExtension, AddNormKernel, NormOfSum};
use crate::layer_norm::record_layer_norm;
use crate::optional::OptionalFloat;
use crate::rms_norm::record_rms_norm;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
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
        let sum = Sum.prepare::<C>([x.node(), branch.node()]).compute_bound().stateless(sum);
        let normed = match norm {
            NormOfSum::Layer { epsilon } => record_layer_norm::<B, C>(&sum, &gamma, beta.as_ref(), epsilon, normed),
            NormOfSum::Rms { epsilon } => record_rms_norm::<B, C>(&sum, &gamma, epsilon, normed),
        };
        (sum, normed)
    }
}

#[derive(Debug)]
struct Sum;

impl<B: AddNormKernel> Backward<B, 2> for Sum {
    type State = ();

    fn backward(self, ops: Ops<(), 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        for node in ops.parents.into_iter().flatten() {
            grads.register::<B>(node.id, grad.clone());
        }
    }
}
