//! The configuration of a [`Transformer`](super::Transformer): its layers in turn, and what stands around them.

mod keys;
mod layer;
mod parts;
mod validate;

pub use layer::LayerConfig;

use crate::attention::AttentionPattern;
use crate::embedding::{EmbeddingProjectionConfig, ProjectionPlacement};
use crate::init::WeightInit;
use crate::norm::NormConfig;
use crate::position::PositionConfig;

fn max_seq_len() -> usize {
    1024
}

/// Configuration of a [`Transformer`](super::Transformer). Files write it flat: `d_model`, `n_heads` and `n_layers`, and whatever
/// differs from its default by the names of the setters. Where layers differ, `layers` names the keys that each changes:
///
/// ```
/// use firelight_core::{AttentionPattern, PositionConfig, TransformerConfig};
///
/// let file = r#"{
///     "d_model": 64, "n_heads": 4, "n_layers": 4, "position": "rotary", "norm": "rms",
///     "layers": [
///         {"repeat": 3, "pattern": {"kind": "sliding_window", "left": 15}, "n_kv_heads": 1},
///         {"position": "none"}
///     ]
/// }"#;
/// let stack: TransformerConfig = serde_json::from_str(file)?;
/// assert_eq!(stack.layers[0].pattern, AttentionPattern::SlidingWindow { left: 15, right: 0 });
/// assert_eq!(stack.layers[3].position, Some(PositionConfig::None));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TransformerConfig {
    /// Width `D` of the residual stream.
    pub d_model: usize,
    /// Number of layers `L`.
    pub n_layers: usize,
    /// The layers, in turn: layer `i` is that of number `i mod n`. Default: one kind for all.
    pub layers: Vec<LayerConfig>,
    /// Whether each of `layers` is built once and run in every turn, as ALBERT does: `n_layers` layers with the parameters of a few.
    /// Default: false.
    pub share_layers: bool,
    /// Longest sequence in tokens, where the position scheme has an end. Default: 1024.
    pub max_seq_len: usize,
    /// The position scheme of the embeddings, and of every layer that has none of its own. Default: learned.
    pub position: PositionConfig,
    /// The norm of the embeddings and the one behind the last layer. Default: layer normalisation.
    pub norm: NormConfig,
    /// Normalises the embeddings, positions included, before the first layer, as BERT. Default: false.
    pub embedding_norm: bool,
    /// Whether a norm stands behind the last layer. Default: in all but post-norm stacks; PyTorch's own `nn.Transformer` has it in those, too.
    pub final_norm: Option<bool>,
    /// Embeddings of another width than `d_model`, and the layer that leads to it. Default: none.
    pub embedding_projection: Option<EmbeddingProjectionConfig>,
    /// Dropout of the embeddings. Default: 0.
    pub embedding_dropout: f64,
    /// Rate at which a row of the batch goes without a part of the last layer, in training; the layers before it have
    /// lower rates, in even steps from 0. Default: 0.
    pub stochastic_depth: f64,
    /// How the weights begin. Default: GPT-2's way.
    pub init: WeightInit,
}

impl TransformerConfig {
    /// A causal, pre-norm stack with learned positions, as GPT-2.
    pub fn new(d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self {
            d_model,
            n_layers,
            layers: vec![LayerConfig::new(d_model, n_heads)],
            share_layers: false,
            max_seq_len: max_seq_len(),
            position: PositionConfig::default(),
            norm: NormConfig::default(),
            embedding_norm: false,
            final_norm: None,
            embedding_projection: None,
            embedding_dropout: 0.0,
            stochastic_depth: 0.0,
            init: WeightInit::default(),
        }
    }

    /// A stack in which every token sees every other, as an encoder.
    pub fn encoder(d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self::new(d_model, n_heads, n_layers).with_patterns(vec![AttentionPattern::Full])
    }

    /// A causal stack with cross-attention, as the decoder of an encoder-decoder.
    pub fn decoder(d_model: usize, n_heads: usize, n_layers: usize) -> Self {
        Self::new(d_model, n_heads, n_layers).with_cross_attention(true)
    }

    /// Sets the layers, in turn.
    pub fn with_layers(mut self, layers: Vec<LayerConfig>) -> Self {
        self.layers = layers;
        self
    }

