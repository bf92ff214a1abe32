//! The configuration of an [`Attention`] layer: every choice that it can be made of, with its default.

use super::mechanism::Heads;
use super::projection::Widths;
use super::{Attention, AttentionMechanism, ProjectionKind, ScoreScale};
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::kind;
use crate::linear::LinearConfig;
use crate::norm::NormConfig;
use crate::spelling::spelled;
use burn::nn::DropoutConfig;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

/// The channels that a norm of queries and keys is taken over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NormSpan {
    /// Each head by itself, with one gain for all, as Qwen 3.
    #[default]
    Head,
    /// All heads at once, as OLMo 2.
    AllHeads,
}

/// Configuration of an [`Attention`] layer.
#[doc(alias = "multi-head attention")]
#[doc(alias = "grouped-query attention")]
#[doc(alias = "GQA")]
#[doc(alias = "MQA")]
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
    /// The channels that this norm is taken over. Default: each head by itself.
    #[serde(default)]
    pub query_key_norm_span: NormSpan,
    /// How a query weighs the keys. Default: by the softmax of dot products.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub mechanism: AttentionMechanism,
    /// Factor of the scores. Default: `1 / sqrt(E)`.
    #[serde(default)]
    pub scale: ScoreScale,
    /// Bounds the scaled scores to `(-c, c)` before bias and mask, as Gemma 2. Default: no bound.
    #[serde(default)]
    pub soft_cap: Option<f64>,
    /// A trained score of each head in the denominator of its softmax, as gpt-oss: what a query has no use for goes there. The
    /// scores begin at 0; those of gpt-oss in `transformers` are drawn as the weights are, close to 0. A cross-attention has sinks of
    /// its own. Default: false.
    #[serde(default)]
    pub sinks: bool,
    /// A gate for every channel of the heads, the sigmoid of a projection of `x`, as Qwen3-Next. Default: false.
    #[serde(default)]
    pub gate: bool,
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
            query_key_norm_span: NormSpan::default(),
            mechanism: AttentionMechanism::default(),
            scale: ScoreScale::default(),
            soft_cap: None,
            sinks: false,
            gate: false,
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

    /// Sets the channels that the norm of queries and keys is taken over.
    pub fn with_query_key_norm_span(mut self, span: NormSpan) -> Self {
        self.query_key_norm_span = span;
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

    /// Sets whether each head has an attention sink.
    pub fn with_sinks(mut self, sinks: bool) -> Self {
        self.sinks = sinks;
        self
    }

    /// Sets whether each channel of the heads has a gate.
    pub fn with_gate(mut self, gate: bool) -> Self {
        self.gate = gate;
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
            .include(self.query_key_norm.map_or(Ok(()), |norm| norm.validate()))
            .require(self.scale.is_usable(), || {
                format!("attention_scale = {} must be a finite number other than 0", spelled(&self.scale))
            })
            .require(self.soft_cap.is_none_or(|cap| cap > 0.0 && cap.is_finite()), || {
                format!("attention_soft_cap = {:?} must be above 0, or left out", self.soft_cap.unwrap_or_default())
            })
            .rate("attention_dropout", self.dropout)
            .include(self.check_mechanism())
            .include(self.init.validate())
            .include(self.output_init.validate())
            .finish()
    }

    /// A factor belongs to products. Linear attention has no scores to bound, no softmax that a sink could take part in, and forms
    /// no weights that could be dropped.
    fn check_mechanism(&self) -> Result<(), ConfigError> {
        let softmax = !self.mechanism.is_linear();
        let products = softmax && self.mechanism != AttentionMechanism::Additive;
        Checks::default()
            .require(self.mechanism != AttentionMechanism::Performer { features: 0 }, || {
                "attention_mechanism.features = 0 must be at least 1".into()
            })
            .require(products || self.scale == ScoreScale::default(), || {
                format!(
                    "attention_scale = {} scales products, which attention_mechanism = {} does not form: leave it out",
                    spelled(&self.scale),
                    spelled(&self.mechanism)
                )
            })
            .require(softmax || self.soft_cap.is_none(), || {
                let cap = self.soft_cap.unwrap_or_default();
                format!("attention_soft_cap = {cap:?} has no scores to bound in linear attention: leave it out")
            })
            .require(softmax || !self.sinks, || {
                "attention_sinks = true has no softmax to take part in, in linear attention: set it to false".into()
            })
            .require(softmax || self.dropout == 0.0, || {
                format!("attention_dropout = {} has no weights to drop in linear attention: set it to 0", self.dropout)
            })
            .finish()
    }

    /// What another mixer than [`Attention`] says of options that it has no place for: all that are set, but those that it has `taken`.
    pub(crate) fn check_taken(&self, taken: &[&str], mixer: &str) -> Checks {
        let plain = Self::new(self.d_model, self.n_heads);
        [
            ("n_kv_heads", self.n_kv_heads() != self.n_heads),
            ("d_value", self.d_value.is_some()),
            ("projection", self.projection != plain.projection),
            ("qkv_bias", self.qkv_bias.is_some()),
            ("query_key_norm", self.query_key_norm.is_some()),
            ("attention_mechanism", self.mechanism != plain.mechanism),
            ("attention_scale", self.scale != plain.scale),
            ("attention_soft_cap", self.soft_cap.is_some()),
            ("attention_sinks", self.sinks),
            ("attention_gate", self.gate),
            ("attention_dropout", self.dropout > 0.0),
        ]
        .into_iter()
        .filter(|(key, _)| !taken.contains(key))
        .fold(Checks::default(), |checks, (key, is_set)| {
            checks.require(!is_set, || format!("{key} has no place in mixer = {mixer}: leave it out"))
        })
    }

    /// How many numbers of `heads` heads a norm of queries or keys is taken over.
    fn normed_width(&self, heads: usize) -> usize {
        match self.query_key_norm_span {
            NormSpan::Head => self.d_head(),
            NormSpan::AllHeads => heads * self.d_head(),
        }
    }

    fn heads(&self) -> Heads {
        Heads { n_heads: self.n_heads, n_kv_heads: self.n_kv_heads(), d_head: self.d_head() }
    }

    /// Builds the layer; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> Attention {
        self.init_with(&ParamBuilder::random(device))
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
        let gate =
            LinearConfig::new(self.d_model, d_heads).with_bias(self.qkv_bias.unwrap_or(self.bias)).with_init(self.init);
        let norm = |name: &str, heads: usize| {
            self.query_key_norm.map(|norm| norm.init_with(self.normed_width(heads), &params.scope(name)))
        };
        Attention {
            query_norm: norm("query_norm", self.n_heads),
            key_norm: norm("key_norm", n_kv_heads),
            norm_span: self.query_key_norm_span,
            projection: self.projection.init_with(widths, self.qkv_bias.unwrap_or(self.bias), self.init, params),
            sinks: self.sinks.then(|| params.param("sinks", [self.n_heads], Init::Zeros)),
            gate: self.gate.then(|| gate.init_with(&params.scope("gate"))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;

    #[test]
    fn parameters_are_counted_exactly() {
        let device = Device::default();
        assert_eq!(AttentionConfig::new(64, 8).init(&device).num_params(), 16_640);
        // Two of eight key/value heads: keys and values shrink to a quarter.
        let grouped = AttentionConfig::new(64, 8).with_n_kv_heads(2).init_with(&ParamBuilder::new(&device, 0));
        assert_eq!(grouped.num_params(), 2 * (64 * 64 + 64) + 2 * (64 * 16 + 16));
        // Values of 4 channels beside queries and keys of 8: their projection and the one after it shrink to a half.
        let narrow = AttentionConfig::new(64, 8).with_d_value(4).init_with(&ParamBuilder::new(&device, 0));
        assert_eq!(narrow.num_params(), 2 * (64 * 64 + 64) + (64 * 32 + 32) + (32 * 64 + 64));
        // Biases on queries, keys and values alone.
        let qwen =
            AttentionConfig::new(64, 8).with_bias(false).with_qkv_bias(true).init_with(&ParamBuilder::new(&device, 0));
        assert_eq!(qwen.num_params(), 16_640 - 64);
        // One gain of 8 channels for all queries, one for all keys; a layer norm has an offset beside it.
        let normed = |norm| AttentionConfig::new(64, 8).with_query_key_norm(Some(norm)).init(&device).num_params();
        assert_eq!([NormConfig::rms(), NormConfig::layer()].map(normed), [16_640 + 16, 16_640 + 32]);
        // One of 64 for the queries of all heads, one of 16 for the keys of two.
        let wide = AttentionConfig::new(64, 8).with_n_kv_heads(2).with_query_key_norm_span(NormSpan::AllHeads);
        let wide = wide.with_query_key_norm(Some(NormConfig::rms())).init(&device);
        assert_eq!(wide.num_params(), grouped.num_params() + 64 + 16);
        // A gate for each channel of the heads.
        assert_eq!(AttentionConfig::new(64, 8).with_gate(true).init(&device).num_params(), 16_640 + 64 * 64 + 64);
        // One sink a query head.
        assert_eq!(
            AttentionConfig::new(64, 8).with_n_kv_heads(2).with_sinks(true).init(&device).num_params(),
            grouped.num_params() + 8
        );
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
                "attention_scale = { constant = 0.0 } must be a finite number other than 0",
                "attention_soft_cap = -1.0 must be above 0, or left out",
            ]
        );
    }

    #[test]
    fn what_a_mechanism_has_no_use_for_is_refused() {
        let config = AttentionConfig::new(8, 2).with_mechanism(AttentionMechanism::Additive);
        let error = config.with_scale(ScoreScale::Constant(0.5)).with_soft_cap(Some(5.0)).validate();
        assert_eq!(
            error.expect_err("no product").problems(),
            [
                "attention_scale = { constant = 0.5 } scales products, which attention_mechanism = \"additive\" does not form: leave it out"
            ]
        );
        let error = AttentionConfig::new(8, 2)
            .with_mechanism(AttentionMechanism::Linear)
            .with_scale(ScoreScale::None)
            .with_soft_cap(Some(5.0))
            .with_sinks(true)
            .with_dropout(0.1)
            .validate()
            .expect_err("four problems");
        assert_eq!(
            error.problems(),
            [
                "attention_scale = \"none\" scales products, which attention_mechanism = \"linear\" does not form: leave it out",
                "attention_soft_cap = 5.0 has no scores to bound in linear attention: leave it out",
                "attention_sinks = true has no softmax to take part in, in linear attention: set it to false",
                "attention_dropout = 0.1 has no weights to drop in linear attention: set it to 0",
            ]
        );
    }

    #[test]
    fn bad_heads_are_all_listed() {
        let error = AttentionConfig::new(100, 3).with_n_kv_heads(2).with_d_value(0).validate();
        assert_eq!(
            error.expect_err("three problems").problems(),
            [
                "d_value = 0 must be at least 1",
                "d_model = 100 is not divisible by n_heads = 3; change one, or set d_head",
                "n_heads = 3 is not a multiple of n_kv_heads = 2",
            ]
        );
    }
}
