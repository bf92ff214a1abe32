//! The optional side channels of one forward pass. A new channel is a field here and changes no signature.

mod tap;

pub(crate) use tap::WeightsTap;

use crate::cache::{Cache, LayerCache};
use crate::context::CrossKeyValues;
use crate::hooks::{Hooks, LayerHooks};
use crate::precision::Precision;
use crate::residual::ResidualStream;
use crate::state::{Compression, State};
use burn::tensor::{Bool, Device, FloatDType, Int, Tensor};
use std::ops::Range;

/// The attention weights and the residual stream of every layer in one pass. A pass that continues a cache overwrites it.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{Trace, Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let model = TransformerConfig::new(16, 4, 2).init(&device);
/// let mut trace = Trace::default();
/// let x = Tensor::<3>::zeros([1, 3, 16], &device);
/// model.forward(x, &SequenceInput::default(), &mut Pass::default().with_trace(&mut trace));
/// assert_eq!(trace.layers.len(), 2);
/// assert_eq!(trace.layers[0].attention.as_ref().map(|weights| weights.dims()), Some([1, 4, 3, 3]));
/// assert_eq!(trace.layers[0].output.as_ref().map(|x| x.dims()), Some([1, 3, 16]));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// What the first layer reads, `[B, T, D]`.
    pub embeddings: Option<Tensor<3>>,
    /// One entry per layer.
    pub layers: Vec<LayerTrace>,
}

/// The attention weights of one layer and the residual stream behind it. Dropout is included, so that the weights times the values are what
/// the layer saw. Where heads have sinks, a row sums to less than 1: the rest is the weight of the sink.
#[derive(Debug, Clone, Default)]
pub struct LayerTrace {
    /// Of the self-attention, `[B, H, T, K]`. A layer whose cache keeps the last tokens alone, or means of older ones, reads
    /// those, so that its `K` is shorter than the text. One that keeps sums shows the tokens of the pass; what their weights lack to 1 is the
    /// past's.
    pub attention: Option<Tensor<4>>,
    /// Of the cross-attention, `[B, H, T, S]`.
    pub cross_attention: Option<Tensor<4>>,
    /// What the next layer reads, or the final norm: `[B, T, D]`.
    pub output: Option<Tensor<3>>,
}

impl Trace {
    /// An empty entry for layer `index`.
    fn layer(&mut self, index: usize) -> &mut LayerTrace {
        self.layers.resize_with(self.layers.len().max(index + 1), LayerTrace::default);
        self.layers[index] = LayerTrace::default();
        &mut self.layers[index]
    }
}

/// Auxiliary losses of parts of a model, such as load balancing. The task adds them to its own loss, with weights of its choice.
#[doc(alias = "load balancing loss")]
#[derive(Debug, Clone, Default)]
pub struct AuxiliaryLosses {
    load_balances: Vec<Tensor<1>>,
}

impl AuxiliaryLosses {
    /// The load-balancing loss, the mean over the layers that have experts: `[1]`, equal to the number of experts per token where the load
    /// is even; see [`MixtureOfExperts`](crate::MixtureOfExperts).
    pub fn load_balance(&self) -> Option<Tensor<1>> {
        let sum = self.load_balances.iter().cloned().reduce(|sum, loss| sum + loss)?;
        Some(sum / self.load_balances.len() as f32)
    }

    /// The loss that training minimises: `loss`, `[1]`, plus `load_balance` times the load-balancing loss, where there are experts.
    pub fn added_to(&self, loss: Tensor<1>, load_balance: f64) -> Tensor<1> {
        match self.load_balance() {
            Some(balance) => loss + balance * load_balance,
            None => loss,
        }
    }

    /// Adds the load-balancing loss of a layer, `[1]`.
    pub fn add_load_balance(&mut self, loss: Tensor<1>) {
        self.load_balances.push(loss);
    }

    /// One of every layer that has experts.
    pub(crate) fn into_load_balances(self) -> Vec<Tensor<1>> {
        self.load_balances
    }
}

/// The context of a forward pass beside its input and output: cache, trace, hooks, auxiliary losses. The default is a plain pass, as in
/// training.
#[derive(Debug, Default)]
pub struct Pass<'a> {
    cache: Option<&'a mut Cache>,
    trace: Option<&'a mut Trace>,
    hooks: Option<&'a mut Hooks>,
    losses: Option<&'a mut AuxiliaryLosses>,
    recomputes: bool,
    precision: Precision,
}

impl<'a> Pass<'a> {
    /// A pass that continues where `cache` ends and extends it.
    pub fn cached(cache: &'a mut Cache) -> Self {
        Self { cache: Some(cache), ..Self::default() }
    }

