//! The parts that a configuration makes: the configurations of blocks, attention and feed-forward networks, the number of
//! their parameters, and the stack itself.

use super::super::Transformer;
use super::{LayerConfig, TransformerConfig};
use crate::block::TransformerBlockConfig;
use crate::embedding::EmbeddingProjectionConfig;
use crate::error::expect_valid;
use crate::init::ParamBuilder;
use crate::layer::Layer;
use crate::position::{PositionConfig, PositionSizes};
use burn::nn::DropoutConfig;
use burn::tensor::Device;

impl TransformerConfig {
    /// Number of parameters of the stack, without building it.
    pub fn num_params(&self) -> usize {
        self.count() as usize
    }

    /// In floating point, which does not overflow whatever a file says, and is exact below 2^53.
    pub(super) fn count(&self) -> f64 {
        let norm = |exists: bool, width: usize| if exists { self.norm.num_params(width) } else { 0.0 };
        let norms = norm(self.has_final_norm(), self.d_model) + norm(self.embedding_norm, self.d_summed());
        let projection = self.embedding_projection.map_or(0.0, |projection| projection.num_params(self.d_model));
        let built = |times: usize| if self.share_layers { times.min(1) } else { times };
        let layers: f64 = self.turns().map(|(layer, times)| built(times) as f64 * layer.block.num_params()).sum();
        let positions: f64 = self.schemes().0.iter().map(|(scheme, sizes)| scheme.num_params(*sizes)).sum();
        layers + norms + positions + projection
    }

    /// The kinds of layers, and how many of each the stack has.
    pub(in crate::transformer) fn turns(&self) -> impl Iterator<Item = (&LayerConfig, usize)> {
        let kinds = self.layers.len();
        let times = move |index: usize| self.n_layers / kinds + usize::from(index < self.n_layers % kinds);
        self.layers.iter().enumerate().map(move |(index, layer)| (layer, times(index)))
    }

    /// Layers with parameters of their own.
    fn n_built(&self) -> usize {
        if self.share_layers { self.n_layers.min(self.layers.len()) } else { self.n_layers }
    }

    fn has_final_norm(&self) -> bool {
        let last = self.layers.get(self.n_layers.wrapping_sub(1) % self.layers.len().max(1));
        last.is_none_or(|layer| layer.block.norm_placement.has_final_norm())
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
        self.init_layers(params, |_, block, params| block.init_with(params))
    }

