//! `firelight heads`: all heads of a model by what they look at and by what is lost without them.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use firelight::inspect::{Annotations, HeadScore, HeadTable, TextModel, read_conllu, read_pairs};

use super::text_input::TextInput;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight heads gpt2 --text \"The cat sat on the mat. The cat sat\" --by induction --top 10
  firelight heads runs/stories-1 --file texts.txt --json
  firelight heads bert-base-uncased --conllu en_ewt-ud-dev.conllu --by syntactic --score syntactic,previous,next
  firelight heads bert-base-uncased --pairs mentions.tsv --by coreference --top 5

Columns: entropy in nats; the mean weight of the previous, the next, the first, the special tokens, of earlier same tokens and of the \
tokens behind those (induction). For language models: the rise of the loss when the head is zeroed, and the size of the gradient by a gate \
of the head. Then the weight of the rarest tokens; of language models the share of tokens whose logit the head raises when it sees them \
(copying); the correlation of weights with the cosine of embeddings (semantic). A text takes a pass for each head.

--conllu takes sentences with their syntax in ten columns, and --pairs lines with a text, a mention and what it refers to, with tabs between \
them; further pairs are further columns. A mention is a word of the text, or its characters FROM:TO. The score of a relation stands beside \
the share of the words that a fixed offset would find. Without --text and --file these texts are read for all scores.";

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
    /// Scores to show, separated by commas; by default all, those that do not fit beside each other below
    #[arg(long = "score", value_name = "SCORE", value_delimiter = ',', value_parser = score())]
    scores: Vec<HeadScore>,
    /// Heads to show, the first of the order; by default all
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Print one line of JSON: a list of all heads with their scores, with --conllu an object of heads and relations
    #[arg(long)]
    json: bool,
}

/// By which score heads are ordered, and the files that some scores need.
#[derive(clap::Args)]
pub(super) struct Ranking {
    /// Score to order by; by default ablation, and of encoders entropy
    #[arg(long, value_name = "SCORE", value_parser = score())]
    by: Option<HeadScore>,
    /// Sentences in CoNLL-U, for the score syntactic
    #[arg(long, value_name = "FILE")]
    conllu: Option<PathBuf>,
    /// Texts with mentions and what they refer to, for the score coreference
    #[arg(long, value_name = "FILE")]
    pairs: Option<PathBuf>,
}

impl Heads {
    pub(crate) fn run(self) -> Result<()> {
        self.ranking.check(&self.scores)?;
        let table = self.ranking.table(&self.model, &self.input)?;
        let table = table.first(self.top.unwrap_or(usize::MAX));
        let table = if self.scores.is_empty() { table } else { table.with_scores(&self.scores) };
        let shown = if self.json { format!("{}\n", table.to_json()) } else { table.to_text() };
        Ok(output::print(&shown)?)
    }
}

impl Ranking {
    /// All heads of a model in order, for the texts.
    pub(super) fn table(&self, model: &TrainedModel, input: &TextInput) -> Result<HeadTable> {
        self.check(&[])?;
        let annotations = self.annotations()?;
        let texts = if input.is_given() || annotations.is_empty() { all_texts(input)? } else { Vec::new() };
        // The gradients of heads need autodiff.
        let model = model
            .load(|folder, checkpoint, device| TextModel::open(&folder, checkpoint, &device.clone().autodiff()))?;
        let usual = if model.language().is_some() { HeadScore::Ablation } else { HeadScore::Entropy };
        Ok(HeadTable::measure_with(&model, &texts, &annotations)?.ranked(self.by.unwrap_or(usual)))
    }

    /// Whether there are texts with syntax or mentions.
    pub(super) fn has_file(&self) -> bool {
        self.conllu.is_some() || self.pairs.is_some()
    }

    fn annotations(&self) -> Result<Annotations> {
        let syntax = self.conllu.as_deref().map(read_conllu).transpose()?.unwrap_or_default();
        let pairs = self.pairs.as_deref().map(read_pairs).transpose()?.unwrap_or_default();
        Ok(Annotations { syntax, pairs })
    }

    /// Refuses scores whose file is missing.
    fn check(&self, shown: &[HeadScore]) -> Result<()> {
        for score in self.by.iter().chain(shown) {
            let missing = match score {
                HeadScore::Syntactic if self.conllu.is_none() => "sentences with their syntax: give --conllu FILE",
                HeadScore::Coreference if self.pairs.is_none() => "mentions and what they refer to: give --pairs FILE",
                _ => continue,
            };
            return Err(Mistake(format!("the score {} needs {missing}", score.name())).into());
        }
        Ok(())
    }
}

/// The texts of the command line, of the file or of the standard input.
fn all_texts(input: &TextInput) -> Result<Vec<String>> {
    let (mut texts, mut all) = (input.texts()?, Vec::new());
    while let Some((_, some)) = texts.next_lines()? {
        all.extend(some);
    }
    Ok(all)
}

/// Reads the name of a score.
fn score() -> impl TypedValueParser<Value = HeadScore> {
    let named = |name: String| {
        let found = HeadScore::ALL.into_iter().find(|score| score.name() == name);
        found.unwrap_or(HeadScore::Ablation)
    };
    PossibleValuesParser::new(HeadScore::ALL.map(HeadScore::name)).map(named)
}
