//! What happens where the context is full: an option of `generate`.

use anyhow::{Result, ensure};
use firelight::language::{ContextOverflow, TextGenerator};

use crate::failure::Mistake;

#[derive(clap::Args, Clone)]
pub(super) struct Overflow {
    /// When the context is full: slide (longer prompts, too) or stop [default: slide, but refuse longer prompts]
    #[arg(long, value_name = "WHAT", value_parser = parse)]
    context_overflow: Option<ContextOverflow>,
    /// When the context is full: keep the first N tokens [default: those that the tokenizer puts in front]
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
}

impl Overflow {
    /// The generator that does so.
    pub(super) fn apply(&self, generator: TextGenerator) -> Result<TextGenerator> {
        let overflow = self.context_overflow.unwrap_or_default();
        let generator = generator.with_context_overflow(overflow);
        let Some(tokens) = self.keep else { return Ok(generator) };
        ensure!(
            overflow != ContextOverflow::Stop,
            Mistake("--keep cannot be used with --context-overflow stop: remove one of the two".to_string())
        );
        Ok(generator.with_kept(tokens)?)
    }
}

/// # Errors
/// Lists the names.
fn parse(name: &str) -> std::result::Result<ContextOverflow, String> {
    match name {
        "slide" => Ok(ContextOverflow::Slide),
        "stop" => Ok(ContextOverflow::Stop),
        _ => Err("expected slide or stop".into()),
    }
}
