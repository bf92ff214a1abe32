//! Multi-head attention: project, rotate, cache, attend, merge. Grouped-query and multi-query attention are the same
//! layer with fewer key/value heads.
//!
//! Sources: Vaswani et al. 2017, §3.2.2 (<https://arxiv.org/abs/1706.03762>); Ainslie et al. 2023
//! (<https://arxiv.org/abs/2305.13245>); norms of queries and keys: Henry et al. 2020, §3
//! (<https://arxiv.org/abs/2010.04245>). Differs from it: a trained RMS or layer norm of every head before the rotation,
//! as Qwen 3, and the scores keep their scale; OLMo 2 takes the norm over all heads at once.

mod context;
mod linear;
mod mechanism;
mod memory;
mod pattern;
mod projection;
mod score;

pub use context::AttentionContext;
pub use linear::LinearAttention;
pub(crate) use linear::Sums;
pub use mechanism::{AttentionMechanism, DotProduct, Mechanism};
pub use memory::Memory;
pub use pattern::AttentionPattern;
pub use projection::{FusedProjection, Projection, ProjectionKind, SeparateProjection};
pub use score::{AdditiveScore, BilinearScore, ScoreScale};

use crate::cache::Retention;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::kind;
use crate::linear::{Linear, LinearConfig};
use crate::mask::AttentionMask;
use crate::norm::{Norm, NormConfig};
use crate::pass::{Channels, LayerPass};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Tensor};
use firelight_kernels::{attention, attention_from_scores, attention_with_weights};
use mechanism::Heads;
use projection::Widths;
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

/// Configuration of an [`Attention`] layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionConfig {
    /// Width `D` of input and output.
    pub d_model: usize,
    /// Number of query heads `H`.
    pub n_heads: usize,
    /// Number of key/value heads `G`, a divisor of `H`. Default: `H`; 1 is multi-query attention.
    #[serde(default)]
    pub n_kv_heads: Option<usize>,
    /// Width `E` of a head. Default: `D / H`.
    #[serde(default)]
    pub d_head: Option<usize>,
    /// Width `W` of a head's values, where it differs from that of its queries and keys. Default: `E`.
    #[serde(default)]
    pub d_value: Option<usize>,
    /// One matrix for queries, keys and values, or three. Default: three.
    #[serde(default)]
    pub projection: ProjectionKind,
    /// Biases in all projections. Default: true.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Biases of queries, keys and values, where they differ from `bias`, as in Qwen 2. Default: as `bias`.
    #[serde(default)]
    pub qkv_bias: Option<bool>,
    /// Norm of every head's query and key before the rotation. Default: none.
    #[serde(default, deserialize_with = "kind::deserialize_option")]
    pub query_key_norm: Option<NormConfig>,
    /// How a query weighs the keys. Default: by the softmax of dot products.
    #[serde(default)]
    pub mechanism: AttentionMechanism,
    /// Factor of the scores. Default: `1 / sqrt(E)`.
    #[serde(default)]
    pub scale: ScoreScale,
    /// Bounds the scaled scores to `(-c, c)` before bias and mask, as Gemma 2. Default: no bound.
    #[serde(default)]
    pub soft_cap: Option<f64>,
    /// Share of the attention weights dropped in training. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Distribution of the projections that read `x`. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub init: Init,
    /// Distribution of the projection that writes into the residual stream. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub output_init: Init,
}

impl AttentionConfig {
    /// Multi-head attention with heads of `d_model / n_heads`.
    pub fn new(d_model: usize, n_heads: usize) -> Self {
        Self {
            d_model,
            n_heads,
            n_kv_heads: None,
            d_head: None,
            d_value: None,
            projection: ProjectionKind::default(),
            bias: true,
            qkv_bias: None,
            query_key_norm: None,
            mechanism: AttentionMechanism::default(),
            scale: ScoreScale::default(),
            soft_cap: None,
            dropout: 0.0,
            init: Init::default(),
            output_init: Init::default(),
        }
    }

    /// Sets the number of key/value heads.
    pub fn with_n_kv_heads(mut self, n_kv_heads: usize) -> Self {
        self.n_kv_heads = Some(n_kv_heads);
        self
    }

