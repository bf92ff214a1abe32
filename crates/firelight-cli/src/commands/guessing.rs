//! What guesses the next tokens from the text itself: an option of `generate` and `translate`.

use firelight::generation::PromptLookup;

#[derive(clap::Args, Clone)]
pub(super) struct Lookup {
    /// Guess what followed the last tokens where they stood before; the text is the same
    #[arg(long)]
    prompt_lookup: bool,
}

impl Lookup {
    /// The name of the option, where it is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        self.prompt_lookup.then_some("--prompt-lookup")
    }

    /// What guesses, where that is asked for.
    pub(super) fn lookup(&self) -> Option<PromptLookup> {
        self.prompt_lookup.then(PromptLookup::default)
    }
}
