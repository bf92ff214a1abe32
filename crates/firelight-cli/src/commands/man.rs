//! `firelight man`: a manual page for the command and one for each of its subcommands.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use firelight::storage::{StorageError, write_atomic};

use crate::{Cli, output};

const EXAMPLES: &str = "\
Example:
  firelight man --out ~/.local/share/man/man1 && man firelight-train";

/// Write the manual pages
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Manual {
    /// Folder to write firelight.1, firelight-train.1 and the others into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Manual {
    pub(crate) fn run(self) -> Result<()> {
        fs::create_dir_all(&self.out).map_err(StorageError::io("create the folder", &self.out))?;
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let written = write(&command, &self.out)?;
        output::note(format_args!("wrote {written} manual pages to {}", self.out.display()));
        Ok(())
    }
}

/// Writes the page of a command and those of its subcommands, and returns how many they are.
fn write(command: &Command, folder: &Path) -> Result<usize> {
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    man.render(&mut page)?;
    write_atomic(folder.join(man.get_filename()), page)?;
    command.get_subcommands().try_fold(1, |written, command| Ok(written + write(command, folder)?))
}