    /// Sets the width of a head, which need not be `d_model / n_heads`.
    pub fn with_d_head(mut self, d_head: usize) -> Self {
        self.d_head = Some(d_head);
        self
    }

    /// Sets the width of a head's values, which need not be that of its queries and keys.
    pub fn with_d_value(mut self, d_value: usize) -> Self {
        self.d_value = Some(d_value);
        self
    }

    /// Sets how queries, keys and values are projected.
    pub fn with_projection(mut self, projection: ProjectionKind) -> Self {
        self.projection = projection;
        self
    }

    /// Sets whether there are biases.
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets whether queries, keys and values have biases, whatever the other layers have.
    pub fn with_qkv_bias(mut self, qkv_bias: bool) -> Self {
        self.qkv_bias = Some(qkv_bias);
        self
    }

    /// Sets the norm of every head's query and key.
    pub fn with_query_key_norm(mut self, norm: Option<NormConfig>) -> Self {
        self.query_key_norm = norm;
        self
    }

    /// Sets how a query weighs the keys.
    pub fn with_mechanism(mut self, mechanism: AttentionMechanism) -> Self {
        self.mechanism = mechanism;
        self
    }

    /// Sets the factor of the scores.
    pub fn with_scale(mut self, scale: ScoreScale) -> Self {
        self.scale = scale;
        self
    }

    /// Sets the bound of the scaled scores.
    pub fn with_soft_cap(mut self, soft_cap: Option<f64>) -> Self {
        self.soft_cap = soft_cap;
        self
    }

    /// Sets the dropout of the attention weights.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets the distributions of the reading and the writing projections.
    pub fn with_init(mut self, init: Init, output_init: Init) -> Self {
        (self.init, self.output_init) = (init, output_init);
        self
    }

    /// Number of key/value heads.
    pub fn n_kv_heads(&self) -> usize {
        self.n_kv_heads.unwrap_or(self.n_heads)
    }

    /// Width of a head.
    pub fn d_head(&self) -> usize {
        self.d_head.unwrap_or(self.d_model / self.n_heads.max(1))
    }

    /// Width of a head's values.
    pub fn d_value(&self) -> usize {
        self.d_value.unwrap_or(self.d_head())
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (d_model, n_heads, n_kv_heads) = (self.d_model, self.n_heads, self.n_kv_heads());
        Checks::default()
            .size("d_model", d_model)
            .size("n_heads", n_heads)
            .size("n_kv_heads", self.n_kv_heads.unwrap_or(1))
            .size("d_head", self.d_head.unwrap_or(1))
            .size("d_value", self.d_value.unwrap_or(1))
            .require(self.d_head.is_some() || n_heads == 0 || d_model.is_multiple_of(n_heads), || {
                format!("d_model = {d_model} is not divisible by n_heads = {n_heads}; change one, or set d_head")
            })
            .require(n_kv_heads == 0 || n_heads.is_multiple_of(n_kv_heads), || {
                format!("n_heads = {n_heads} is not a multiple of n_kv_heads = {n_kv_heads}")
            })
            .part(self.query_key_norm.map_or(Ok(()), |norm| norm.validate()))
            .require(self.scale.is_usable(), || {
                format!("attention_scale = {:?} must be a finite number other than 0", self.scale)
            })
            .require(self.soft_cap.is_none_or(|cap| cap > 0.0 && cap.is_finite()), || {
                format!("attention_soft_cap = {:?} must be above 0, or left out", self.soft_cap.unwrap_or_default())
            })
            .rate("attention_dropout", self.dropout)
            .part(self.check_mechanism())
            .part(self.init.validate())
            .part(self.output_init.validate())
            .finish()
    }

