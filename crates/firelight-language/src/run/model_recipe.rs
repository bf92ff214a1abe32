//! The `[model]` section of a language recipe: the keys of the stack itself, so that a recipe can ask for whatever core can
//! build, and those of the model around it.

use firelight_core::{AdapterConfig, EmbeddingScale, HeadOptions, TransformerConfig};
use firelight_training::Apart;
use serde::{Deserialize, Serialize};

use crate::model::LanguageModelConfig;

/// The structure that a user chooses. The vocabulary comes from the tokenizer.
///
/// In a file the keys of the stack stand beside those of the model, with two differences from [`TransformerConfig`]: the context is 256
/// tokens by default, and `dropout` is the rate of residual branches, attention weights and embeddings alike, where
/// `attention_dropout` and `embedding_dropout` say nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Apart<Own, TransformerConfig>")]
pub struct ModelRecipe {
    /// The head shares the embedding's matrix. Default: true.
    pub tied: bool,
    /// What the embeddings are multiplied by. Default: nothing.
    #[serde(skip_serializing_if = "EmbeddingScale::is_none")]
    pub scale_embedding: EmbeddingScale,
    /// Bias, scale and soft cap of the logits. Default: none of them.
    #[serde(skip_serializing_if = "HeadOptions::is_plain")]
    pub head: HeadOptions,
    /// Low-rank adapters of layers of the stack, which itself stays as the run that `init.from` names has learnt it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// The stack between embedding and head.
    #[serde(flatten)]
    pub transformer: TransformerConfig,
}

impl ModelRecipe {
    /// The whole configuration, for a vocabulary of `vocab_size` tokens.
    pub fn config(&self, vocab_size: usize) -> LanguageModelConfig {
        let Self { tied, scale_embedding, head, adapters, transformer } = self.clone();
        LanguageModelConfig { vocab_size, tied, scale_embedding, head, adapters, transformer }
    }
}

/// The keys that are not the stack's own.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Own {
    tied: bool,
    scale_embedding: EmbeddingScale,
    head: HeadOptions,
    adapters: Option<AdapterConfig>,
}

impl Default for Own {
    fn default() -> Self {
        Self { tied: true, scale_embedding: EmbeddingScale::None, head: HeadOptions::default(), adapters: None }
    }
}

impl From<Apart<Own, TransformerConfig>> for ModelRecipe {
    fn from(Apart { own, rest, named }: Apart<Own, TransformerConfig>) -> Self {
        let Own { tied, scale_embedding, head, adapters } = own;
        Self { tied, scale_embedding, head, adapters, transformer: rest.for_recipe(|key| named.contains(key)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{Activation, AttentionPattern, ExpertsConfig};

    fn parse(text: &str) -> Result<ModelRecipe, toml::de::Error> {
        toml::from_str(text)
    }

    const SIZES: &str = "d_model = 8\nn_heads = 2\nn_layers = 2\n";

    #[test]
    fn a_section_has_the_keys_of_the_stack_and_of_the_model() {
        let text = format!(
            "{SIZES}tied = false\npatterns = [{{ kind = \"sliding_window\", left = 4 }}, \"causal\"]\n\
             activation = \"swi_glu\"\nexperts = {{ n_experts = 4 }}\n"
        );
        let recipe = parse(&text).unwrap();
        assert!(!recipe.tied && !recipe.config(5).tied);
        let window = AttentionPattern::SlidingWindow { left: 4, right: 0 };
        let stack = TransformerConfig::new(8, 2, 2)
            .with_max_seq_len(TransformerConfig::RECIPE_SEQ_LEN)
            .with_patterns(vec![window, AttentionPattern::Causal])
            .with_activation(Activation::SwiGlu)
            .with_experts(ExpertsConfig::new(4));
        assert_eq!(recipe.transformer, stack);
        assert_eq!(parse(&toml::to_string(&recipe).unwrap()).unwrap(), recipe);
    }

    #[test]
    fn a_head_is_a_table() {
        let recipe = parse(&format!("{SIZES}head = {{ scale = 0.0625, soft_cap = 30.0, bias = true }}")).unwrap();
        let head = HeadOptions::default().with_scale(0.0625).with_soft_cap(Some(30.0)).with_bias(true);
        assert_eq!(recipe.config(5).head, head);
        assert_eq!(parse(&toml::to_string(&recipe).unwrap()).unwrap(), recipe);
        assert!(!toml::to_string(&parse(SIZES).unwrap()).unwrap().contains("head ="), "a plain one is not written");
        let error = parse(&format!("{SIZES}head = {{ cap = 30.0 }}")).unwrap_err();
        assert!(error.message().contains("unknown field `cap`"), "{error}");
    }

    #[test]
    fn embeddings_are_scaled_by_their_width_or_by_a_number() {
        let scale = |text: &str| {
            parse(&format!("{SIZES}scale_embedding = {text}")).map(|recipe| recipe.config(5).scale_embedding)
        };
        assert_eq!(scale("true").unwrap(), EmbeddingScale::SqrtWidth);
        assert_eq!(scale("false").unwrap(), EmbeddingScale::None);
        assert_eq!(scale("12.0").unwrap(), EmbeddingScale::Constant(12.0));
        assert!(scale("\"root\"").unwrap_err().message().contains("expected true, false or a number"));
        let recipe = parse(&format!("{SIZES}scale_embedding = nan")).unwrap();
        let error = recipe.config(5).validate().expect_err("no number");
        assert!(error.to_string().starts_with("scale_embedding = NaN must be above 0"), "{error}");
    }

    #[test]
    fn one_dropout_stands_for_those_that_are_not_named() {
        let rates = |text: &str| {
            let stack = parse(&format!("{SIZES}{text}")).unwrap().transformer;
            let block = &stack.first().block;
            [block.dropout, block.attention.dropout, stack.embedding_dropout]
        };
        assert_eq!(rates("dropout = 0.2"), [0.2, 0.2, 0.2]);
        assert_eq!(rates("dropout = 0.2\nattention_dropout = 0.0"), [0.2, 0.0, 0.2]);
        assert_eq!(rates("embedding_dropout = 0.1"), [0.0, 0.0, 0.1]);
    }

    #[test]
    fn a_key_that_nobody_knows_is_refused() {
        let error = parse(&format!("{SIZES}d_modell = 8")).unwrap_err();
        assert!(error.message().contains("unknown field `d_modell`"), "{error}");
        assert!(firelight_training::fields_of::<ModelRecipe>().unwrap().contains(&"tied"));
    }
}
