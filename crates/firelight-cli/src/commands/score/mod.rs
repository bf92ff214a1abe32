//! `firelight score`: how probable given texts are to a model, token by token: texts of a language model, or targets after their sources.

mod scorer;
mod table;

use anyhow::{Result, ensure};
use firelight::generation::TextScore;
use firelight::storage::TaskError;
use serde_json::Value;

use super::sheet::{Sheet, Tally};
use super::tasks::{Shown, with_task};
use super::text_input::TextInput;
use super::texts::Texts;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::{output, ranks};
use scorer::Scorer;

const EXAMPLES: &str = "\
Examples:
  firelight score runs/stories-1 --text \"Once upon a time\" --top 3
  firelight score openai-community/gpt2 --file chapter.txt --stride 256
  firelight score runs/stories-1 --file sentences.txt --per-line --json > scores.jsonl
  firelight score runs/dates-1 --source \"3rd of March 1997\" --text 1997-03-03
  firelight score runs/dates-1 --file pairs.tsv

A language model reads a text, a file or the standard input as one text, without the line feed at its end, or with --per-line \
every line as one. A translator scores the target --text after its --source, or lines of a source, a tab and its target.

A text longer than the context C of a language model is read in windows of C tokens that begin every S tokens (--stride). Each token is \
scored once, after all tokens before it or at least C - S of them.

A line that cannot be scored gives an empty line and a message; the others are scored, and the exit code is 2.";

/// Print how probable given texts are to a language model or a translator; by default the standard input
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("file", |arg| arg.help("File of one text, of a text per line with --per-line, or of a source, a tab and its target per line")))]
#[command(mut_arg("text", |arg| arg.help("Text to score; of a translator the target")))]
pub(crate) struct Score {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    input: TextInput,
    /// For translators: the source of --text
    #[arg(long, value_name = "TEXT", requires = "text")]
    source: Option<String>,
    /// Score every line by itself
    #[arg(long, conflicts_with = "text")]
    per_line: bool,
    /// For language models: tokens between the beginnings of two windows, by default half the context
    #[arg(long, value_name = "N")]
    stride: Option<usize>,
    /// Print every token with its rank and the N most probable tokens in its place
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    top: usize,
    /// Print every token with its log-probability
    #[arg(long)]
    tokens: bool,
    /// Print one line of JSON for each text, with all of its tokens
    #[arg(long)]
    json: bool,
}

impl Score {
    pub(crate) fn run(self) -> Result<()> {
        self.model.is_for("score")?;
        let task = self.model.task()?.unwrap_or_default();
        with_task!(task.as_str(), |T| T::score(&self), self.texts())
    }

    /// How probable texts are to a language model.
    pub(super) fn texts(&self) -> Result<()> {
        let problem = "--source is for translators, and this model is none: remove it";
        ensure!(self.source.is_none(), Mistake(problem.into()));
        self.answer(self.per_line, || Scorer::language(&self.model, self.stride, self.top))
    }

    /// How probable targets are to a translator, after their sources.
    pub(super) fn pairs(&self) -> Result<()> {
        let problem = "--stride is for language models, and this model is a translator: remove it";
        ensure!(self.stride.is_none(), Mistake(problem.into()));
        let has_source = !self.input.has_text() || self.source.is_some();
        let missing =
            "this model is a translator, which scores --text as a translation: add its source with --source TEXT";
        ensure!(has_source, Mistake(missing.into()));
        self.answer(true, || Scorer::translator(&self.model, self.source.clone(), self.top))
    }

    /// An answer for each line that is given, or for the whole; --text is one.
    fn answer(&self, by_line: bool, load: impl FnOnce() -> Result<Scorer>) -> Result<()> {
        if by_line && !self.input.has_text() {
            let texts = self.input.texts()?.one_by_one();
            return self.lines(&load()?, texts);
        }
        ranks::refuse_unshared("a text is scored as a whole (--per-line scores every line by itself)")?;
        let (text, scorer) = (self.input.whole()?, load()?);
        let found = scorer.score(&text)?;
        Ok(output::print(&self.shown(&scorer, &text, &found))?)
    }

    /// An answer for each line.
    fn lines(&self, scorer: &Scorer, mut texts: Texts) -> Result<()> {
        let Tally { lines: texts, failed } = texts.answer_on(|before, lines, sheet| {
            for (number, line) in (before + 1..).zip(lines) {
                let found = scorer.score_line(number, line);
                self.show_line(scorer, line, found, sheet)?;
            }
            Ok(())
        })?;
        ensure!(failed == 0, Mistake(format!("{failed} of {texts} lines could not be scored, see above")));
        Ok(())
    }

    /// The answer to a line, or an empty one with a message where the line is to blame.
    fn show_line(
        &self,
        scorer: &Scorer,
        line: &str,
        found: Result<TextScore, TaskError>,
        sheet: &mut Sheet,
    ) -> Result<()> {
        let error = match found {
            Ok(found) => return sheet.print(&self.shown(scorer, line, &found)),
            Err(error) if !error.is_user_error() => return Err(error.into()),
            Err(error) => error.to_string(),
        };
        sheet.fail(&error);
        let mut object = scorer.names(line);
        object["error"] = error.into();
        sheet.print(&if self.json { format!("{object}\n") } else { "\n".to_string() })
    }

    fn shown(&self, scorer: &Scorer, text: &str, found: &TextScore) -> String {
        if self.json {
            return format!("{}\n", to_json(scorer, text, found));
        }
        let tokens = if self.tokens || self.top > 0 { table::of(scorer, found) } else { String::new() };
        format!("{tokens}{}\n", summary(scorer, found))
    }
}

/// What is said of a whole text, in one line.
fn summary(scorer: &Scorer, found: &TextScore) -> String {
    let protocol = match scorer.protocol() {
        Some((context, stride)) => format!(" (context {context}, stride {stride})"),
        None => String::new(),
    };
    format!(
        "tokens {}, log-probability {:.4}, mean {:.4}, perplexity {:.3}, bits per byte {:.4}{protocol}",
        found.count(),
        found.log_probability(),
        found.mean(),
        found.perplexity(),
        found.bits_per_byte()
    )
}

fn to_json(scorer: &Scorer, text: &str, found: &TextScore) -> Value {
    let mut object = scorer.names(text);
    object["tokens"] = found.tokens.iter().map(|token| scorer.token_to_json(token)).collect();
    object["scored"] = found.count().into();
    object["log_probability"] = found.log_probability().into();
    object["mean"] = found.mean().into();
    object["perplexity"] = found.perplexity().into();
    object["bits_per_byte"] = found.bits_per_byte().into();
    if let Some((context, stride)) = scorer.protocol() {
        object["context"] = context.into();
        object["stride"] = stride.into();
    }
    object
}
