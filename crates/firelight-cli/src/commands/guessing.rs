//! What guesses the next tokens: options of `generate` and `translate`.

use std::path::PathBuf;

use firelight::generation::PromptLookup;

#[derive(clap::Args, Clone)]
pub(super) struct Guesses {
    /// Smaller model with the same tokenizer, whose guesses are read at once; the text is the same
    #[arg(long, value_name = "MODEL", conflicts_with = "prompt_lookup")]
    pub(super) draft: Option<PathBuf>,
    /// Tokens that are guessed at a time
    #[arg(long, value_name = "N", default_value_t = 8, requires = "draft", value_parser = clap::value_parser!(u32).range(1..))]
    draft_tokens: u32,
    /// Guess what followed the last tokens where they stood before; the text is the same
    #[arg(long)]
    prompt_lookup: bool,
}

impl Guesses {
    /// The name of the option, where one is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let draft = self.draft.as_ref().map(|_| "--draft");
        draft.or(self.prompt_lookup.then_some("--prompt-lookup"))
    }

    /// How many tokens a draft guesses at a time.
    pub(super) fn draft_tokens(&self) -> usize {
        self.draft_tokens as usize
    }

    /// What guesses from the text itself, where that is asked for.
    pub(super) fn lookup(&self) -> Option<PromptLookup> {
        self.prompt_lookup.then(PromptLookup::default)
    }
}
