//! ELECTRA: BERT with embeddings of half the width or less, without a pooler; its discriminator tells which tokens were replaced.
//!
//! Source: Clark et al. 2020, §3 (<https://arxiv.org/abs/2003.10555>), and `modeling_electra.py` of `transformers`.

use firelight_classification::{HeadActivation, PoolerConfig, PoolingConfig};
use firelight_core::{EmbeddingProjectionConfig, ProjectionPlacement};
use firelight_storage::InputError;

use super::encoder::{self, Heads, bert, bert_rows, head_activation, head_dropout, masked_rows, sequence_rows};
use crate::export::encoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family =
    Family { name: "electra", class: Class::Begins("Electra"), describe, keys: encoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let is_discriminator = keys.architecture() == "ElectraForPreTraining";
    let alone = keys.clone().without_head();
    let keys = if is_discriminator { &alone } else { keys };
    let d_embedding = keys.or("embedding_size", 128)?;
    let encoder = bert(keys)?;
    let narrow = (d_embedding != encoder.transformer.d_model).then_some(EmbeddingProjectionConfig {
        d_embedding,
        bias: true,
        placement: ProjectionPlacement::AfterNorm,
    });
    let project = WeightMapping::linear("electra.embeddings_project", "encoder.transformer.embedding_projection");
    let (dense, norm) = ("generator_predictions.dense", "generator_predictions.LayerNorm");
    let masked = masked_rows(dense, norm, &["generator_lm_head.bias"], "generator_lm_head");
    let dense = PoolerConfig { pooling: PoolingConfig::Class, dense: Some(HeadActivation::Gelu) };
    let heads = Heads {
        table: Table {
            rows: [vec![project], bert_rows("electra"), discriminator_rows()].concat(),
            prefix: "electra.",
            ignored: vec!["electra.embeddings.position_ids", "generator_lm_head.weight", "discriminator_predictions.*"],
        },
        pooler: None,
        masked: (Ok(HeadActivation::Gelu), masked),
        sequence: (dense, sequence_rows("classifier.dense", "classifier.out_proj")),
        outputs: encoder::OUTPUTS,
        transform: None,
        dropout: head_dropout(keys)?,
    };
    let encoder = encoder.with_stack(|stack| stack.with_embedding_projection(narrow));
    let description = encoder::describe(keys, encoder, heads)?;
    if is_discriminator { with_discriminator(keys, description) } else { Ok(description) }
}

/// The model alone with the head of its pre-training, whose dense layer has the activation of the stack.
fn with_discriminator(keys: &Keys<'_>, mut description: Description) -> Result<Description, InputError> {
    if let Structure::Encoder(model) = &mut description.structure {
        model.discriminator = Some(head_activation(keys, "hidden_act")?);
    }
    Ok(description)
}

fn discriminator_rows() -> Vec<WeightMapping> {
    vec![
        WeightMapping::linear("discriminator_predictions.dense", "discriminator.dense"),
        WeightMapping::linear("discriminator_predictions.dense_prediction", "discriminator.output"),
    ]
}
