//! The gradients of the affine map. Each keeps only what it needs: the weight for that of `x`, `x` for that of the
//! weight, nothing for that of the bias.

use super::{LinearExtension, LinearKernel};
use crate::optional::OptionalFloat;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::{Autodiff, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;

impl<B: LinearKernel, C: CheckpointStrategy> LinearExtension for Autodiff<B, C> {
    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: OptionalFloat<Self>) -> FloatTensor<Self> {
        match bias.into_option() {
            Some(bias) => {
                let nodes = [x.node(), weight.node(), bias.node()];
                record::<B, C, 3>(x, weight, Some(bias.into_primitive()), nodes)
            }
            None => {
                let nodes = [x.node(), weight.node()];
                record::<B, C, 2>(x, weight, None, nodes)
            }
        }
    }
}

fn record<B: LinearKernel, C: CheckpointStrategy, const N: usize>(
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Option<FloatTensor<B>>,
    nodes: [NodeGuard; N],
) -> FloatTensor<Autodiff<B, C>> {
    match Backward::<B, N>::prepare::<C>(Affine, nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let saved = Saved {
                shape: x.shape(),
                x: weight.is_tracked().then(|| prepared.checkpoint(&x)),
                weight: x.is_tracked().then(|| prepared.checkpoint(&weight)),
            };
            prepared.finish(saved, B::forward(x.into_primitive(), weight.into_primitive(), bias))
        }
        OpsKind::UnTracked(prepared) => prepared.finish(B::forward(x.into_primitive(), weight.into_primitive(), bias)),
    }
}

#[derive(Debug)]
struct Affine;

#[derive(Debug, Clone)]
struct Saved {
    shape: Shape,
    x: Option<NodeId>,
    weight: Option<NodeId>,
}

impl<B: LinearKernel, const N: usize> Backward<B, N> for Affine {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let x = ops.state.x.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        let weight = ops.state.weight.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        for (place, node) in ops.parents.into_iter().enumerate() {
            let Some(node) = node else { continue };
            let gradient = match (place, &x, &weight) {
                (0, _, Some(weight)) => B::input_gradient(weight.clone(), grad.clone(), &ops.state.shape),
                (1, Some(x), _) => B::weight_gradient(x.clone(), grad.clone()),
                _ => B::bias_gradient(grad.clone()),
            };
            grads.register::<B>(node.id, gradient);
        }
    }
}
