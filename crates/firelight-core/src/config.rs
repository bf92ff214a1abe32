//! Configurations save and load as those of Burn do, in JSON.
//!
//! ```
//! use burn::config::Config;
//! use firelight_core::TransformerConfig;
//!
//! let config = TransformerConfig::decoder(64, 4, 2);
//! let path = std::env::temp_dir().join("firelight-config-example.json");
//! config.save(&path)?;
//! assert_eq!(TransformerConfig::load(&path)?, config);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::adapter::AdapterConfig;
use crate::attention::{AttentionConfig, AttentionMechanism, DifferentialConfig, LatentConfig, ScoreScale};
use crate::block::TransformerBlockConfig;
use crate::embedding::{EmbeddingProjectionConfig, TokenEmbeddingConfig};
use crate::encoder_decoder::EncoderDecoderConfig;
use crate::feed_forward::{ExpertsConfig, FeedForwardConfig};
use crate::gated_delta::GatedDeltaConfig;
use crate::head::LmHeadConfig;
use crate::linear::LinearConfig;
use crate::loss::LossConfig;
use crate::mixer::MixerConfig;
use crate::norm::NormConfig;
use crate::position::{PositionConfig, RotaryConfig};
use crate::transformer::TransformerConfig;
use crate::vision::VisionTransformerConfig;
use burn::config::Config;

macro_rules! saved {
    ($($config:ty),+ $(,)?) => { $(impl Config for $config {})+ };
}

saved!(
    AdapterConfig,
    AttentionConfig,
    AttentionMechanism,
    DifferentialConfig,
    EmbeddingProjectionConfig,
    EncoderDecoderConfig,
    ExpertsConfig,
    FeedForwardConfig,
    GatedDeltaConfig,
    LatentConfig,
    LinearConfig,
    LmHeadConfig,
    LossConfig,
    MixerConfig,
    NormConfig,
    PositionConfig,
    RotaryConfig,
    ScoreScale,
    TokenEmbeddingConfig,
    TransformerBlockConfig,
    TransformerConfig,
    VisionTransformerConfig,
);

#[cfg(test)]
mod tests {
    use super::*;
    use burn::config::config_to_json;

    fn read_again<C: Config + PartialEq>(config: C) {
        let text = config_to_json(&config);
        assert_eq!(C::load_binary(text.as_bytes()).expect(&text), config);
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let stack = TransformerConfig::decoder(16, 4, 3).with_position(PositionConfig::rotary()).with_layer_scale(0.1);
        let mut layers = vec![stack.first().clone(); 2];
        layers[1].block.mixer = MixerConfig::GatedDelta(GatedDeltaConfig::default().with_d_key(3));
        read_again(stack.first().block.clone());
        read_again(stack.first().block.attention.clone());
        read_again(stack.with_layers(layers));
        read_again(LatentConfig::new(4, 2));
        read_again(NormConfig::None);
        read_again(PositionConfig::Rotary(RotaryConfig::default().with_width(2)));
        read_again(LossConfig::new());
        read_again(LinearConfig::new(3, 4));
    }

    #[test]
    fn a_key_that_there_is_not_is_named() {
        let error =
            LatentConfig::load_binary(br#"{"d_latent": 4, "d_rotary": 2, "d_query": 3}"#).expect_err("no such key");
        assert!(error.to_string().contains("d_query"), "{error}");
    }
}
