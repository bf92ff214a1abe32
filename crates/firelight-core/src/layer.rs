//! The seams of a stack: what a layer is, and the two parts that most layers are made of. Implement one of them for a module of
//! your own, and it takes part in everything that a [`Transformer`](crate::Transformer) does: masks, padding, documents, caches,
//! traces, recomputation, lower precision.
//!
//! | of your own | implement | put it into |
//! |---|---|---|
//! | what mixes tokens | [`TokenMixer`] | [`TransformerBlockConfig::init_parts`](crate::TransformerBlockConfig::init_parts) |
//! | a feed-forward network | [`FeedForwardNetwork`] | the same |
//! | a whole layer | [`Layer`] | [`TransformerConfig::init_layers`](crate::TransformerConfig::init_layers) |
//!
//! Source of the terms: Yu et al. 2022, "MetaFormer Is Actually What You Need for Vision", §3.1
//! (<https://arxiv.org/abs/2111.11418>).

use crate::context::LayerContext;
use crate::cost::Cost;
use crate::linear::Linear;
use crate::pass::LayerPass;
use crate::residual::ResidualStream;
use crate::state::State;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;
use firelight_kernels::PairRule;

/// Mixes the tokens of a sequence: attention, a convolution, a recurrence.
///
/// ```
/// use burn::module::Module;
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{
///     KeyValues, LayerContext, LayerPass, PairRule, Pass, SequenceInput, State, TokenMixer, TransformerConfig,
/// };
///
/// /// The mean of all tokens up to each: attention with equal weights.
/// #[derive(Module, Debug)]
/// struct Mean {}
///
/// impl TokenMixer for Mean {
///     fn forward(&self, x: Tensor<3>, _: &LayerContext, _: &mut LayerPass) -> Tensor<3> {
///         let [_, length, _] = x.dims();
///         let counts = Tensor::<1, burn::tensor::Int>::arange(1..length as i64 + 1, &x.device()).float();
///         x.cumsum(1) / counts.reshape([1, length, 1])
///     }
///
///     fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
///         KeyValues::new(rule.max_lookback(), capacity).boxed() // Not used: this one has no cache yet.
///     }
/// }
///
/// let device = Device::flex();
/// let params = firelight_core::ParamBuilder::new(&device, 0);
/// let stack = TransformerConfig::new(16, 4, 2).init_layers(&params, |_, block, params| {
///     block.init_parts(params, |_| Mean {}, |params| block.init_feed_forward(params))
/// });
/// let y = stack.forward(Tensor::ones([1, 5, 16], &device), &SequenceInput::default(), &mut Pass::default());
/// assert_eq!(y.dims(), [1, 5, 16]);
/// ```
pub trait TokenMixer: Module + ModuleDisplay {
    /// Mixes the tokens of `x` and, where there is a [`LayerPass::state`], the earlier tokens that it holds.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`, normalised as the block does it; output: the same, to be added to the residual stream
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3>;

    /// An empty state for a text of up to `capacity` tokens, with the mask `rule`.
    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State>;

    /// A state that can be truncated to any length, where the mixer has one. Default: the state of a causal rule, which hides nothing of
    /// the past.
    fn full_state(&self, capacity: usize) -> Box<dyn State> {
        self.state(&PairRule::Causal, capacity)
    }

    /// The output projection of the heads, if there is one: its input is the concatenated heads, which pass through
    /// [`LayerPass::activation`] as `attention.heads`, `[B, H, T, W]`. Default: none.
    fn head_output(&self) -> Option<&Linear> {
        None
    }

    /// The cost in a context of `length` tokens, with the mask `rule`. Default: the products with its matrices, and the memory of its
    /// [`state`](Self::state) as far as [`State::full_bytes`] knows it; activations are not counted.
    fn cost(&self, rule: &PairRule, length: usize) -> Cost {
        Cost::of(self).with_cache_of(&*self.state(rule, length))
    }
}

/// A network that maps every token by itself, such as an MLP.
pub trait FeedForwardNetwork: Module + ModuleDisplay {
    /// # Shapes
    /// - `x`: `[B, T, D]`, normalised as the block does it; output: the same, to be added to the residual stream
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3>;

    /// What it costs. Default: the products with its matrices.
    fn cost(&self) -> Cost {
        Cost::of(self)
    }
}

/// A layer of a [`Transformer`](crate::Transformer). [`TransformerBlock`](crate::TransformerBlock) is ours.
pub trait Layer: Module + ModuleDisplay {
    /// Adds the output of the layer to the residual stream. Where the stream is read by [`ResidualStream::normed`], the residual addition
    /// of the previous layer and the norm of this one are fused into one pass over memory.
    ///
    /// # Shapes
    /// - `stream`: `[B, T, D]`; output: the same
    fn extend(&self, stream: ResidualStream, context: &LayerContext, pass: &mut LayerPass) -> ResidualStream;

    /// An empty state for a text of up to `capacity` tokens, with the mask `rule`.
    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State>;

    /// A state that can be truncated to any length, where the layer has one. Default: the state of a causal rule, which hides nothing of
    /// the past.
    fn full_state(&self, capacity: usize) -> Box<dyn State> {
        self.state(&PairRule::Causal, capacity)
    }

    /// The cost in a context of `length` tokens, with the mask `rule`. Default: the products with its matrices, and the memory of its
    /// [`state`](Self::state) as far as [`State::full_bytes`] knows it; activations are not counted.
    fn cost(&self, rule: &PairRule, length: usize) -> Cost {
        Cost::of(self).with_cache_of(&*self.state(rule, length))
    }

    /// The layer by itself.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    ///
    /// # Panics
    /// If it has cross-attention and the context has no encoder's output.
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        self.extend(ResidualStream::new(x), context, pass).into_sum()
    }
}
