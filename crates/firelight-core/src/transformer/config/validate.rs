//! Which configurations are refused, and why.

use super::TransformerConfig;
use crate::attention::AttentionMechanism;
use crate::error::{Checks, ConfigError};
use crate::position::PositionConfig;

/// More parameters than this fit no machine that runs one process.
const MAX_PARAMS: f64 = 1e12;

impl TransformerConfig {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // Heads that do not divide have no width to judge.
        let d_head = if self.attention().validate().is_ok() { self.d_head() } else { 2 };
        let checks = self.patterns.iter().fold(Checks::default(), |checks, pattern| checks.part(pattern.validate()));
        checks
            .part(self.block().validate())
            .size("n_layers", self.n_layers)
            .size("max_seq_len", self.max_seq_len)
            .require(!self.patterns.is_empty(), || "patterns = [] must name at least one pattern".into())
            .part(self.position.validate(self.d_model, d_head))
            .part(self.check_bias())
            .rate("embedding_dropout", self.embedding_dropout)
            .require(self.count() <= MAX_PARAMS, || {
                format!("the sizes make {:.1e} parameters: at most {MAX_PARAMS:.0e} are possible", self.count())
            })
            .finish()
    }

    /// Positions that add to scores need scores, and those that read the query a product with it.
    fn check_bias(&self) -> Result<(), ConfigError> {
        let shaw = matches!(self.position, PositionConfig::Shaw { .. });
        let adds = shaw || matches!(self.position, PositionConfig::Alibi | PositionConfig::T5 { .. });
        Checks::default()
            .require(!adds || self.attention_mechanism != AttentionMechanism::Linear, || {
                format!(
                    "position = {:?} adds to scores, which linear attention has none of: use none, learned, sinusoidal \
                     or rotary",
                    self.position
                )
            })
            .require(!shaw || self.attention_mechanism != AttentionMechanism::Additive, || {
                format!(
                    "position = {:?} adds products with the query to scores that are none: use alibi or t5, or \
                     attention_mechanism = dot_product",
                    self.position
                )
            })
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        config.dropout = 1.0;
        let error = config.validate().expect_err("three problems");
        assert_eq!(error.problems().len(), 3, "{error}");
    }

    #[test]
    fn slips_of_the_hand_are_refused_before_memory_is_asked_for() {
        for (d_model, n_layers) in [(1 << 40, 1), (8, usize::MAX), (1 << 22, 1 << 20)] {
            TransformerConfig::new(d_model, 1, n_layers).validate().expect_err("no machine holds it");
        }
        let mut config = TransformerConfig::new(8, 2, 1);
        config.d_head = Some(0);
        assert_eq!(config.validate().expect_err("no width").to_string(), "d_head = 0 must be at least 1");
    }
}