    /// A factor belongs to products. Linear attention has no scores to bound, and forms no weights that could be dropped.
    fn check_mechanism(&self) -> Result<(), ConfigError> {
        let softmax = self.mechanism != AttentionMechanism::Linear;
        let products = softmax && self.mechanism != AttentionMechanism::Additive;
        Checks::default()
            .require(products || self.scale == ScoreScale::default(), || {
                format!(
                    "attention_scale = {:?} scales products, which attention_mechanism = {:?} does not form: leave it out",
                    self.scale, self.mechanism
                )
            })
            .require(softmax || self.soft_cap.is_none(), || {
                let cap = self.soft_cap.unwrap_or_default();
                format!("attention_soft_cap = {cap:?} has no scores to bound in linear attention: leave it out")
            })
            .require(softmax || self.dropout == 0.0, || {
                format!("attention_dropout = {} has no weights to drop in linear attention: set it to 0", self.dropout)
            })
            .finish()
    }

    /// Number of parameters.
    pub(crate) fn num_params(&self) -> f64 {
        let (d_model, d_head) = (self.d_model as f64, self.d_head() as f64);
        let (n_heads, n_kv_heads, d_value) = (self.n_heads as f64, self.n_kv_heads() as f64, self.d_value() as f64);
        let read = n_heads * d_head + n_kv_heads * (d_head + d_value);
        let qkv_biases = if self.qkv_bias.unwrap_or(self.bias) { read } else { 0.0 };
        let biases = qkv_biases + if self.bias { d_model } else { 0.0 };
        let norms = self.query_key_norm.map_or(0.0, |norm| 2.0 * norm.num_params(self.d_head()));
        d_model * (read + n_heads * d_value) + biases + norms + self.mechanism.num_params(self.heads())
    }

    fn heads(&self) -> Heads {
        Heads { n_heads: self.n_heads, n_kv_heads: self.n_kv_heads(), d_head: self.d_head() }
    }

    /// Builds the layer with seed 0.
    pub fn init(&self, device: &Device) -> Attention {
        self.init_with(&ParamBuilder::new(device, 0))
    }

    /// Builds the layer at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> Attention {
        expect_valid(self.validate());
        let (d_head, d_value, n_kv_heads) = (self.d_head(), self.d_value(), self.n_kv_heads());
        let (query, key, value) = (self.n_heads * d_head, n_kv_heads * d_head, n_kv_heads * d_value);
        let widths = Widths { d_model: self.d_model, query, key, value };
        let d_heads = self.n_heads * d_value;
        let output = LinearConfig::new(d_heads, self.d_model).with_bias(self.bias).with_init(self.output_init);
        let norm = |name: &str| self.query_key_norm.map(|norm| norm.init_with(d_head, &params.scope(name)));
        Attention {
            query_norm: norm("query_norm"),
            key_norm: norm("key_norm"),
            projection: self.projection.init_with(widths, self.qkv_bias.unwrap_or(self.bias), self.init, params),
            output: output.init_with(&params.scope("output")),
            mechanism: self.mechanism.init_with(self.heads(), self.init, &params.scope("mechanism")),
            dropout: DropoutConfig::new(self.dropout).init(),
            n_heads: self.n_heads,
            n_kv_heads,
            scale: self.scale,
            soft_cap: self.soft_cap,
        }
    }
}

/// Multi-head attention.
///
/// ```text
/// x -projection-> query, key, value -norm-> -rotation-> -cache-> -attention(mask, bias)-> heads -merge-> output
/// ```
#[derive(Module, Debug)]
pub struct Attention {
    /// From the residual stream to queries, keys and values.
    pub projection: Projection,
    /// Norm of every head's query.
    pub query_norm: Option<Norm>,
    /// Norm of every head's key.
    pub key_norm: Option<Norm>,
    /// How a query weighs the keys.
    pub mechanism: Mechanism,
    /// `[H W, D]`, from the heads back.
    pub output: Linear,
    dropout: Dropout,
    n_heads: usize,
    n_kv_heads: usize,
    #[module(skip)]
    scale: ScoreScale,
    #[module(skip)]
    soft_cap: Option<f64>,
}

impl Attention {
    /// Attends from every token of `x` to `x` itself and, with a cache, to everything before it.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    ///
    /// # Panics
    /// If the cache keeps sums of the past and the layer needs its keys: any layer but a linear one, and a linear one
    /// whose mask hides single pairs.
    pub fn forward(&self, x: Tensor<3>, context: &AttentionContext, pass: &mut LayerPass) -> Tensor<3> {
        let [query, key, value] = self.projection.project(x);
        let query = rotate(self.queries(query), context); // [B, H, T, E]
        let key = rotate(self.keys(key), context); // [B, G, T, E]
        let (key, value) = pass.extend(key, split(value, self.n_kv_heads)); // [B, G, K, E | W]
        self.attend([query, key, value], context, pass.self_attention())
    }

