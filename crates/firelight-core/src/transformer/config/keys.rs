//! The flat view of a stack, as files and recipes write it: `n_heads = 8` beside `n_layers = 6`, and `layers` where layers
//! differ, each by the keys that it changes. [`layer_keys`] is the one list of what can be set by name in a layer: its keys in
//! files, and its setters for a whole stack.

use super::{LayerConfig, TransformerConfig, max_seq_len};
use crate::attention::{AttentionMechanism, AttentionPattern, NormSpan, ProjectionKind, ScoreScale};
use crate::block::NormPlacement;
use crate::embedding::EmbeddingProjectionConfig;
use crate::feed_forward::{Activation, ExpertsConfig};
use crate::init::WeightInit;
use crate::kind;
use crate::mixer::MixerConfig;
use crate::norm::NormConfig;
use crate::position::PositionConfig;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Layers that a file may name: more are a slip of the hand, before memory is asked for.
const MOST_LAYERS: usize = 4096;

/// The keys of a layer, in the order of files. Each has its type, how it is read, the setter of a stack with what it takes, and
/// the fields of [`LayerConfig`] that it sets; it is read from the first of them.
macro_rules! layer_keys {
    ($receive:ident) => {
        $receive! {
            /// the number of query heads
            n_heads: usize, "some", with_n_heads(usize) as |value| value, [block.attention.n_heads];
            /// what stands in the place of the self-attention
            mixer: MixerConfig, "some_of_kind", with_mixer(MixerConfig) as |value| value, [block.mixer];
            /// the number of key/value heads
            n_kv_heads: Option<usize>, "some", with_n_kv_heads(usize) as Some, [block.attention.n_kv_heads];
            /// the width of a head
            d_head: Option<usize>, "some", with_d_head(usize) as Some, [block.attention.d_head];
            /// the width of a head's values
            d_value: Option<usize>, "some", with_d_value(usize) as Some, [block.attention.d_value];
            /// the inner width of the feed-forward networks
            d_ff: Option<usize>, "some", with_d_ff(usize) as Some, [block.feed_forward.d_ff];
            /// how queries, keys and values are projected
            projection: ProjectionKind, "some", with_projection(ProjectionKind) as |value| value,
                [block.attention.projection];
            /// the nonlinearity of the feed-forward networks
            activation: Activation, "some", with_activation(Activation) as |value| value,
                [block.feed_forward.activation];
            /// the experts in the place of every feed-forward network
            experts: Option<ExpertsConfig>, "some", with_experts(ExpertsConfig) as Some, [block.experts];
            /// where the norms stand
            norm_placement: NormPlacement, "some", with_norm_placement(NormPlacement) as |value| value,
                [block.norm_placement];
            /// whether linear layers have biases
            bias: bool, "some", with_bias(bool) as |value| value, [block.feed_forward.bias, block.attention.bias];
            /// whether the linear layers of attention have biases, whatever the feed-forward networks have
            attention_bias: bool, "some", with_attention_bias(bool) as |value| value, [block.attention.bias];
            /// whether every block attends to an encoder's output
            cross_attention: bool, "some", with_cross_attention(bool) as |value| value, [block.cross_attention];
            /// the dropout of each part's output
            dropout: f64, "some", with_residual_dropout(f64) as |value| value, [block.dropout];
            /// whether queries, keys and values have biases, whatever the other layers have
            qkv_bias: Option<bool>, "some", with_qkv_bias(bool) as Some, [block.attention.qkv_bias];
            /// the norm of every head's query and key
            query_key_norm: Option<NormConfig>, "some_of_optional_kind",
                with_query_key_norm(Option<NormConfig>) as |value| value, [block.attention.query_key_norm];
            /// over what the norm of queries and keys is taken
            query_key_norm_span: NormSpan, "some", with_query_key_norm_span(NormSpan) as |value| value,
                [block.attention.query_key_norm_span];
            /// the norm of the self-attention's input alone
            attention_norm: Option<NormConfig>, "some_of_optional_kind",
                with_attention_norm(NormConfig) as Some, [block.attention_norm];
            /// how a query weighs the keys
            attention_mechanism: AttentionMechanism, "some_of_kind",
                with_attention_mechanism(AttentionMechanism) as |value| value, [block.attention.mechanism];
            /// the factor of the attention scores
            attention_scale: ScoreScale, "some", with_attention_scale(ScoreScale) as |value| value,
                [block.attention.scale];
            /// the bound of the scaled attention scores
            attention_soft_cap: Option<f64>, "some", with_attention_soft_cap(Option<f64>) as |value| value,
                [block.attention.soft_cap];
            /// whether each head has an attention sink, a trained score in the denominator of its softmax
            attention_sinks: bool, "some", with_attention_sinks(bool) as |value| value, [block.attention.sinks];
            /// whether each channel of the attention's heads has a gate, from the layer's input
            attention_gate: bool, "some", with_attention_gate(bool) as |value| value, [block.attention.gate];
            /// the dropout of the attention weights
            attention_dropout: f64, "some", with_attention_dropout(f64) as |value| value, [block.attention.dropout];
            /// the dropout behind the nonlinearity of the feed-forward networks
            feed_forward_dropout: f64, "some", with_feed_forward_dropout(f64) as |value| value,
                [block.feed_forward.dropout];
            /// where the trained factors of each part's channels begin
            layer_scale: Option<f64>, "some", with_layer_scale(f64) as Some, [block.layer_scale];
            /// the factor of each part's output
            residual_scale: f64, "some", with_residual_scale(f64) as |value| value, [block.residual_scale];
        }
    };
}

