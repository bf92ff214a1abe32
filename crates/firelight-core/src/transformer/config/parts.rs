//! The parts that a configuration makes: the configurations of blocks, attention and feed-forward networks, the number of
//! their parameters, and the stack itself.

use super::super::Transformer;
use super::TransformerConfig;
use crate::attention::AttentionConfig;
use crate::block::TransformerBlockConfig;
use crate::error::expect_valid;
use crate::feed_forward::FeedForwardConfig;
use crate::init::ParamBuilder;
use crate::layer::Layer;
use crate::position::PositionSizes;
use burn::nn::DropoutConfig;
use burn::tensor::Device;

impl TransformerConfig {
    /// Width `E` of a head.
    pub fn d_head(&self) -> usize {
        self.attention().d_head()
    }

    /// Number of parameters of the stack, without building it.
    pub fn num_params(&self) -> usize {
        self.count() as usize
    }

    /// In floating point, which does not overflow whatever a file says, and is exact below 2^53.
    pub(super) fn count(&self) -> f64 {
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
        self.init_layers(params, |block, params| block.init_with(params))
    }

    /// Builds the stack at the builder's seed and path with layers of one's own. Each is made of the configuration that
    /// [`TransformerBlock`](crate::TransformerBlock) would have there, and the builder of its path; positions, patterns,
    /// embedding norm and final norm are those of the stack.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_layers<L: Layer>(
        &self,
        params: &ParamBuilder,
        layer: impl Fn(TransformerBlockConfig, &ParamBuilder) -> L,
    ) -> Transformer<L> {
        expect_valid(self.validate());
        let blocks = params.scope("blocks");
        let norm = |name: &str| self.norm.init_with(self.d_model, &params.scope(name));
        Transformer {
            position: self.position.init_with(self.sizes(), self.init.weight, &params.scope("position")),
            blocks: (0..self.n_layers).map(|i| layer(self.layer(i), &blocks.scope(i))).collect(),
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

    pub(super) fn attention(&self) -> AttentionConfig {
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

    pub(super) fn block(&self) -> TransformerBlockConfig {
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
    use crate::attention::{AttentionMechanism, ProjectionKind};
    use crate::block::NormPlacement;
    use crate::feed_forward::{Activation, ExpertsConfig};
    use crate::norm::NormConfig;
    use crate::position::PositionConfig;
    use burn::module::Module;

    #[test]
    fn stochastic_depth_rises_with_the_layers() {
        let config = TransformerConfig::new(8, 2, 4).with_stochastic_depth(0.5);
        assert_eq!([0, 1, 2, 3].map(|i| config.layer(i).stochastic_depth), [0.125, 0.25, 0.375, 0.5]);
        let error = config.with_stochastic_depth(1.0).with_layer_scale(0.0).validate().expect_err("two problems");
        assert_eq!(error.to_string(), "stochastic_depth = 1 must be in [0, 1); layer_scale = 0 must be above 0");
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
}
