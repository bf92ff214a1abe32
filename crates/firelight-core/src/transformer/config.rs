//! The configuration of a [`Transformer`]: every choice that a stack can be made of, with its default.

use super::Transformer;
use crate::attention::{AttentionConfig, AttentionMechanism, AttentionPattern, ProjectionKind, ScoreScale};
use crate::block::{NormPlacement, TransformerBlockConfig};
use crate::error::{Checks, ConfigError, expect_valid};
use crate::feed_forward::{Activation, ExpertsConfig, FeedForwardConfig};
use crate::init::{ParamBuilder, WeightInit};
use crate::kind;
use crate::norm::NormConfig;
use crate::position::{PositionConfig, PositionSizes};
use burn::nn::DropoutConfig;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

/// More parameters than this fit no machine that runs one process.
const MAX_PARAMS: f64 = 1e12;

fn max_seq_len() -> usize {
    1024
}

fn yes() -> bool {
    true
}

fn causal() -> Vec<AttentionPattern> {
    vec![AttentionPattern::Causal]
}

/// Configuration of a [`Transformer`]. Files may leave out every field but the first three.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    /// Width `D` of the residual stream.
    pub d_model: usize,
    /// Number of query heads `H`.
    pub n_heads: usize,
    /// Number of blocks `L`.
    pub n_layers: usize,
    /// Number of key/value heads `G`. Default: `n_heads`.
    #[serde(default)]
    pub n_kv_heads: Option<usize>,
    /// Width `E` of a head. Default: `d_model / n_heads`.
    #[serde(default)]
    pub d_head: Option<usize>,
    /// Width `W` of a head's values. Default: that of its queries and keys.
    #[serde(default)]
    pub d_value: Option<usize>,
    /// Inner width of the feed-forward networks. Default: [`Activation::default_d_ff`].
    #[serde(default)]
    pub d_ff: Option<usize>,
    /// Longest sequence in tokens, where the position scheme has an end. Default: 1024.
    #[serde(default = "max_seq_len")]
    pub max_seq_len: usize,
    /// The position scheme. Default: learned.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub position: PositionConfig,
    /// What the layers attend to, in turn: layer `i` has the pattern `i mod n`. Default: causal in every layer.
    #[serde(default = "causal", deserialize_with = "kind::deserialize_list")]
    pub patterns: Vec<AttentionPattern>,
    /// One matrix for queries, keys and values, or three. Default: three.
    #[serde(default)]
    pub projection: ProjectionKind,
    /// The nonlinearity of the feed-forward networks. Default: the tanh form of GELU.
    #[serde(default)]
    pub activation: Activation,
    /// Several feed-forward networks in every layer, of which a token is read by a few. Default: one for all.
    #[serde(default)]
    pub experts: Option<ExpertsConfig>,
    /// The norm. Default: layer normalisation.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub norm: NormConfig,
    /// Where the norms stand. Default: before each part.
    #[serde(default)]
    pub norm_placement: NormPlacement,
    /// Biases in the linear layers. Default: true.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Adds cross-attention to a memory in every block. Default: false.
    #[serde(default)]
    pub cross_attention: bool,
    /// Dropout of each part's output before it joins the residual stream. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Biases of queries, keys and values, where they differ from `bias`, as in Qwen 2. Default: as `bias`.
    #[serde(default)]
    pub qkv_bias: Option<bool>,
    /// Norm of every head's query and key. Default: none.
    #[serde(default, deserialize_with = "kind::deserialize_option")]
    pub query_key_norm: Option<NormConfig>,
    /// How a query weighs the keys. Default: by the softmax of dot products.
    #[serde(default)]
    pub attention_mechanism: AttentionMechanism,
    /// Factor of the attention scores. Default: `1 / sqrt(E)`.
    #[serde(default)]
    pub attention_scale: ScoreScale,
    /// Bounds the scaled attention scores to `(-c, c)`. Default: no bound.
    #[serde(default)]
    pub attention_soft_cap: Option<f64>,
    /// Dropout of the attention weights. Default: 0.
    #[serde(default)]
    pub attention_dropout: f64,
    /// Normalises the embeddings, positions included, before the first block, as BERT. Default: false.
    #[serde(default)]
    pub embedding_norm: bool,
    /// Dropout of the embeddings. Default: 0.
    #[serde(default)]
    pub embedding_dropout: f64,
    /// Rate at which a row of the batch goes without a part of the last layer, in training; the layers before it have
    /// lower rates, in even steps from 0. Default: 0.
    #[serde(default)]
    pub stochastic_depth: f64,
    /// Scales each channel of each part's output by a trained factor that begins at this value. Default: none.
    #[serde(default)]
    pub layer_scale: Option<f64>,
    /// How the weights begin. Default: GPT-2's way.
    #[serde(default)]
    pub init: WeightInit,
}

