//! `firelight heads`: all heads of a model by what they look at and by what is lost without them.

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use firelight::inspect::{HeadScore, HeadTable, TextModel};

use super::text_input::TextInput;
use super::trained_model::TrainedModel;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight heads gpt2 --text \"The cat sat on the mat. The cat sat\" --by induction --top 10
  firelight heads runs/stories-1 --file texts.txt --json

Columns: entropy in nats; the mean weight of the previous, the next, the first, the special tokens, of earlier same tokens and of the \
tokens behind those (induction). For language models: the rise of the loss when the head is zeroed, and the size of the gradient by a gate \
of the head. A text takes a pass for each head.";

/// Rank the heads of a model by what they look at and by what is lost without them
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Heads {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    input: TextInput,
    #[command(flatten)]
    ranking: Ranking,
    /// Heads to show, the first of the order; by default all
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Print one line of JSON: a list of all heads with their scores
    #[arg(long)]
    json: bool,
}

/// By which score heads are ordered.
#[derive(clap::Args)]
pub(super) struct Ranking {
    /// Score to order by; by default ablation, and of encoders entropy
    #[arg(long, value_name = "SCORE", value_parser = score())]
    by: Option<HeadScore>,
}

impl Heads {
    pub(crate) fn run(self) -> Result<()> {
        let table = self.ranking.table(&self.model, &self.input)?;
        let table = table.first(self.top.unwrap_or(usize::MAX));
        let shown = if self.json { format!("{}\n", table.to_json()) } else { table.to_text() };
        Ok(output::print(&shown)?)
    }
}

impl Ranking {
    /// All heads of a model in order, for the texts.
    pub(super) fn table(&self, model: &TrainedModel, input: &TextInput) -> Result<HeadTable> {
        let (mut texts, mut all) = (input.texts()?, Vec::new());
        while let Some((_, some)) = texts.next_lines()? {
            all.extend(some);
        }
        // The gradients of heads need autodiff.
        let model = model
            .load(|folder, checkpoint, device| TextModel::open(&folder, checkpoint, &device.clone().autodiff()))?;
        let usual = if model.language().is_some() { HeadScore::Ablation } else { HeadScore::Entropy };
        Ok(HeadTable::measure(&model, &all)?.ranked(self.by.unwrap_or(usual)))
    }
}

/// Reads the name of a score.
fn score() -> impl TypedValueParser<Value = HeadScore> {
    let named = |name: String| {
        let found = HeadScore::ALL.into_iter().find(|score| score.name() == name);
        found.unwrap_or(HeadScore::Ablation)
    };
    PossibleValuesParser::new(HeadScore::ALL.map(HeadScore::name)).map(named)
}
