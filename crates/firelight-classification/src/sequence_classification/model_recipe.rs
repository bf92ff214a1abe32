//! The `[model]` section of a recipe: the keys of the stack, and those of embedding and head around it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use firelight_core::{AdapterConfig, AttentionPattern, TransformerConfig};
use firelight_training::{Apart, Fields, fields_of_both};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use crate::encoder::TextEncoderConfig;
use crate::heads::{HeadActivation, SequenceHeadConfig};
use crate::loss::ProblemType;
use crate::model::TextClassifierConfig;
use crate::pooling::{PoolerConfig, PoolingConfig};

/// The keys of the section: those of the model and those of the stack.
static FIELDS: LazyLock<Fields> = LazyLock::new(fields_of_both::<Own, TransformerConfig>);

/// The structure that a user chooses. The vocabulary comes from the tokenizer, the classes from the data.
///
/// In a file the keys of [`TransformerConfig`] stand beside those of the model. Every token sees every other where no other
/// patterns are named; texts are cut to 256 tokens by default; `dropout` is the rate of residual branches, attention weights,
/// embeddings and of the text's vector alike, where `attention_dropout`, `embedding_dropout` and `head_dropout` say nothing else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassifierModelRecipe {
    /// Keys of the model.
    #[serde(flatten)]
    own: Own,
    /// The stack.
    #[serde(flatten)]
    pub transformer: TransformerConfig,
}

/// The keys that are not the stack's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Own {
    /// Segments that tokens may belong to; 2 for pairs of texts.
    n_segments: usize,
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
        let Own { n_segments, pooling, pooler, head_dropout, .. } = self.own;
        let pooler = PoolerConfig { pooling, dense: pooler };
        let (adapters, transformer) = (self.own.adapters.clone(), self.transformer.clone());
        TextClassifierConfig {
            labels,
            problem_type: ProblemType::SingleLabel,
            encoder: TextEncoderConfig { vocab_size, n_segments, adapters, transformer },
            head: SequenceHeadConfig::new(pooler).with_dropout(head_dropout),
        }
    }

    /// Segments that tokens may belong to.
    pub(super) fn n_segments(&self) -> usize {
        self.own.n_segments
    }

    /// The longest text, in tokens.
    pub(super) fn max_seq_len(&self) -> usize {
        self.transformer.max_seq_len
    }
}

impl<'de> Deserialize<'de> for ClassifierModelRecipe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Apart { mut own, rest, named } =
            Apart::<Own, TransformerConfig>::read(deserializer, "ClassifierModelRecipe", &FIELDS)?;
        let transformer = encoder_stack(rest, &named);
        if !named.contains("head_dropout") {
            own.head_dropout = transformer.first().block.dropout;
        }
        Ok(Self { own, transformer })
    }
}

/// The stack of an encoder, where a file has `named` so many keys of it.
pub(crate) fn encoder_stack(stack: TransformerConfig, named: &BTreeSet<String>) -> TransformerConfig {
    let mut stack = stack.for_recipe(|key| named.contains(key));
    if !named.contains("patterns") && !named.contains("layers") {
        stack = stack.with_patterns(vec![AttentionPattern::Full]);
    }
    stack
}

#[cfg(test)]
mod tests {
    use super::*;

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
