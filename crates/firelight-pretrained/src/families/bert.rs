//! BERT: the sum of three embeddings, normalised, and norms behind the parts.
//!
//! Source: Devlin et al. 2019, §3 (<https://arxiv.org/abs/1810.04805>), and `modeling_bert.py` of `transformers`.

use firelight_classification::PoolerConfig;
use firelight_storage::InputError;

use super::encoder::{self, Heads, bert, bert_rows, head_activation, head_dropout, masked_rows};
use crate::export::encoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "bert", class: Class::Begins("Bert"), describe, keys: encoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let (dense, norm) = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm");
    let biases = ["cls.predictions.bias", "cls.predictions.decoder.bias"];
    let masked = masked_rows(dense, norm, &biases, "cls.predictions.decoder");
    let sequence = vec![
        WeightMapping::linear("bert.pooler.dense", "head.pooler.dense"),
        WeightMapping::linear("classifier", "head.output"),
    ];
    let heads = Heads {
        table: Table { rows: bert_rows("bert"), prefix: "bert.", ignored: IGNORED.to_vec() },
        pooler: keys.architecture().ends_with("Model").then_some("bert.pooler.dense"),
        masked: (head_activation(keys, "hidden_act"), masked),
        sequence: (PoolerConfig::bert(), sequence),
        outputs: encoder::OUTPUTS,
        transform: None,
        dropout: head_dropout(keys)?,
    };
    encoder::describe(keys, bert(keys)?, heads)
}

/// Positions that are counted, heads of other trainings, and a matrix and a bias that stand twice in a file.
const IGNORED: &[&str] = &["bert.embeddings.position_ids", "bert.pooler.dense.*", "cls.*"];
