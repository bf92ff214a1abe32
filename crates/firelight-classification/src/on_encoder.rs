//! What every task of a text encoder says alike of its model: the `[model]` section, and what of the parameters is whose.

use std::collections::BTreeSet;

use firelight_core::{AttentionPattern, TransformerConfig};
use firelight_storage::listed;
use firelight_training::Apart;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The heads of all tasks on a text encoder, and what stands behind one alone: in a run that begins from one of another task its own head
/// begins anew.
pub(crate) const HEADS: &[&str] = &["head", "next_sentence", "generator", "pooler", "discriminator", "dense"];

/// The `[model]` section of a task on a text encoder: its own keys, and beside them those of the stack.
///
/// Every token sees every other where no other patterns are named; texts are cut to 256 tokens by default; `dropout` is the rate of
/// residual branches, attention weights and embeddings alike, and of the vectors that a head reads, where `attention_dropout`,
/// `embedding_dropout` and `head_dropout` say nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Apart<Own, TransformerConfig>", bound(deserialize = "Own: EncoderKeys"))]
pub struct EncoderRecipe<Own> {
    /// Keys of the task.
    #[serde(flatten)]
    pub(crate) own: Own,
    /// The stack.
    #[serde(flatten)]
    pub transformer: TransformerConfig,
}

/// The keys of a task on a text encoder that are not the stack's.
pub trait EncoderKeys: DeserializeOwned + 'static {
    /// The dropout of what the head reads, where it has one.
    fn head_dropout(&mut self) -> Option<&mut f64> {
        None
    }
}

impl<Own: EncoderKeys> From<Apart<Own, TransformerConfig>> for EncoderRecipe<Own> {
    fn from(Apart { mut own, rest, named }: Apart<Own, TransformerConfig>) -> Self {
        let transformer = encoder_stack(rest, &named);
        if let Some(dropout) = own.head_dropout().filter(|_| !named.contains("head_dropout")) {
            *dropout = transformer.first().block.dropout;
        }
        Self { own, transformer }
    }
}

impl<Own> AsRef<TransformerConfig> for EncoderRecipe<Own> {
    fn as_ref(&self) -> &TransformerConfig {
        &self.transformer
    }
}

/// The stack of an encoder, where a file has `named` so many keys of it.
fn encoder_stack(stack: TransformerConfig, named: &BTreeSet<String>) -> TransformerConfig {
    let stack = stack.for_recipe(|key| named.contains(key));
    match named.contains("patterns") || named.contains("layers") {
        true => stack,
        false => stack.with_patterns(vec![AttentionPattern::Full]),
    }
}

/// Why a head of some classes is not one of others.
pub(crate) fn other_classes(found: &[String], own: &[String]) -> Option<String> {
    let words = |classes: &[String]| format!("{} classes ({})", classes.len(), listed(classes));
    (found != own).then(|| format!("is for {}, but the data has {}", words(found), words(own)))
}

/// The parts of a [`Task`](firelight_training::Task) whose structure has an encoder, as its field `encoder`.
macro_rules! on_encoder {
    () => {
        const HEAD: &'static [&'static str] = $crate::on_encoder::HEADS;
        const STACK: Option<firelight_training::StackPath> =
            Some(firelight_training::StackPath::of::<firelight_core::TransformerConfig>(&["encoder", "transformer"]));

        firelight_tasks::structure!(encoder.adapters, |config, params| {
            config.encoder.init_with(&params.scope($crate::model::ENCODER))
        });
    };
}
pub(crate) use on_encoder;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadActivation, PoolerConfig, SentenceDenseConfig, SentenceEncoderConfig, TextEncoderConfig};
    use burn::tensor::Device;
    use firelight_core::ParameterReport;

    /// A run of another task takes over nothing but the encoder: whatever else is there must be known as a head.
    #[test]
    fn all_that_stands_behind_an_encoder_alone_is_a_head() {
        let dense = SentenceDenseConfig { d_out: 2, bias: true, activation: None };
        let config = SentenceEncoderConfig::new(TextEncoderConfig::bert(9, 4, 2, 1)).with_dense(dense);
        let config = config.with_pooler(Some(PoolerConfig::bert())).with_discriminator(Some(HeadActivation::Gelu));
        let report = ParameterReport::of(&config.init(&Device::default()));
        let parts = report.entries().iter().filter_map(|entry| entry.path.split('.').next());
        let behind: BTreeSet<&str> = parts.filter(|part| *part != "encoder").collect();
        assert_eq!(behind, BTreeSet::from(["dense", "discriminator", "pooler"]));
        assert!(behind.iter().all(|part| HEADS.contains(part)), "{behind:?}");
    }
}
