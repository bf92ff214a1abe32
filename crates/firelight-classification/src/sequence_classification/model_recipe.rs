//! The `[model]` section of a recipe: the keys of the stack, and those of embedding and head around it.

use firelight_core::AdapterConfig;
use serde::{Deserialize, Serialize};

use crate::encoder::TextEncoderConfig;
use crate::heads::{HeadActivation, SequenceHeadConfig};
use crate::loss::ProblemType;
use crate::model::TextClassifierConfig;
use crate::on_encoder::{EncoderKeys, EncoderRecipe};
use crate::pooling::{PoolerConfig, PoolingConfig};

/// The structure that a user chooses. The vocabulary comes from the tokenizer, the classes from the data.
pub type ClassifierModelRecipe = EncoderRecipe<ClassifierKeys>;

/// The keys that are not the stack's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifierKeys {
    /// Segments that tokens may belong to; 2 for pairs of texts.
    pub(super) n_segments: usize,
    /// Where the vector of a text comes from.
    pooling: PoolingConfig,
    /// The activation function of a dense layer behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pooler: Option<HeadActivation>,
    /// Dropout of the text's vector.
    head_dropout: f64,
    /// Low-rank adapters of the encoder, which itself stays as the run that `init.from` names has learnt it.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdapterConfig>,
}

impl ClassifierModelRecipe {
    /// The whole configuration, for a vocabulary of this size and these classes.
    pub fn config(&self, vocab_size: usize, labels: Vec<String>) -> TextClassifierConfig {
        let ClassifierKeys { n_segments, pooling, pooler, head_dropout, .. } = self.own;
        let pooler = PoolerConfig { pooling, dense: pooler };
        let (adapters, transformer) = (self.own.adapters.clone(), self.transformer.clone());
        TextClassifierConfig {
            labels,
            problem_type: ProblemType::SingleLabel,
            encoder: TextEncoderConfig { vocab_size, n_segments, uncounted_padding: None, adapters, transformer },
            head: SequenceHeadConfig::new(pooler).with_dropout(head_dropout),
        }
    }
}

impl EncoderKeys for ClassifierKeys {
    fn head_dropout(&mut self) -> Option<&mut f64> {
        Some(&mut self.head_dropout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::AttentionPattern;

    #[test]
    fn an_encoder_sees_everything_and_has_one_dropout() {
        let text = "d_model = 8\nn_heads = 2\nn_layers = 1\nn_segments = 2\npooling = \"max\"\npooler = \"tanh\"\ndropout = 0.1\n\
                    attention_dropout = 0.2\n";
        let recipe: ClassifierModelRecipe = toml::from_str(text).unwrap();
        let config = recipe.config(9, vec!["a".into(), "b".into()]);
        config.validate().unwrap();
        assert_eq!(config.head.pooler, PoolerConfig { pooling: PoolingConfig::Max, dense: Some(HeadActivation::Tanh) });
        let stack = &config.encoder.transformer;
        assert_eq!(stack.patterns(), [AttentionPattern::Full]);
        assert_eq!(
            (config.head.dropout, stack.first().block.attention.dropout, stack.embedding_dropout),
            (0.1, 0.2, 0.1)
        );
        let again: ClassifierModelRecipe = toml::from_str(&toml::to_string(&recipe).unwrap()).unwrap();
        assert_eq!(again, recipe);
    }

    #[test]
    fn layers_that_are_named_stay_as_they_are() {
        let read = |layers: &str| -> ClassifierModelRecipe {
            toml::from_str(&format!("d_model = 8\nn_heads = 2\nn_layers = 2\nlayers = {layers}\n")).unwrap()
        };
        let recipe = read("[{pattern = \"full\"}, {pattern = \"full\", n_kv_heads = 1}]");
        assert_eq!(recipe.transformer.layers[1].block.attention.n_kv_heads, Some(1));
        recipe.config(9, vec!["a".into(), "b".into()]).validate().unwrap();
        let error = read("[{}]").config(9, vec!["a".into(), "b".into()]).validate().expect_err("a causal layer");
        assert!(error.to_string().contains("must not be causal"), "{error}");
    }

    #[test]
    fn a_stack_without_patterns_is_refused_as_it_is_read() {
        let text = "d_model = 8\nn_heads = 2\nn_layers = 1\npatterns = []\n";
        let error = toml::from_str::<ClassifierModelRecipe>(text).unwrap_err();
        assert!(error.message().contains("patterns = [] must name at least one pattern"), "{error}");
    }

    #[test]
    fn a_key_that_nobody_knows_is_refused() {
        let text = "d_model = 8\nn_heads = 2\nn_layers = 1\npool = \"max\"\n";
        let error = toml::from_str::<ClassifierModelRecipe>(text).unwrap_err();
        assert!(error.message().contains("unknown field `pool`"), "{error}");
    }
}
