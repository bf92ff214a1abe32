//! `firelight probe`: what can be read off each layer, by linear probes of labelled texts.

use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::data::labelled::{Columns, LabelledText, read};
use firelight::data::records::RecordFormat;
use firelight::inspect::{ProbeTable, TextModel};

use super::trained_model::TrainedModel;
use crate::output;

/// Of the texts of one file every fifth is held out.
const FIFTH: usize = 5;

const EXAMPLES: &str = "\
Examples:
  firelight probe gpt2 --file reviews.tsv
  firelight probe runs/stories-1 --file train.tsv --held-out test.tsv --json

The first column of a file is the text, the second its label; of .jsonl and .parquet the keys text and label. \
A probe is a logistic regression of the mean over the tokens of a text: of what the first layer reads, and of what each layer leaves.";

/// Show how well labels of texts can be read off each layer of a model
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Probe {
    #[command(flatten)]
    model: TrainedModel,
    /// File of texts and labels: .tsv, .csv, .jsonl or .parquet
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// File of other texts to try the probes on; by default every fifth text of --file
    #[arg(long, value_name = "FILE")]
    held_out: Option<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

impl Probe {
    pub(crate) fn run(self) -> Result<()> {
        let (fitted, held_out) = self.texts()?;
        let model = self.model.load(|folder, checkpoint, device| TextModel::open(&folder, checkpoint, device))?;
        let table = ProbeTable::measure(&model, &fitted, &held_out)?;
        let shown = if self.json { format!("{}\n", table.to_json()) } else { table.to_text() };
        Ok(output::print(&shown)?)
    }

    /// The texts that probes are fitted on, and the others.
    fn texts(&self) -> Result<(Vec<LabelledText>, Vec<LabelledText>)> {
        let all = read(&self.file, &columns(&self.file))?;
        if let Some(file) = &self.held_out {
            return Ok((all, read(file, &columns(file))?));
        }
        let mut parts = (Vec::new(), Vec::new());
        for (place, text) in all.into_iter().enumerate() {
            let part = if place % FIFTH == FIFTH - 1 { &mut parts.1 } else { &mut parts.0 };
            part.push(text);
        }
        Ok(parts)
    }
}

/// The first two columns of a table; of objects the keys `text` and `label`.
fn columns(file: &Path) -> Columns {
    match RecordFormat::of(file).is_ok_and(|format| !format.is_table()) {
        true => Columns { text: vec!["text".into()], pair: None, label: "label".into() },
        false => Columns::default(),
    }
}
