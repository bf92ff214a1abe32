//! `firelight visualize tokens`: how a text is split into tokens.

use std::path::PathBuf;

use anyhow::Result;
use firelight::data::Tokenizer;
use firelight::inspect::SplitText;
use firelight::storage::{InputError, shortened};

use crate::commands::drawing::{Drawing, Format};
use crate::commands::trained_model::converted;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight visualize tokens gpt2 --text \"Tokenization is lossless\"
  firelight visualize tokens runs/stories-1 --text \"Once upon a time\" --out tokens.html
  firelight visualize tokens bert-base-uncased --text \"unbelievable\" --json

--out takes .html and .svg. Bytes are listed of tokens that are not printable ASCII alone, such as a part of a character.";

/// Draw how a text is split into tokens, with their ids and bytes
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Tokens {
    /// Run folder of the model, folder of a published model, its name on the hub of Hugging Face, or a GGUF file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Text to split
    #[arg(long, value_name = "TEXT")]
    text: String,
    /// Take the tokenizer of the other language: that of the target of a translator
    #[arg(long)]
    target: bool,
    /// Print one line of JSON
    #[arg(long, conflicts_with = "out")]
    json: bool,
    #[command(flatten)]
    drawing: Drawing,
}

impl Tokens {
    pub(super) fn run(self) -> Result<()> {
        let format = self.drawing.format(&[Format::Page, Format::Svg])?;
        let split = SplitText::new(&self.tokenizer()?, &self.text)?;
        self.drawing.show(match format {
            Format::Text if self.json => format!("{}\n", split.to_json()).into(),
            Format::Svg => split.to_svg().into(),
            Format::Page => split.to_page(&format!("Tokens: {}", shortened(&self.text))).into(),
            _ => split.to_text(output::has_colours()).into(),
        })
    }

    /// The tokenizer of the texts that the model reads, or of those that it writes.
    fn tokenizer(&self) -> Result<Tokenizer> {
        let folder = converted(&self.model)?;
        let source = if self.target { None } else { Tokenizer::of_source(&folder)? };
        let found = match source {
            Some(source) => Some(source),
            None => Tokenizer::of_folder(&folder)?,
        };
        let lacking = || InputError::in_file(&folder, "holds no tokenizer").advise("give a model of texts");
        Ok(found.ok_or_else(lacking)?)
    }
}
