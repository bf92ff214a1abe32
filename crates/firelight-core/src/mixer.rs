//! What mixes the tokens of a layer: the choice that a configuration makes. A mixer of one's own is no part of it:
//! [`TransformerBlockConfig::init_parts`](crate::TransformerBlockConfig::init_parts).

use crate::attention::{
    Attention, AttentionConfig, DifferentialAttention, DifferentialConfig, LatentAttention, LatentConfig,
};
use crate::context::LayerContext;
use crate::cost::Cost;
use crate::error::ConfigError;
use crate::gated_delta::{GatedDelta, GatedDeltaConfig};
use crate::init::ParamBuilder;
use crate::layer::TokenMixer;
use crate::linear::Linear;
use crate::pass::LayerPass;
use crate::state::State;
use burn::module::Module;
use burn::tensor::Tensor;
use firelight_kernels::PairRule;
use serde::{Deserialize, Serialize};

/// What mixes the tokens of a layer. Widths, heads, biases, dropout and distributions are those of its [`AttentionConfig`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum MixerConfig {
    /// Attention with queries, keys and values of every head, or of groups of heads.
    #[default]
    Attention,
    /// Attention whose keys and values come from a latent vector, as DeepSeek-V2 and V3.
    Latent(LatentConfig),
    /// The difference of two attentions over the same values (Ye et al. 2024).
    Differential(DifferentialConfig),
    /// A gated delta rule, a recurrence in linear time (Yang et al. 2024), as Qwen3-Next.
    GatedDelta(GatedDeltaConfig),
}

impl MixerConfig {
    /// # Errors
    /// Lists every field that does not fit, or has no place in this mixer.
    pub(crate) fn validate(&self, attention: &AttentionConfig) -> Result<(), ConfigError> {
        match self {
            Self::Attention => Ok(()),
            Self::Latent(latent) => latent.validate(attention),
            Self::Differential(differential) => differential.validate(attention),
            Self::GatedDelta(delta) => delta.validate(attention),
        }
    }

    /// # Errors
    /// If a layer of this mixer cannot keep `rule`.
    pub(crate) fn validate_rule(&self, rule: &PairRule) -> Result<(), ConfigError> {
        match self {
            Self::GatedDelta(_) => GatedDeltaConfig::validate_rule(rule),
            Self::Attention | Self::Latent(_) | Self::Differential(_) => Ok(()),
        }
    }

    /// Channels of a query and a key that turn by their positions.
    pub(crate) fn d_turned(&self, attention: &AttentionConfig) -> usize {
        match self {
            Self::Attention | Self::Differential(_) | Self::GatedDelta(_) => attention.d_head(),
            Self::Latent(latent) => latent.d_rotary,
        }
    }

    /// The same in layer `index`, where it depends on the depth.
    pub(crate) fn at(self, index: usize) -> Self {
        match self {
            Self::Differential(differential) => Self::Differential(differential.at(index)),
            other => other,
        }
    }

    pub(crate) fn init_with(&self, attention: &AttentionConfig, params: &ParamBuilder) -> Mixer {
        match self {
            Self::Attention => Mixer::Attention(attention.init_with(params)),
            Self::Latent(latent) => Mixer::Latent(latent.init_with(attention, params)),
            Self::Differential(config) => Mixer::Differential(config.init_with(attention, params)),
            Self::GatedDelta(config) => Mixer::GatedDelta(config.init_with(attention, params)),
        }
    }
}

/// What mixes the tokens of a layer.
#[expect(clippy::large_enum_variant, reason = "there is one per layer")]
#[derive(Module, Debug)]
pub enum Mixer {
    /// Attention.
    Attention(Attention),
    /// Latent attention.
    Latent(LatentAttention),
    /// Differential attention.
    Differential(DifferentialAttention),
    /// A gated delta rule.
    GatedDelta(GatedDelta),
}

impl Mixer {
    /// The attention with queries, keys and values, where it is one.
    pub fn attention(&self) -> Option<&Attention> {
        match self {
            Self::Attention(attention) => Some(attention),
            Self::Latent(_) | Self::Differential(_) | Self::GatedDelta(_) => None,
        }
    }
}

/// Does the same with the mixer of every kind.
macro_rules! with {
    ($of:expr, $mixer:ident => $done:expr) => {
        match $of {
            Self::Attention($mixer) => $done,
            Self::Latent($mixer) => $done,
            Self::Differential($mixer) => $done,
            Self::GatedDelta($mixer) => $done,
        }
    };
}

impl TokenMixer for Mixer {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        with!(self, mixer => TokenMixer::forward(mixer, x, context, pass))
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        with!(self, mixer => mixer.state(rule, capacity))
    }

    fn full_state(&self, capacity: usize) -> Box<dyn State> {
        with!(self, mixer => mixer.full_state(capacity))
    }

    fn head_output(&self) -> Option<&Linear> {
        with!(self, mixer => mixer.head_output())
    }

    fn cost(&self, rule: &PairRule, length: usize) -> Cost {
        with!(self, mixer => mixer.cost(rule, length))
    }
}
