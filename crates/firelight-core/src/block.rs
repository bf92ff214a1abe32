//! One layer of a Transformer: self-attention, optionally cross-attention, feed-forward, each with its norm and its
//! residual connection.
//!
//! Sources: post-norm Vaswani et al. 2017, §3.1; pre-norm Xiong et al. 2020 (<https://arxiv.org/abs/2002.04745>);
//! sandwich Ding et al. 2021, §2.4 (<https://arxiv.org/abs/2105.13290>); parallel Chowdhery et al. 2022, §2
//! (<https://arxiv.org/abs/2204.02311>).

use crate::attention::{Attention, AttentionConfig};
use crate::context::LayerContext;
use crate::cost::Cost;
use crate::dropout;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::feed_forward::{ExpertsConfig, FeedForwardConfig, FeedForwardLayer};
use crate::init::ParamBuilder;
use crate::kind;
use crate::layer::{FeedForwardNetwork, Layer, TokenMixer};
use crate::layer_scale::LayerScale;
use crate::mixer::{Mixer, MixerConfig};
use crate::norm::{Norm, NormConfig};
use crate::pass::LayerPass;
use crate::residual::ResidualStream;
use crate::state::State;
use crate::stochastic_depth::StochasticDepth;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Tensor};
use firelight_kernels::PairRule;
use serde::{Deserialize, Serialize};

fn one() -> f64 {
    1.0
}

/// Where the norm stands.
#[doc(alias = "pre-norm")]
#[doc(alias = "post-norm")]
#[doc(alias = "sandwich norm")]
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
    /// `x + norm(f(x))`, as OLMo 2; the stack ends with a norm of its own.
    Output,
    /// `x + attention(norm(x)) + feed_forward(norm(x))` with one norm, as GPT-J and PaLM; the stack ends with a norm of
    /// its own.
    Parallel,
    /// The same with a norm for each of both, as GPT-NeoX.
    ParallelTwoNorms,
}

impl NormPlacement {
    /// Whether the stack ends with a norm: the residual stream of all but post-norm stacks is never normalised itself.
    pub fn has_final_norm(self) -> bool {
        self != Self::Post
    }

    /// Whether attention and feed-forward network read the same `x`.
    pub fn is_parallel(self) -> bool {
        matches!(self, Self::Parallel | Self::ParallelTwoNorms)
    }

    /// Whether the output of a sub-layer is normalised before the residual addition.
    fn has_output_norms(self) -> bool {
        matches!(self, Self::Sandwich | Self::Output)
    }
}

/// Configuration of a [`TransformerBlock`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerBlockConfig {
    /// The self-attention; the cross-attention has the same sizes.
    pub attention: AttentionConfig,
    /// The token mixer that replaces the self-attention, with its sizes. Default: self-attention.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub mixer: MixerConfig,
    /// The feed-forward network, or each of several experts.
    pub feed_forward: FeedForwardConfig,
    /// A mixture of experts that replaces the feed-forward network. Default: none, one network for all tokens.
    #[serde(default)]
    pub experts: Option<ExpertsConfig>,
    /// The norm of every sub-layer. Default: layer normalisation.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub norm: NormConfig,
    /// The norm of the self-attention's input, where it differs: none in the first block of ModernBERT. Default: as the others.
    #[serde(default, deserialize_with = "kind::deserialize_option")]
    pub attention_norm: Option<NormConfig>,
    /// Where the norms are placed. Default: before each sub-layer (pre-norm).
    #[serde(default)]
    pub norm_placement: NormPlacement,
    /// Adds cross-attention to an encoder's output. Default: false.
    #[serde(default)]
    pub cross_attention: bool,
    /// Dropout of each sub-layer's output before the residual addition. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// The rate at which a sub-layer is skipped for a row of the batch, in training. Default: 0.
    #[serde(default)]
    pub stochastic_depth: f64,
    /// Layer scale: the initial value of a trained factor for each channel of each sub-layer's output. Default: none.
    #[serde(default)]
    pub layer_scale: Option<f64>,
    /// Factor of each sub-layer's output, the `residual_multiplier` of Granite. Default: 1.
    #[serde(default = "one")]
    pub residual_scale: f64,
}

