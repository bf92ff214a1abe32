//! The numbers of attention step by step: those of one sentence in a model, or those of worked examples.

mod attention;
mod demo;
mod page;
mod text;

pub use demo::worked_examples;

use firelight_core::Hooks;
use firelight_storage::{InputError, TaskError, shortened};

use self::attention::Computed;
use crate::labels::shown;
use crate::text_model::{ReadText, TextModel, lacking, rows};

/// Tables of numbers in the order in which they are computed.
///
/// ```
/// use burn::tensor::Device;
///
/// let found = firelight_inspect::worked_examples(&Device::flex())?;
/// assert!(found.to_text().lines().all(|line| line.chars().count() <= 80));
/// assert!(found.to_page().starts_with("<!DOCTYPE html>"));
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What is explained.
    pub title: String,
    /// The steps.
    pub steps: Vec<Step>,
}

/// What is computed at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name.
    pub title: String,
    /// What is done, in a sentence or two.
    pub remark: String,
    /// The numbers.
    pub tables: Vec<Table>,
}

/// A matrix with names of its rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What it is called.
    pub name: String,
    /// The shape of what it is a part of, or the whole of it.
    pub shape: Vec<usize>,
    /// What the numbers are.
    pub kind: TableKind,
    /// What the rows are called.
    pub rows: Vec<String>,
    /// What the columns are called.
    pub columns: Vec<String>,
    /// The numbers of each row. A hidden score is negative infinity.
    pub values: Vec<Vec<f64>>,
}

/// What the numbers of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableKind {
    /// Channels of vectors: the first few are shown.
    Vectors,
    /// Scores that become weights by a softmax of each row: on the page at any temperature.
    Scores,
    /// Other numbers between tokens.
    Pairs,
}

impl Table {
    /// A table of vectors, whose columns are channels from 0.
    pub fn vectors(name: impl Into<String>, rows: &[String], values: Vec<Vec<f64>>) -> Self {
        let width = values.first().map_or(0, Vec::len);
        let columns = (0..width).map(|channel| channel.to_string()).collect();
        let shape = vec![values.len(), width];
        Self { name: name.into(), shape, kind: TableKind::Vectors, rows: rows.to_vec(), columns, values }
    }

    /// A table of numbers between tokens that read and tokens that are read.
    pub fn pairs(name: impl Into<String>, [rows, columns]: [&[String]; 2], values: Vec<Vec<f64>>) -> Self {
        let shape = vec![values.len(), columns.len()];
        let (rows, columns) = (rows.to_vec(), columns.to_vec());
        Self { name: name.into(), shape, kind: TableKind::Pairs, rows, columns, values }
    }

    /// The same as scores of a softmax.
    pub fn as_scores(self) -> Self {
        Self { kind: TableKind::Scores, ..self }
    }
}

impl Step {
    pub(crate) fn new(title: impl Into<String>, remark: impl Into<String>, tables: Vec<Table>) -> Self {
        Self { title: title.into(), remark: remark.into(), tables }
    }
}

impl Explanation {
    /// As text of at most 80 columns.
    pub fn to_text(&self) -> String {
        text::text(self)
    }

    /// As one file of HTML that loads nothing: a step at a time, and for scores the softmax of a chosen token at a chosen temperature.
    ///
    /// What is shown stands in attributes, for tests: `data-step` of the body, which has `data-ready` once all is drawn, and `data-query`,
    /// `data-temperature` and `data-weights` of the element `readout`.
    pub fn to_page(&self) -> String {
        page::page(self)
    }
}

/// The numbers of one text in the attention of a layer, of all of its heads or of one: tokens, embeddings, queries, keys and values, scores,
/// scaled scores, the mask, weights, weighted sums.
///
/// # Errors
/// If the text does not fit the model, there is no such layer or head, or the layer has no queries and keys.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_inspect::{TextModel, explain};
/// use firelight_language::{LanguageModelConfig, TextGenerator};
///
/// let model = LanguageModelConfig::new(256, 16, 2, 1).init(&Device::flex());
/// let model = TextModel::from(TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "")?));
/// let found = explain(&model, "Hi", 0, Some(1))?;
/// assert_eq!(found.steps.len(), 2 + 6); // Tokens and embeddings, then six steps of head 1.
/// assert_eq!(found.steps[2].tables[0].shape, [2, 8]); // Its queries.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn explain(model: &TextModel, text: &str, layer: usize, head: Option<usize>) -> Result<Explanation, TaskError> {
    let read = model.read(text)?;
    check_layer(model, &read, layer)?;
    let mut hooks = Computed::recorded(Hooks::new().record("embedding"), layer);
    let lacks = format!("layer {layer} is no attention whose queries, keys and values could be shown");
    let (_, found) = hooks.run(|pass| model.hidden(&read, pass)).map_err(lacking(&lacks))?;
    let computed = Computed::of(&found, layer).map_err(lacking(&lacks))?;
    let heads = computed.heads();
    if let Some(head) = head.filter(|head| *head >= heads) {
        let problem = format!("there is no head {head} in layer {layer}: choose from 0 to {}", heads - 1);
        return Err(InputError::new(problem).into());
    }
    let tokens: Vec<String> = read.labels.iter().map(|label| shown(label)).collect();
    let embedding = rows(found.get::<3>("embedding").map_err(lacking(&lacks))?)?;
    let mut steps = beginning(&read.ids, &tokens, embedding);
    for head in head.map_or(0..heads, |head| head..head + 1) {
        steps.extend(computed.steps(&tokens, head, &format!("layer {layer}, head {head}: "))?);
    }
    Ok(Explanation { title: format!("Attention step by step: {}", shortened(text)), steps })
}

/// Tokens and embeddings.
fn beginning(ids: &[u32], tokens: &[String], embedding: Vec<Vec<f64>>) -> Vec<Step> {
    let ids = ids.iter().map(|id| vec![f64::from(*id)]).collect();
    let numbers = Table { columns: vec!["id".into()], shape: vec![tokens.len()], ..Table::vectors("ids", tokens, ids) };
    let remark = "The tokenizer cuts the text into tokens, each a number in the vocabulary.";
    let looked_up = "Each id becomes a row of the embedding. Positions and norms that stand in front of the first layer are included.";
    let vectors = Table::vectors("x", tokens, embedding);
    vec![Step::new("Tokens", remark, vec![numbers]), Step::new("Embeddings", looked_up, vec![vectors])]
}

/// Refuses a layer that the model does not have.
pub(crate) fn check_layer(model: &TextModel, read: &ReadText, layer: usize) -> Result<(), TaskError> {
    let paths = Hooks::paths_of(|pass| model.hidden(read, pass));
    let outputs = paths.iter().filter(|path| path.split('.').count() == 3 && path.ends_with(".output"));
    match outputs.count() {
        layers if layer < layers => Ok(()),
        layers => {
            let last = layers.saturating_sub(1);
            Err(InputError::new(format!("there is no layer {layer} in the model: choose from 0 to {last}")).into())
        }
    }
}
