//! One layer of a Transformer: self-attention, optionally cross-attention, feed-forward, each with its norm and its
//! residual connection.
//!
//! Sources: post-norm Vaswani et al. 2017, §3.1; pre-norm Xiong et al. 2020 (<https://arxiv.org/abs/2002.04745>);
//! sandwich Ding et al. 2021, §2.4 (<https://arxiv.org/abs/2105.13290>); parallel Chowdhery et al. 2022, §2
//! (<https://arxiv.org/abs/2204.02311>).

use crate::attention::{Attention, AttentionConfig, AttentionContext, Memory};
use crate::dropout;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::feed_forward::{ExpertsConfig, FeedForwardConfig, FeedForwardLayer};
use crate::init::ParamBuilder;
use crate::kind;
use crate::layer_scale::LayerScale;
use crate::norm::{Norm, NormConfig};
use crate::pass::LayerPass;
use crate::stochastic_depth::StochasticDepth;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Bool, Device, Tensor};
use serde::{Deserialize, Serialize};

/// Where the norm stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NormPlacement {
    /// `x + f(norm(x))`; the stack ends with a norm of its own.
    #[default]
    Pre,
    /// `norm(x + f(x))`, as the original Transformer and BERT.
    Post,
    /// `x + norm(f(norm(x)))` with two norms a part, as CogView and Gemma 2; the stack ends with a norm of its own.
    Sandwich,
    /// `x + attention(norm(x)) + feed_forward(norm(x))` with one norm, as GPT-J and PaLM; the stack ends with a norm of
    /// its own.
    Parallel,
}

impl NormPlacement {
    /// Whether the stack ends with a norm: the residual stream of all but post-norm stacks is never normalised itself.
    pub fn has_final_norm(self) -> bool {
        self != Self::Post
    }
}

/// What a block reads beside its input: the shared context of its self-attention, and the memory of a decoder.
#[derive(Debug, Clone, Default)]
pub struct BlockContext {
    /// Mask, bias and rotation of the self-attention.
    pub attention: AttentionContext,
    /// The encoder's output, in decoders with cross-attention.
    pub memory: Option<Memory>,
    /// `[B, T]`, true where a token of this pass is padding: experts do not read it.
    pub padding: Option<Tensor<2, Bool>>,
}

/// Configuration of a [`TransformerBlock`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerBlockConfig {
    /// The self-attention; the cross-attention has the same sizes.
    pub attention: AttentionConfig,
    /// The feed-forward network, or each of several experts.
    pub feed_forward: FeedForwardConfig,
    /// Several feed-forward networks, of which every token is read by a few. Default: one for all.
    #[serde(default)]
    pub experts: Option<ExpertsConfig>,
    /// The norm of every part. Default: layer normalisation.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub norm: NormConfig,
    /// Where the norms stand. Default: before each part.
    #[serde(default)]
    pub norm_placement: NormPlacement,
    /// Adds cross-attention to a memory. Default: false.
    #[serde(default)]
    pub cross_attention: bool,
    /// Dropout of each part's output before it joins the residual stream. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Rate at which a row of the batch goes without a part, in training. Default: 0.
    #[serde(default)]
    pub stochastic_depth: f64,
    /// Scales each channel of each part's output by a trained factor that begins at this value. Default: none.
    #[serde(default)]
    pub layer_scale: Option<f64>,
}

impl TransformerBlockConfig {
    /// A pre-norm block with layer normalisation.
    pub fn new(attention: AttentionConfig, feed_forward: FeedForwardConfig) -> Self {
        Self {
            attention,
            feed_forward,
            experts: None,
            norm: NormConfig::default(),
            norm_placement: NormPlacement::default(),
            cross_attention: false,
            dropout: 0.0,
            stochastic_depth: 0.0,
            layer_scale: None,
        }
    }

    /// Puts several experts in the place of the feed-forward network.
    pub fn with_experts(mut self, experts: Option<ExpertsConfig>) -> Self {
        self.experts = experts;
        self
    }

    /// Sets the norm.
    pub fn with_norm(mut self, norm: NormConfig) -> Self {
        self.norm = norm;
        self
    }

    /// Sets where the norms stand.
    pub fn with_norm_placement(mut self, norm_placement: NormPlacement) -> Self {
        self.norm_placement = norm_placement;
        self
    }

    /// Sets whether the block attends to a memory.
    pub fn with_cross_attention(mut self, cross_attention: bool) -> Self {
        self.cross_attention = cross_attention;
        self
    }

    /// Sets the dropout of each part's output.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets the rate at which a row goes without a part, in training.
    pub fn with_stochastic_depth(mut self, stochastic_depth: f64) -> Self {
        self.stochastic_depth = stochastic_depth;
        self
    }

