//! Every choice of a configuration by name, to be set one after the other.

use super::TransformerConfig;
use crate::attention::{AttentionMechanism, AttentionPattern, ProjectionKind, ScoreScale};
use crate::block::NormPlacement;
use crate::feed_forward::{Activation, ExpertsConfig};
use crate::init::WeightInit;
use crate::norm::NormConfig;
use crate::position::PositionConfig;

impl TransformerConfig {
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
}
