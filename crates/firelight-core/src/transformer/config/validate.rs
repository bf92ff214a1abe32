//! Which configurations are refused, and why.

use super::{LayerConfig, TransformerConfig};
use crate::attention::AttentionMechanism;
use crate::error::{Checks, ConfigError};
use crate::init::ParamBuilder;
use crate::mixer::MixerConfig;
use crate::position::PositionConfig;
use crate::spelling::spelled;

/// More parameters than this fit no machine that runs one process.
const MAX_PARAMS: usize = 1_000_000_000_000;

/// More feed-forward networks than this, experts of all layers, are a slip of the hand: 61 layers of DeepSeek-V3 have 15,000.
const MAX_NETWORKS: usize = 1 << 16;

impl TransformerConfig {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_fields()?;
        let parameters = self.init_with(&ParamBuilder::counting()).cost(1).parameters;
        let fits = Checks::default().require(parameters <= MAX_PARAMS, || {
            format!(
                "d_model = {} with n_layers = {} makes {:.1e} parameters: at most {:.0e} are possible",
                self.d_model, self.n_layers, parameters as f64, MAX_PARAMS as f64
            )
        });
        fits.finish()
    }

    /// What is wrong with a field by itself, or beside the others.
    pub(super) fn check_fields(&self) -> Result<(), ConfigError> {
        if self.layers.is_empty() {
            return Checks::default().require(false, || "patterns = [] must name at least one pattern".into()).finish();
        }
        Checks::default()
            .rate("stochastic_depth", self.stochastic_depth)
            .include(self.check_layers())
            .require(self.n_layers > 0, || "n_layers = 0 must be at least 1".into())
            .size("max_seq_len", self.max_seq_len)
            .include(self.norm.validate())
            .include(self.init.weight.validate())
            .include(self.check_stack_position())
            .include(self.embedding_projection.map_or(Ok(()), |projection| projection.validate()))
            .rate("embedding_dropout", self.embedding_dropout)
            .include(self.check_networks())
            .finish()
    }

    /// The modules of a stack take memory before their weights do.
    fn check_networks(&self) -> Result<(), ConfigError> {
        let networks = |layer: &LayerConfig| layer.block.experts.map_or(1, |experts| experts.n_experts);
        let all = self.turns().map(|(layer, times)| networks(layer).saturating_mul(times));
        let (all, layers) = (all.fold(0, usize::saturating_add), self.n_layers);
        let problem = match all == layers {
            true => format!("n_layers = {layers} must be at most {MAX_NETWORKS}"),
            false => format!(
                "n_layers = {layers} with their experts make {all} networks: at most {MAX_NETWORKS} are possible"
            ),
        };
        Checks::default().require(all <= MAX_NETWORKS, || problem).finish()
    }

    fn check_layers(&self) -> Result<(), ConfigError> {
        self.of_layers(|_| true, |layer| self.check_layer(layer))
    }

    /// Positions of the stack must fit the layers that have none of their own; where all have, they are built for the first.
    fn check_stack_position(&self) -> Result<(), ConfigError> {
        let is_unused = self.layers.iter().all(|layer| layer.position.is_some());
        let reads = |index: usize| if is_unused { index == 0 } else { self.layers[index].position.is_none() };
        self.of_layers(reads, |layer| self.check_position(&self.position, layer))
    }

    /// What is wrong with all of these layers is said once, what is wrong with some by their numbers.
    fn of_layers(
        &self,
        counts: impl Fn(usize) -> bool,
        check: impl Fn(&LayerConfig) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        let layers = self.layers.iter().enumerate().filter(|(index, _)| counts(*index));
        let problems: Vec<_> = layers.map(|(index, layer)| (index, ConfigError::list(check(layer)))).collect();
        let mut checks = Checks::default();
        for (index, problem) in problems.iter().flat_map(|(index, all)| all.iter().map(move |one| (index, one))) {
            let common = problems.iter().all(|(_, all)| all.contains(problem));
            let text = if common { problem.clone() } else { format!("layers.{index}: {problem}") };
            checks = checks.include(Checks::default().require(false, || text).finish());
        }
        checks.finish()
    }

    fn check_layer(&self, layer: &LayerConfig) -> Result<(), ConfigError> {
        let width = layer.block.attention.d_model;
        Checks::default()
            .include(layer.validate())
            .require(width == self.d_model, || {
                format!("attention.d_model = {width} must be d_model = {}, the width of the stack", self.d_model)
            })
            .include(layer.position.as_ref().map_or(Ok(()), |position| self.check_position(position, layer)))
            .include(layer.block.mixer.validate_rule(&layer.pattern.rule()))
            .include(self.check_bias(layer))
            .finish()
    }

    /// A width that does not fit is said once, and not for what follows from it.
    fn check_position(&self, position: &PositionConfig, layer: &LayerConfig) -> Result<(), ConfigError> {
        let attention = &layer.block.attention;
        attention
            .validate()
            .and(layer.block.mixer.validate(attention))
            .map_or(Ok(()), |()| position.validate(self.d_summed(), layer.d_turned()))
    }

    /// Positions that add to scores need scores, and those that read the query a product with it.
    fn check_bias(&self, layer: &LayerConfig) -> Result<(), ConfigError> {
        let (position, mechanism) =
            (layer.position.as_ref().unwrap_or(&self.position), layer.block.attention.mechanism);
        let shaw = matches!(position, PositionConfig::Shaw { .. });
        let adds = shaw || matches!(position, PositionConfig::Alibi | PositionConfig::T5 { .. });
        let scoreless = match (mechanism, layer.block.mixer) {
            (_, MixerConfig::GatedDelta(_)) => Some("mixer = gated_delta"),
            (mechanism, _) if mechanism.is_linear() => Some("linear attention"),
            _ => None,
        };
        Checks::default()
            .require(!adds || scoreless.is_none(), || {
                format!(
                    "position = {} adds to scores, which {} has none of: use none, learned, sinusoidal or rotary",
                    spelled(position),
                    scoreless.unwrap_or_default()
                )
            })
            .require(!shaw || !matches!(layer.block.mixer, MixerConfig::Latent(_)), || {
                format!("position = {} has no place in mixer = latent: use rotary, alibi or t5", spelled(position))
            })
            .require(!shaw || mechanism != AttentionMechanism::Additive, || {
                format!(
                    "position = {} adds products with the query to scores that are none: use alibi or t5, or \
                     attention_mechanism = dot_product",
                    spelled(position)
                )
            })
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::LatentConfig;
    use crate::embedding::EmbeddingProjectionConfig;
    use crate::position::{RotaryAxes, RotaryConfig};
    use crate::{Init, WeightInit};

    /// Counting its parameters builds the stack, which a distribution without a width would stop.
    #[test]
    fn a_distribution_of_the_weights_without_a_width_is_refused() {
        let init = WeightInit { weight: Init::Normal { std: 0.0 }, scale_residual: true };
        let error = TransformerConfig::new(8, 2, 1).with_init(init).validate().expect_err("no width");
        assert_eq!(error.problems(), ["init.std = 0 must be above 0"]);
    }

    #[test]
    fn positions_that_add_to_scores_need_scores() {
        let linear = TransformerConfig::new(8, 2, 1).with_attention_mechanism(AttentionMechanism::Linear);
        for position in [PositionConfig::Alibi, PositionConfig::t5(false), PositionConfig::shaw()] {
            let error = linear.clone().with_position(position).validate().expect_err("no scores");
            assert!(error.to_string().contains("use none, learned, sinusoidal or rotary"), "{error}");
        }
        assert_eq!(linear.with_position(PositionConfig::rotary()).validate(), Ok(()));
        let additive = TransformerConfig::new(8, 2, 1).with_attention_mechanism(AttentionMechanism::Additive);
        let error = additive.clone().with_position(PositionConfig::shaw()).validate().expect_err("no products");
        assert!(error.to_string().contains("use alibi or t5"), "{error}");
        assert_eq!(additive.with_position(PositionConfig::Alibi).validate(), Ok(()));
    }

    #[test]
    fn positions_fit_what_turns_in_every_layer() {
        let sections = RotaryAxes::Sections { sections: vec![1, 1] };
        let position = PositionConfig::Rotary(RotaryConfig::default().with_axes(sections));
        let mixer = |d_rotary| MixerConfig::Latent(LatentConfig::new(4, d_rotary));
        let latent =
            |d_rotary| TransformerConfig::new(8, 2, 2).with_position(position.clone()).with_mixer(mixer(d_rotary));
        assert_eq!(latent(4).validate(), Ok(()));
        let problem = "position.axes.sections = [1, 1] must be above 0 and sum to the 1 pairs of channels that turn";
        assert_eq!(latent(2).validate().expect_err("too few channels").problems(), [problem]);
        // The heads of the first layer have the four channels; what turns in the second are two.
        let first = TransformerConfig::new(8, 2, 2).first().clone();
        let second = latent(2).first().clone();
        let mixed = latent(4).with_layers(vec![first.clone(), second.clone()]);
        let problems = mixed.validate().expect_err("too few channels in one layer");
        assert_eq!(problems.problems(), [format!("layers.1: {problem}")]);
        // What is wrong with the scheme itself is not a layer's.
        let bad = PositionConfig::Rotary(RotaryConfig::default().with_theta(0.0));
        let own = first.clone().with_position(PositionConfig::None);
        let error = latent(4).with_position(bad).with_layers(vec![first, own]).validate().expect_err("no base");
        assert_eq!(error.problems(), ["position.theta = 0 must be above 0"]);
        // A scheme that no layer has is built all the same.
        let own = second.with_position(PositionConfig::None);
        assert_eq!(latent(4).with_layers(vec![own]).validate().expect_err("too few").problems(), [problem]);
        let odd = latent(3).validate().expect_err("an odd width");
        assert_eq!(odd.problems(), ["mixer.d_rotary = 3 must be even: channels turn in pairs"]);
        let wide = PositionConfig::Rotary(RotaryConfig::default().with_width(4));
        let error = latent(2).with_position(wide).validate().expect_err("too few channels");
        let problem = "position.width = 4 must be even, above 0 and at most the 2 channels of a head that can turn";
        assert_eq!(error.problems(), [problem]);
    }

    #[test]
    fn all_problems_are_listed_once() {
        let mut config = TransformerConfig::new(100, 3, 0).with_position(PositionConfig::rotary());
        config = config.with_residual_dropout(1.0);
        let error = config.validate().expect_err("three problems");
        assert_eq!(error.problems().len(), 3, "{error}");
    }

    #[test]
    fn embeddings_have_a_width() {
        let none = EmbeddingProjectionConfig::new(0);
        let error =
            TransformerConfig::new(8, 2, 1).with_embedding_projection(Some(none)).validate().expect_err("no width");
        assert_eq!(error.problems(), ["embedding_projection.d_embedding = 0 must be at least 1"]);
    }

    #[test]
    fn slips_of_the_hand_are_refused_before_memory_is_asked_for() {
        for (d_model, n_layers) in [(1 << 40, 1), (8, usize::MAX), (1 << 22, 1 << 20)] {
            TransformerConfig::new(d_model, 1, n_layers).validate().expect_err("no machine holds it");
        }
        let config = TransformerConfig::new(8, 2, 1).with_d_head(0);
        assert_eq!(config.validate().expect_err("no width").to_string(), "d_head = 0 must be at least 1");
    }
}
