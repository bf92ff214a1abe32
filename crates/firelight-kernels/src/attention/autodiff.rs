//! The gradients of attention, from its inputs, its output and two numbers a query: the weights are computed again.

use super::blocks::sinks_gradient;
use super::extension::{AttentionExtension, AttentionKernel, Inputs, Settings};
use crate::graph::{BackwardPass, Operation, record};
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{
    Autodiff,
    tensor::{BoolTensor, FloatTensor},
};

impl<B: AttentionKernel, C: CheckpointStrategy> AttentionExtension for Autodiff<B, C> {
    fn attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: OptionalFloat<Self>,
        sinks: OptionalFloat<Self>,
        padding: OptionalBool<Self>,
        hidden: OptionalBool<Self>,
        settings: Settings,
    ) -> FloatTensor<Self> {
        let (padding, hidden) = (padding.into_option(), hidden.into_option());
        let seed = B::draw_seed(query.primitive(), &settings);
        let (bias, sinks) = (bias.into_option(), sinks.into_option());
        let others = Others { padding, hidden, settings, seed, has_bias: bias.is_some() };
        match (bias, sinks) {
            (None, None) => attend::<B, C, 3>([query, key, value], others),
            (Some(last), None) | (None, Some(last)) => attend::<B, C, 4>([query, key, value, last], others),
            (Some(bias), Some(sinks)) => attend::<B, C, 5>([query, key, value, bias, sinks], others),
        }
    }
}

/// The inputs that have no gradient.
#[derive(Debug, Clone)]
struct Others<B: AttentionKernel> {
    padding: Option<BoolTensor<B>>,
    hidden: Option<BoolTensor<B>>,
    settings: Settings,
    seed: Option<FloatTensor<B>>,
    /// Whether the tensor behind query, key and value is a bias, and not the sinks.
    has_bias: bool,
}

impl<B: AttentionKernel> Others<B> {
    /// Joined by query, key and value, and perhaps a bias, and perhaps sinks.
    fn join(self, tensors: impl IntoIterator<Item = FloatTensor<B>>) -> Inputs<B> {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().expect("attention has three tensors, and one for each option");
        let (query, key, value) = (next(), next(), next());
        let bias = self.has_bias.then(next);
        let Self { padding, hidden, settings, seed, .. } = self;
        Inputs { query, key, value, bias, sinks: tensors.next(), padding, hidden, settings, seed }
    }
}

fn attend<B: AttentionKernel, C: CheckpointStrategy, const N: usize>(
    tensors: [FloatTensor<Autodiff<B, C>>; N],
    others: Others<B>,
) -> FloatTensor<Autodiff<B, C>> {
    record::<B, C, _, N>(tensors, [true; N], |tensors| {
        let outputs = B::forward(&others.clone().join(tensors));
        (outputs[0].clone(), Attention { others, outputs })
    })
}

#[derive(Debug, Clone)]
struct Attention<B: AttentionKernel> {
    others: Others<B>,
    outputs: [FloatTensor<B>; 2],
}

impl<B: AttentionKernel, const N: usize> Operation<B, N> for Attention<B> {
    fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
        let Self { others, outputs } = self;
        let has_bias = others.has_bias;
        let inputs = others.join(pass.inputs.into_iter().flatten());
        let sinks = inputs.sinks.clone().filter(|_| pass.is_wanted[N - 1]);
        let sinks = sinks.map(|sinks| sinks_gradient::<B>(sinks, outputs.clone(), pass.gradient.clone()));
        let with_bias = has_bias && pass.is_wanted[3];
        let (gradients, bias) = B::backward(&inputs, outputs, pass.gradient, with_bias);
        let behind = has_bias.then_some(bias).into_iter().chain([sinks]);
        let mut gradients = gradients.map(Some).into_iter().chain(behind); // In the order of the inputs.
        std::array::from_fn(|_| gradients.next().flatten())
    }
}
