//! Texts with links between their words, which heads are compared with: syntax (conllu.rs), and what mentions refer to (pairs.rs).

mod conllu;
mod pairs;

pub use conllu::read_conllu;
pub use pairs::read_pairs;

use std::ops::Range;
use std::path::PathBuf;

use firelight_storage::{InputError, TaskError};

/// A text, stretches of it, and links between them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnnotatedText {
    /// The file that it stands in.
    pub path: PathBuf,
    /// The line of the file where it begins, from 1.
    pub line: usize,
    /// What a model reads.
    pub text: String,
    /// Words, or longer stretches, as bytes of the text, in the order in which the file has them.
    pub words: Vec<Range<usize>>,
    /// What is said of two of them.
    pub links: Vec<Link>,
}

/// A link between two words of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Its kind: a relation of syntax, or `coreference`.
    pub relation: String,
    /// The place of the dependent, or of the mention, among the words of the text.
    pub from: usize,
    /// The place of the syntactic head, or of what the mention refers to.
    pub to: usize,
}

/// Texts for the scores that need more than a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Sentences with their syntax: [`read_conllu`].
    pub syntax: Vec<AnnotatedText>,
    /// Texts with their mentions: [`read_pairs`].
    pub pairs: Vec<AnnotatedText>,
}

impl Annotations {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// All texts, those with syntax first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &AnnotatedText> {
        self.syntax.iter().chain(&self.pairs)
    }
}

impl AnnotatedText {
    /// What a model says against the text, with the place of the text.
    pub(crate) fn at_its_line(&self) -> impl Fn(TaskError) -> TaskError {
        move |error| match error.is_user_error() {
            true => InputError::at_line(&self.path, self.line, format!("does not fit the model: {error}")).into(),
            false => error,
        }
    }
}
