//! The configuration of a [`Transformer`](super::Transformer): every choice that a stack can be made of, with its default.

mod parts;
mod setters;
mod validate;

use crate::attention::{AttentionMechanism, AttentionPattern, ProjectionKind, ScoreScale};
use crate::block::NormPlacement;
use crate::feed_forward::{Activation, ExpertsConfig};
use crate::init::WeightInit;
use crate::kind;
use crate::norm::NormConfig;
use crate::position::PositionConfig;
use serde::{Deserialize, Serialize};

fn max_seq_len() -> usize {
    1024
}

fn yes() -> bool {
    true
}

fn causal() -> Vec<AttentionPattern> {
    vec![AttentionPattern::Causal]
}

/// Configuration of a [`Transformer`](super::Transformer). Files may leave out every field but the first three.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn patterns_are_names_or_tables() {
        let text = r#"{"d_model": 8, "n_heads": 2, "n_layers": 2, "patterns": ["causal", {"kind": "sliding_window", "left": 4}]}"#;
        let config: TransformerConfig = serde_json::from_str(text).expect("a configuration");
        assert_eq!(config.patterns, [AttentionPattern::Causal, AttentionPattern::SlidingWindow { left: 4, right: 0 }]);
        let written = serde_json::to_string(&config).expect("text");
        assert_eq!(serde_json::from_str::<TransformerConfig>(&written).expect("a configuration"), config);
    }

    #[test]
    fn a_recipe_drops_everywhere_what_it_drops_in_the_layers() {
        let config = || TransformerConfig::new(8, 2, 2).with_max_seq_len(12).with_residual_dropout(0.3);
        let chosen = |named: &[&str]| {
            let config = config().for_recipe(|key| named.contains(&key));
            (config.max_seq_len, config.attention_dropout, config.embedding_dropout)
        };
        assert_eq!(chosen(&[]), (256, 0.3, 0.3));
        assert_eq!(chosen(&["max_seq_len", "attention_dropout"]), (12, 0.0, 0.3));
        assert_eq!(chosen(&["embedding_dropout"]), (256, 0.3, 0.0));
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
}
