//! What is said in a conversation, and what an answer took.

use std::time::Duration;

use firelight_generation::GeneratedText;
use serde::{Deserialize, Serialize};

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatMessage {
    /// Who says it: `system`, `user` or `assistant`, or another role that the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A message of a role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// An answer, what the model read for it, and how long it took.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChatAnswer {
    /// The text with its ids, and why it ended.
    pub generated: GeneratedText,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that had not been read before.
    pub read_tokens: usize,
    /// How many of the oldest exchanges were left out of the prompt.
    pub left_out: usize,
    /// The time up to the first piece of the text.
    pub reading: Duration,
    /// The time from there to the end.
    pub writing: Duration,
}

impl ChatAnswer {
    /// Tokens of prompt and answer.
    pub fn context_tokens(&self) -> usize {
        self.prompt_tokens + self.generated.ids.len()
    }

    /// Tokens of the prompt that were read in a second.
    pub fn read_per_second(&self) -> f64 {
        rate(self.read_tokens, self.reading)
    }

    /// Tokens that were written in a second; the first one belongs to the reading.
    pub fn written_per_second(&self) -> f64 {
        rate(self.generated.ids.len().saturating_sub(1), self.writing)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    tokens as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}
