//! What the families of text encoders have in common: the stack of BERT, and the heads that an encoder can have.

use firelight_classification::{
    HeadActivation, HeadTransformConfig, MaskedLanguageHeadConfig, MaskedLanguageModelConfig, PoolerConfig,
    ProblemType, SentenceEncoderConfig, SequenceHeadConfig, SpanHeadConfig, SpanReaderConfig, TextClassifierConfig,
    TextEncoderConfig, TokenClassifierConfig, TokenHeadConfig,
};
use firelight_core::{Activation, NormConfig};
use firelight_storage::InputError;
use serde_json::json;

use super::activation;
use crate::{Description, Keys, Structure, Table, WeightMapping};

/// How a family calls and computes what stands behind its encoder.
pub(super) struct Heads {
    /// The names of the model alone, with its prefix, and what it ignores.
    pub(super) table: Table,
    /// The pooler of the model alone, where it has one, and its name.
    pub(super) pooler: Option<&'static str>,
    /// The activation of the dense layer before masked tokens, which need not be known where that head is not read, and its rows.
    pub(super) masked: (Result<HeadActivation, InputError>, Vec<WeightMapping>),
    /// What makes the vector of a text for a classifier, and the rows of that head.
    pub(super) sequence: (PoolerConfig, Vec<WeightMapping>),
    /// The last layer of the heads for tokens and for answers.
    pub(super) outputs: [&'static str; 2],
    /// Layers before the last one of every head, and their rows.
    pub(super) transform: Option<(HeadTransformConfig, Vec<WeightMapping>)>,
    /// The dropout of heads.
    pub(super) dropout: f64,
}

/// The last layers of heads, as most families call them.
pub(super) const OUTPUTS: [&str; 2] = ["classifier", "qa_outputs"];

/// An encoder with the head that `architectures` names.
pub(super) fn describe(keys: &Keys<'_>, encoder: TextEncoderConfig, heads: Heads) -> Result<Description, InputError> {
    keys.only("is_decoder", &json!(false))?;
    keys.only("add_cross_attention", &json!(false))?;
    let Heads { mut table, pooler, masked, sequence, outputs, transform, dropout } = heads;
    let name = keys.architecture().to_string();
    if name.ends_with("LMHeadModel") {
        return Err(unknown_head(keys));
    }
    let (transform, rows) = transform.map_or((None, Vec::new()), |(config, rows)| (Some(config), rows));
    let structure = match name.split_once("For").map(|(_, head)| head) {
        None => {
            table.rows.extend(pooler.map(|theirs| WeightMapping::linear(theirs, "pooler.dense")));
            Structure::Encoder(SentenceEncoderConfig::new(encoder).with_pooler(pooler.map(|_| PoolerConfig::bert())))
        }
        Some("MaskedLM" | "PreTraining") => {
            let tied = keys.or("tie_word_embeddings", true)?;
            // Files have the bias twice: a matrix of its own comes with the one that is named last.
            let rows = masked.1.into_iter();
            table.rows.extend(if tied { rows.collect::<Vec<_>>() } else { rows.rev().collect() });
            let head = MaskedLanguageHeadConfig { activation: masked.0?, tied, ..MaskedLanguageHeadConfig::default() };
            Structure::Masked(MaskedLanguageModelConfig { encoder, head })
        }
        Some("SequenceClassification") => {
            table.rows.extend(sequence.1.into_iter().chain(rows));
            let head = SequenceHeadConfig::new(sequence.0).with_dropout(dropout).with_transform(transform);
            let config = TextClassifierConfig::new(encoder, keys.labels()?).with_head(head);
            Structure::Sequence(config.with_problem_type(problem_type(keys)?))
        }
        Some("TokenClassification") => {
            table.rows.push(WeightMapping::linear(outputs[0], "head.output"));
            table.rows.extend(rows);
            let mut config = TokenClassifierConfig::new(encoder, keys.labels()?);
            config.head = TokenHeadConfig { dropout, transform };
            Structure::Token(config)
        }
        Some("QuestionAnswering") => {
            table.rows.push(WeightMapping::linear(outputs[1], "head.output"));
            table.rows.extend(rows);
            Structure::Span(SpanReaderConfig { head: SpanHeadConfig { transform }, ..SpanReaderConfig::new(encoder) })
        }
        Some(_) => return Err(unknown_head(keys)),
    };
    Ok(Description { structure, table })
}

fn unknown_head(keys: &Keys<'_>) -> InputError {
    keys.unfit(
        "architectures",
        "a class for the model alone, MaskedLM, SequenceClassification, TokenClassification or QuestionAnswering",
    )
}

fn problem_type(keys: &Keys<'_>) -> Result<ProblemType, InputError> {
    Ok(match keys.get::<String>("problem_type")?.as_deref() {
        Some("multi_label_classification") => ProblemType::MultiLabel,
        Some("regression") => ProblemType::Regression,
        Some("single_label_classification") => ProblemType::SingleLabel,
        None if keys.labels()?.len() == 1 => ProblemType::Regression,
        None => ProblemType::SingleLabel,
        Some(_) => {
            return Err(
                keys.unfit("problem_type", "single_label_classification, multi_label_classification or regression")
            );
        }
    })
}

/// BERT's stack: norms behind the parts, learned positions.
pub(super) fn bert(keys: &Keys<'_>) -> Result<TextEncoderConfig, InputError> {
    keys.only("position_embedding_type", &json!("absolute"))?;
    let (d_model, n_heads) = (keys.or("hidden_size", 768)?, keys.or("num_attention_heads", 12)?);
    let encoder =
        TextEncoderConfig::bert(keys.need("vocab_size")?, d_model, n_heads, keys.or("num_hidden_layers", 12)?);
    let activation = activation::plain(keys, "hidden_act", "gelu")?;
    let norm = NormConfig::Layer { epsilon: keys.or("layer_norm_eps", 1e-12)?, bias: true };
    let (d_ff, longest) = (keys.or("intermediate_size", 3072)?, keys.or("max_position_embeddings", 512)?);
    let dropout = keys.or("hidden_dropout_prob", 0.1)?;
    let attention_dropout = keys.or("attention_probs_dropout_prob", 0.1)?;
    let encoder = encoder.with_n_segments(keys.or("type_vocab_size", 2)?).with_stack(|stack| {
        let stack = stack.with_d_ff(d_ff).with_activation(activation).with_norm(norm).with_max_seq_len(longest);
        stack.with_dropout(dropout).with_attention_dropout(attention_dropout)
    });
    Ok(encoder)
}

/// The rows of BERT's stack behind a prefix such as `bert`.
pub(super) fn bert_rows(prefix: &str) -> Vec<WeightMapping> {
    let layer = |name: &str| format!("{prefix}.encoder.layer.{{}}.{name}");
    let ours = |name: &str| format!("encoder.transformer.blocks.{{}}.{name}");
    let mut rows = embedding_rows(prefix);
    rows.extend(["query", "key", "value"].map(|name| {
        WeightMapping::linear(layer(&format!("attention.self.{name}")), ours(&format!("attention.projection.{name}")))
    }));
    rows.extend([
        WeightMapping::linear(layer("attention.output.dense"), ours("attention.output")),
        WeightMapping::norm(layer("attention.output.LayerNorm"), ours("attention_norm")),
        WeightMapping::linear(layer("intermediate.dense"), ours("feed_forward.up")),
        WeightMapping::linear(layer("output.dense"), ours("feed_forward.down")),
        WeightMapping::norm(layer("output.LayerNorm"), ours("feed_forward_norm")),
    ]);
    rows
}

/// The rows of the embeddings that BERT and its relatives have.
pub(super) fn embedding_rows(prefix: &str) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("{prefix}.embeddings.{name}");
    vec![
        WeightMapping::table(theirs("word_embeddings"), "encoder.embedding"),
        WeightMapping::table(theirs("position_embeddings"), "encoder.transformer.position"),
        WeightMapping::table(theirs("token_type_embeddings"), "encoder.segment_embedding"),
        WeightMapping::norm(theirs("LayerNorm"), "encoder.transformer.embedding_norm"),
    ]
}