    /// Builds the stack at the builder's seed and path with layers of one's own. Each is made of its number, the
    /// configuration that [`TransformerBlock`](crate::TransformerBlock) would have there, and the builder of its path; positions, patterns,
    /// embedding norm and final norm are those of the stack.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_layers<L: Layer>(
        &self,
        params: &ParamBuilder,
        layer: impl Fn(usize, TransformerBlockConfig, &ParamBuilder) -> L,
    ) -> Transformer<L> {
        expect_valid(self.validate());
        let (blocks, others) = (params.scope("blocks"), params.scope("layer_positions"));
        let (schemes, scheme_of) = self.schemes();
        let scheme = |index: usize, params: &ParamBuilder| {
            let (config, sizes) = schemes[index];
            config.init_with(sizes, self.init.weight, params)
        };
        let norm = |name: &str, width: usize| self.norm.init_with(width, &params.scope(name));
        let projection = |config: EmbeddingProjectionConfig| {
            config.init_with(self.d_model, self.init.weight, &params.scope("embedding_projection"))
        };
        Transformer {
            position: scheme(0, &params.scope("position")),
            layer_positions: (1..schemes.len()).map(|index| scheme(index, &others.scope(index - 1))).collect(),
            blocks: (0..self.n_built()).map(|i| layer(i, self.layer(i), &blocks.scope(i))).collect(),
            n_layers: self.n_layers,
            embedding_norm: self.embedding_norm.then(|| norm("embedding_norm", self.d_summed())),
            embedding_projection: self.embedding_projection.map(projection),
            projection_place: self.embedding_projection.map(|config| config.place).unwrap_or_default(),
            norm: self.has_final_norm().then(|| norm("norm", self.d_model)),
            dropout: DropoutConfig::new(self.embedding_dropout).init(),
            patterns: self.patterns(),
            scheme_of,
        }
    }

    /// The position schemes, that of the stack first, each with the sizes that it is built for; and which of them each layer has.
    pub(super) fn schemes(&self) -> (Vec<(PositionConfig, PositionSizes)>, Vec<usize>) {
        let mut schemes = Vec::new();
        let own = self.layers.iter().find(|layer| layer.position.is_none()).or(self.layers.first());
        schemes.extend(own.map(|layer| (self.position, self.sizes(layer))));
        let find = |layer: &LayerConfig| {
            let wanted = (layer.position.unwrap_or(self.position), self.sizes(layer));
            // What is added to the embeddings is the same whatever the heads of a layer are.
            let found = schemes.iter().position(|scheme| *scheme == wanted);
            let found = found.or((wanted.0 == self.position && wanted.0.adds_to_embeddings()).then_some(0));
            found.unwrap_or_else(|| {
                schemes.push(wanted);
                schemes.len() - 1
            })
        };
        let scheme_of = self.layers.iter().map(find).collect();
        (schemes, scheme_of)
    }

    fn sizes(&self, layer: &LayerConfig) -> PositionSizes {
        let attention = &layer.block.attention;
        let (n_heads, d_head) = (attention.n_heads, attention.d_head());
        PositionSizes { d_model: self.d_summed(), n_heads, d_head, max_seq_len: self.max_seq_len }
    }

    /// The block of layer `index`: the stack's initial weights, and a rate of stochastic depth that rises linearly (Huang et al.
    /// 2016, eq. 4).
    fn layer(&self, index: usize) -> TransformerBlockConfig {
        let share = (index + 1) as f64 / self.n_layers as f64;
        let block = self.layers[index % self.layers.len()].block.clone();
        let (weight, residual) = (self.init.weight, self.init.residual(self.residual_branches()));
        TransformerBlockConfig {
            attention: block.attention.with_init(weight, residual),
            feed_forward: block.feed_forward.with_init(weight, residual),
            stochastic_depth: self.stochastic_depth * share,
            ..block
        }
    }

    /// Residual additions in the whole stack.
    fn residual_branches(&self) -> usize {
        let branches = |layer: &LayerConfig| if layer.block.cross_attention { 3_usize } else { 2 };
        self.turns().map(|(layer, times)| branches(layer).saturating_mul(times)).fold(0, usize::saturating_add).max(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{AttentionMechanism, ProjectionKind};
    use crate::block::NormPlacement;
    use crate::embedding::ProjectionPlace;
    use crate::feed_forward::{Activation, ExpertsConfig};
    use crate::norm::NormConfig;
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
            base.clone().with_norm_placement(NormPlacement::Output).with_cross_attention(true),
            base.clone().with_norm_placement(NormPlacement::ParallelTwoNorms).with_attention_norm(NormConfig::None),
            base.clone().with_attention_norm(NormConfig::rms()).with_attention_bias(false),
            base.clone()
                .with_query_key_norm(Some(NormConfig::layer()))
                .with_query_key_norm_span(crate::attention::NormSpan::AllHeads)
                .with_n_kv_heads(1),
            base.clone().with_layer_scale(0.1).with_cross_attention(true),
            base.clone().with_embedding_norm(true).with_norm_placement(NormPlacement::Post),
            base.clone().with_embedding_norm(true).with_embedding_projection(Some(EmbeddingProjectionConfig::new(4))),
            base.clone().with_embedding_norm(true).with_embedding_projection(Some(
                EmbeddingProjectionConfig::new(4).with_bias(false).with_place(ProjectionPlace::BeforePositions),
            )),
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