macro_rules! define_keys {
    ($(
        $(#[doc = $doc:literal])+
        $key:ident: $type:ty, $read:literal, $setter:ident($taken:ty) as $convert:expr,
            [$($first:ident).+ $(, $($more:ident).+)*];
    )+) => {
        /// What a file says of a stack.
        #[derive(Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        struct StackKeys {
            d_model: usize,
            n_layers: usize,
            $(
                #[serde(default, deserialize_with = $read, skip_serializing_if = "Option::is_none")]
                $key: Option<$type>,
            )+
            #[serde(default)]
            share_layers: bool,
            #[serde(default = "max_seq_len")]
            max_seq_len: usize,
            #[serde(default, deserialize_with = "kind::deserialize")]
            position: PositionConfig,
            #[serde(default, deserialize_with = "some_of_kinds", skip_serializing_if = "Option::is_none")]
            patterns: Option<Vec<AttentionPattern>>,
            #[serde(default, deserialize_with = "kind::deserialize")]
            norm: NormConfig,
            #[serde(default)]
            embedding_norm: bool,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            final_norm: Option<bool>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            embedding_projection: Option<EmbeddingProjectionConfig>,
            #[serde(default)]
            embedding_dropout: f64,
            #[serde(default)]
            stochastic_depth: f64,
            #[serde(default)]
            init: WeightInit,
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            layers: Vec<LayerKeys>,
        }

        /// What one of several layers says otherwise.
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        struct LayerKeys {
            /// Layers in a row that are alike.
            #[serde(skip_serializing_if = "Option::is_none")]
            repeat: Option<usize>,
            #[serde(deserialize_with = "some_of_kind", skip_serializing_if = "Option::is_none")]
            pattern: Option<AttentionPattern>,
            #[serde(deserialize_with = "some_of_kind", skip_serializing_if = "Option::is_none")]
            position: Option<PositionConfig>,
            #[serde(deserialize_with = "some_of_kind", skip_serializing_if = "Option::is_none")]
            norm: Option<NormConfig>,
            $(
                #[serde(deserialize_with = $read, skip_serializing_if = "Option::is_none")]
                $key: Option<$type>,
            )+
        }

        impl StackKeys {
            fn change(&self, layer: &mut LayerConfig) {
                $(if let Some(value) = self.$key {
                    layer.$($first).+ = value;
                    $(layer.$($more).+ = value;)*
                })+
                layer.block.norm = self.norm;
            }

            /// All keys of the stack, with what its layers agree about; what they do not stands at its default.
            fn of(config: &TransformerConfig) -> Self {
                let usual = LayerConfig::new(config.d_model, config.first().block.attention.n_heads);
                Self {
                    d_model: config.d_model,
                    n_layers: config.n_layers,
                    share_layers: config.share_layers,
                    max_seq_len: config.max_seq_len,
                    position: config.position.clone(),
                    patterns: None,
                    norm: config.norm,
                    embedding_norm: config.embedding_norm,
                    final_norm: config.final_norm,
                    embedding_projection: config.embedding_projection,
                    embedding_dropout: config.embedding_dropout,
                    stochastic_depth: config.stochastic_depth,
                    init: config.init,
                    $($key: Some(common(config, &usual, |layer| layer.$($first).+)),)+
                    layers: Vec::new(),
                }
            }
        }

        impl LayerKeys {
            fn change(&self, layer: &mut LayerConfig) {
                $(if let Some(value) = self.$key {
                    layer.$($first).+ = value;
                    $(layer.$($more).+ = value;)*
                })+
                self.change_more(layer);
            }

            /// The keys in which a layer differs from another.
            fn between(base: &LayerConfig, layer: &LayerConfig) -> Self {
                let keys = Self {
                    $($key: (layer.$($first).+ != base.$($first).+).then_some(layer.$($first).+),)+
                    ..Self::default()
                };
                keys.with_more(base, layer)
            }
        }

        impl TransformerConfig {
            $(
                #[doc = concat!("Sets, in every layer,", $($doc),+, ".")]
                pub fn $setter(self, value: $taken) -> Self {
                    let convert: fn($taken) -> $type = $convert;
                    let value = convert(value);
                    self.each_layer(|layer| {
                        layer.$($first).+ = value;
                        $(layer.$($more).+ = value;)*
                    })
                }
            )+
        }
    };
}

