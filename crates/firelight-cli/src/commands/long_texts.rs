//! How texts are read that are longer than a model reads at once: options of `classify` and `embed`.

use anyhow::{Result, bail, ensure};
use firelight::classification::LongText;

use crate::failure::Mistake;

#[derive(clap::Args)]
pub(super) struct LongTexts {
    /// How to read a text that is too long for the model: truncate, windows or sentences [default: truncate]
    #[arg(long, value_name = "HOW", value_parser = long_text)]
    long: Option<LongText>,
    /// With --long windows: tokens from the beginning of one window to that of the next [default: half a window]
    #[arg(long, value_name = "N")]
    stride: Option<usize>,
}

fn long_text(text: &str) -> Result<LongText, String> {
    match text {
        "truncate" => Ok(LongText::Truncate),
        "windows" => Ok(LongText::Windows { stride: None }),
        "sentences" => Ok(LongText::Sentences),
        _ => Err("expected truncate, windows or sentences".into()),
    }
}

impl LongTexts {
    /// Whether one is given.
    pub(super) fn are_given(&self) -> bool {
        self.long.is_some() || self.stride.is_some()
    }

    /// Refuses them where they mean nothing, and says `why`.
    pub(super) fn refuse(&self, why: &str) -> Result<()> {
        ensure!(!self.are_given(), Mistake(format!("--long and --stride are for classifiers of texts: {why}")));
        Ok(())
    }

    /// What they say.
    pub(super) fn long_text(&self) -> Result<LongText> {
        match (self.long, self.stride) {
            (Some(LongText::Windows { .. }), stride) => Ok(LongText::Windows { stride }),
            (long, None) => Ok(long.unwrap_or_default()),
            (_, Some(_)) => {
                bail!(Mistake("--stride is for windows: give --long windows with it, or leave it out".into()))
            }
        }
    }
}
