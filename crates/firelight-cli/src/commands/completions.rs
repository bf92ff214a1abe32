//! `firelight completions`: what a shell needs to complete the command's words.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::{Cli, output};

const EXAMPLES: &str = "\
Examples:
  firelight completions bash > ~/.local/share/bash-completion/completions/firelight
  firelight completions zsh > ~/.zfunc/_firelight
  firelight completions fish > ~/.config/fish/completions/firelight.fish";

/// Print the completions of a shell
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Shell to complete in
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "firelight", &mut script);
        Ok(output::print(&String::from_utf8(script)?)?)
    }
}