layer_keys!(define_keys);

impl LayerKeys {
    fn change_more(&self, layer: &mut LayerConfig) {
        layer.position = self.position.clone().or(layer.position.take());
        layer.pattern = self.pattern.unwrap_or(layer.pattern);
        layer.block.norm = self.norm.unwrap_or(layer.block.norm);
    }

    fn with_more(self, base: &LayerConfig, layer: &LayerConfig) -> Self {
        let differs = |norm: &NormConfig| *norm != base.block.norm;
        Self {
            pattern: Some(layer.pattern).filter(|pattern| *pattern != base.pattern),
            norm: Some(layer.block.norm).filter(differs),
            position: layer.position.clone(),
            ..self
        }
    }
}

impl<'de> Deserialize<'de> for TransformerConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StackKeys::deserialize(deserializer)?.config().map_err(serde::de::Error::custom)
    }
}

impl Serialize for TransformerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        StackKeys::from(self).serialize(serializer)
    }
}

impl StackKeys {
    /// # Errors
    /// If a key is missing, or layers are named that are not there.
    fn config(self) -> Result<TransformerConfig, String> {
        let n_heads = self.n_heads.ok_or("missing field `n_heads`")?;
        if self.patterns.is_some() && !self.layers.is_empty() {
            return Err(
                "`patterns` and `layers` both say what layers attend to: give each of `layers` its `pattern`".into()
            );
        }
        if self.patterns.as_ref().is_some_and(Vec::is_empty) {
            return Err("patterns = [] must name at least one pattern".into());
        }
        let mut base = LayerConfig::new(self.d_model, n_heads);
        self.change(&mut base);
        let patterns = self.patterns.clone().unwrap_or(vec![base.pattern]);
        let layers = match self.layers.is_empty() {
            true => patterns.into_iter().map(|pattern| base.clone().with_pattern(pattern)).collect(),
            false => self.expand(&base)?,
        };
        let Self {
            n_layers,
            max_seq_len,
            position,
            norm,
            embedding_norm,
            final_norm,
            embedding_projection,
            embedding_dropout,
            stochastic_depth,
            init,
            ..
        } = self;
        let stack = TransformerConfig::new(self.d_model, n_heads, n_layers).with_share_layers(self.share_layers);
        Ok(TransformerConfig {
            max_seq_len,
            position,
            layers,
            norm,
            embedding_norm,
            final_norm,
            embedding_projection,
            embedding_dropout,
            stochastic_depth,
            init,
            ..stack
        })
    }

