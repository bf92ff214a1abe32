//! The conversation itself: messages are answered, commands are obeyed, and what goes wrong with one of them is told and ends nothing.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use firelight::generation::{GenerationError, GenerationOptions, StopReason};
use firelight::language::{ChatAnswer, ChatMessage, ChatSession};
use firelight::storage::{InputError, TaskError, read_text_file, shortened, shortened_reason, write_atomic};

use super::failures::Failures;
use super::input::{Input, Said};
use super::order::{Order, help};
use crate::interruption::Breakable;
use crate::output;

/// No file of messages is larger, in bytes.
const LIMIT: u64 = 1 << 26;

/// A conversation in the terminal.
pub(super) struct Talk<'g> {
    session: ChatSession<'g>,
    options: GenerationOptions,
    signal: Breakable,
    /// How often the last message was answered before.
    retries: u64,
    /// How many exchanges the last prompt left out.
    left_out: usize,
    failures: Failures,
}

impl<'g> Talk<'g> {
    pub(super) fn new(session: ChatSession<'g>, options: GenerationOptions, signal: Breakable) -> Self {
        Self { session, options, signal, retries: 0, left_out: 0, failures: Failures::default() }
    }

    /// Talks until the user ends it. What fails is the terminal, or the reader of the answers; where nobody types, also what was told of a
    /// message or a command.
    pub(super) fn run(mut self, mut input: Input) -> Result<()> {
        if input.is_typed() {
            output::note(format_args!("type a message, /help for the commands, or Ctrl-D to end"));
        }
        let mut was_interrupted = false;
        loop {
            let said = input.read()?;
            let is_interrupted = said == Said::Interrupted;
            if is_interrupted && !was_interrupted {
                output::note(format_args!("press Ctrl-C again, or Ctrl-D, to end the conversation"));
            } else if is_interrupted || self.hear(said)?.is_break() {
                return if input.is_typed() { Ok(()) } else { self.failures.verdict() };
            }
            was_interrupted = is_interrupted;
        }
    }