    /// Sets where the trained factors of each part's channels begin.
    pub fn with_layer_scale(mut self, layer_scale: f64) -> Self {
        self.layer_scale = Some(layer_scale);
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Checks::default()
            .part(self.attention.validate())
            .part(self.feed_forward.validate())
            .part(self.experts.map_or(Ok(()), |experts| experts.validate()))
            .part(self.norm.validate())
            .rate("dropout", self.dropout)
            .rate("stochastic_depth", self.stochastic_depth)
            .require(self.layer_scale.is_none_or(|value| value > 0.0 && value.is_finite()), || {
                format!("layer_scale = {} must be above 0", self.layer_scale.unwrap_or_default())
            })
            .require(!(self.cross_attention && self.norm_placement == NormPlacement::Parallel), || {
                "norm_placement = parallel has no place for cross_attention: use pre, post or sandwich".into()
            })
            .finish()
    }

    /// Number of parameters.
    pub(crate) fn num_params(&self) -> f64 {
        let attentions = if self.cross_attention { 2.0 } else { 1.0 };
        let norms = match self.norm_placement {
            NormPlacement::Pre | NormPlacement::Post => attentions + 1.0,
            NormPlacement::Sandwich => 2.0 * (attentions + 1.0),
            NormPlacement::Parallel => 1.0,
        };
        let norms = norms * self.norm.num_params(self.attention.d_model);
        let scales = if self.layer_scale.is_some() { (attentions + 1.0) * self.attention.d_model as f64 } else { 0.0 };
        let feed_forward = match self.experts {
            Some(experts) => experts.num_params(&self.feed_forward),
            None => self.feed_forward.num_params(),
        };
        attentions * self.attention.num_params() + feed_forward + norms + scales
    }

    /// Builds the block with seed 0.
    pub fn init(&self, device: &Device) -> TransformerBlock {
        self.init_with(&ParamBuilder::new(device, 0))
    }

    /// Builds the block at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> TransformerBlock {
        expect_valid(self.validate());
        let norm = |name: &str| self.norm.init_with(self.attention.d_model, &params.scope(name));
        let attention = |name: &str| self.attention.init_with(&params.scope(name));
        let scale = |name: &str| {
            self.layer_scale.map(|value| LayerScale::new(self.attention.d_model, value, &params.scope(name)))
        };
        let sandwich = self.norm_placement == NormPlacement::Sandwich;
        let shared = self.norm_placement == NormPlacement::Parallel;
        TransformerBlock {
            attention_norm: norm("attention_norm"),
            attention_output_norm: sandwich.then(|| norm("attention_output_norm")),
            attention: attention("attention"),
            cross_attention_norm: self.cross_attention.then(|| norm("cross_attention_norm")),
            cross_attention_output_norm: (self.cross_attention && sandwich)
                .then(|| norm("cross_attention_output_norm")),
            cross_attention: self.cross_attention.then(|| attention("cross_attention")),
            feed_forward_norm: (!shared).then(|| norm("feed_forward_norm")),
            feed_forward_output_norm: sandwich.then(|| norm("feed_forward_output_norm")),
            feed_forward: self.feed_forward_layer(&params.scope("feed_forward")),
            attention_scale: scale("attention_scale"),
            cross_attention_scale: if self.cross_attention { scale("cross_attention_scale") } else { None },
            feed_forward_scale: scale("feed_forward_scale"),
            dropout: DropoutConfig::new(self.dropout).init(),
            stochastic_depth: StochasticDepth::new(self.stochastic_depth),
            norm_placement: self.norm_placement,
        }
    }

    fn feed_forward_layer(&self, params: &ParamBuilder) -> FeedForwardLayer {
        match self.experts {
            Some(experts) => FeedForwardLayer::Experts(experts.init_with(&self.feed_forward, params)),
            None => FeedForwardLayer::Dense(self.feed_forward.init_with(params)),
        }
    }
}

/// One layer of a Transformer.
#[derive(Module, Debug)]
pub struct TransformerBlock {
    /// Norm of the self-attention; in parallel blocks, of the feed-forward network too.
    pub attention_norm: Norm,
    /// Second norm of the self-attention, in sandwich blocks.
    pub attention_output_norm: Option<Norm>,
    /// Attention of the sequence to itself.
    pub attention: Attention,
    /// Norm of the cross-attention.
    pub cross_attention_norm: Option<Norm>,
    /// Second norm of the cross-attention, in sandwich blocks.
    pub cross_attention_output_norm: Option<Norm>,
    /// Attention to the memory.
    pub cross_attention: Option<Attention>,
    /// Norm of the feed-forward network, in all but parallel blocks.
    pub feed_forward_norm: Option<Norm>,
    /// Second norm of the feed-forward network, in sandwich blocks.
    pub feed_forward_output_norm: Option<Norm>,
    /// The feed-forward network, or the experts.
    pub feed_forward: FeedForwardLayer,
    /// Factors of the self-attention's output.
    pub attention_scale: Option<LayerScale>,
    /// Factors of the cross-attention's output.
    pub cross_attention_scale: Option<LayerScale>,
    /// Factors of the feed-forward network's output.
    pub feed_forward_scale: Option<LayerScale>,
    dropout: Dropout,
    stochastic_depth: StochasticDepth,
    #[module(skip)]
    norm_placement: NormPlacement,
}

