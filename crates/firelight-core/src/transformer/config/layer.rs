//! The configuration of one layer of a stack.

use crate::attention::{AttentionConfig, AttentionPattern};
use crate::block::TransformerBlockConfig;
use crate::error::{Checks, ConfigError};
use crate::feed_forward::{Activation, FeedForwardConfig};
use crate::position::PositionConfig;
use crate::spelling::spelled;

/// One layer of a stack: a block, what it attends to, and how it knows positions.
///
/// ```
/// use firelight_core::{AttentionPattern, LayerConfig, PositionConfig, RotaryConfig, TransformerConfig};
///
/// // Gemma 3: five layers look at a window, the sixth at the whole text with slower rotations.
/// let near = LayerConfig::new(64, 4).with_pattern(AttentionPattern::SlidingWindow { left: 15, right: 0 });
/// let slow = RotaryConfig::default().with_theta(1e6);
/// let far = LayerConfig::new(64, 4).with_position(PositionConfig::Rotary(slow));
/// let stack = TransformerConfig::new(64, 4, 12).with_position(PositionConfig::rotary());
/// let stack = stack.with_layers([vec![near; 5], vec![far]].concat());
/// assert_eq!(stack.validate(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LayerConfig {
    /// Attention, feed-forward network, norms. The stack sets how its weights begin, and its share of stochastic depth.
    pub block: TransformerBlockConfig,
    /// What the layer attends to. Default: its past.
    pub pattern: AttentionPattern,
    /// The position scheme of this layer alone, one that turns queries and keys or adds to scores. Default: the stack's.
    pub position: Option<PositionConfig>,
}

impl LayerConfig {
    /// A causal layer of width `d_model`, as GPT-2.
    pub fn new(d_model: usize, n_heads: usize) -> Self {
        let feed_forward = FeedForwardConfig::new(d_model, Activation::default());
        let block = TransformerBlockConfig::new(AttentionConfig::new(d_model, n_heads), feed_forward);
        Self { block, pattern: AttentionPattern::default(), position: None }
    }

    /// Sets what the layer attends to.
    pub fn with_pattern(mut self, pattern: AttentionPattern) -> Self {
        self.pattern = pattern;
        self
    }

    /// Sets the position scheme of this layer alone.
    pub fn with_position(mut self, position: PositionConfig) -> Self {
        self.position = Some(position);
        self
    }

    /// Sets attention, feed-forward network and norms.
    pub fn with_block(mut self, block: TransformerBlockConfig) -> Self {
        self.block = block;
        self
    }

    /// Channels of a query and a key that turn by their positions.
    pub(super) fn d_turned(&self) -> usize {
        self.block.mixer.d_turned(&self.block.attention)
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let widths = [self.block.attention.d_model, self.block.feed_forward.d_model];
        Checks::default()
            .include(self.pattern.validate())
            .include(self.block.validate())
            .require(widths[0] == widths[1], || {
                format!("attention.d_model = {} must equal feed_forward.d_model = {}", widths[0], widths[1])
            })
            .require(!self.position.as_ref().is_some_and(|position| position.adds_to_embeddings()), || {
                format!(
                    "position = {} adds to the embeddings, before all layers: set it for the whole stack",
                    spelled(&self.position.clone().unwrap_or_default())
                )
            })
            .finish()
    }
}