    /// Keeps the attention weights of every layer, and the residual stream between them, in `trace`.
    pub fn with_trace(mut self, trace: &'a mut Trace) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Passes the activations that `hooks` name through them. Call [`Hooks::finish`] after the pass.
    pub fn with_hooks(mut self, hooks: &'a mut Hooks) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Collects the losses that layers ask for in `losses`.
    pub fn with_losses(mut self, losses: &'a mut AuxiliaryLosses) -> Self {
        self.losses = Some(losses);
        self
    }

    /// Sets activation recomputation (gradient checkpointing): the activations of a block are dropped after its forward pass and computed
    /// again in the backward pass, so the graph keeps the input of every block alone. The gradients are the same, dropout included. Each
    /// further block adds the memory of its input, and a training step takes a third more time. Without autodiff nothing is kept anyway,
    /// and this changes nothing.
    #[doc(alias = "gradient checkpointing")]
    #[doc(alias = "activation checkpointing")]
    pub fn with_recomputation(mut self, recomputes: bool) -> Self {
        self.recomputes = recomputes;
        self
    }

    /// Sets the type that the blocks compute in; none, the default, is that of the parameters. Parameters, their gradients, the embeddings
    /// and the output stay as they are. A cache keeps the type of its first pass.
    ///
    /// Ask the device first: [`Device::supports_dtype`](burn::tensor::Device::supports_dtype).
    pub fn with_precision(mut self, precision: Option<FloatDType>) -> Self {
        self.precision = Precision(precision);
        self
    }

    /// The type that the blocks compute in.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// The number of tokens before this pass.
    pub fn start(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.len())
    }

    /// Which keys of this pass are padding, those of the cache included: `[B, T] -> [B, K]`.
    pub(crate) fn padding(&mut self, padding: Option<Tensor<2, Bool>>, shape: [usize; 2]) -> Option<Tensor<2, Bool>> {
        match &mut self.cache {
            Some(cache) => cache.extend_padding(padding, shape),
            None => padding,
        }
    }

    /// Of which document the keys of this pass are, those of the cache included: `[B, T] -> [B, K]`.
    pub(crate) fn documents(&mut self, documents: Option<Tensor<2, Int>>, shape: [usize; 2]) -> Option<Tensor<2, Int>> {
        match &mut self.cache {
            Some(cache) => cache.extend_documents(documents, shape),
            None => documents,
        }
    }

    /// Where the tokens of this pass stand on each axis, those of the cache included: `[1 | B, T, A] -> [1 | B, K, A]`.
    pub(crate) fn coordinates(&mut self, coordinates: Option<Tensor<3>>, shape: [usize; 2]) -> Option<Tensor<3>> {
        match &mut self.cache {
            Some(cache) => cache.extend_coordinates(coordinates, shape),
            None => coordinates,
        }
    }

    /// The tokens that layer `index` reads in this pass of `length` tokens, by their place in the row.
    pub(crate) fn keys(&self, index: usize, length: usize) -> Range<usize> {
        self.cache.as_ref().map_or(0..length, |cache| cache.keys(index, length))
    }

    /// Notes the rows of the pass, and the tokens that they then have, in the cache.
    pub(crate) fn begin(&mut self, shape: [usize; 2], device: &Device) {
        if let Some(cache) = &mut self.cache {
            cache.begin(shape, device);
        }
    }

    /// How the past is compressed, if it is.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.cache.as_ref().and_then(|cache| cache.compression())
    }

    /// The shortest and the longest text that the keys of the cache were turned in.
    pub(crate) fn lengths(&self) -> Option<[usize; 2]> {
        self.cache.as_ref().and_then(|cache| cache.lengths())
    }

    /// The states of the cache, one for each layer; none without a cache.
    pub(crate) fn states(&self) -> Option<Vec<&dyn State>> {
        self.cache.as_ref().map(|cache| cache.states().collect())
    }

    /// Whether blocks are computed again in the backward pass.
    ///
    /// # Panics
    /// If they are and the pass has a cache, a trace or hooks, which a second run would meet again.
    pub(crate) fn recomputes(&self) -> bool {
        let alone = self.cache.is_none() && self.trace.is_none() && self.hooks.is_none();
        assert!(alone || !self.recomputes, "a pass that recomputes its blocks has neither cache nor trace, nor hooks");
        self.recomputes
    }

    /// Notes what the first layer reads.
    pub(crate) fn trace_embeddings(&mut self, stream: &ResidualStream) {
        if let Some(trace) = &mut self.trace {
            trace.embeddings = Some(stream.sum());
        }
    }

    /// Notes what layer `index` leaves.
    pub(crate) fn trace_output(&mut self, index: usize, stream: &ResidualStream) {
        if let Some(layer) = self.trace.as_mut().and_then(|trace| trace.layers.get_mut(index)) {
            layer.output = Some(stream.sum());
        }
    }

