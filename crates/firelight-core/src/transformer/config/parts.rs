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
use std::collections::BTreeMap;

impl TransformerConfig {
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
        self.final_norm.unwrap_or_else(|| last.is_none_or(|layer| layer.block.norm_placement.has_final_norm()))
    }

    /// Builds the stack; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> Transformer {
        self.init_with(&ParamBuilder::random(device))
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
        expect_valid(self.check_fields());
        let (blocks, others) = (params.scope("blocks"), params.scope("layer_positions"));
        let (schemes, scheme_of) = self.schemes();
        let scheme = |index: usize, params: &ParamBuilder| {
            let (config, sizes) = &schemes[index];
            config.init_with(*sizes, self.init.weight, params)
        };
        let norm = |name: &str, width: usize| self.norm.init_with(width, &params.scope(name));
        let projection = |config: EmbeddingProjectionConfig| {
            config.init_with(self.d_model, self.init.weight, &params.scope("embedding_projection"))
        };
        Transformer {
            position: scheme(0, &params.scope("position")),
            layer_positions: (1..schemes.len()).map(|index| scheme(index, &others.scope(index - 1))).collect(),
            blocks: (0..params.built(self.n_built(), self.layers.len()))
                .map(|i| layer(i, self.layer(i), &blocks.scope(i)))
                .collect(),
            d_model: self.d_model,
            n_layers: self.n_layers,
            shares_layers: self.share_layers,
            embedding_norm: self.embedding_norm.then(|| norm("embedding_norm", self.d_summed())),
            embedding_projection: self.embedding_projection.map(projection),
            projection_placement: self.embedding_projection.map(|config| config.placement).unwrap_or_default(),
            norm: self.has_final_norm().then(|| norm("norm", self.d_model)),
            dropout: DropoutConfig::new(self.embedding_dropout).init(),
            patterns: self.patterns(),
            layer_rules: BTreeMap::new(),
            scheme_of,
        }
    }

    /// The position schemes, that of the stack first, each with the sizes that it is built for; and which of them each layer has.
    pub(crate) fn schemes(&self) -> (Vec<(PositionConfig, PositionSizes)>, Vec<usize>) {
        let mut schemes = Vec::new();
        let own = self.layers.iter().find(|layer| layer.position.is_none()).or(self.layers.first());
        schemes.extend(own.map(|layer| (self.position.clone(), self.sizes(layer))));
        let find = |layer: &LayerConfig| {
            let wanted = (layer.position.as_ref().unwrap_or(&self.position).clone(), self.sizes(layer));
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
        let (n_heads, d_head) = (attention.n_heads, layer.d_turned());
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
            mixer: block.mixer.at(index),
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

    #[test]
    fn stochastic_depth_rises_with_the_layers() {
        let config = TransformerConfig::new(8, 2, 4).with_stochastic_depth(0.5);
        assert_eq!([0, 1, 2, 3].map(|i| config.layer(i).stochastic_depth), [0.125, 0.25, 0.375, 0.5]);
        let error = config
            .with_stochastic_depth(1.0)
            .with_layer_scale(0.0)
            .with_residual_scale(0.0)
            .validate()
            .expect_err("three problems");
        assert_eq!(
            error.problems(),
            [
                "stochastic_depth = 1 must be in [0, 1)",
                "layer_scale = 0 must be above 0",
                "residual_scale = 0 must be a finite number other than 0",
            ]
        );
    }
}