impl TransformerConfig {
    /// A causal, pre-norm stack with learned positions, as GPT-2.
    pub fn new(d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self {
            d_model,
            n_heads,
            n_layers,
            n_kv_heads: None,
            d_head: None,
            d_value: None,
            d_ff: None,
            max_seq_len: max_seq_len(),
            position: PositionConfig::default(),
            patterns: causal(),
            projection: ProjectionKind::default(),
            activation: Activation::default(),
            experts: None,
            norm: NormConfig::default(),
            norm_placement: NormPlacement::default(),
            bias: true,
            cross_attention: false,
            dropout: 0.0,
            qkv_bias: None,
            query_key_norm: None,
            attention_mechanism: AttentionMechanism::default(),
            attention_scale: ScoreScale::default(),
            attention_soft_cap: None,
            attention_dropout: 0.0,
            embedding_norm: false,
            embedding_dropout: 0.0,
            stochastic_depth: 0.0,
            layer_scale: None,
            init: WeightInit::default(),
        }
    }

    /// A stack in which every token sees every other, as an encoder.
    pub fn encoder(d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self::new(d_model, n_heads, n_layers).with_patterns(vec![AttentionPattern::Full])
    }

    /// A causal stack with cross-attention, as the decoder of an encoder-decoder.
    pub fn decoder(d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self { cross_attention: true, ..Self::new(d_model, n_heads, n_layers) }
    }

    /// The longest sequence of a recipe that names none, in tokens.
    pub const RECIPE_SEQ_LEN: usize = 256;

    /// Completes what a recipe has `named`: `dropout` is the rate of the attention weights and the embeddings as well, and
    /// sequences have [`RECIPE_SEQ_LEN`](Self::RECIPE_SEQ_LEN) tokens, where nothing else is said.
    pub fn for_recipe(mut self, named: impl Fn(&str) -> bool) -> Self {
        if !named("max_seq_len") {
            self.max_seq_len = Self::RECIPE_SEQ_LEN;
        }
        if !named("attention_dropout") {
            self.attention_dropout = self.dropout;
        }
        if !named("embedding_dropout") {
            self.embedding_dropout = self.dropout;
        }
        self
    }

    /// Sets the number of key/value heads.
    pub fn with_n_kv_heads(mut self, n_kv_heads: usize) -> Self {
        self.n_kv_heads = Some(n_kv_heads);
        self
    }

    /// Sets the width of a head.
    pub fn with_d_head(mut self, d_head: usize) -> Self {
        self.d_head = Some(d_head);
        self
    }

    /// Sets the width of a head's values.
    pub fn with_d_value(mut self, d_value: usize) -> Self {
        self.d_value = Some(d_value);
        self
    }

    /// Sets the inner width of the feed-forward networks.
    pub fn with_d_ff(mut self, d_ff: usize) -> Self {
        self.d_ff = Some(d_ff);
        self
    }

    /// Sets the longest sequence.
    pub fn with_max_seq_len(mut self, max_seq_len: usize) -> Self {
        self.max_seq_len = max_seq_len;
        self
    }

    /// Sets the position scheme.
    pub fn with_position(mut self, position: PositionConfig) -> Self {
        self.position = position;
        self
    }

    /// Sets what the layers attend to, in turn.
    pub fn with_patterns(mut self, patterns: Vec<AttentionPattern>) -> Self {
        self.patterns = patterns;
        self
    }

    /// Sets how queries, keys and values are projected.
    pub fn with_projection(mut self, projection: ProjectionKind) -> Self {
        self.projection = projection;
        self
    }

    /// Sets the nonlinearity of the feed-forward networks.
    pub fn with_activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Puts several experts in the place of every feed-forward network.
    pub fn with_experts(mut self, experts: ExpertsConfig) -> Self {
        self.experts = Some(experts);
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

    /// Sets whether linear layers have biases.
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets all three dropout rates.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        (self.dropout, self.attention_dropout, self.embedding_dropout) = (dropout, dropout, dropout);
        self
    }

    /// Sets the dropout of each part's output.
    pub fn with_residual_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
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
    pub fn with_attention_mechanism(mut self, mechanism: AttentionMechanism) -> Self {
        self.attention_mechanism = mechanism;
        self
    }

    /// Sets the factor of the attention scores.
    pub fn with_attention_scale(mut self, scale: ScoreScale) -> Self {
        self.attention_scale = scale;
        self
    }