    /// What the hooks make of the residual stream, which is summed where they ask for it.
    pub(crate) fn hook_stream(&mut self, path: impl FnOnce() -> String, stream: ResidualStream) -> ResidualStream {
        let Some(hooks) = &mut self.hooks else { return stream };
        let path = path();
        match hooks.wants(&path) {
            true => ResidualStream::new(hooks.activation(&path, stream.into_sum())),
            false => stream,
        }
    }

    /// What the hooks make of the output of the stack.
    pub(crate) fn hook_output(&mut self, x: Tensor<3>) -> Tensor<3> {
        match &mut self.hooks {
            Some(hooks) => hooks.activation("final_norm", x),
            None => x,
        }
    }

    /// Where losses beside the task's own are collected, if they are wanted.
    pub(crate) fn losses(&mut self) -> Option<&mut AuxiliaryLosses> {
        self.losses.as_deref_mut()
    }

    /// The channels of layer `index`.
    pub fn layer(&mut self, index: usize) -> LayerPass<'_> {
        LayerPass {
            cache: self.cache.as_mut().map(|cache| cache.layer(index)),
            trace: self.trace.as_mut().map(|trace| trace.layer(index)),
            hooks: self.hooks.as_deref_mut().map(|hooks| LayerHooks::new(hooks, index)),
            losses: self.losses.as_deref_mut(),
        }
    }
}

/// The side channels of one layer.
#[derive(Debug, Default)]
pub struct LayerPass<'a> {
    cache: Option<&'a mut LayerCache>,
    trace: Option<&'a mut LayerTrace>,
    hooks: Option<LayerHooks<'a>>,
    losses: Option<&'a mut AuxiliaryLosses>,
}

impl<'a> LayerPass<'a> {
    /// A pass that collects losses and does nothing else.
    pub(crate) fn collecting(losses: Option<&'a mut AuxiliaryLosses>) -> Self {
        Self { losses, ..Self::default() }
    }
}