    /// Sets whether each of the layers is built once and run in every turn.
    pub fn with_share_layers(mut self, share_layers: bool) -> Self {
        self.share_layers = share_layers;
        self
    }

    /// Makes the same change in every layer.
    pub fn each_layer(mut self, change: impl Fn(&mut LayerConfig)) -> Self {
        self.layers.iter_mut().for_each(change);
        self
    }

    /// Sets the width of the residual stream.
    pub fn with_d_model(mut self, d_model: usize) -> Self {
        self.d_model = d_model;
        self.each_layer(|layer| (layer.block.attention.d_model, layer.block.feed_forward.d_model) = (d_model, d_model))
    }

    /// Sets what the layers attend to, in turn; all else is that of the first layer.
    pub fn with_patterns(mut self, patterns: Vec<AttentionPattern>) -> Self {
        let first = self.first().clone();
        self.layers = patterns.into_iter().map(|pattern| first.clone().with_pattern(pattern)).collect();
        self
    }

    /// Sets the longest sequence.
    pub fn with_max_seq_len(mut self, max_seq_len: usize) -> Self {
        self.max_seq_len = max_seq_len;
        self
    }

    /// Sets the position scheme of the embeddings and of every layer that has none of its own.
    pub fn with_position(mut self, position: PositionConfig) -> Self {
        self.position = position;
        self
    }

    /// Sets all norms, but those of queries and keys.
    pub fn with_norm(mut self, norm: NormConfig) -> Self {
        self.norm = norm;
        self.each_layer(|layer| layer.block.norm = norm)
    }

    /// Sets whether the embeddings are normalised before the first layer.
    pub fn with_embedding_norm(mut self, embedding_norm: bool) -> Self {
        self.embedding_norm = embedding_norm;
        self
    }

    /// Sets whether a norm stands behind the last layer, whatever its placement.
    pub fn with_final_norm(mut self, final_norm: impl Into<Option<bool>>) -> Self {
        self.final_norm = final_norm.into();
        self
    }

    /// Sets the width of the embeddings, where it is not that of the residual stream, and the layer between them.
    pub fn with_embedding_projection(mut self, projection: Option<EmbeddingProjectionConfig>) -> Self {
        self.embedding_projection = projection;
        self
    }

