//! ELECTRA: BERT with embeddings of half the width or less, without a pooler.
//!
//! Source: Clark et al. 2020, §3 (<https://arxiv.org/abs/2003.10555>), and `modeling_electra.py` of `transformers`.

use firelight_classification::{HeadActivation, PoolerConfig, PoolingConfig};
use firelight_core::{EmbeddingProjectionConfig, ProjectionPlacement};
use firelight_storage::InputError;

use super::encoder::{self, Heads, bert, bert_rows, head_dropout, masked_rows, sequence_rows};
use crate::export::encoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Row, Table};

pub(crate) const FAMILY: Family =
    Family { name: "electra", class: Class::Begins("Electra"), describe, keys: encoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    // The discriminator tells replaced tokens: a head that nothing else reads. What it has learnt is its encoder.
    let alone = keys.clone().without_head();
    let keys = if keys.architecture() == "ElectraForPreTraining" { &alone } else { keys };
    let d_embedding = keys.or("embedding_size", 128)?;
    let encoder = bert(keys)?;
    let narrow = (d_embedding != encoder.transformer.d_model).then_some(EmbeddingProjectionConfig {
        d_embedding,
        bias: true,
        placement: ProjectionPlacement::AfterNorm,
    });
    let project = Row::linear("electra.embeddings_project", "encoder.transformer.embedding_projection");
    let (dense, norm) = ("generator_predictions.dense", "generator_predictions.LayerNorm");
    let masked = masked_rows(dense, norm, &["generator_lm_head.bias"], "generator_lm_head");
    let dense = PoolerConfig { pooling: PoolingConfig::Class, dense: Some(HeadActivation::Gelu) };
    let heads = Heads {
        table: Table {
            rows: [vec![project], bert_rows("electra")].concat(),
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
    encoder::describe(keys, encoder.with_stack(|stack| stack.with_embedding_projection(narrow)), heads)
}