    /// The layers that are named, each as often as it is repeated.
    fn expand(&self, base: &LayerConfig) -> Result<Vec<LayerConfig>, String> {
        let named = self.layers.iter().map(|keys| keys.repeat.unwrap_or(1)).fold(0, usize::saturating_add);
        let most = self.n_layers.min(MOST_LAYERS);
        if named > most || self.layers.iter().any(|keys| keys.repeat == Some(0)) {
            return Err(format!(
                "`layers` names {named} layers, repeated ones counted: at least one each, at most {most} of n_layers = {}",
                self.n_layers
            ));
        }
        let repeated = |keys: &LayerKeys| {
            let mut layer = base.clone();
            keys.change(&mut layer);
            vec![layer; keys.repeat.unwrap_or(1)]
        };
        Ok(self.layers.iter().flat_map(repeated).collect())
    }
}

impl From<&TransformerConfig> for StackKeys {
    fn from(config: &TransformerConfig) -> Self {
        let keys = Self::of(config);
        let first = config.first();
        // Written for the stack as a whole, where the layers differ in nothing else.
        let alike = |layer: &LayerConfig| *layer == LayerConfig { pattern: layer.pattern, ..first.clone() };
        if config.layers.iter().all(alike) && first.position.is_none() && first.block.norm == config.norm {
            return Self { patterns: Some(config.patterns()), ..keys };
        }
        let mut base = LayerConfig::new(config.d_model, first.block.attention.n_heads);
        keys.change(&mut base);
        let mut layers: Vec<LayerKeys> = Vec::new();
        for layer in config.layers.iter().map(|layer| LayerKeys::between(&base, layer)) {
            match layers.last_mut().filter(|last| LayerKeys { repeat: None, ..(**last).clone() } == layer) {
                Some(last) => last.repeat = Some(last.repeat.unwrap_or(1) + 1),
                None => layers.push(layer),
            }
        }
        Self { layers, ..keys }
    }
}

/// What all layers have, or else the usual: a layer that goes without could not say so in TOML, which knows no null.
fn common<T: PartialEq>(config: &TransformerConfig, usual: &LayerConfig, of: impl Fn(&LayerConfig) -> T) -> T {
    let first = of(config.first());
    if config.layers.iter().all(|layer| of(layer) == first) { first } else { of(usual) }
}

fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn some_of_kind<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    kind::deserialize(deserializer).map(Some)
}

fn some_of_optional_kind<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    kind::deserialize_option(deserializer).map(Some)
}

