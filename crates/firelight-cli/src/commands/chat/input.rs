//! What the user says: lines that are edited and recalled in a terminal, or read as they come from anything else.

use std::io::{self, IsTerminal};

use anyhow::{Result, anyhow};
use rustyline::error::ReadlineError;
use rustyline::{Behavior, Config, DefaultEditor};

use super::super::texts::Lines;
use super::order::MARK;

const PROMPT: &str = "> ";
const GOING_ON: &str = ". ";

/// What a line ends with that goes on in the next one.
const CONTINUED: char = '\\';

/// What a message of several lines begins and ends with.
const FENCE: &str = "\"\"\"";

/// Where lines come from.
pub(super) enum Input {
    Terminal(Box<DefaultEditor>),
    Lines(Box<Lines>),
}

/// What the user wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Message(String),
    /// A line that begins with [`MARK`].
    Order(String),
    /// Ctrl-C, which clears the line.
    Interrupted,
    /// Ctrl-D, or the end of a file.
    End,
}

impl Input {
    pub(super) fn new() -> Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Lines(Box::new(Lines::of_standard_input())));
        }
        // The prompt belongs to the terminal, even where the answers go to a file.
        let config = Config::builder().behavior(Behavior::PreferTerm).build();
        let editor = DefaultEditor::with_config(config).map_err(|error| failed(&error))?;
        Ok(Self::Terminal(Box::new(editor)))
    }

    pub(super) fn is_typed(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// A message with all of its lines, or a command.
    pub(super) fn read(&mut self) -> Result<Said> {
        let said = match self.line(PROMPT)? {
            Said::Message(line) => self.whole(line)?,
            other => other,
        };
        if let (Self::Terminal(editor), Said::Message(text) | Said::Order(text)) = (self, &said) {
            editor.add_history_entry(text.as_str()).map_err(|error| failed(&error))?;
        }
        Ok(said)
    }

    fn whole(&mut self, line: String) -> Result<Said> {
        match line.strip_prefix(FENCE) {
            Some(rest) => self.fenced(rest.to_string()),
            None if line.starts_with(MARK) => Ok(Said::Order(line)),
            None => self.continued(line),
        }
    }

    /// A message up to the line that ends with a fence, or to the end of the input.
    fn fenced(&mut self, mut line: String) -> Result<Said> {
        let mut lines = Vec::new();
        loop {
            if let Some(last) = line.trim_end().strip_suffix(FENCE) {
                lines.push(last.to_string());
                break;
            }
            lines.push(line);
            line = match self.line(GOING_ON)? {
                Said::Message(line) => line,
                Said::End => break,
                other => return Ok(other),
            };
        }
        Ok(Said::Message(lines.join("\n").trim_matches('\n').to_string()))
    }

    /// A message up to the first line that does not go on.
    fn continued(&mut self, mut text: String) -> Result<Said> {
        while let Some(before) = text.strip_suffix(CONTINUED) {
            text = match self.line(GOING_ON)? {
                Said::Message(line) => format!("{before}\n{line}"),
                Said::End => return Ok(Said::Message(before.to_string())),
                other => return Ok(other),
            };
        }
        Ok(Said::Message(text))
    }

    fn line(&mut self, prompt: &str) -> Result<Said> {
        match self {
            Self::Lines(lines) => Ok(lines.next_line()?.map_or(Said::End, Said::Message)),
            Self::Terminal(editor) => match editor.readline(prompt) {
                Ok(line) => Ok(Said::Message(line)),
                Err(ReadlineError::Interrupted) => Ok(Said::Interrupted),
                Err(ReadlineError::Eof) => Ok(Said::End),
                Err(error) => Err(failed(&error)),
            },
        }
    }
}

fn failed(error: &ReadlineError) -> anyhow::Error {
    anyhow!("cannot read from the terminal: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &'static str) -> Vec<Said> {
        let mut input = Input::Lines(Box::new(Lines::of_text(text)));
        let mut all = Vec::new();
        loop {
            match input.read().unwrap() {
                Said::End => return all,
                said => all.push(said),
            }
        }
    }

    fn message(text: &str) -> Said {
        Said::Message(text.into())
    }

    #[test]
    fn a_line_is_a_message_and_may_go_on() {
        assert_eq!(said("a\nb\\\n c\\\nd\n\n"), [message("a"), message("b\n c\nd"), message("")]);
        assert_eq!(said("a\\\n"), [message("a")], "the end of the input ends it, too");
    }

    #[test]
    fn quotes_hold_lines_together() {
        assert_eq!(said("\"\"\"\na\n\n/b\\\n\"\"\"\nc"), [message("a\n\n/b\\"), message("c")]);
        assert_eq!(said("\"\"\"a\nb\"\"\" \nc"), [message("a\nb"), message("c")]);
        assert_eq!(said("\"\"\"a\"\"\"\n\"\"\"b"), [message("a"), message("b")]);
    }

    #[test]
    fn orders_are_told_from_messages() {
        assert_eq!(said("/undo\\\n /undo"), [Said::Order("/undo\\".into()), message(" /undo")]);
    }
}
