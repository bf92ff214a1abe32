//! Attention as one operation of Burn's dispatch and autodiff, and what a backend brings to it.

use super::{AttentionOptions, blocks, reference};
use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
use crate::optional::{OptionalBool, OptionalFloat};
use crate::rule::PairRule;
use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
use burn::tensor::Tensor;

/// The options that are no tensors.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(super) scale: f64,
    pub(super) rule: PairRule,
    /// Position of the first key.
    pub(super) start: usize,
    pub(super) soft_cap: Option<f64>,
    pub(super) dropout: f64,
    /// Whether the bias is one by distance, `[1, H | 1, 1, Q + K - 1]`, and not one of pairs.
    pub(super) by_distance: bool,
    /// Decides with the index of a weight whether it is dropped, so that the backward pass finds the same ones. On a CPU.
    #[cfg_attr(not(feature = "flex"), allow(dead_code))] // A GPU draws its own.
    pub(super) seed: u64,
    /// How many scores a block of the GPU's path may hold at once.
    pub(super) block: usize,
    /// The tiles that the kernels form.
    #[cfg(test)]
    pub(super) visits: super::visits::Visits,
}

/// Everything that attention reads.
#[derive(Debug)]
pub(crate) struct Inputs<B: Backend> {
    pub(super) query: FloatTensor<B>,
    pub(super) key: FloatTensor<B>,
    pub(super) value: FloatTensor<B>,
    pub(super) bias: Option<FloatTensor<B>>,
    /// `[1, H, 1, 1]`.
    pub(super) sinks: Option<FloatTensor<B>>,
    pub(super) padding: Option<BoolTensor<B>>,
    pub(super) hidden: Option<BoolTensor<B>>,
    pub(super) settings: Settings,
    /// What a backend has drawn that keeps its seeds to itself.
    pub(super) seed: Option<FloatTensor<B>>,
}

/// Where the weights of a block stand among all, and how many are dropped.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))] // Only a GPU drops weights of blocks.
pub(crate) struct BlockDropout {
    /// Queries of the whole pass.
    pub(super) queries: usize,
    pub(super) first_query: usize,
    pub(super) first_key: usize,
    pub(super) rate: f64,
}

/// The operation that Burn's dispatch and autodiff see.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    Cube: cfg(feature = "cube"),
    NdArray: cfg(all(test, feature = "ndarray")),
    Autodiff
)]
pub(crate) trait AttentionExtension: Backend {
    fn attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        #[extension_type] bias: OptionalFloat<Self>,
        #[extension_type] sinks: OptionalFloat<Self>,
        #[extension_type] padding: OptionalBool<Self>,
        #[extension_type] hidden: OptionalBool<Self>,
        settings: Settings,
    ) -> FloatTensor<Self>;
}

/// What a backend brings; if nothing of its own, then blocks of its operations, which drop no weights.
pub(crate) trait AttentionKernel: Backend {
    /// A seed for the weights that a pass drops, on the device; `None` where that of the settings is taken.
    fn draw_seed(_query: &FloatTensor<Self>, _settings: &Settings) -> Option<FloatTensor<Self>> {
        None
    }
    /// Drops weights of a block, `[B, H, q, k]`, and scales the rest up.
    fn dropped(_weights: FloatTensor<Self>, _seed: FloatTensor<Self>, _place: BlockDropout) -> FloatTensor<Self> {
        unreachable!("a backend that draws no seeds drops no weights in blocks")
    }
    /// The output, and of every query the largest score and one over the sum of exponentials relative to it,
    /// `[B, H, Q, 2]`. A sink takes part in both.
    fn forward(inputs: &Inputs<Self>) -> [FloatTensor<Self>; 2] {
        blocks::forward(inputs)
    }
    /// The gradients of query, key and value, and that of the bias if `with_bias`. Sinks change nothing in them but the
    /// statistics of the forward pass.
    fn backward(
        inputs: &Inputs<Self>,
        outputs: [FloatTensor<Self>; 2],
        grad: FloatTensor<Self>,
        with_bias: bool,
    ) -> ([FloatTensor<Self>; 3], Option<FloatTensor<Self>>) {
        blocks::backward(inputs, outputs, grad, with_bias)
    }
}

impl Settings {
    /// The settings of a pass over `query`, with a seed of its own if it drops weights.
    pub(super) fn new(options: &AttentionOptions, query: &Tensor<4>) -> Self {
        Self {
            scale: options.scale.unwrap_or(1.0 / (query.dims()[3] as f64).sqrt()),
            rule: options.mask.rule.clone(),
            start: options.mask.start,
            soft_cap: options.soft_cap,
            dropout: options.dropout,
            by_distance: options.bias.is_none()
                && options.bias_by_distance.is_some()
                && crate::path::is_fused_on_cpu_in_any_type(query),
            block: blocks::SCORES,
            #[cfg(test)]
            visits: super::visits::Visits::default(),
            // A GPU is not waited for: it draws its own.
            seed: if options.dropout > 0.0 && crate::path::is_fused_on_cpu_in_any_type(query) {
                crate::dropout::seed(&query.device())
            } else {
                0
            },
        }
    }
}

/// Attention on the fused path.
pub(super) fn attention(
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
    settings: Settings,
) -> Tensor<4> {
    let pairs = [query.dims()[2], key.dims()[2]];
    if settings.dropout > 0.0 && !crate::path::is_fused_on_cpu_in_any_type(&query) {
        crate::recompute::replay::before_drawing(&query.device()); // A GPU draws its own.
    }
    let bias = match &options.bias_by_distance {
        Some(bias) if settings.by_distance => Some(bias.clone().unsqueeze_dims(&[0, 2])),
        _ => reference::bias(options, pairs),
    };
    let sinks = options.sinks.clone().map(|sinks| sinks.unsqueeze_dims::<4>(&[0, 2, 3]));
    Tensor::from_dispatch(Dispatch::attention(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        OptionalFloat::new(bias),
        OptionalFloat::new(sinks),
        OptionalBool::new(options.mask.padding.clone()),
        OptionalBool::new(options.mask.hidden.clone()),
        settings,
    ))
}

/// The gradients of attention, from its inputs, its output and two numbers a query: the weights are computed again.
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
        let sinks = sinks.map(|sinks| blocks::sinks_gradient::<B>(sinks, outputs.clone(), pass.gradient.clone()));
        let with_bias = has_bias && pass.is_wanted[3];
        let (gradients, bias) = B::backward(&inputs, outputs, pass.gradient, with_bias);
        let behind = has_bias.then_some(bias).into_iter().chain([sinks]);
        let mut gradients = gradients.map(Some).into_iter().chain(behind); // In the order of the inputs.
        std::array::from_fn(|_| gradients.next().flatten())
    }
}