    /// Sets the bound of the scaled attention scores.
    pub fn with_attention_soft_cap(mut self, soft_cap: Option<f64>) -> Self {
        self.attention_soft_cap = soft_cap;
        self
    }

    /// Sets the dropout of the attention weights.
    pub fn with_attention_dropout(mut self, dropout: f64) -> Self {
        self.attention_dropout = dropout;
        self
    }

    /// Sets whether the embeddings are normalised before the first block.
    pub fn with_embedding_norm(mut self, embedding_norm: bool) -> Self {
        self.embedding_norm = embedding_norm;
        self
    }

    /// Sets the dropout of the embeddings.
    pub fn with_embedding_dropout(mut self, dropout: f64) -> Self {
        self.embedding_dropout = dropout;
        self
    }

    /// Sets the rate at which a row goes without a part of the last layer, in training.
    pub fn with_stochastic_depth(mut self, stochastic_depth: f64) -> Self {
        self.stochastic_depth = stochastic_depth;
        self
    }

    /// Sets where the trained factors of each part's channels begin.
    pub fn with_layer_scale(mut self, layer_scale: f64) -> Self {
        self.layer_scale = Some(layer_scale);
        self
    }

    /// Sets whether every block attends to a memory.
    pub fn with_cross_attention(mut self, cross_attention: bool) -> Self {
        self.cross_attention = cross_attention;
        self
    }

    /// Sets how the weights begin.
    pub fn with_init(mut self, init: WeightInit) -> Self {
        self.init = init;
        self
    }

    /// Width `E` of a head.
    pub fn d_head(&self) -> usize {
        self.attention().d_head()
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // Heads that do not divide have no width to judge.
        let d_head = if self.attention().validate().is_ok() { self.d_head() } else { 2 };
        let checks = self.patterns.iter().fold(Checks::default(), |checks, pattern| checks.part(pattern.validate()));
        checks
            .part(self.block().validate())
            .size("n_layers", self.n_layers)
            .size("max_seq_len", self.max_seq_len)
            .require(!self.patterns.is_empty(), || "patterns = [] must name at least one pattern".into())
            .part(self.position.validate(self.d_model, d_head))
            .part(self.check_bias())
            .rate("embedding_dropout", self.embedding_dropout)
            .require(self.count() <= MAX_PARAMS, || {
                format!("the sizes make {:.1e} parameters: at most {MAX_PARAMS:.0e} are possible", self.count())
            })
            .finish()
    }

    /// Positions that add to scores need scores, and those that read the query a product with it.
    fn check_bias(&self) -> Result<(), ConfigError> {
        let shaw = matches!(self.position, PositionConfig::Shaw { .. });
        let adds = shaw || matches!(self.position, PositionConfig::Alibi | PositionConfig::T5 { .. });
        Checks::default()
            .require(!adds || self.attention_mechanism != AttentionMechanism::Linear, || {
                format!(
                    "position = {:?} adds to scores, which linear attention has none of: use none, learned, sinusoidal \
                     or rotary",
                    self.position
                )
            })
            .require(!shaw || self.attention_mechanism != AttentionMechanism::Additive, || {
                format!(
                    "position = {:?} adds products with the query to scores that are none: use alibi or t5, or \
                     attention_mechanism = dot_product",
                    self.position
                )
            })
            .finish()
    }

    /// Number of parameters of the stack, without building it.
    pub fn num_params(&self) -> usize {
        self.count() as usize
    }

    /// In floating point, which does not overflow whatever a file says, and is exact below 2^53.
    fn count(&self) -> f64 {
        let norms =
            [self.norm_placement.has_final_norm(), self.embedding_norm].into_iter().filter(|norm| *norm).count();
        let norms = norms as f64 * self.norm.num_params(self.d_model);
        self.n_layers as f64 * self.block().num_params() + norms + self.position.num_params(self.sizes())
    }

    /// Builds the stack with seed 0.
    pub fn init(&self, device: &Device) -> Transformer {
        self.init_with(&ParamBuilder::new(device, 0))
    }

