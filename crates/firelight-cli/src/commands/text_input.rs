//! The texts that a command is given: the one of `--text`, those in the file of `--file`, or else those on the standard input. A command
//! that says more of them changes the help of the two options.

use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::data::lines_of;

use super::texts::{STDIN, Texts, standard_input, whole_file};

#[derive(clap::Args)]
pub(super) struct TextInput {
    /// File of texts, one per line
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Text to read
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
}

impl TextInput {
    /// Whether there is a text or a file, so that the standard input is not read.
    pub(super) fn is_given(&self) -> bool {
        self.has_text() || self.file.is_some()
    }

    /// Whether the text stands on the command line.
    pub(super) fn has_text(&self) -> bool {
        self.text.is_some()
    }

    /// The text, or the lines of the file, or those of the standard input.
    pub(super) fn texts(&self) -> Result<Texts> {
        Texts::new(self.text.as_deref(), self.file.as_deref())
    }

    /// The lines of the text, of the file or of the standard input.
    pub(super) fn lines(&self) -> Result<Texts> {
        match &self.text {
            Some(text) => Ok(Texts::Given(Some(lines_of(text.clone().into_bytes(), Path::new("--text"))?))),
            None => self.texts(),
        }
    }

    /// The text, or the whole file, or the whole standard input.
    pub(super) fn whole(&self) -> Result<String> {
        match (&self.text, &self.file) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(file)) => whole_file(file),
            (None, None) => standard_input("the text"),
        }
    }

    /// Where the texts come from, as messages call it.
    pub(super) fn source(&self) -> &Path {
        let elsewhere = if self.has_text() { "--text" } else { STDIN };
        self.file.as_deref().unwrap_or(elsewhere.as_ref())
    }
}