    /// Attends from every token of `x` to `memory`. With a cache the keys and values of the memory are computed once.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`, memory: `[B, S, D]`; output: `[B, T, D]`
    ///
    /// # Panics
    /// If the memory does not fit `x`.
    pub fn forward_cross(&self, x: Tensor<3>, memory: &Memory, pass: &mut LayerPass) -> Tensor<3> {
        let shape = x.dims();
        let query = self.queries(self.projection.queries(x)); // [B, H, T, E]
        let (key, value) = pass.memory(|| {
            memory.check(shape);
            let [key, value] = self.projection.keys_and_values(memory.hidden.clone());
            (self.keys(key), split(value, self.n_kv_heads)) // [B, G, S, E | W]
        });
        let mask = memory.padding.clone().map_or(AttentionMask::none(), AttentionMask::padding);
        self.attend([query, key, value], &AttentionContext::masked(mask), pass.cross_attention())
    }

    /// `[B, T, H E] -> [B, H, T, E]`, all but turned.
    fn queries(&self, query: Tensor<3>) -> Tensor<4> {
        self.mechanism.query(norm(&self.query_norm, split(query, self.n_heads)))
    }

    /// `[B, T, G E] -> [B, G, T, E]`, all but turned.
    fn keys(&self, key: Tensor<3>) -> Tensor<4> {
        self.mechanism.key(norm(&self.key_norm, split(key, self.n_kv_heads)))
    }

    /// What the layer reads of the tokens before a pass when its mask is that of `pattern`.
    pub(crate) fn retention(&self, pattern: AttentionPattern) -> Retention {
        match (&self.mechanism, pattern) {
            (Mechanism::Linear(_), AttentionPattern::Full | AttentionPattern::Causal) => Retention::Sums,
            _ => pattern.span().map_or(Retention::All, Retention::Last),
        }
    }

    /// Attends and merges the heads. The weights are kept where somebody wants them.
    fn attend(&self, qkv: [Tensor<4>; 3], context: &AttentionContext, channels: Channels) -> Tensor<3> {
        let heads = match &self.mechanism {
            Mechanism::Linear(linear) => linear_heads(linear, qkv, context, channels),
            _ => {
                assert!(channels.sums.is_none(), "a cache that keeps sums of the past serves linear attention alone");
                self.softmax_heads(qkv, context, channels.weights)
            }
        };
        self.output.forward(merge(heads))
    }

    fn softmax_heads(
        &self,
        [query, key, value]: [Tensor<4>; 3],
        context: &AttentionContext,
        trace: Option<&mut Option<Tensor<4>>>,
    ) -> Tensor<4> {
        let bias = context.bias.as_ref().map(|bias| bias.of(&query));
        let options = (context.mask.options().with_bias(bias))
            .with_scale(self.scale.factor())
            .with_soft_cap(self.soft_cap)
            .with_dropout(self.active_dropout(&query.device()));
        let (heads, weights) = match (&self.mechanism, &trace) {
            (Mechanism::Additive(score), _) => attention_from_scores(score.scores(query, key), value, &options),
            (_, Some(_)) => attention_with_weights(query, key, value, &options),
            (_, None) => return attention(query, key, value, &options),
        };
        if let Some(trace) = trace {
            *trace = Some(weights);
        }
        heads
    }

    /// The dropout rate in force: 0 outside training, by the same rule as Burn's own [`Dropout`].
    fn active_dropout(&self, device: &Device) -> f64 {
        if self.dropout.training.is_enabled() && device.is_autodiff() { self.dropout.prob } else { 0.0 }
    }
}

