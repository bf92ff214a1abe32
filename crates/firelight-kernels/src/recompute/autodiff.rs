//! A part as one node of Burn's graph.

use super::MOST_INPUTS;
use super::extension::{Again, Backwards, RecomputeExtension, stand_for};
use super::parameters;
use super::replay::Seeds;
use crate::MatmulPrecision;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, BackendTensor, DispatchKindConversion, DispatchTensor, tensor::FloatTensor,
};
use burn::module::Module;
use burn::tensor::Tensor;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// Parents of the node: the inputs and one parameter, through which the node is reached where no input is tracked. The
/// other parameters are leaves, which receive their gradients without being parents.
const PARENTS: usize = MOST_INPUTS + 1;

pub(super) fn recomputed<M: Module + 'static>(
    module: &M,
    inputs: Vec<Tensor<1>>,
    forward: impl Fn(&M, Vec<Tensor<1>>) -> Vec<Tensor<1>> + Send + 'static,
) -> Vec<Tensor<1>> {
    let constants = parameters::detached(module);
    let tracked: Vec<_> = inputs.iter().map(Tensor::is_tracked).collect();
    let held: Vec<_> = inputs.iter().map(|input| input.clone().detach().set_require_grad(false)).collect();
    let (outputs, seeds) = Seeds::of(|| forward(&constants, held.clone()));
    let precision = MatmulPrecision::current();
    let lengths: Vec<_> = outputs.iter().map(|output| output.dims()[0]).collect();
    let (ids, parameters): (Vec<_>, Vec<_>) = parameters::trained(module).into_iter().unzip();
    let again = Again {
        inputs: inputs.into_iter().map(Tensor::into_dispatch).collect(),
        parameters,
        backwards: Box::new(move |output_gradient| {
            let module = parameters::tracked(constants, &ids);
            let leaf = |(input, tracked): (Tensor<1>, bool)| input.detach().set_require_grad(tracked);
            let inputs: Vec<_> = held.into_iter().zip(tracked).map(leaf).collect();
            let run = || precision.within(|| forward(&module, inputs.clone()));
            let outputs = seeds.repeat(&output_gradient.device(), run);
            let gradients = (join(outputs) * output_gradient).sum().backward();
            let of_inputs = inputs.iter().map(|input| input.grad(&gradients).map(Tensor::into_dispatch));
            of_inputs.chain(parameters::gradients(&module, &ids, &gradients)).collect()
        }),
    };
    split(stand_for(join(outputs), again), &lengths)
}

/// One vector of several.
fn join(mut outputs: Vec<Tensor<1>>) -> Tensor<1> {
    if outputs.len() == 1 { outputs.remove(0) } else { Tensor::cat(outputs, 0) }
}

fn split(joined: Tensor<1>, lengths: &[usize]) -> Vec<Tensor<1>> {
    if lengths.len() == 1 {
        return vec![joined];
    }
    let mut start = 0;
    let part = |&length: &usize| {
        start += length;
        joined.clone().narrow(0, start - length, length)
    };
    lengths.iter().map(part).collect()
}

impl<B, C> RecomputeExtension for Autodiff<B, C>
where
    B: RecomputeExtension,
    C: CheckpointStrategy,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B, C>>,
{
    fn stand_for(output: FloatTensor<Self>, again: Again) -> FloatTensor<Self> {
        let of_graph = |tensors: Vec<DispatchTensor>| tensors.into_iter().map(primitive::<Self>).collect::<Vec<_>>();
        let (inputs, parameters) = (of_graph(again.inputs), of_graph(again.parameters));
        let output = output.into_primitive();
        let nodes = nodes::<B>(&inputs, parameters.first(), &output);
        let ids = parameters.iter().map(|parameter| parameter.id()).collect();
        match Recomputed::<B>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let work = Work { inputs: inputs.len(), parameters: ids, backwards: again.backwards };
                prepared.finish(Once(Arc::new(Mutex::new(Some(work)))), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

/// The parents, with untracked ones in the place of those that there are not.
fn nodes<B: RecomputeExtension>(
    inputs: &[FloatTensor<Autodiff<B>>],
    parameter: Option<&FloatTensor<Autodiff<B>>>,
    output: &FloatTensor<B>,
) -> [NodeGuard; PARENTS] {
    let none = || <Autodiff<B> as AutodiffBackend>::from_inner(output.clone()).node();
    std::array::from_fn(|place| {
        let parent = if place < MOST_INPUTS { inputs.get(place) } else { parameter };
        parent.map_or_else(none, |parent| parent.node())
    })
}

/// The numbers behind a tensor of the dispatch.
fn primitive<B: Backend>(tensor: DispatchTensor) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(tensor)
        .unwrap_or_else(|reason| panic!("recomputed: {reason}"))
        .float()
}

/// What the backward pass takes, once.
#[derive(Clone)]
struct Once(Arc<Mutex<Option<Work>>>);

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part that runs again")
    }
}

impl Once {
    fn take(self) -> Work {
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work.take().expect("a graph is walked once")
    }
}

struct Work {
    /// How many.
    inputs: usize,
    parameters: Vec<NodeId>,
    backwards: Backwards,
}

#[derive(Debug)]
struct Recomputed<B>(PhantomData<B>);

impl<B> Backward<B, PARENTS> for Recomputed<B>
where
    B: RecomputeExtension,
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = Once;

    fn backward(self, ops: Ops<Once, PARENTS>, grads: &mut Gradients, _: &mut Checkpointer) {
        let output_gradient = BackendTensor::<B>::Float(grads.consume::<B>(&ops.node));
        let output_gradient = Tensor::from_dispatch(DispatchTensor::from_backend(output_gradient));
        let Work { inputs, parameters, backwards } = ops.state.take();
        let parents = ops.parents.iter().take(inputs).map(|parent| parent.as_ref().map(|parent| parent.id));
        let nodes = parents.chain(parameters.into_iter().map(Some));
        for (node, gradient) in nodes.zip(backwards(output_gradient)) {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<B>(node, primitive::<B>(gradient));
            }
        }
    }
}