impl TransformerBlockConfig {
    /// A pre-norm block with layer normalisation.
    pub fn new(attention: AttentionConfig, feed_forward: FeedForwardConfig) -> Self {
        Self {
            attention,
            mixer: MixerConfig::default(),
            feed_forward,
            experts: None,
            norm: NormConfig::default(),
            attention_norm: None,
            norm_placement: NormPlacement::default(),
            cross_attention: false,
            dropout: 0.0,
            stochastic_depth: 0.0,
            layer_scale: None,
            residual_scale: one(),
        }
    }

    /// Sets the factor of each sub-layer's output.
    pub fn with_residual_scale(mut self, residual_scale: f64) -> Self {
        self.residual_scale = residual_scale;
        self
    }

    /// Sets the token mixer that replaces the self-attention.
    pub fn with_mixer(mut self, mixer: MixerConfig) -> Self {
        self.mixer = mixer;
        self
    }

    /// Replaces the feed-forward network by a mixture of experts.
    pub fn with_experts(mut self, experts: Option<ExpertsConfig>) -> Self {
        self.experts = experts;
        self
    }

    /// Sets the norm.
    pub fn with_norm(mut self, norm: NormConfig) -> Self {
        self.norm = norm;
        self
    }

    /// Sets the norm of the self-attention's input alone.
    pub fn with_attention_norm(mut self, norm: NormConfig) -> Self {
        self.attention_norm = Some(norm);
        self
    }

    /// Sets where the norms are placed.
    pub fn with_norm_placement(mut self, norm_placement: NormPlacement) -> Self {
        self.norm_placement = norm_placement;
        self
    }

    /// Sets whether the block attends to an encoder's output.
    pub fn with_cross_attention(mut self, cross_attention: bool) -> Self {
        self.cross_attention = cross_attention;
        self
    }

    /// Sets the dropout of each sub-layer's output.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets the rate at which a sub-layer is skipped for a row, in training.
    pub fn with_stochastic_depth(mut self, stochastic_depth: f64) -> Self {
        self.stochastic_depth = stochastic_depth;
        self
    }

    /// Sets the initial value of layer scale.
    pub fn with_layer_scale(mut self, layer_scale: f64) -> Self {
        self.layer_scale = Some(layer_scale);
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Checks::default()
            .include(self.attention.validate())
            .include(self.mixer.validate(&self.attention))
            .include(self.feed_forward.validate())
            .include(self.experts.map_or(Ok(()), |experts| experts.validate()))
            .include(self.norm.validate())
            .include(self.attention_norm.map_or(Ok(()), |norm| norm.validate()))
            .require(self.attention_norm.is_none() || self.norm_placement != NormPlacement::Output, || {
                "attention_norm has no place in norm_placement = output, which norms what the parts put out: leave it out".into()
            })
            .rate("dropout", self.dropout)
            .rate("stochastic_depth", self.stochastic_depth)
            .require(self.layer_scale.is_none_or(|value| value > 0.0 && value.is_finite()), || {
                format!("layer_scale = {} must be above 0", self.layer_scale.unwrap_or_default())
            })
            .require(self.residual_scale != 0.0 && self.residual_scale.is_finite(), || {
                format!("residual_scale = {} must be a finite number other than 0", self.residual_scale)
            })
            .require(!(self.cross_attention && self.norm_placement.is_parallel()), || {
                "norm_placement = parallel has no place for cross_attention: use pre, post, sandwich or output".into()
            })
            .finish()
    }