fn linear_heads(
    linear: &LinearAttention,
    qkv: [Tensor<4>; 3],
    context: &AttentionContext,
    channels: Channels,
) -> Tensor<4> {
    assert!(context.bias.is_none(), "linear attention has no scores that positions could be added to");
    if let Some(trace) = channels.weights {
        let past = channels.sums.as_deref().and_then(Option::as_ref);
        let [query, key, _] = qkv.clone();
        *trace = Some(linear.weights([query, key], &context.mask, past));
    }
    linear.forward(qkv, &context.mask, channels.sums)
}

/// `[B, T, H E] -> [B, H, T, E]`.
fn split(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, length, width] = x.dims();
    x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
}

/// `[B, H, T, W] -> [B, T, H W]`.
fn merge(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, length, d_value] = x.dims();
    x.swap_dims(1, 2).reshape([batch, length, heads * d_value])
}

/// Over the last dimension of `[B, H, T, E]`: a head by itself.
fn norm(norm: &Option<Norm>, x: Tensor<4>) -> Tensor<4> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}

fn rotate(x: Tensor<4>, context: &AttentionContext) -> Tensor<4> {
    match &context.rotation {
        Some(rotation) => rotation.apply(x),
        None => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::ParamBuilder;
    use burn::module::Param;
    use burn::tensor::{Distribution, TensorData, Tolerance};

    #[test]
    fn parameters_are_counted_exactly() {
        let device = Device::default();
        assert_eq!(AttentionConfig::new(64, 8).init(&device).num_params(), 16_640);
        // Two of eight key/value heads: keys and values shrink to a quarter.
        let grouped = AttentionConfig::new(64, 8).with_n_kv_heads(2).init(&device);
        assert_eq!(grouped.num_params(), 2 * (64 * 64 + 64) + 2 * (64 * 16 + 16));
        // Values of 4 channels beside queries and keys of 8: their projection and the one after it shrink to a half.
        let narrow = AttentionConfig::new(64, 8).with_d_value(4).init(&device);
        assert_eq!(narrow.num_params(), 2 * (64 * 64 + 64) + (64 * 32 + 32) + (32 * 64 + 64));
        // Biases on queries, keys and values alone.
        let qwen = AttentionConfig::new(64, 8).with_bias(false).with_qkv_bias(true).init(&device);
        assert_eq!(qwen.num_params(), 16_640 - 64);
        // One gain of 8 channels for all queries, one for all keys; a layer norm has an offset beside it.
        let normed = |norm| AttentionConfig::new(64, 8).with_query_key_norm(Some(norm)).init(&device).num_params();
        assert_eq!([NormConfig::rms(), NormConfig::layer()].map(normed), [16_640 + 16, 16_640 + 32]);
    }

    #[test]
    fn one_fused_matrix_equals_three_side_by_side() {
        let device = Device::default();
        let config = AttentionConfig::new(12, 3).with_n_kv_heads(1);
        let separate = config.init(&device);
        let mut fused = config.clone().with_projection(ProjectionKind::Fused).init_with(&ParamBuilder::new(&device, 0));
        let (Projection::Separate(parts), Projection::Fused(whole)) = (&separate.projection, &mut fused.projection)
        else {
            panic!("the kinds asked for");
        };
        let layers = [&parts.query, &parts.key, &parts.value];
        let weights = layers.map(|layer| layer.weight.val()).to_vec();
        whole.qkv.weight = Param::from_tensor(Tensor::cat(weights, 1));
        let x = Tensor::<3>::random([2, 4, 12], Distribution::Default, &device);
        let memory = Memory::new(Tensor::<3>::random([2, 5, 12], Distribution::Default, &device));
        let context = AttentionContext::masked(AttentionMask::causal());
        let run = |layer: &Attention| {
            let own = layer.forward(x.clone(), &context, &mut LayerPass::default());
            layer.forward_cross(own, &memory, &mut LayerPass::default()).into_data()
        };
        run(&fused).assert_approx_eq::<f32>(&run(&separate), Tolerance::absolute(1e-6));
    }

    #[test]
    fn the_bank_and_the_loan() {
        // W_Q = I, W_K swaps the channels, W_V = 2 I; x0 = [1, .5], x1 = [.2, .9]. Keys [.5, 1] and [.9, .2]; the scores
        // of x0 are 1 and 1, so that both weigh a half: z0 = ([2, 1] + [.4, 1.8]) / 2 = [1.2, 1.4].
        let device = Device::default();
        let mut layer = AttentionConfig::new(2, 1).with_bias(false).init(&device);
        let matrix = |rows: [[f32; 2]; 2]| Param::from_tensor(Tensor::<2>::from_floats(rows, &device));
        let Projection::Separate(parts) = &mut layer.projection else { panic!("three matrices") };
        parts.query.weight = matrix([[1.0, 0.0], [0.0, 1.0]]);
        parts.key.weight = matrix([[0.0, 1.0], [1.0, 0.0]]);
        parts.value.weight = matrix([[2.0, 0.0], [0.0, 2.0]]);
        layer.output.weight = matrix([[1.0, 0.0], [0.0, 1.0]]);
        let x = Tensor::<3>::from_floats([[[1.0, 0.5], [0.2, 0.9]]], &device);
        let z0 = layer.forward(x, &AttentionContext::default(), &mut LayerPass::default()).narrow(1, 0, 1);
        z0.into_data().assert_approx_eq::<f32>(&TensorData::from([[[1.2f32, 1.4]]]), Tolerance::absolute(1e-5));
    }

    #[test]
    fn scales_and_caps_that_make_no_score_are_refused() {
        let error = AttentionConfig::new(8, 2)
            .with_scale(ScoreScale::Constant(0.0))
            .with_soft_cap(Some(-1.0))
            .validate()
            .expect_err("two problems");
        assert_eq!(
            error.problems(),
            [
                "attention_scale = Constant(0.0) must be a finite number other than 0",
                "attention_soft_cap = -1.0 must be above 0, or left out",
            ]
        );
    }

    #[test]
    fn a_bilinear_layer_of_unit_matrices_is_one_of_dot_products() {
        let device = Device::default();
        let config = AttentionConfig::new(12, 3).with_init(Init::XavierUniform, Init::XavierUniform);
        let mut bilinear = config.clone().with_mechanism(AttentionMechanism::Bilinear).init(&device);
        let Mechanism::Bilinear(score) = &mut bilinear.mechanism else { panic!("the mechanism asked for") };
        let x = Tensor::<3>::random([2, 4, 12], Distribution::Default, &device);
        let run = |layer: &Attention| {
            layer.forward(x.clone(), &AttentionContext::default(), &mut LayerPass::default()).into_data()
        };
        score.weight = Param::from_tensor(Tensor::<2>::eye(4, &device).repeat_dim(1, 3));
        run(&bilinear).assert_approx_eq::<f32>(&run(&config.init(&device)), Tolerance::absolute(1e-6));
    }

    #[test]
    fn what_a_mechanism_has_no_use_for_is_refused() {
        let config = AttentionConfig::new(8, 2).with_mechanism(AttentionMechanism::Additive);
        let error = config.with_scale(ScoreScale::Constant(0.5)).with_soft_cap(Some(5.0)).validate();
        assert_eq!(
            error.expect_err("no product").problems(),
            [
                "attention_scale = Constant(0.5) scales products, which attention_mechanism = Additive does not form: leave it out"
            ]
        );
        let error = AttentionConfig::new(8, 2)
            .with_mechanism(AttentionMechanism::Linear)
            .with_scale(ScoreScale::None)
            .with_soft_cap(Some(5.0))
            .with_dropout(0.1)
            .validate()
            .expect_err("three problems");
        assert_eq!(
            error.problems(),
            [
                "attention_scale = None scales products, which attention_mechanism = Linear does not form: leave it out",
                "attention_soft_cap = 5.0 has no scores to bound in linear attention: leave it out",
                "attention_dropout = 0.1 has no weights to drop in linear attention: set it to 0",
            ]
        );
    }

    #[test]
    fn bad_heads_are_all_listed() {
        let error = AttentionConfig::new(100, 3).with_n_kv_heads(2).validate().expect_err("two problems");
        assert_eq!(
            error.problems(),
            [
                "d_model = 100 is not divisible by n_heads = 3; change one, or set d_head",
                "n_heads = 3 is not a multiple of n_kv_heads = 2",
            ]
        );
    }
}
