//! The `[model]` section of a recipe: the keys of one stack, from which encoder and decoder are made, and those of the model
//! around them.

use firelight_core::{
    AdapterConfig, AttentionPattern, EmbeddingScale, EncoderDecoderConfig, HeadOptions, PositionConfig,
    TransformerConfig,
};
use firelight_training::Apart;
use serde::{Deserialize, Serialize};

use crate::model::{Seq2SeqConfig, Tying};

/// The structure that a user chooses. The vocabularies come from the tokenizers.
///
/// In a file the keys of [`TransformerConfig`] stand beside those of the model. They describe the decoder, and the encoder but
/// for its `n_layers`, which `n_encoder_layers` may set apart, and for its pattern: a source is seen whole. Sequences are 256
/// tokens by default, and `dropout` is the rate of residual branches, attention weights and embeddings alike, where
/// `attention_dropout` and `embedding_dropout` say nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Apart<Own, TransformerConfig>")]
pub struct Seq2SeqModelRecipe {
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
    /// Which matrices over tokens are shared.
    tying: Tying,
    /// What the embeddings are multiplied by.
    scale_embedding: EmbeddingScale,
    /// Bias, scale and soft cap of the logits.
    #[serde(skip_serializing_if = "HeadOptions::is_plain")]
    head: HeadOptions,
    /// Blocks of the encoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_encoder_layers: Option<usize>,
    /// Low-rank adapters of layers of the stacks, which themselves stay as the run that `init.from` names has learnt them.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdapterConfig>,
}

impl Seq2SeqModelRecipe {
    /// The whole configuration, for vocabularies of these sizes, source and target.
    pub fn config(&self, [source_vocab_size, target_vocab_size]: [usize; 2], start_token: u32) -> Seq2SeqConfig {
        Seq2SeqConfig {
            source_vocab_size,
            target_vocab_size,
            joint: true,
            tying: self.own.tying,
            scale_embedding: self.own.scale_embedding,
            head: self.own.head,
            start_token,
            adapters: self.own.adapters.clone(),
            stacks: EncoderDecoderConfig { encoder: self.encoder(), decoder: self.decoder() },
        }
    }

    /// Which matrices over tokens are shared.
    pub(super) fn tying(&self) -> Tying {
        self.own.tying
    }

    fn encoder(&self) -> TransformerConfig {
        let position = match self.transformer.position.clone() {
            PositionConfig::T5 { n_buckets, max_distance, .. } => {
                PositionConfig::T5 { n_buckets, max_distance, bidirectional: true }
            }
            position => position,
        };
        let n_layers = self.own.n_encoder_layers.unwrap_or(self.transformer.n_layers);
        TransformerConfig { n_layers, position, ..self.transformer.clone() }
            .each_layer(|layer| layer.pattern = AttentionPattern::Full)
            .with_cross_attention(false)
    }

    fn decoder(&self) -> TransformerConfig {
        self.transformer.clone().with_cross_attention(true)
    }
}

impl From<Apart<Own, TransformerConfig>> for Seq2SeqModelRecipe {
    fn from(Apart { own, rest, named }: Apart<Own, TransformerConfig>) -> Self {
        Self { own, transformer: rest.for_recipe(|key| named.contains(key)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stack_is_described_and_two_are_made() {
        let text = "d_model = 8\nn_heads = 2\nn_layers = 3\nn_encoder_layers = 5\ntying = \"target\"\nposition = \"t5\"\n\
                    dropout = 0.1\nhead = { soft_cap = 30.0 }\nscale_embedding = 12\n";
        let recipe: Seq2SeqModelRecipe = toml::from_str(text).unwrap();
        let config = recipe.config([9, 7], 3);
        config.validate().unwrap();
        assert_eq!(config.scale_embedding, EmbeddingScale::Constant(12.0));
        assert_eq!(config.head, HeadOptions::default().with_soft_cap(Some(30.0)));
        let EncoderDecoderConfig { encoder, decoder } = &config.stacks;
        assert_eq!((encoder.n_layers, decoder.n_layers, config.tying), (5, 3, Tying::Target));
        assert_eq!([&encoder.position, &decoder.position], [&PositionConfig::t5(true), &PositionConfig::t5(false)]);
        assert_eq!(
            (encoder.first().block.attention.dropout, decoder.embedding_dropout, decoder.max_seq_len),
            (0.1, 0.1, 256)
        );
        let again: Seq2SeqModelRecipe = toml::from_str(&toml::to_string(&recipe).unwrap()).unwrap();
        assert_eq!(again, recipe);
    }

    #[test]
    fn a_key_that_nobody_knows_is_refused() {
        let error =
            toml::from_str::<Seq2SeqModelRecipe>("d_model = 8\nn_heads = 2\nn_layers = 3\ntied = true\n").unwrap_err();
        assert!(error.message().contains("unknown field `tied`"), "{error}");
        assert!(firelight_training::fields_of::<Seq2SeqModelRecipe>().unwrap().contains(&"tying"));
    }
}
