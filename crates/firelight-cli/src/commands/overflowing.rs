//! What happens where the context is full: an option of `generate`.

use firelight::language::{ContextOverflow, TextGenerator};

#[derive(clap::Args, Clone)]
pub(super) struct Overflow {
    /// When the context is full: slide (longer prompts, too) or stop [default: slide, but refuse longer prompts]
    #[arg(long, value_name = "WHAT", value_parser = parse)]
    context_overflow: Option<ContextOverflow>,
}

impl Overflow {
    /// The generator that does so.
    pub(super) fn apply(&self, generator: TextGenerator) -> TextGenerator {
        generator.with_context_overflow(self.context_overflow.unwrap_or_default())
    }
}

/// # Errors
/// Lists the names.
fn parse(name: &str) -> Result<ContextOverflow, String> {
    match name {
        "slide" => Ok(ContextOverflow::Slide),
        "stop" => Ok(ContextOverflow::Stop),
        _ => Err("expected slide or stop".into()),
    }
}
