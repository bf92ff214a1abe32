//! The firelight command: parses the arguments, calls the library, prints. Text meant for other programs (generated text,
//! JSON) goes to stdout, everything else to stderr.

mod commands;
mod failure;
mod interruption;
mod memory;
mod output;
mod threads;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;

/// Train, evaluate and sample Transformers on any Burn backend.
#[derive(Parser)]
#[command(name = "firelight", version)]
struct Cli {
    /// Tell which way each operation is computed
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

fn main() -> ExitCode {
    memory::keep_freed_pages();
    failure::report(|| {
        let cli = parse()?;
        output::log(cli.verbose);
        let command = cli.command.unwrap_or_else(Command::main_job);
        threads::join_pool(command.threads())?;
        command.run()
    })
}

/// The arguments; a call for help or the version is answered at once.
fn parse() -> Result<Cli, clap::Error> {
    match Cli::try_parse() {
        Ok(cli) => Ok(cli),
        Err(answer) if !answer.use_stderr() => answer.exit(),
        Err(mistake) => Err(mistake),
    }
}