    /// Sets all three dropout rates.
    pub fn with_dropout(self, dropout: f64) -> Self {
        self.with_residual_dropout(dropout).with_attention_dropout(dropout).with_embedding_dropout(dropout)
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

    /// Sets how the weights begin.
    pub fn with_init(mut self, init: WeightInit) -> Self {
        self.init = init;
        self
    }

    /// Width of the embeddings that the stack is given.
    pub fn d_embedding(&self) -> usize {
        self.embedding_projection.map_or(self.d_model, |projection| projection.d_embedding)
    }

    /// Width of the embeddings that positions are added to, and that are normalised.
    pub(super) fn d_summed(&self) -> usize {
        match self.embedding_projection {
            Some(EmbeddingProjectionConfig { d_embedding, placement: ProjectionPlacement::AfterNorm, .. }) => {
                d_embedding
            }
            _ => self.d_model,
        }
    }

    /// The first layer.
    ///
    /// # Panics
    /// If there is none, which [`validate`](Self::validate) refuses.
    pub fn first(&self) -> &LayerConfig {
        self.layers.first().expect("a stack has a layer")
    }

    /// What the layers attend to, in turn.
    pub fn patterns(&self) -> Vec<AttentionPattern> {
        self.layers.iter().map(|layer| layer.pattern).collect()
    }

    /// Whether any layer attends to an encoder's output.
    pub fn has_cross_attention(&self) -> bool {
        self.layers.iter().any(|layer| layer.block.cross_attention)
    }

    /// The longest sequence of a recipe that names none, in tokens.
    pub const RECIPE_SEQ_LEN: usize = 256;

    /// Completes what a recipe has `named`: `dropout` is the rate of the attention weights and the embeddings as well, and
    /// sequences have [`RECIPE_SEQ_LEN`](Self::RECIPE_SEQ_LEN) tokens, where nothing else is said. One of `layers` keeps its own
    /// `attention_dropout` where it is above 0; a layer with none among others asks for it to be named for the whole stack.
    pub fn for_recipe(mut self, named: impl Fn(&str) -> bool) -> Self {
        if !named("max_seq_len") {
            self.max_seq_len = Self::RECIPE_SEQ_LEN;
        }
        if !named("embedding_dropout") {
            self.embedding_dropout = self.layers.first().map_or(0.0, |layer| layer.block.dropout);
        }
        if named("attention_dropout") {
            return self;
        }
        self.each_layer(|layer| {
            let attention = &mut layer.block.attention;
            attention.dropout = if attention.dropout == 0.0 { layer.block.dropout } else { attention.dropout };
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::AttentionMechanism;
    use crate::position::RotaryConfig;

    #[test]
    fn a_file_names_what_differs_and_nothing_else() {
        let config: TransformerConfig = serde_json::from_str(
            r#"{"d_model": 64, "n_heads": 4, "n_layers": 2, "norm": "rms", "position": {"kind": "rotary", "theta": 5e5}}"#,
        )
        .expect("a configuration");
        assert_eq!(config.norm, NormConfig::rms());
        assert!(matches!(config.position, PositionConfig::Rotary(RotaryConfig { theta: 5e5, .. })));
        let text = serde_json::to_string(&config).expect("text");
        assert_eq!(serde_json::from_str::<TransformerConfig>(&text).expect("a configuration"), config);
        let error = serde_json::from_str::<TransformerConfig>(r#"{"d_modell": 64}"#).expect_err("an unknown field");
        assert!(error.to_string().contains("unknown field `d_modell`"), "{error}");
    }

    #[test]
    fn patterns_are_names_or_tables() {
        let text = r#"{"d_model": 8, "n_heads": 2, "n_layers": 2, "patterns": ["causal", {"kind": "sliding_window", "left": 4}]}"#;
        let config: TransformerConfig = serde_json::from_str(text).expect("a configuration");
        assert_eq!(
            config.patterns(),
            [AttentionPattern::Causal, AttentionPattern::SlidingWindow { left: 4, right: 0 }]
        );
        let written = serde_json::to_string(&config).expect("text");
        assert_eq!(serde_json::from_str::<TransformerConfig>(&written).expect("a configuration"), config);
    }

    #[test]
    fn a_recipe_drops_everywhere_what_it_drops_in_the_layers() {
        let config = || TransformerConfig::new(8, 2, 2).with_max_seq_len(12).with_residual_dropout(0.3);
        let chosen = |named: &[&str]| {
            let config = config().for_recipe(|key| named.contains(&key));
            (config.max_seq_len, config.first().block.attention.dropout, config.embedding_dropout)
        };
        assert_eq!(chosen(&[]), (256, 0.3, 0.3));
        assert_eq!(chosen(&["max_seq_len", "attention_dropout"]), (12, 0.0, 0.3));
        assert_eq!(chosen(&["embedding_dropout"]), (256, 0.3, 0.0));
        let mut layers = vec![LayerConfig::new(8, 2); 2];
        layers[1].block.attention.dropout = 0.2;
        let config =
            TransformerConfig::new(8, 2, 2).with_layers(layers).with_residual_dropout(0.3).for_recipe(|_| false);
        assert_eq!([0, 1].map(|layer| config.layers[layer].block.attention.dropout), [0.3, 0.2]);
    }

    #[test]
    fn mechanisms_are_names() {
        for (name, mechanism) in [
            ("dot_product", AttentionMechanism::DotProduct),
            ("bilinear", AttentionMechanism::Bilinear),
            ("additive", AttentionMechanism::Additive),
            ("linear", AttentionMechanism::Linear),
            ("performer", AttentionMechanism::Performer { features: 128 }),
        ] {
            let text = format!(
                r#"{{"d_model": 8, "n_heads": 2, "n_layers": 2, "attention_mechanism": "{name}", "d_value": 3}}"#
            );
            let config: TransformerConfig = serde_json::from_str(&text).expect("a configuration");
            let attention = &config.first().block.attention;
            assert_eq!((attention.mechanism, attention.d_value), (mechanism, Some(3)));
            let written = serde_json::to_string(&config).expect("text");
            assert_eq!(serde_json::from_str::<TransformerConfig>(&written).expect("a configuration"), config);
        }
    }
}
