//! `firelight translate`: lines in, translations out, as many and in the same order.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::data::{lines_of, read_lines};
use firelight::seq2seq::{TranslateOptions, Translation, Translator};
use serde_json::{Value, json};

use super::trained_model::TrainedModel;
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
    /// Say after each translation which source token each of its tokens looked at most: places SOURCE-TARGET, after a tab
    #[arg(long)]
    alignment: bool,
    /// Print one line of JSON for each line: the source and its translations with their scores
    #[arg(long)]
    json: bool,
}

/// How translations are searched.
#[derive(clap::Args, Clone)]
struct Search {
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
    /// Translate at most so many lines together: fewer take less memory and more time
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
}

impl Search {
    fn options(&self) -> TranslateOptions {
        let Self { beams, length_penalty, n_best, truncate, batch } = *self;
        TranslateOptions { beams, length_penalty, n_best, truncate, batch: batch as usize }
    }
}

/// A translation, and which tokens belong together, where that was asked for.
struct Found {
    translation: Translation,
    alignment: Option<Vec<(usize, usize)>>,
}

impl Translate {
    pub(crate) fn run(self) -> Result<()> {
        let lines = self.lines()?;
        let found = self.model.with(|checkpoint, device| {
            let translator = Translator::load_from(&self.model.run_dir, checkpoint, device)?;
            self.translate(&translator, &lines)
        })?;
        lines.iter().zip(&found).try_for_each(|(line, found)| output::print(&self.shown(line, found)))?;
        Ok(())
    }

    fn lines(&self) -> Result<Vec<String>> {
        if let Some(path) = &self.file {
            return Ok(read_lines(path)?);
        }
        let (bytes, name) = match &self.text {
            Some(text) => (text.clone().into_bytes(), "--text"),
            None => (standard_input()?, "the standard input"),
        };
        Ok(lines_of(bytes, Path::new(name))?)
    }

    fn translate(&self, translator: &Translator, lines: &[String]) -> Result<Vec<Vec<Found>>> {
        let progress = output::progress(lines.len());
        let best = translator.translate_with(lines, &self.search.options(), |done| progress.set_position(done as u64));
        progress.finish_and_clear();
        let aligned = |line: &String, translation: Translation| {
            let alignment = if self.alignment { Some(translator.align(line, &translation)?) } else { None };
            Ok(Found { translation, alignment })
        };
        let of_line =
            |(line, best): (&String, Vec<Translation>)| best.into_iter().map(|found| aligned(line, found)).collect();
        lines.iter().zip(best?).map(of_line).collect()
    }

    /// One line out for each line in, or as many as translations are asked for.
    fn shown(&self, line: &str, found: &[Found]) -> String {
        if self.json {
            let translations: Vec<Value> = found.iter().map(Found::to_json).collect();
            return format!("{}\n", json!({"source": line, "translations": translations}));
        }
        let missing = self.search.n_best.max(1).saturating_sub(found.len()); // an empty line has no translation
        found.iter().map(Found::to_line).chain(std::iter::repeat_n("\n".to_string(), missing)).collect()
    }
}

impl Found {
    fn to_json(&self) -> Value {
        let mut object = json!({"text": self.translation.text, "score": self.translation.score});
        if let Some(pairs) = &self.alignment {
            object["alignment"] = json!(pairs);
        }
        object
    }

    fn to_line(&self) -> String {
        let text = self.translation.text.replace('\n', " ");
        let alignment = self.alignment.iter().map(|pairs| {
            let pairs: Vec<String> = pairs.iter().map(|(source, target)| format!("{source}-{target}")).collect();
            format!("\t{}", pairs.join(" "))
        });
        format!("{text}{}\n", alignment.collect::<String>())
    }
}

fn standard_input() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    Ok(bytes)
}
