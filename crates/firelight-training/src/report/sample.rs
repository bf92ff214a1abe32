//! What a trained model made of what, beside what it should have made.

use maud::{Markup, html};

/// One input with the model's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// What the model was given, in words.
    pub input: String,
    /// What it made of it.
    pub output: String,
    /// What is right, such as the true label, where the data says so.
    pub expected: Option<String>,
}

impl Sample {
    /// A sample of which nothing says what is right.
    pub fn new(input: impl Into<String>, output: impl Into<String>) -> Self {
        Self { input: input.into(), output: output.into(), expected: None }
    }

    /// Adds what is right.
    pub fn expecting(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    pub(super) fn to_html(&self) -> Markup {
        html! {
            h3 { (self.input) }
            pre.sample { (self.output) }
            @if let Some(expected) = &self.expected { p.expected { "expected: " (expected) } }
        }
    }
}