    fn hear(&mut self, said: Said) -> Result<ControlFlow<()>> {
        match said {
            Said::Message(text) if text.trim().is_empty() => {}
            Said::Message(text) => self.ask(text)?,
            Said::Order(line) => return self.obey(&line),
            Said::Interrupted | Said::End => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn obey(&mut self, line: &str) -> Result<ControlFlow<()>> {
        match Order::parse(line) {
            Err(problem) => self.failures.tell(Err(InputError::new(problem).into())),
            Ok(Order::Help) => help().for_each(|line| output::note(format_args!("{line}"))),
            Ok(Order::System(text)) => self.set_system(text),
            Ok(Order::Clear) => self.clear(),
            Ok(Order::Undo) => self.undo(),
            Ok(Order::Retry) => self.retry()?,
            Ok(Order::Save(path)) => self.failures.tell(self.save(&path)),
            Ok(Order::Load(path)) => {
                let loaded = self.load(&path);
                self.failures.tell(loaded);
            }
            Ok(Order::Show) => match self.session.prompt() {
                Ok(text) => output::print(&format!("{text}\n"))?,
                error => self.failures.tell(error.map(drop)),
            },
            Ok(Order::Quit) => return Ok(ControlFlow::Break(())),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn ask(&mut self, text: String) -> Result<()> {
        let before = self.session.messages().to_vec();
        self.session.push(text);
        self.retries = 0;
        self.answer(before)
    }

    fn retry(&mut self) -> Result<()> {
        let before = self.session.messages().to_vec();
        self.session.take_answer();
        self.retries += 1;
        self.answer(before)
    }

    /// Answers the last message, on the standard output while it is written. Where that fails, what was written of the answer is kept; if nothing
    /// was, the conversation is as before.
    fn answer(&mut self, before: Vec<ChatMessage>) -> Result<()> {
        let options = self.options.clone().with_seed(self.seed());
        let (mut written, mut has_begun): (io::Result<()>, bool) = (Ok(()), false);
        self.signal.begin();
        let answer = self.session.answer(&options, |piece| {
            has_begun = true;
            // What completes a constrained answer comes behind the piece that was broken off.
            written = std::mem::replace(&mut written, Ok(())).and_then(|()| output::print(piece));
            match written.is_err() || self.signal.is_asked() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        self.signal.end();
        written?;
        match answer {
            Ok(answer) => self.finish(&answer)?,
            Err(error) => {
                if has_begun {
                    output::print("\n")?; // the end of its line
                }
                let is_kept = GenerationError::texts_before(&error).iter().any(|answer| !answer.text.is_empty());
                self.failures.tell(Err(error));
                match is_kept {
                    true => {
                        output::note(format_args!("the answer is kept as far as it was written; /retry answers again"))
                    }
                    false => self.session.set_messages(before),
                }
            }
        }
        Ok(())
    }

    /// The seed of an answer, by the number of its message and how often that was answered before.
    fn seed(&self) -> u64 {
        let number = self.session.exchanges().saturating_sub(1) as u64;
        self.options.seed.wrapping_add(number << 32).wrapping_add(self.retries)
    }

    /// Ends the line of an answer, and tells what it took and what was left out for it.
    fn finish(&mut self, answer: &ChatAnswer) -> Result<()> {
        output::print("\n")?;
        output::aside(format_args!("{}", self.summary(answer)));
        if answer.left_out > self.left_out {
            output::note(format_args!(
                "the conversation outgrows the context: the model no longer reads its oldest messages and their answers, {} so far",
                answer.left_out
            ));
        }
        self.left_out = answer.left_out;
        Ok(())
    }

    fn summary(&self, answer: &ChatAnswer) -> String {
        let tokens = answer.generated.ids.len();
        let context = self.session.context();
        let ended = match answer.generated.stop_reason {
            StopReason::Caller => ", stopped",
            StopReason::MaxNewTokens if answer.context_tokens() == context => ", cut off: the context is full",
            StopReason::MaxNewTokens => ", cut off at --max-new-tokens",
            _ => "",
        };
        format!(
            "{tokens} tokens{ended}, {:.0} tokens/s (read {} at {:.0} tokens/s), {} of {context} tokens of context",
            answer.written_per_second(),
            answer.read_tokens,
            answer.read_per_second(),
            answer.context_tokens()
        )
    }

    fn set_system(&mut self, text: String) {
        let done = if text.is_empty() { "there is no system message now" } else { "the system message is set" };
        self.session.set_system(text);
        output::note(format_args!("{done}"));
    }

    fn clear(&mut self) {
        self.session.clear();
        (self.retries, self.left_out) = (0, 0);
        output::note(format_args!("the conversation has been cleared"));
    }

    fn undo(&mut self) {
        match self.session.undo() {
            Some(text) => output::note(format_args!("taken back: {}", shortened(&text))),
            None => output::note(format_args!("there is no message to take back")),
        }
    }

    /// Writes the messages as a list of roles and contents.
    fn save(&self, path: &Path) -> Result<(), TaskError> {
        let messages = self.session.messages();
        let json = serde_json::to_string_pretty(messages).map_err(|error| TaskError::new(false, error))?;
        write_atomic(path, json + "\n")?;
        output::note(format_args!("wrote {} messages to {}", messages.len(), path.display()));
        Ok(())
    }

    fn load(&mut self, path: &Path) -> Result<(), TaskError> {
        let wrong = |error: serde_json::Error| {
            let problem = format!("is not a saved conversation: {}", shortened_reason(&error.to_string()));
            InputError::in_file(path, problem).advise(r#"give a list such as [{"role": "user", "content": "Hello"}]"#)
        };
        let messages: Vec<ChatMessage> = serde_json::from_str(&read_text_file(path, LIMIT)?).map_err(wrong)?;
        output::note(format_args!("read {} messages from {}", messages.len(), path.display()));
        self.session.set_messages(messages);
        (self.retries, self.left_out) = (0, 0);
        Ok(())
    }
}