impl LayerPass<'_> {
    /// The state of the layer's token mixer, where the pass continues a cache.
    pub fn state(&mut self) -> Option<&mut dyn State> {
        self.cache.as_mut().map(|cache| &mut *cache.state)
    }

    /// The same, and who wants the weights of the self-attention, if anybody does.
    pub(crate) fn self_attention(&mut self) -> (Option<&mut dyn State>, Option<WeightsTap<'_>>) {
        let state = self.cache.as_mut().map(|cache| &mut *cache.state);
        let trace = self.trace.as_mut().map(|trace| &mut trace.attention);
        let hooks = self.hooks.as_mut().map(LayerHooks::part);
        (state, WeightsTap::new(trace, hooks, "attention.weights"))
    }

    /// Who wants the weights of the cross-attention, if anybody does.
    pub(crate) fn cross_attention(&mut self) -> Option<WeightsTap<'_>> {
        let trace = self.trace.as_mut().map(|trace| &mut trace.cross_attention);
        let hooks = self.hooks.as_mut().map(LayerHooks::part);
        WeightsTap::new(trace, hooks, "cross_attention.weights")
    }

    /// Passes an activation through the hooks of the pass, under the path `blocks.N.name`. Without hooks it comes back as it is.
    ///
    /// Call it for what a part of your own computes, and experiments can read and change it as any other activation. The output of
    /// a mixer or a feed-forward network needs no call.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use firelight_core::{HookError, Hooks};
    ///
    /// let mut hooks = Hooks::new().edit("blocks.2.conv.gate", |x: Tensor<3>| x * 0.5);
    /// let gate = Tensor::<3>::ones([1, 2, 4], &Device::flex());
    /// let (gate, _) = hooks.run(|pass| pass.layer(2).activation("conv.gate", gate))?;
    /// assert_eq!(gate.sum().into_scalar::<f32>(), 4.0);
    /// # Ok::<(), HookError>(())
    /// ```
    pub fn activation<const R: usize>(&mut self, name: &str, x: Tensor<R>) -> Tensor<R> {
        match &mut self.hooks {
            Some(hooks) => hooks.activation(name, x),
            None => x,
        }
    }

    /// Whether hooks ask for the activation `blocks.N.name`, which the pass now has.
    pub(crate) fn wants(&mut self, name: &str) -> bool {
        self.hooks.as_mut().is_some_and(|hooks| hooks.wants(name))
    }

    /// Notes the weights of the self-attention, `[B, H, T, K]`, where the pass has a trace, and passes them through its hooks: what a
    /// mixer that has formed its weights goes on with.
    pub fn attention_weights(&mut self, weights: Tensor<4>) -> Tensor<4> {
        let weights = self.activation("attention.weights", weights);
        if let Some(trace) = &mut self.trace {
            trace.attention = Some(weights.clone());
        }
        weights
    }

    /// Notes the weights of the self-attention, `[B, H, T, K]`, where the pass has a trace or hooks that record them; else they are not
    /// computed. Hooks cannot change them here: [`attention_weights`](Self::attention_weights) hands them back.
    pub fn trace_attention(&mut self, weights: impl FnOnce() -> Tensor<4>) {
        let weights = self.shown("attention.weights", weights);
        if let Some((trace, weights)) = self.trace.as_mut().zip(weights) {
            trace.attention = Some(weights);
        }
    }

    /// Notes the weights of the cross-attention, `[B, H, T, S]`, as [`trace_attention`](Self::trace_attention).
    pub fn trace_cross_attention(&mut self, weights: impl FnOnce() -> Tensor<4>) {
        let weights = self.shown("cross_attention.weights", weights);
        if let Some((trace, weights)) = self.trace.as_mut().zip(weights) {
            trace.cross_attention = Some(weights);
        }
    }

    /// Weights that are not read back, computed where a trace or hooks want them.
    fn shown(&mut self, name: &str, weights: impl FnOnce() -> Tensor<4>) -> Option<Tensor<4>> {
        if !self.wants(name) && self.trace.is_none() {
            return None;
        }
        let weights = weights();
        if let Some(hooks) = &mut self.hooks {
            hooks.shown(name, weights.clone());
        }
        Some(weights)
    }

    /// Where losses beside the task's own are collected, if they are wanted.
    pub fn losses(&mut self) -> Option<&mut AuxiliaryLosses> {
        self.losses.as_deref_mut()
    }

    /// Keys and values of an encoder's output: a pass with a cache computes them once.
    pub fn cross(&mut self, compute: impl FnOnce() -> CrossKeyValues) -> CrossKeyValues {
        match &mut self.cache {
            Some(cache) => cache.cross(compute),
            None => compute(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamBuilder;
    use crate::context::EncoderOutput;
    use crate::transformer::{SequenceInput, TransformerConfig};
    use burn::tensor::{Device, Distribution};
    use firelight_kernels::assert_close;

    #[test]
    fn the_mean_balance_of_all_layers_is_added_and_nothing_without_experts() {
        let number = |number: f32| Tensor::<1>::from_floats([number], &Device::default());
        let mut losses = AuxiliaryLosses::default();
        assert!(losses.load_balance().is_none());
        assert_close(&losses.added_to(number(2.0), 0.5), &[2.0], 0.0);
        [1.0, 4.0].into_iter().for_each(|balance| losses.add_load_balance(number(balance)));
        assert_close(&losses.load_balance(), &[2.5], 0.0);
        assert_close(&losses.added_to(number(2.0), 0.5), &[3.25], 0.0);
    }

    #[test]
    fn a_layer_of_ones_own_notes_weights_where_there_is_a_trace() {
        let ones = |keys| Tensor::<4>::ones([1, 1, 1, keys], &Device::default());
        let mut trace = Trace::default();
        let mut pass = Pass::default().with_trace(&mut trace);
        pass.layer(1).trace_attention(|| ones(2));
        pass.layer(2).trace_cross_attention(|| ones(3));
        let found =
            |layer: &LayerTrace| [&layer.attention, &layer.cross_attention].map(|w| w.as_ref().map(Tensor::dims));
        let expected = [[None, None], [Some([1, 1, 1, 2]), None], [None, Some([1, 1, 1, 3])]];
        assert_eq!(trace.layers.iter().map(found).collect::<Vec<_>>(), expected);
        Pass::default().layer(0).trace_cross_attention(|| unreachable!("nobody wants them"));
    }

    #[test]
    fn a_decoder_shows_what_it_reads_of_its_memory() {
        let device = Device::default();
        let model = TransformerConfig::decoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let random = |length| Tensor::<3>::random([1, length, 8], Distribution::Default, &device);
        let padding = Tensor::<2, Bool>::from_bool([[false, false, true]], &device);
        let memory = EncoderOutput::new(random(3)).with_padding(Some(padding));
        let mut trace = Trace::default();
        let input = SequenceInput::default().with_encoder_output(memory);
        model.forward(random(2), &input, &mut Pass::default().with_trace(&mut trace));
        let weights = trace.layers[0].cross_attention.clone().expect("the weights of the cross-attention");
        assert_eq!(weights.dims(), [1, 2, 2, 3]);
        assert_close(&weights.clone().narrow(3, 2, 1), &[0.0; 4], 0.0);
        assert_close(&weights.sum_dim(3), &[1.0; 4], 1e-6);
    }
}