    /// Builds the block; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> TransformerBlock {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the block at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> TransformerBlock {
        self.init_parts(params, |params| self.init_mixer(params), |params| self.init_feed_forward(params))
    }

    /// What mixes the tokens, at the builder's seed and path.
    pub fn init_mixer(&self, params: &ParamBuilder) -> Mixer {
        self.mixer.init_with(&self.attention, params)
    }

    /// The feed-forward network, or the experts, at the builder's seed and path.
    pub fn init_feed_forward(&self, params: &ParamBuilder) -> FeedForwardLayer {
        match self.experts {
            Some(experts) => FeedForwardLayer::Experts(experts.init_with(&self.feed_forward, params)),
            None => FeedForwardLayer::Dense(self.feed_forward.init_with(params)),
        }
    }

    /// Builds the block at the builder's seed and path around your own mixer and network, which receive builders at the paths `attention`
    /// and `feed_forward`. Norms, cross-attention, dropout and the rest are those of the configuration.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_parts<M: TokenMixer, F: FeedForwardNetwork>(
        &self,
        params: &ParamBuilder,
        mixer: impl FnOnce(&ParamBuilder) -> M,
        feed_forward: impl FnOnce(&ParamBuilder) -> F,
    ) -> TransformerBlock<M, F> {
        expect_valid(self.validate());
        let norm = |name: &str| self.norm.init_with(self.attention.d_model, &params.scope(name));
        let scale = |name: &str| {
            self.layer_scale.map(|value| LayerScale::new(self.attention.d_model, value, &params.scope(name)))
        };
        let before = self.norm_placement != NormPlacement::Output;
        let behind = self.norm_placement.has_output_norms();
        let shared = self.norm_placement == NormPlacement::Parallel;
        let crosses = self.cross_attention;
        let attention_norm = || {
            let config = self.attention_norm.unwrap_or(self.norm);
            config.init_with(self.attention.d_model, &params.scope("attention_norm"))
        };
        TransformerBlock {
            attention_norm: before.then(attention_norm),
            attention_output_norm: behind.then(|| norm("attention_output_norm")),
            attention: mixer(&params.scope("attention")),
            cross_attention_norm: (crosses && before).then(|| norm("cross_attention_norm")),
            cross_attention_output_norm: (crosses && behind).then(|| norm("cross_attention_output_norm")),
            cross_attention: crosses.then(|| self.attention.init_with(&params.scope("cross_attention"))),
            feed_forward_norm: (before && !shared).then(|| norm("feed_forward_norm")),
            feed_forward_output_norm: behind.then(|| norm("feed_forward_output_norm")),
            feed_forward: feed_forward(&params.scope("feed_forward")),
            attention_scale: scale("attention_scale"),
            cross_attention_scale: if crosses { scale("cross_attention_scale") } else { None },
            feed_forward_scale: scale("feed_forward_scale"),
            dropout: DropoutConfig::new(self.dropout).init(),
            stochastic_depth: StochasticDepth::new(self.stochastic_depth),
            residual_scale: self.residual_scale,
            d_model: self.attention.d_model,
            norm_placement: self.norm_placement,
        }
    }
}

/// One layer of a Transformer.
///
/// Attention and feed-forward network can be replaced by your own: [`TransformerBlockConfig::init_parts`].
#[derive(Module, Debug)]
pub struct TransformerBlock<M = Mixer, F = FeedForwardLayer>
where
    M: TokenMixer,
    F: FeedForwardNetwork,
{
    /// Norm of the self-attention, where its input has one; in parallel blocks, of the feed-forward network too.
    pub attention_norm: Option<Norm>,
    /// Norm of the self-attention's output before the residual addition, where it has one.
    pub attention_output_norm: Option<Norm>,
    /// Self-attention, or another token mixer.
    pub attention: M,
    /// Norm of the cross-attention.
    pub cross_attention_norm: Option<Norm>,
    /// Norm of the cross-attention's output.
    pub cross_attention_output_norm: Option<Norm>,
    /// Attention to the encoder's output.
    pub cross_attention: Option<Attention>,
    /// Norm of the feed-forward network, where it has one of its own.
    pub feed_forward_norm: Option<Norm>,
    /// Norm of the feed-forward network's output.
    pub feed_forward_output_norm: Option<Norm>,
    /// The feed-forward network, or the experts.
    pub feed_forward: F,
    /// Layer scale of the self-attention's output.
    pub attention_scale: Option<LayerScale>,
    /// Layer scale of the cross-attention's output.
    pub cross_attention_scale: Option<LayerScale>,
    /// Layer scale of the feed-forward network's output.
    pub feed_forward_scale: Option<LayerScale>,
    dropout: Dropout,
    stochastic_depth: StochasticDepth,
    residual_scale: f64,
    d_model: usize,
    #[module(skip)]
    norm_placement: NormPlacement,
}

