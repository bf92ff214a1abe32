//! Which configurations are refused, and why.

use super::{LayerConfig, TransformerConfig};
use crate::attention::AttentionMechanism;
use crate::error::{Checks, ConfigError};
use crate::init::ParamBuilder;
use crate::mixer::MixerConfig;
use crate::position::PositionConfig;

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
                "the sizes make {:.1e} parameters: at most {:.0e} are possible",
                parameters as f64, MAX_PARAMS as f64
            )
        });
        fits.finish()
    }

    /// What is wrong with a field by itself, or beside the others.
    pub(super) fn check_fields(&self) -> Result<(), ConfigError> {
        if self.layers.is_empty() {
            return Checks::default().require(false, || "patterns = [] must name at least one pattern".into()).finish();
        }
        // A width that does not fit is said once, and not for what follows from it.
        let d_turned = if self.first().validate().is_ok() { self.first().d_turned() } else { 2 };
        Checks::default()
            .rate("stochastic_depth", self.stochastic_depth)
            .part(self.check_layers())
            .size("n_layers", self.n_layers)
            .size("max_seq_len", self.max_seq_len)
            .part(self.norm.validate())
            .part(self.position.validate(self.d_summed(), d_turned))
            .part(self.embedding_projection.map_or(Ok(()), |projection| projection.validate()))
            .rate("embedding_dropout", self.embedding_dropout)
            .part(self.check_networks())
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

    /// What is wrong with every layer is said once, what is wrong with some by their numbers.
    fn check_layers(&self) -> Result<(), ConfigError> {
        let problems: Vec<_> = self.layers.iter().map(|layer| ConfigError::list(self.check_layer(layer))).collect();
        let mut checks = Checks::default();
        for (index, problem) in
            problems.iter().enumerate().flat_map(|(index, all)| all.iter().map(move |one| (index, one)))
        {
            let common = problems.iter().all(|all| all.contains(problem));
            let text = if common { problem.clone() } else { format!("layers.{index}: {problem}") };
            checks = checks.part(Checks::default().require(false, || text).finish());
        }
        checks.finish()
    }

    fn check_layer(&self, layer: &LayerConfig) -> Result<(), ConfigError> {
        let (own, width) = (layer.validate(), layer.block.attention.d_model);
        let d_turned = if own.is_ok() { layer.d_turned() } else { 2 };
        Checks::default()
            .part(own)
            .require(width == self.d_model, || {
                format!("attention.d_model = {width} must be d_model = {}, the width of the stack", self.d_model)
            })
            .part(layer.position.map_or(Ok(()), |position| position.validate(self.d_summed(), d_turned)))
            .part(self.check_bias(layer))
            .finish()
    }

    /// Positions that add to scores need scores, and those that read the query a product with it.
    fn check_bias(&self, layer: &LayerConfig) -> Result<(), ConfigError> {
        let (position, mechanism) = (layer.position.unwrap_or(self.position), layer.block.attention.mechanism);
        let shaw = matches!(position, PositionConfig::Shaw { .. });
        let adds = shaw || matches!(position, PositionConfig::Alibi | PositionConfig::T5 { .. });
        Checks::default()
            .require(!adds || mechanism != AttentionMechanism::Linear, || {
                format!(
                    "position = {position:?} adds to scores, which linear attention has none of: use none, learned, sinusoidal \
                     or rotary"
                )
            })
            .require(!shaw || !matches!(layer.block.mixer, MixerConfig::Latent(_)), || {
                format!("position = {position:?} has no place in mixer = latent: use rotary, alibi or t5")
            })
            .require(!shaw || mechanism != AttentionMechanism::Additive, || {
                format!(
                    "position = {position:?} adds products with the query to scores that are none: use alibi or t5, or \
                     attention_mechanism = dot_product"
                )
            })
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::EmbeddingProjectionConfig;

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