fn some_of_kinds<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
    kind::deserialize_list(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::RotaryConfig;

    const SIZES: &str = "d_model = 8\nn_heads = 2\nn_layers = 6\n";

    fn read(text: &str) -> Result<TransformerConfig, String> {
        toml::from_str(&format!("{SIZES}{text}")).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    /// As it comes back from a file, in both formats.
    fn written_and_read(config: &TransformerConfig) -> [TransformerConfig; 2] {
        let toml = toml::to_string(config).expect("a file");
        let json = serde_json::to_string(config).expect("a file");
        [toml::from_str(&toml).expect("its own file"), serde_json::from_str(&json).expect("its own file")]
    }

    #[test]
    fn layers_say_what_they_do_otherwise_and_come_back() {
        let config = read(
            "position = 'rotary'\nnorm = 'rms'\ndropout = 0.1\nlayers = [\n\
             {repeat = 3, pattern = {kind = 'sliding_window', left = 4}, position = {kind = 'rotary', theta = 100.0}},\n\
             {n_kv_heads = 1, experts = {n_experts = 3}, norm = 'layer'},\n\
             {position = 'none', bias = false}]",
        )
        .expect("three kinds of layers");
        let near = LayerConfig::new(8, 2)
            .with_pattern(AttentionPattern::SlidingWindow { left: 4, right: 0 })
            .with_position(PositionConfig::Rotary(RotaryConfig::default().with_theta(100.0)));
        let [mut mixed, unordered] =
            [LayerConfig::new(8, 2), LayerConfig::new(8, 2).with_position(PositionConfig::None)];
        mixed.block.attention.n_kv_heads = Some(1);
        mixed.block.experts = Some(ExpertsConfig::new(3));
        let expected = TransformerConfig::new(8, 2, 6)
            .with_position(PositionConfig::rotary())
            .with_layers([vec![near; 3], vec![mixed, unordered]].concat())
            .with_residual_dropout(0.1)
            .with_norm(NormConfig::rms());
        let mut expected = expected;
        expected.layers[3].block.norm = NormConfig::layer();
        (expected.layers[4].block.attention.bias, expected.layers[4].block.feed_forward.bias) = (false, false);
        assert_eq!(config, expected);
        assert_eq!(written_and_read(&config), [config.clone(), config.clone()]);
        let text = toml::to_string(&config).expect("a file");
        assert!(text.contains("repeat = 3") && !text.contains("patterns"), "{text}");
    }

    #[test]
    fn a_layer_without_what_the_first_one_has_comes_back() {
        let mut layers = vec![LayerConfig::new(8, 2); 2];
        layers[0].block.experts = Some(ExpertsConfig::new(3));
        (layers[0].block.attention.n_kv_heads, layers[0].block.layer_scale) = (Some(1), Some(0.1));
        layers[1].block.attention.n_heads = 4;
        let config = TransformerConfig::new(8, 2, 6).with_layers(layers).with_activation(Activation::Relu);
        assert_eq!(written_and_read(&config), [config.clone(), config]);
    }

    #[test]
    fn a_stack_whose_layers_differ_in_their_patterns_alone_is_written_flat() {
        let window = AttentionPattern::SlidingWindow { left: 4, right: 0 };
        let config = TransformerConfig::new(8, 2, 6).with_patterns(vec![window, AttentionPattern::Causal]);
        let config = config.with_n_kv_heads(1).with_query_key_norm(Some(NormConfig::rms()));
        let text = toml::to_string(&config).expect("a file");
        assert!(text.contains("[[patterns]]") && !text.contains("[[layers]]"), "{text}");
        assert_eq!(written_and_read(&config), [config.clone(), config]);
    }

    #[test]
    fn what_does_not_fit_names_layer_and_key() {
        for (text, expected) in [
            ("patterns = ['full']\nlayers = [{}]", "give each of `layers` its `pattern`"),
            ("patterns = []", "must name at least one pattern"),
            ("layers = [{repeat = 0}]", "`layers` names 0 layers"),
            ("layers = [{repeat = 4}, {repeat = 3}]", "`layers` names 7 layers, repeated ones counted"),
            ("layers = [{d_modell = 8}]", "unknown field `d_modell`"),
            ("layers = [{position = 'spiral'}]", "unknown variant `spiral`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let text = "d_model = 8\nn_heads = 2\nn_layers = 100000000\nlayers = [{repeat = 100000000}]";
        let many = toml::from_str::<TransformerConfig>(text).expect_err("more than memory holds");
        assert!(many.message().contains("at most 4096 of n_layers = 100000000"), "{many}");
        let missing = toml::from_str::<TransformerConfig>("d_model = 8\nn_layers = 2\n").expect_err("no heads");
        assert!(missing.message().contains("missing field `n_heads`"), "{missing}");
        for (text, expected) in [
            ("layers = [{}, {n_kv_heads = 3}]", "layers.1: n_heads = 2 is not a multiple of n_kv_heads = 3"),
            ("layers = [{n_kv_heads = 3}]", "n_heads = 2 is not a multiple of n_kv_heads = 3"),
            ("layers = [{}, {position = 'learned'}]", "layers.1: position = \"learned\" adds to the embeddings"),
            (
                "layers = [{attention_mechanism = 'linear'}, {}]\nposition = 'alibi'",
                "layers.0: position = \"alibi\" adds",
            ),
        ] {
            let error = read(text).expect("keys that are known").validate().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let narrow = TransformerConfig::new(8, 2, 2).with_layers(vec![LayerConfig::new(8, 2), LayerConfig::new(4, 2)]);
        let error = narrow.validate().expect_err("two widths").to_string();
        assert_eq!(error, "layers.1: attention.d_model = 4 must be d_model = 8, the width of the stack");
    }
}
