//! The firelight command: parses the arguments, calls the library, prints. Text meant for other programs (generated text,
//! JSON) goes to stdout, everything else to stderr.

mod commands;
mod failure;
mod fields;
mod interruption;
mod memory;
mod output;
#[cfg(test)]
mod pages;
mod pulse;
mod ranks;
mod threads;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use commands::Command;

/// What `--version` says; `-V` says the number alone.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("FIRELIGHT_COMMIT"),
    "\nbackends: ",
    env!("FIRELIGHT_BACKENDS")
);

const EXAMPLES: &str = "\
Examples:
  firelight train --data input.txt               train a small GPT on a text
  firelight generate runs/input-1 --prompt Once  continue a text with it
  firelight evaluate runs/input-1                measure it
  firelight train dates                          train a translator of dates, by an embedded recipe
  firelight recipes                              list the embedded recipes

Results go to stdout, everything else to stderr. The exit code is 0, 1 for a failure of the machine, 2 for a mistake of the \
user, or 130 for a training that was interrupted.";

/// Train, evaluate and sample Transformers on any Burn backend.
#[derive(Parser)]
#[command(name = "firelight", version, long_version = VERSION, after_long_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Print which kernels each operation uses
    #[arg(short, long, global = true, display_order = 998)]
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
        threads::join_pool(command.threads(), command.computes_itself())?;
        command.run()
    })
}

/// The arguments; a call for help or the version is answered at once.
fn parse() -> Result<Cli, clap::Error> {
    let arguments = parser(Cli::command()).try_get_matches();
    match arguments.and_then(|arguments| Cli::from_arg_matches(&arguments)) {
        Ok(cli) => Ok(cli),
        Err(answer) if !answer.use_stderr() => answer.exit(),
        Err(mistake) => Err(mistake),
    }
}

/// The same in all commands: a negative number is a value, which its option refuses by name, and a command that is missing is a
/// mistake and no call for help.
fn parser(command: clap::Command) -> clap::Command {
    let number = |argument: clap::Arg| match argument.get_action().takes_values() {
        true => argument.allow_negative_numbers(true),
        false => argument,
    };
    command.arg_required_else_help(false).mut_args(number).mut_subcommands(parser)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most characters of a line of help; more belongs into the text behind the options.
    const LINE: usize = 120;

    /// Neither an example nor a row of a table, which keep their lines.
    fn is_prose(line: &str) -> bool {
        !line.is_empty() && !line.starts_with(' ')
    }

    fn check(command: &clap::Command) {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let (name, help) = (argument.get_id(), argument.get_help().map(ToString::to_string).unwrap_or_default());
            assert!(!help.is_empty() && help.len() < LINE, "{} {name}: {help}", command.get_name());
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && about.len() < LINE, "{}: {about}", command.get_name());
        let behind = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<bool> = behind.lines().map(is_prose).collect();
        assert!(!lines.windows(2).any(|pair| pair == [true, true]), "a paragraph is one line: {behind}");
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn the_how_to_page_lists_every_command() {
        let page = include_str!("../../../docs/how-to/README.md");
        let is_listed = |words: &str| {
            let begin = format!("`firelight {words}");
            let is_end = |rest: &str| rest.starts_with([' ', '`']);
            page.lines().any(|line| line.starts_with('|') && line.split(begin.as_str()).skip(1).any(is_end))
        };
        let names = |command: &clap::Command| -> Vec<String> {
            command.get_subcommands().map(|command| command.get_name().to_string()).collect()
        };
        let command = Cli::command();
        let pictures = command.find_subcommand("visualize").map(names).unwrap_or_default();
        assert!(pictures.len() > 5);
        let pictures = pictures.iter().map(|name| format!("visualize {name}"));
        for words in names(&command).into_iter().chain(pictures) {
            assert!(is_listed(&words), "docs/how-to/README.md has no line of `firelight {words}`");
        }
        let what = command.find_subcommand("bench").and_then(|bench| bench.get_positionals().next()).unwrap();
        let line = page.lines().find(|line| line.starts_with("| `firelight bench")).unwrap();
        assert!(what.get_possible_values().len() > 5);
        for value in what.get_possible_values() {
            assert!(line.contains(value.get_name()), "{line}: {}", value.get_name());
        }
    }

    #[test]
    fn every_command_and_option_is_explained_in_one_line() {
        let mut command = parser(Cli::command());
        command.build();
        command.clone().debug_assert();
        assert!(command.get_subcommands().count() > 10);
        check(&command);
    }

    /// Every command that does something, with what a user types for it; `help` is clap's own.
    fn typed(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
        let below: Vec<&clap::Command> =
            command.get_subcommands().filter(|command| command.get_name() != "help").collect();
        if below.is_empty() {
            return vec![(words.to_string(), command.clone())];
        }
        below.into_iter().flat_map(|command| typed(command, &format!("{words} {}", command.get_name()))).collect()
    }

    #[test]
    fn help_wraps_between_words_and_has_examples_behind() {
        let mut command = parser(Cli::command()).term_width(100);
        command.build();
        let commands = typed(&command, "firelight");
        assert!(commands.len() > 35, "{}", commands.len());
        for (words, mut command) in commands {
            let help = command.render_long_help().to_string();
            let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 130).collect();
            assert!(wide.is_empty(), "{words}: {wide:?}");
            let is_example = |line: &str| {
                let rest = line.strip_prefix("  ").and_then(|line| line.strip_prefix(words.as_str()));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let behind = help.split_once("\nExample").map_or("", |(_, behind)| behind);
            assert!(behind.lines().any(is_example), "an example of `{words}`: {help}");
            assert!(!command.render_help().to_string().contains("\nExample"), "{words}");
        }
    }
}
