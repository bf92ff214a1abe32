//! `firelight translate`: lines in, translations out, as many and in the same order.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Result;
use firelight::data::read_lines;
use firelight::seq2seq::{TranslateOptions, Translation, Translator};
use serde_json::json;

use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

/// Translate lines by a trained encoder-decoder; without --file and --text, those of the standard input
#[derive(clap::Args)]
pub(crate) struct Translate {
    #[command(flatten)]
    model: TrainedModel,
    /// File of lines to translate
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Text to translate; may hold several lines
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    #[command(flatten)]
    search: Search,
    /// Print one line of JSON for each line: the source and its translations with their scores
    #[arg(long)]
    json: bool,
}

/// How translations are searched.
#[derive(clap::Args, Clone)]
pub(super) struct Search {
    /// Hypotheses that are followed at a time; 1 is greedy
    #[arg(long, value_name = "N", default_value_t = 5)]
    beams: usize,
    /// The power of the length that log-probabilities are divided by
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    length_penalty: f64,
    /// Translations of each line, best first
    #[arg(long, value_name = "N", default_value_t = 1)]
    n_best: usize,
    /// Cut lines that are too long for the model, which are an error otherwise
    #[arg(long)]
    truncate: bool,
}

impl Search {
    pub(super) fn options(&self) -> TranslateOptions {
        let Self { beams, length_penalty, n_best, truncate } = *self;
        TranslateOptions { beams, length_penalty, n_best, truncate }
    }
}

impl Translate {
    pub(crate) fn run(self) -> Result<()> {
        let lines = self.lines()?;
        let found = self.model.with(|checkpoint, device| {
            let translator = Translator::load_from(&self.model.run_dir, checkpoint, device)?;
            let progress = output::progress(lines.len());
            let found =
                translator.translate_with(&lines, &self.search.options(), |done| progress.set_position(done as u64));
            progress.finish_and_clear();
            Ok(found?)
        })?;
        lines.iter().zip(&found).try_for_each(|(line, found)| output::print(&self.shown(line, found)))?;
        Ok(())
    }

    fn lines(&self) -> Result<Vec<String>> {
        if let Some(path) = &self.file {
            return Ok(read_lines(path)?);
        }
        let text = match &self.text {
            Some(text) => text.clone(),
            None => standard_input()?,
        };
        Ok(text.lines().map(str::to_string).collect())
    }

    fn shown(&self, line: &str, found: &[Translation]) -> String {
        if self.json {
            let one = |found: &Translation| json!({"text": found.text, "score": found.score});
            return format!("{}\n", json!({"source": line, "translations": found.iter().map(one).collect::<Vec<_>>()}));
        }
        // One line out for each line in, and for each of the best where more than one is asked for.
        let empty = vec![String::new()];
        let texts: Vec<String> = found.iter().map(|found| found.text.replace('\n', " ")).collect();
        let texts = if texts.is_empty() { empty } else { texts };
        texts.iter().flat_map(|text| [text.as_str(), "\n"]).collect()
    }
}

fn standard_input() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes);
    text.map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1;
        Mistake(format!("the standard input is not UTF-8: line {line}, byte {byte} of the input; convert it to UTF-8"))
            .into()
    })
}
