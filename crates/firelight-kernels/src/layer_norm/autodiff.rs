//! The gradients of layer normalisation, from its input: mean and variance are computed again, which costs less than
//! the memory traffic of the rest.

use super::{LayerNormExtension, LayerNormKernel};
use crate::optional::OptionalFloat;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: LayerNormKernel, C: CheckpointStrategy> LayerNormExtension for Autodiff<B, C> {
    fn layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: OptionalFloat<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let beta = beta.into_option();
        let [x_values, gamma_values] = [&x, &gamma].map(|x| x.clone().into_primitive());
        let beta_values = beta.clone().map(|beta| beta.into_primitive());
        let output = B::forward(x_values, gamma_values, beta_values, epsilon);
        record_layer_norm::<B, C>(&x, &gamma, beta.as_ref(), epsilon, output)
    }
}

/// Joins the norm of `x`, which was computed as `output`, to the graph.
pub(crate) fn record_layer_norm<B: LayerNormKernel, C: CheckpointStrategy>(
    x: &FloatTensor<Autodiff<B, C>>,
    gamma: &FloatTensor<Autodiff<B, C>>,
    beta: Option<&FloatTensor<Autodiff<B, C>>>,
    epsilon: f64,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match beta {
        Some(beta) => record::<B, C, 3>(x, gamma, epsilon, [x.node(), gamma.node(), beta.node()], output),
        None => record::<B, C, 2>(x, gamma, epsilon, [x.node(), gamma.node()], output),
    }
}

fn record<B: LayerNormKernel, C: CheckpointStrategy, const N: usize>(
    x: &FloatTensor<Autodiff<B, C>>,
    gamma: &FloatTensor<Autodiff<B, C>>,
    epsilon: f64,
    nodes: [NodeGuard; N],
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match Backward::<B, N>::prepare::<C>(LayerNorm { epsilon }, nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let saved = [prepared.checkpoint(x), prepared.checkpoint(gamma)];
            prepared.finish(saved, output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

#[derive(Debug)]
struct LayerNorm {
    epsilon: f64,
}

impl<B: LayerNormKernel, const N: usize> Backward<B, N> for LayerNorm {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<[NodeId; 2], N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [x, gamma] = ops.state.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        for (node, gradient) in ops.parents.into_iter().zip(B::backward(x, gamma, grad, self.epsilon)) {
            if let Some(node) = node {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
