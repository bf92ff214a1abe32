//! The gradients of root mean square normalisation, from its input: the mean square is computed again, which costs less
//! than the memory traffic of the rest.

use super::{RmsNormExtension, RmsNormKernel};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: RmsNormKernel, C: CheckpointStrategy> RmsNormExtension for Autodiff<B, C> {
    fn rms_norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        let output = B::forward(x.clone().into_primitive(), gamma.clone().into_primitive(), epsilon);
        record_rms_norm::<B, C>(&x, &gamma, epsilon, output)
    }
}

/// Joins the norm of `x`, which was computed as `output`, to the graph.
pub(crate) fn record_rms_norm<B: RmsNormKernel, C: CheckpointStrategy>(
    x: &FloatTensor<Autodiff<B, C>>,
    gamma: &FloatTensor<Autodiff<B, C>>,
    epsilon: f64,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match (RmsNorm { epsilon }).prepare::<C>([x.node(), gamma.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let saved = [prepared.checkpoint(x), prepared.checkpoint(gamma)];
            prepared.finish(saved, output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

#[derive(Debug)]
struct RmsNorm {
    epsilon: f64,
}

impl<B: RmsNormKernel> Backward<B, 2> for RmsNorm {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<[NodeId; 2], 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [x, gamma] = ops.state.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        for (node, gradient) in ops.parents.into_iter().zip(B::backward(x, gamma, grad, self.epsilon)) {
            if let Some(node) = node {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