    /// Builds the stack at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> Transformer {
        expect_valid(self.validate());
        let norm = |name: &str| self.norm.init_with(self.d_model, &params.scope(name));
        Transformer {
            position: self.position.init_with(self.sizes(), self.init.weight, &params.scope("position")),
            blocks: (0..self.n_layers).map(|i| self.layer(i).init_with(&params.scope("blocks").scope(i))).collect(),
            embedding_norm: self.embedding_norm.then(|| norm("embedding_norm")),
            norm: self.norm_placement.has_final_norm().then(|| norm("norm")),
            dropout: DropoutConfig::new(self.embedding_dropout).init(),
            patterns: self.patterns.clone(),
        }
    }

    fn sizes(&self) -> PositionSizes {
        let Self { d_model, n_heads, max_seq_len, .. } = *self;
        PositionSizes { d_model, n_heads, d_head: self.d_head(), max_seq_len }
    }

    fn attention(&self) -> AttentionConfig {
        let Self { n_kv_heads, d_head, d_value, qkv_bias, .. } = *self;
        let config = AttentionConfig::new(self.d_model, self.n_heads)
            .with_projection(self.projection)
            .with_bias(self.bias)
            .with_query_key_norm(self.query_key_norm)
            .with_mechanism(self.attention_mechanism)
            .with_scale(self.attention_scale)
            .with_soft_cap(self.attention_soft_cap)
            .with_dropout(self.attention_dropout)
            .with_init(self.init.weight, self.init.residual(self.residual_branches()));
        AttentionConfig { n_kv_heads, d_head, d_value, qkv_bias, ..config }
    }

    fn feed_forward(&self) -> FeedForwardConfig {
        let config = FeedForwardConfig::new(self.d_model, self.activation)
            .with_bias(self.bias)
            .with_init(self.init.weight, self.init.residual(self.residual_branches()));
        FeedForwardConfig { d_ff: self.d_ff, ..config }
    }

    fn block(&self) -> TransformerBlockConfig {
        let config = TransformerBlockConfig::new(self.attention(), self.feed_forward())
            .with_experts(self.experts)
            .with_norm(self.norm)
            .with_norm_placement(self.norm_placement)
            .with_cross_attention(self.cross_attention)
            .with_dropout(self.dropout)
            .with_stochastic_depth(self.stochastic_depth);
        TransformerBlockConfig { layer_scale: self.layer_scale, ..config }
    }

    /// The block of layer `index`: its rate of stochastic depth rises linearly (Huang et al. 2016, eq. 4).
    fn layer(&self, index: usize) -> TransformerBlockConfig {
        let share = (index + 1) as f64 / self.n_layers as f64;
        self.block().with_stochastic_depth(self.stochastic_depth * share)
    }

    /// Residual additions in the whole stack.
    fn residual_branches(&self) -> usize {
        self.n_layers.max(1).saturating_mul(if self.cross_attention { 3 } else { 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;

    #[test]
    fn a_file_names_what_differs_and_nothing_else() {
        let config: TransformerConfig = serde_json::from_str(
            r#"{"d_model": 64, "n_heads": 4, "n_layers": 2, "norm": "rms", "position": {"kind": "rotary", "theta": 5e5}}"#,
        )
        .expect("a configuration");
        assert_eq!(config.norm, NormConfig::rms());
        assert!(matches!(config.position, PositionConfig::Rotary { theta: 5e5, .. }));
        let text = serde_json::to_string(&config).expect("text");
        assert_eq!(serde_json::from_str::<TransformerConfig>(&text).expect("a configuration"), config);
        let error = serde_json::from_str::<TransformerConfig>(r#"{"d_modell": 64}"#).expect_err("an unknown field");
        assert!(error.to_string().contains("unknown field `d_modell`"), "{error}");
    }

    #[test]
    fn stochastic_depth_rises_with_the_layers() {
        let config = TransformerConfig::new(8, 2, 4).with_stochastic_depth(0.5);
        assert_eq!([0, 1, 2, 3].map(|i| config.layer(i).stochastic_depth), [0.125, 0.25, 0.375, 0.5]);
        let error = config.with_stochastic_depth(1.0).with_layer_scale(0.0).validate().expect_err("two problems");
        assert_eq!(error.to_string(), "stochastic_depth = 1 must be in [0, 1); layer_scale = 0 must be above 0");
    }

    #[test]
    fn patterns_are_names_or_tables() {
        let text = r#"{"d_model": 8, "n_heads": 2, "n_layers": 2, "patterns": ["causal", {"kind": "sliding_window", "left": 4}]}"#;
        let config: TransformerConfig = serde_json::from_str(text).expect("a configuration");
        assert_eq!(config.patterns, [AttentionPattern::Causal, AttentionPattern::SlidingWindow { left: 4, right: 0 }]);
        let written = serde_json::to_string(&config).expect("text");
        assert_eq!(serde_json::from_str::<TransformerConfig>(&written).expect("a configuration"), config);
    }

    #[test]
    fn mechanisms_are_names() {
        for (name, mechanism) in [
            ("dot_product", AttentionMechanism::DotProduct),
            ("bilinear", AttentionMechanism::Bilinear),
            ("additive", AttentionMechanism::Additive),
            ("linear", AttentionMechanism::Linear),
        ] {
            let text = format!(
                r#"{{"d_model": 8, "n_heads": 2, "n_layers": 2, "attention_mechanism": "{name}", "d_value": 3}}"#
            );
            let config: TransformerConfig = serde_json::from_str(&text).expect("a configuration");
            assert_eq!((config.attention_mechanism, config.d_value), (mechanism, Some(3)));
            let written = serde_json::to_string(&config).expect("text");
            assert_eq!(serde_json::from_str::<TransformerConfig>(&written).expect("a configuration"), config);
        }
    }

    #[test]
    fn positions_that_add_to_scores_need_scores() {
        let linear = TransformerConfig::new(8, 2, 1).with_attention_mechanism(AttentionMechanism::Linear);
        for position in [PositionConfig::Alibi, PositionConfig::t5(false), PositionConfig::shaw()] {
            let error = linear.clone().with_position(position).validate().expect_err("no scores");
            assert!(error.to_string().contains("use none, learned, sinusoidal or rotary"), "{error}");
        }
        assert_eq!(linear.with_position(PositionConfig::rotary()).validate(), Ok(()));
        let additive = TransformerConfig::new(8, 2, 1).with_attention_mechanism(AttentionMechanism::Additive);
        let error = additive.clone().with_position(PositionConfig::shaw()).validate().expect_err("no products");
        assert!(error.to_string().contains("use alibi or t5"), "{error}");
        assert_eq!(additive.with_position(PositionConfig::Alibi).validate(), Ok(()));
    }

    #[test]
    fn all_problems_are_listed_once() {
        let mut config = TransformerConfig::new(100, 3, 0).with_position(PositionConfig::rotary());
        config.dropout = 1.0;
        let error = config.validate().expect_err("three problems");
        assert_eq!(error.problems().len(), 3, "{error}");
    }

    #[test]
    fn parameters_are_counted_without_building() {
        let device = Device::default();
        let base = TransformerConfig::new(12, 3, 2).with_max_seq_len(5);
        for config in [
            base.clone(),
            base.clone()
                .with_bias(false)
                .with_norm(NormConfig::rms())
                .with_position(PositionConfig::rotary())
                .with_d_head(4),
            base.clone().with_activation(Activation::SwiGlu).with_n_kv_heads(1).with_cross_attention(true),
            base.clone().with_position(PositionConfig::t5(true)),
            base.clone().with_position(PositionConfig::shaw()),
            base.clone().with_norm_placement(NormPlacement::Post).with_d_head(6).with_d_ff(7),
            base.clone().with_norm_placement(NormPlacement::Sandwich).with_cross_attention(true),
            base.clone().with_norm_placement(NormPlacement::Parallel).with_activation(Activation::GeGlu),
            base.clone().with_norm_placement(NormPlacement::Sandwich).with_norm(NormConfig::None),
            base.clone().with_layer_scale(0.1).with_cross_attention(true),
            base.clone().with_embedding_norm(true).with_norm_placement(NormPlacement::Post),
            base.clone().with_experts(ExpertsConfig::new(3)).with_activation(Activation::SwiGlu),
            base.clone().with_query_key_norm(Some(NormConfig::rms())).with_n_kv_heads(1),
            base.clone().with_bias(false).with_qkv_bias(true).with_projection(ProjectionKind::Fused),
            base.clone().with_d_value(7).with_n_kv_heads(1).with_cross_attention(true),
            base.clone().with_d_value(2).with_d_head(5).with_projection(ProjectionKind::Fused),
            base.clone().with_attention_mechanism(AttentionMechanism::Linear).with_cross_attention(true),
            base.clone().with_attention_mechanism(AttentionMechanism::Bilinear).with_n_kv_heads(1).with_d_head(5),
            base.clone()
                .with_attention_mechanism(AttentionMechanism::Additive)
                .with_n_kv_heads(1)
                .with_cross_attention(true),
        ] {
            assert_eq!(config.num_params(), config.init(&device).num_params(), "{config:?}");
        }
    }

    #[test]
    fn slips_of_the_hand_are_refused_before_memory_is_asked_for() {
        for (d_model, n_layers) in [(1 << 40, 1), (8, usize::MAX), (1 << 22, 1 << 20)] {
            TransformerConfig::new(d_model, 1, n_layers).validate().expect_err("no machine holds it");
        }
        let mut config = TransformerConfig::new(8, 2, 1);
        config.d_head = Some(0);
        assert_eq!(config.validate().expect_err("no width").to_string(), "d_head = 0 must be at least 1");
    }
}
