//! RoBERTa, XLM-R and CamemBERT: BERT whose positions begin behind the number of the padding token, with other heads.
//!
//! Sources: Liu et al. 2019, §3 (<https://arxiv.org/abs/1907.11692>); Conneau et al. 2020, §3 (<https://arxiv.org/abs/1911.02116>);
//! `modeling_roberta.py` of `transformers`.

use firelight_classification::{HeadActivation, PoolerConfig, TextEncoderConfig};
use firelight_storage::InputError;
use serde_json::json;

use super::encoder::{self, Heads, bert, bert_rows, head_dropout, masked_rows, sequence_rows};
use crate::export::{encoder_keys, extended};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

pub(crate) const ROBERTA: Family = Family { name: "roberta", class: Class::Begins("Roberta"), describe, keys };
pub(crate) const CAMEMBERT: Family = Family { name: "camembert", class: Class::Another, ..ROBERTA };
pub(crate) const XLM_ROBERTA: Family = Family { name: "xlm-roberta", class: Class::Another, ..ROBERTA };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let padding = padding(keys)?;
    let heads = Heads {
        table: Table { rows: rows(padding, bert_rows("roberta")), prefix: "roberta.", ignored: IGNORED.to_vec() },
        pooler: keys.architecture().ends_with("Model").then_some("roberta.pooler.dense"),
        masked: (Ok(HeadActivation::Gelu), lm_head_rows()),
        sequence: (PoolerConfig::bert(), sequence_rows("classifier.dense", "classifier.out_proj")),
        outputs: encoder::OUTPUTS,
        transform: None,
        dropout: head_dropout(keys)?,
    };
    encoder::describe(keys, shortened(keys, padding, bert(keys)?)?, heads)
}

/// What only these families and MPNet say: positions begin behind the number of the padding.
pub(super) fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (encoder_keys(structure)?, structure.stacks()[0]);
    let padding = structure.encoder().and_then(|encoder| encoder.uncounted_padding).unwrap_or(PADDING);
    let own = json!({
        "pad_token_id": padding,
        "max_position_embeddings": stack.max_seq_len.saturating_add(unread(padding)),
    });
    Some(extended(shared, own))
}

/// The head of masked tokens, as MPNet has it too.
pub(super) fn lm_head_rows() -> Vec<WeightMapping> {
    masked_rows("lm_head.dense", "lm_head.layer_norm", &["lm_head.bias", "lm_head.decoder.bias"], "lm_head.decoder")
}

/// The number of the padding where nobody says otherwise; of MPNet always.
pub(super) const PADDING: usize = 1;

fn padding(keys: &Keys<'_>) -> Result<usize, InputError> {
    let padding = keys.or("pad_token_id", PADDING)?;
    match padding < keys.need::<usize>("vocab_size")? {
        true => Ok(padding),
        false => Err(keys.unfit("pad_token_id", "less than vocab_size")),
    }
}

/// Rows of the table of positions that no token has.
fn unread(padding: usize) -> usize {
    padding.saturating_add(1)
}

/// The encoder with as many positions as its tokens can have.
pub(super) fn shortened(
    keys: &Keys<'_>,
    padding: usize,
    encoder: TextEncoderConfig,
) -> Result<TextEncoderConfig, InputError> {
    let longest = encoder.transformer.max_seq_len.checked_sub(unread(padding)).filter(|longest| *longest > 0);
    let Some(longest) = longest else {
        return Err(keys.unfit("max_position_embeddings", "more than the numbers before positions begin"));
    };
    let encoder = encoder.with_uncounted_padding(Some(padding));
    Ok(encoder.with_stack(|stack| stack.with_max_seq_len(longest)))
}

/// The rows with a table of positions that begins later.
pub(super) fn rows(padding: usize, rows: Vec<WeightMapping>) -> Vec<WeightMapping> {
    let begun = |row: WeightMapping| match row.ours() {
        "encoder.transformer.position" => row.step(Step::Behind(unread(padding))),
        _ => row,
    };
    rows.into_iter().map(begun).collect()
}

const IGNORED: &[&str] = &["roberta.embeddings.position_ids", "roberta.pooler.dense.*", "lm_head.*"];
