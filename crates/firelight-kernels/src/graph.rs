//! How an operation of our own joins Burn's graph: it says which inputs its backward pass needs, computes its output, and later the
//! gradients of all inputs at once.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, ComputePropertyDone, Ops, OpsKind, OpsPrep};
use burn::backend::{Autodiff, Backend, tensor::FloatTensor};
use std::fmt::Debug;
use std::marker::PhantomData;

pub(crate) use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;

/// An operation of `N` inputs that was computed, with what its backward pass needs beside them.
pub(crate) trait Operation<B: Backend, const N: usize>: Debug + Clone + Send + 'static {
    /// The gradients of the inputs. Those that nobody asked for are dropped.
    fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N];
}

/// What a backward pass begins with.
pub(crate) struct BackwardPass<B: Backend, const N: usize> {
    /// Those that were kept.
    pub(crate) inputs: [Option<FloatTensor<B>>; N],
    /// Whose gradients somebody asks for.
    pub(crate) is_wanted: [bool; N],
    /// That of the output.
    pub(crate) gradient: FloatTensor<B>,
}

/// Computes an operation and records how its gradients are computed, from the inputs that are `kept`.
pub(crate) fn record<B: Backend, C: CheckpointStrategy, O: Operation<B, N>, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    kept: [bool; N],
    forward: impl FnOnce([FloatTensor<B>; N]) -> (FloatTensor<B>, O),
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = inputs.each_ref().map(|input| input.node());
    finish(Step::<O>(PhantomData).prepare::<C>(nodes).compute_bound(), inputs, kept, forward)
}

/// Records an operation so cheap that a graph which saves memory computes it again.
pub(crate) fn record_cheap<B: Backend, C: CheckpointStrategy, O: Operation<B, N>, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    kept: [bool; N],
    operation: O,
    forward: fn(&O, [FloatTensor<B>; N]) -> FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = inputs.each_ref().map(|input| input.node());
    let again = Again { inputs: inputs.each_ref().map(|input| input.id()), operation: operation.clone(), forward };
    let prepared = Step::<O>(PhantomData).prepare::<C>(nodes).memory_bound().retro_forward(again).parents(&inputs);
    finish(prepared, inputs, kept, |inputs| (forward(&operation, inputs), operation))
}

type Prepared<B, C, O, const N: usize> = OpsPrep<Step<O>, B, Recorded<O, N>, C, N, ComputePropertyDone>;

fn finish<B: Backend, C: CheckpointStrategy, O: Operation<B, N>, const N: usize>(
    prepared: Prepared<B, C, O, N>,
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    kept: [bool; N],
    forward: impl FnOnce([FloatTensor<B>; N]) -> (FloatTensor<B>, O),
) -> FloatTensor<Autodiff<B, C>> {
    match prepared.stateful() {
        OpsKind::Tracked(mut prepared) => {
            let kept = std::array::from_fn(|index| kept[index].then(|| prepared.checkpoint(&inputs[index])));
            let (output, operation) = forward(inputs.map(|input| input.into_primitive()));
            prepared.finish(Recorded { operation, kept }, output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(forward(inputs.map(|input| input.into_primitive())).0),
    }
}

/// What a node of the graph holds until its backward pass.
#[derive(Debug, Clone)]
struct Recorded<O, const N: usize> {
    operation: O,
    kept: [Option<NodeId>; N],
}

#[derive(Debug)]
struct Step<O>(PhantomData<O>);

impl<B: Backend, O: Operation<B, N>, const N: usize> Backward<B, N> for Step<O> {
    type State = Recorded<O, N>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let Recorded { operation, kept } = ops.state;
        let inputs = kept.map(|id| id.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id)));
        let is_wanted = ops.parents.each_ref().map(Option::is_some);
        let gradients = operation.backward(BackwardPass { inputs, is_wanted, gradient });
        for (node, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some((node, gradient)) = node.zip(gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

/// Computes an output that was not kept.
#[derive(Debug)]
struct Again<T, O, const N: usize> {
    inputs: [NodeId; N],
    operation: O,
    forward: fn(&O, [T; N]) -> T,
}

impl<T: Clone + Debug + Send + 'static, O: Debug + Send + 'static, const N: usize> RetroForward for Again<T, O, N> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let inputs = self.inputs.map(|input| states.get_state::<T>(&input));
        states.save(output, (self.forward)(&self.operation, inputs));
    }
}