impl<M: TokenMixer, F: FeedForwardNetwork> Layer for TransformerBlock<M, F> {
    fn extend(&self, stream: ResidualStream, context: &LayerContext, pass: &mut LayerPass) -> ResidualStream {
        if self.norm_placement.is_parallel() {
            return self.extend_parallel(stream, context, pass);
        }
        let frame = ("attention.output", &self.attention_norm, &self.attention_output_norm, &self.attention_scale);
        let stream = self.residual(stream, frame, pass, |x, pass| self.attention.forward(x, context, pass));
        let stream = match &self.cross_attention {
            Some(attention) => {
                let source =
                    context.encoder_output.as_ref().expect("a block with cross-attention needs an encoder's output");
                let norms = (&self.cross_attention_norm, &self.cross_attention_output_norm);
                let frame = ("cross_attention.output", norms.0, norms.1, &self.cross_attention_scale);
                self.residual(stream, frame, pass, |x, pass| attention.forward_cross(x, source, pass))
            }
            None => stream,
        };
        let norms = (&self.feed_forward_norm, &self.feed_forward_output_norm);
        let frame = ("feed_forward.output", norms.0, norms.1, &self.feed_forward_scale);
        self.residual(stream, frame, pass, |x, pass| self.feed_forward.forward(x, context, pass))
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        self.attention.state(rule, capacity)
    }

    fn full_state(&self, capacity: usize) -> Box<dyn State> {
        self.attention.full_state(capacity)
    }

    fn cost(&self, rule: &PairRule, length: usize) -> Cost {
        let cross = self.cross_attention.as_ref().map(|attention| attention.cross_cost(length));
        let [attention, cross_attention, feed_forward] = [
            (Some(self.attention.cost(rule, length)), "attention"),
            (cross, "cross_attention"),
            (Some(self.feed_forward.cost()), "feed_forward"),
        ]
        .map(|(cost, name)| cost.map(|cost| cost.named(name)));
        let norm = |name: &str, norm: &Option<Norm>| Some(norm.as_ref()?.cost(self.d_model).named(name));
        let scale = |name: &str, scale: &Option<LayerScale>| Some(scale.as_ref()?.cost().named(name));
        let parts = [
            norm("attention_norm", &self.attention_norm),
            attention,
            norm("attention_output_norm", &self.attention_output_norm),
            scale("attention_scale", &self.attention_scale),
            norm("cross_attention_norm", &self.cross_attention_norm),
            cross_attention,
            norm("cross_attention_output_norm", &self.cross_attention_output_norm),
            scale("cross_attention_scale", &self.cross_attention_scale),
            norm("feed_forward_norm", &self.feed_forward_norm),
            feed_forward,
            norm("feed_forward_output_norm", &self.feed_forward_output_norm),
            scale("feed_forward_scale", &self.feed_forward_scale),
        ];
        Cost::sum(parts.into_iter().flatten())
    }
}

