//! What a stack costs.

use super::Transformer;
use crate::cost::{Cost, grouped};
use crate::embedding::ProjectionPlacement;
use crate::layer::Layer;
use std::iter::once;

impl<L: Layer + 'static> Transformer<L> {
    /// What a token of a sequence of `length` tokens costs. Equal layers are one part; what positions compute is not counted.
    pub fn cost(&self, length: usize) -> Cost {
        let layers = (0..self.blocks.len()).flat_map(|index| self.block_costs(index, length));
        let layers = grouped(layers, self.shares_layers);
        let schemes = self.layer_positions.iter().enumerate();
        let schemes = schemes.map(|(index, scheme)| (format!("layer_positions.{index}"), scheme));
        let schemes = [("position".into(), &self.position)].into_iter().chain(schemes);
        let schemes = schemes.map(|(name, scheme)| Cost::of(scheme).without_flops().named(name));
        let layers = layers.into_iter().map(|layer| Cost { name: format!("blocks.{}", layer.name), ..layer });
        let last = self.norm.as_ref().map(|norm| norm.cost(self.d_model).named("norm"));
        let first = schemes.filter(|scheme| scheme.parameters > 0).chain(self.embedding_costs());
        Cost::sum(first.chain(layers).chain(last))
    }

    /// What block `index` costs in the places in which it stands. A place with a rule of its own is apart; of a block that is shared, the
    /// first places alone have the parameters.
    fn block_costs(&self, index: usize, length: usize) -> Vec<(Cost, Vec<usize>)> {
        let places = (index..self.n_layers).step_by(self.blocks.len());
        let (own, usual): (Vec<_>, Vec<_>) = places.partition(|place| self.layer_rules.contains_key(place));
        let usual = once(usual).filter(|places| !places.is_empty());
        let cost = |(turn, places): (usize, Vec<usize>)| {
            let cost = self.blocks[index].cost(&self.rule(places[0]), length);
            let was_counted = self.shares_layers && turn > 0;
            (if was_counted { cost.without_parameters() } else { cost }, places)
        };
        usual.chain(own.into_iter().map(|place| vec![place])).enumerate().map(cost).collect()
    }

    /// The norm of the embeddings, and the layer to the width of the residual stream, which keeps what it reads, unless the norm does.
    fn embedding_costs(&self) -> impl Iterator<Item = Cost> {
        let d_embedding = self.embedding_projection.as_ref().map_or(self.d_model, |projection| projection.widths()[0]);
        let is_behind = self.projection_placement == ProjectionPlacement::AfterNorm;
        let d_normed = if is_behind { d_embedding } else { self.d_model };
        let kept = if is_behind && self.embedding_norm.is_some() { 0 } else { d_embedding };
        let norm = self.embedding_norm.as_ref().map(|norm| norm.cost(d_normed).named("embedding_norm"));
        let projection = self.embedding_projection.as_ref().map(Cost::of);
        norm.into_iter().chain(projection.map(|cost| cost.with_activations(kept).named("embedding_projection")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{AttentionMechanism, AttentionPattern, DifferentialConfig, KeyValues, LatentConfig};
    use crate::context::LayerContext;
    use crate::embedding::EmbeddingProjectionConfig;
    use crate::feed_forward::{Activation, ExpertsConfig};
    use crate::gated_delta::GatedDeltaConfig;
    use crate::init::ParamBuilder;
    use crate::layer::TokenMixer;
    use crate::mixer::MixerConfig;
    use crate::pass::{LayerPass, Pass};
    use crate::position::PositionConfig;
    use crate::residual::ResidualStream;
    use crate::state::State;
    use crate::transformer::{SequenceInput, TransformerConfig};
    use burn::module::Module;
    use burn::tensor::{Device, Tensor};
    use firelight_kernels::PairRule;

    fn cost(config: &TransformerConfig) -> Cost {
        config.init_with(&ParamBuilder::new(&Device::default(), 0)).cost(4)
    }

    fn small() -> TransformerConfig {
        TransformerConfig::new(8, 2, 1).with_d_ff(32).with_max_seq_len(4).with_position(PositionConfig::None)
    }

    #[test]
    fn a_small_stack_was_counted_by_hand() {
        let found = cost(&small());
        // Attention 4 (64 + 8), feed-forward 2 * 256 + 32 + 8, three norms of 16.
        assert_eq!((found.parameters, found.active_parameters), (888, 888));
        // Products with 4 * 64 + 2 * 256 numbers; 1, 2, 3 and 4 keys of 8 numbers and as many values.
        assert_eq!(found.flops_per_token, 2.0 * 768.0 + 2.0 * 2.5 * 16.0);
        // Two norms of 16, queries, keys, values and heads of 8, the inner 32 twice, the last norm.
        assert_eq!(found.activations_per_token, 2 * 16 + 4 * 8 + 2 * 32 + 16);
        assert_eq!(found.cache_bytes, 4 * 4 * 16);
        assert_eq!(found.score_bytes, 4 * 2 * 4 * 4); // Two heads of 4 queries and 4 keys.
        assert_eq!(found.training_flops_per_token(), 3.0 * found.flops_per_token);
        let names: Vec<_> = found.parts.iter().map(|part| (part.name.as_str(), part.parameters)).collect();
        assert_eq!(names, [("blocks.0", 872), ("norm", 16)]);
    }

    #[test]
    fn a_shared_layer_has_its_parameters_once_and_its_cost_in_every_turn() {
        let [twice, shared] =
            [false, true].map(|share| cost(&TransformerConfig { n_layers: 2, ..small() }.with_share_layers(share)));
        assert_eq!([twice.parameters, shared.parameters], [888 + 872, 888]);
        assert_eq!(
            (shared.flops_per_token, shared.activations_per_token),
            (twice.flops_per_token, twice.activations_per_token)
        );
        assert_eq!(shared.cache_bytes, twice.cache_bytes);
        assert_eq!([shared.score_bytes, twice.score_bytes], [2 * 128; 2]);
    }

    #[test]
    fn narrow_embeddings_are_multiplied_with_their_projection() {
        let of = |norm, place| {
            let projection = EmbeddingProjectionConfig::new(3).with_placement(place);
            cost(&small().with_embedding_norm(norm).with_embedding_projection(Some(projection)))
        };
        let plain = cost(&small());
        // The norm has 3 or 8 numbers twice, and keeps as many; without one in front, the projection keeps the 3 that it reads.
        for (norm, place, parameters, kept) in [
            (false, ProjectionPlacement::AfterNorm, 0, 3),
            (true, ProjectionPlacement::AfterNorm, 6, 6),
            (true, ProjectionPlacement::BeforePositions, 16, 16 + 3),
        ] {
            let found = of(norm, place);
            assert_eq!(found.parameters, plain.parameters + 3 * 8 + 8 + parameters);
            assert_eq!(found.flops_per_token, plain.flops_per_token + 2.0 * 24.0);
            assert_eq!(found.activations_per_token, plain.activations_per_token + kept);
        }
    }

    #[test]
    fn attention_to_a_memory_sees_all_of_it() {
        let (alone, both) = (cost(&small()), cost(&small().with_cross_attention(true)));
        assert_eq!(both.parameters, alone.parameters + 288 + 16);
        assert_eq!(both.flops_per_token, alone.flops_per_token + 2.0 * 256.0 + 2.0 * 4.0 * 16.0);
        assert_eq!(both.activations_per_token, alone.activations_per_token + 16 + 32);
        assert_eq!(both.cache_bytes, 2 * alone.cache_bytes);
        assert_eq!(both.score_bytes, 2 * alone.score_bytes);
    }

    #[test]
    fn a_token_is_read_by_some_of_the_experts() {
        let dense = cost(&small());
        let found = cost(&small().with_experts(ExpertsConfig::new(4).with_top_k(2)));
        let expert = 2 * 256 + 32 + 8;
        assert_eq!(found.parameters, dense.parameters + 3 * expert + 32);
        assert_eq!(found.active_parameters, dense.parameters + expert + 32);
        assert_eq!(found.flops_per_token, dense.flops_per_token + 2.0 * (512.0 + 32.0));
        // Another inner 64, the scores of the router, and of both experts 8 read and 8 written.
        assert_eq!(found.activations_per_token, dense.activations_per_token + 64 + 4 + 2 * 2 * 8);
    }

    #[test]
    fn equal_layers_are_one_part() {
        let window = AttentionPattern::SlidingWindow { left: 1, right: 0 };
        let patterns = vec![window, window, AttentionPattern::Causal];
        let found = cost(&TransformerConfig { n_layers: 5, ..small() }.with_patterns(patterns));
        let parts: Vec<_> =
            found.parts.iter().map(|part| (part.name.as_str(), part.modules, part.parameters)).collect();
        assert_eq!(parts, [("blocks.0-1, 3-4", 4, 4 * 872), ("blocks.2", 1, 872), ("norm", 1, 16)]);
        // 1, 2, 2 and 2 keys.
        let pairs = |part: &Cost| part.flops_per_token / part.modules as f64 - 2.0 * 768.0;
        assert_eq!([pairs(&found.parts[0]), pairs(&found.parts[1])], [2.0 * 1.75 * 16.0, 2.0 * 2.5 * 16.0]);
    }

    #[test]
    fn a_rule_of_one_layer_costs_what_a_pattern_does_and_a_shared_layer_keeps_its_parameters() {
        let patterns = [AttentionPattern::Causal, AttentionPattern::SlidingWindow { left: 1, right: 0 }];
        let three = || TransformerConfig { n_layers: 3, ..small() };
        for params in [ParamBuilder::new(&Device::default(), 0), ParamBuilder::counting()] {
            let found = |config: TransformerConfig| {
                let stack = config.init_with(&params);
                stack.with_layer_rule(1, PairRule::window(1, 0)).cost(4)
            };
            let expected = cost(&three().with_patterns(patterns.to_vec()));
            assert_eq!(found(three()), expected);
            let shared = found(three().with_share_layers(true));
            assert_eq!([shared.parameters, shared.active_parameters], [888, 888]);
            assert_eq!(shared.flops_per_token, expected.flops_per_token);
            assert_eq!(shared.cache_bytes, expected.cache_bytes);
        }
    }

    #[test]
    fn a_stack_that_is_only_counted_costs_what_it_would_if_it_were_built() {
        let window = AttentionPattern::SlidingWindow { left: 1, right: 0 };
        let experts = ExpertsConfig::new(5).with_top_k(2).with_shared(1);
        for config in [
            TransformerConfig { n_layers: 5, ..small() }.with_patterns(vec![window, AttentionPattern::Causal]),
            TransformerConfig { n_layers: 5, ..small() }.with_share_layers(true),
            TransformerConfig { n_layers: 3, ..small() }.with_experts(experts),
        ] {
            let (built, counted) = (cost(&config), config.init_with(&ParamBuilder::counting()).cost(4));
            assert_eq!(counted, built);
        }
    }

    #[test]
    fn linear_attention_costs_the_same_in_every_context() {
        let stack = small()
            .with_attention_mechanism(AttentionMechanism::Linear)
            .init_with(&ParamBuilder::new(&Device::default(), 0));
        assert_eq!(stack.cost(4), stack.cost(4000));
        assert_eq!(stack.cost(4).score_bytes, 0);
    }

    #[test]
    fn heads_of_both_differential_attentions_score_every_pair() {
        let found = cost(&small().with_mixer(MixerConfig::Differential(DifferentialConfig::default())));
        assert_eq!(found.score_bytes, cost(&small()).score_bytes); // Half of the heads are those of the second.
    }

    #[test]
    fn the_cache_is_as_large_as_it_says() {
        let window = vec![AttentionPattern::SlidingWindow { left: 20, right: 0 }, AttentionPattern::Causal];
        for config in [
            small().with_n_kv_heads(1).with_activation(Activation::SwiGlu),
            small().with_attention_mechanism(AttentionMechanism::Linear),
            TransformerConfig { n_layers: 3, ..small() }.with_patterns(window),
            TransformerConfig { n_layers: 3, ..small() }.with_share_layers(true),
            small().with_d_value(3),
            small().with_position(PositionConfig::rotary()).with_mixer(MixerConfig::Latent(LatentConfig::new(4, 2))),
            small().with_n_kv_heads(2).with_mixer(MixerConfig::Differential(DifferentialConfig::default())),
            small()
                .with_mixer(MixerConfig::GatedDelta(GatedDeltaConfig::default().with_n_value_heads(4).with_d_key(3))),
        ] {
            let stack = config.with_max_seq_len(320).init_with(&ParamBuilder::new(&Device::default(), 0));
            let mut cache = stack.cache(320);
            let x = Tensor::ones([1, 320, 8], &Device::default());
            stack.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
            assert_eq!(cache.bytes(), stack.cost(320).cache_bytes);
        }
    }

    /// A part of one's own, which keeps all tokens.
    #[derive(Module, Debug)]
    struct Own {}

    impl Own {
        fn keys(capacity: usize) -> KeyValues {
            KeyValues::new(None, capacity).with_sizes([("heads", 1), ("d_key", 8), ("d_value", 8)])
        }
    }

    impl TokenMixer for Own {
        fn forward(&self, x: Tensor<3>, _: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
            let key = x.clone().unsqueeze_dim::<4>(1); // [B, 1, T, D]
            drop(KeyValues::append_to(pass, key.clone(), key));
            x
        }

        fn state(&self, _: &PairRule, capacity: usize) -> Box<dyn State> {
            Self::keys(capacity).boxed()
        }
    }

    impl Layer for Own {
        fn extend(&self, stream: ResidualStream, _: &LayerContext, _: &mut LayerPass) -> ResidualStream {
            stream
        }

        fn state(&self, _: &PairRule, capacity: usize) -> Box<dyn State> {
            Self::keys(capacity).boxed()
        }
    }

    #[test]
    fn the_cache_of_a_part_of_ones_own_was_counted_from_its_state() {
        let device = Device::default();
        let stack = small().with_max_seq_len(320).init_layers(&ParamBuilder::new(&device, 0), |_, block, params| {
            block.init_parts(params, |_| Own {}, |params| block.init_feed_forward(params))
        });
        let mut cache = stack.cache(320);
        let x = Tensor::ones([1, 320, 8], &device);
        stack.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
        assert_eq!((cache.bytes(), stack.cost(320).cache_bytes), (320 * 16 * 4, 320 * 16 * 4));
        assert_eq!(Layer::cost(&Own {}, &PairRule::Causal, 320).cache_bytes, 320 * 16 * 4);
        assert_eq!(KeyValues::new(None, 320).full_bytes(), None);
    }

    #[test]
    fn parts_leave_nothing_out() {
        fn whole(cost: &Cost) {
            let sum: usize = cost.parts.iter().map(|part| part.parameters).sum();
            assert!(cost.parts.is_empty() || sum == cost.parameters, "{}", cost.name);
            cost.parts.iter().for_each(whole);
        }
        for config in [
            small().with_position(PositionConfig::t5(false)).with_embedding_norm(true).with_layer_scale(0.1),
            small().with_position(PositionConfig::shaw()).with_cross_attention(true).with_layer_scale(0.1),
            small().with_position(PositionConfig::Learned).with_experts(ExpertsConfig::new(3).with_shared(1)),
            small().with_attention_mechanism(AttentionMechanism::Additive),
            small().with_attention_sinks(true).with_experts(ExpertsConfig::new(2).with_router_bias(true)),
            small().with_embedding_norm(true).with_embedding_projection(Some(EmbeddingProjectionConfig::new(3))),
            small().with_attention_gate(true),
            small().with_attention_mechanism(AttentionMechanism::Performer { features: 5 }),
            small().with_mixer(MixerConfig::Latent(LatentConfig::new(4, 2).with_d_query_latent(3))),
            small().with_mixer(MixerConfig::Differential(DifferentialConfig::default())),
            small().with_mixer(MixerConfig::GatedDelta(GatedDeltaConfig::default())),
        ] {
            let stack = config.init_with(&ParamBuilder::new(&Device::default(), 0));
            assert_eq!(stack.cost(4).parameters, stack.num_params());
            whole(&stack.cost(4));
        }
    }
}