impl TransformerBlock {
    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    ///
    /// # Panics
    /// If the block has cross-attention and the context has no memory.
    pub fn forward(&self, x: Tensor<3>, context: &BlockContext, pass: &mut LayerPass) -> Tensor<3> {
        self.extend(Stream::new(x), context, pass).into_sum()
    }

    /// [`forward`](Self::forward) between other blocks.
    pub(crate) fn extend(&self, stream: Stream, context: &BlockContext, pass: &mut LayerPass) -> Stream {
        let attend = |x, pass: &mut LayerPass| self.attention.forward(x, &context.attention, pass);
        let feed = |x, pass: &mut LayerPass| self.feed_forward.forward(x, context.padding.as_ref(), pass);
        let Some(feed_forward_norm) = &self.feed_forward_norm else {
            let (x, normed) = stream.normed(&self.attention_norm);
            let x = x + self.join(attend(normed.clone(), pass), &self.attention_scale);
            return Stream { x, branch: Some(self.join(feed(normed, pass), &self.feed_forward_scale)) };
        };
        let frame = (&self.attention_norm, &self.attention_output_norm, &self.attention_scale);
        let stream = self.residual(stream, frame, |x| attend(x, pass));
        let stream = match (&self.cross_attention, &self.cross_attention_norm) {
            (Some(attention), Some(norm)) => {
                let memory = context.memory.as_ref().expect("a block with cross-attention needs a memory");
                let frame = (norm, &self.cross_attention_output_norm, &self.cross_attention_scale);
                self.residual(stream, frame, |x| attention.forward_cross(x, memory, pass))
            }
            _ => stream,
        };
        let frame = (feed_forward_norm, &self.feed_forward_output_norm, &self.feed_forward_scale);
        self.residual(stream, frame, |x| feed(x, pass))
    }

    /// Adds one part to the stream, with its norm before or after, or two around it.
    fn residual(
        &self,
        stream: Stream,
        (norm, output_norm, scale): (&Norm, &Option<Norm>, &Option<LayerScale>),
        part: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Stream {
        if self.norm_placement == NormPlacement::Post {
            let x = stream.into_sum();
            let branch = self.join(part(x.clone()), scale);
            return Stream::new(norm.forward_sum(x, branch).1);
        }
        let (x, normed) = stream.normed(norm);
        let output = part(normed);
        let output = match output_norm {
            Some(norm) => norm.forward(output),
            None => output,
        };
        Stream { x, branch: Some(self.join(output, scale)) }
    }

    /// What a part's output passes on its way into the stream: its factors, then what is left out in training.
    fn join(&self, output: Tensor<3>, scale: &Option<LayerScale>) -> Tensor<3> {
        let output = match scale {
            Some(scale) => scale.forward(output),
            None => output,
        };
        self.stochastic_depth.forward(dropout::drop(&self.dropout, output))
    }
}

/// The residual stream, whose last branch may not have been added yet: the norm that reads the sum adds it in the same pass.
#[derive(Debug)]
pub(crate) struct Stream {
    x: Tensor<3>,
    branch: Option<Tensor<3>>,
}

impl Stream {
    pub(crate) fn new(x: Tensor<3>) -> Self {
        Self { x, branch: None }
    }

    /// The stream and its norm.
    fn normed(self, norm: &Norm) -> (Tensor<3>, Tensor<3>) {
        match self.branch {
            Some(branch) => norm.forward_sum(self.x, branch),
            None => (self.x.clone(), norm.forward(self.x)),
        }
    }

    /// The norm of the stream at its end.
    pub(crate) fn into_normed(self, norm: &Norm) -> Tensor<3> {
        self.normed(norm).1
    }

    /// The stream as it is.
    pub(crate) fn into_sum(self) -> Tensor<3> {
        match self.branch {
            Some(branch) => self.x + branch,
            None => self.x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed_forward::Activation;

    fn config(activation: Activation) -> TransformerBlockConfig {
        let feed_forward = FeedForwardConfig::new(512, activation);
        TransformerBlockConfig::new(AttentionConfig::new(512, 8), feed_forward)
    }

    #[test]
    fn the_layers_of_the_base_model_are_counted_exactly() {
        let device = Device::default();
        assert_eq!(config(Activation::Relu).init(&device).num_params(), 3_152_384);
        assert_eq!(config(Activation::Relu).with_cross_attention(true).init(&device).num_params(), 4_204_032);
    }

    #[test]
    fn a_parallel_block_with_cross_attention_is_refused() {
        let config = config(Activation::Relu).with_cross_attention(true).with_norm_placement(NormPlacement::Parallel);
        let error = config.validate().expect_err("no place for a second attention");
        assert!(error.to_string().contains("use pre, post or sandwich"), "{error}");
    }

    #[test]
    #[should_panic(expected = "needs a memory")]
    fn cross_attention_without_a_memory_panics() {
        let device = Device::default();
        let block =
            TransformerBlockConfig::new(AttentionConfig::new(8, 2), FeedForwardConfig::new(8, Activation::Relu))
                .with_cross_attention(true)
                .init(&device);
        block.forward(Tensor::zeros([1, 1, 8], &device), &BlockContext::default(), &mut LayerPass::default());
    }
}