impl<M: TokenMixer, F: FeedForwardNetwork> TransformerBlock<M, F> {
    fn extend_parallel(&self, stream: ResidualStream, context: &LayerContext, pass: &mut LayerPass) -> ResidualStream {
        let (stream, x) = stream.read(&self.attention_norm);
        let (stream, other) = match &self.feed_forward_norm {
            Some(norm) => stream.normed(norm),
            None => (stream, x.clone()),
        };
        let output = self.join(self.attention.forward(x, context, pass), &self.attention_scale);
        let stream = stream + pass.activation("attention.output", output);
        let output = self.join(self.feed_forward.forward(other, context, pass), &self.feed_forward_scale);
        stream + pass.activation("feed_forward.output", output)
    }

    /// Adds the output of a sub-layer to the residual stream, with a norm before it, after it or both. Hooks see the output under its name.
    fn residual(
        &self,
        stream: ResidualStream,
        (name, norm, output_norm, scale): (&str, &Option<Norm>, &Option<Norm>, &Option<LayerScale>),
        pass: &mut LayerPass,
        part: impl FnOnce(Tensor<3>, &mut LayerPass) -> Tensor<3>,
    ) -> ResidualStream {
        if self.norm_placement == NormPlacement::Post {
            let (stream, x) = stream.read(&None);
            let output = self.join(part(x, pass), scale);
            return ResidualStream::new((stream + pass.activation(name, output)).read(norm).1);
        }
        let (stream, x) = stream.read(norm);
        let output = part(x, pass);
        let output = match output_norm {
            Some(norm) => norm.forward(output),
            None => output,
        };
        stream + pass.activation(name, self.join(output, scale))
    }

    /// Whether the stream behind the block is the sum of what its parts have added to it.
    pub(crate) fn is_sum(&self) -> bool {
        self.norm_placement != NormPlacement::Post
    }

    /// What each head adds to the stream, `[B, H, T, W] -> [B, H, T, D]`, where the mixer has heads: all of what the mixer adds but the
    /// bias. A norm of its output keeps the scale that it has for all heads together.
    pub(crate) fn head_outputs(&self, heads: Tensor<4>) -> Option<Tensor<4>> {
        let output = self.attention.head_output()?;
        let [batch, n_heads, length, width] = heads.dims();
        let weight = firelight_kernels::cast(output.merged_weight(), heads.dtype().into());
        let weight = weight.reshape([1, n_heads, width, self.d_model]);
        let each = heads.clone().matmul(weight); // [B, H, T, D]
        let each = match &self.attention_output_norm {
            Some(norm) => {
                let heads = heads.swap_dims(1, 2).reshape([batch, length, n_heads * width]);
                norm.share(&output.forward(heads).unsqueeze_dim::<4>(1), each)
            }
            None => each,
        };
        let each = match &self.attention_scale {
            Some(scale) => scale.forward(each.reshape([batch * n_heads, length, self.d_model])),
            None => each.reshape([batch * n_heads, length, self.d_model]),
        };
        Some((each * self.residual_scale).reshape([batch, n_heads, length, self.d_model]))
    }

    /// Applies layer scale, then dropout and stochastic depth, to a sub-layer's output before the residual addition.
    fn join(&self, output: Tensor<3>, scale: &Option<LayerScale>) -> Tensor<3> {
        let output = match scale {
            Some(scale) => scale.forward(output),
            None => output,
        };
        let output = if self.residual_scale == 1.0 { output } else { output * self.residual_scale };
        self.stochastic_depth.forward(dropout::drop(&self.dropout, output))
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
        assert!(error.to_string().contains("use pre, post, sandwich or output"), "{error}");
    }

    #[test]
    #[should_panic(expected = "needs an encoder's output")]
    fn cross_attention_without_a_memory_panics() {
        let device = Device::default();
        let block =
            TransformerBlockConfig::new(AttentionConfig::new(8, 2), FeedForwardConfig::new(8, Activation::Relu))
                .with_cross_attention(true)
                .init_with(&ParamBuilder::new(&device, 0));
        block.forward(Tensor::zeros([1, 1, 8], &device), &LayerContext::default(), &mut LayerPass::default());
    }
}