/// The rows of the head of masked tokens: of its dense layer, its norm, the bias by its names, and the matrix.
pub(super) fn masked_rows(
    dense: &'static str,
    norm: &'static str,
    biases: &[&'static str],
    matrix: &'static str,
) -> Vec<WeightMapping> {
    let ends = biases.iter().map(|bias| WeightMapping::tensor(*bias, "head.decoder.bias"));
    [WeightMapping::linear(dense, "head.dense"), WeightMapping::norm(norm, "head.norm")]
        .into_iter()
        .chain(ends)
        .chain([WeightMapping::linear(matrix, "head.decoder")])
        .collect()
}

/// The rows of a classifier of texts with a dense layer.
pub(super) fn sequence_rows(dense: &'static str, output: &'static str) -> Vec<WeightMapping> {
    vec![WeightMapping::linear(dense, "head.pooler.dense"), WeightMapping::linear(output, "head.output")]
}

/// The dropout of BERT's heads.
pub(super) fn head_dropout(keys: &Keys<'_>) -> Result<f64, InputError> {
    keys.or("classifier_dropout", keys.or("hidden_dropout_prob", 0.1)?)
}

/// The activation of a head's dense layer, by that of the stack.
pub(super) fn head_activation(keys: &Keys<'_>, key: &str) -> Result<HeadActivation, InputError> {
    Ok(match activation::plain(keys, key, "gelu")? {
        Activation::Gelu => HeadActivation::Gelu,
        Activation::GeluTanh => HeadActivation::GeluTanh,
        Activation::Relu => HeadActivation::Relu,
        _ => return Err(keys.unfit(key, "gelu, gelu_new or relu")),
    })
}
