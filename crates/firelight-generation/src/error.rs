//! What can go wrong between a prompt and its continuation.

use firelight_data::DataError;
use firelight_storage::{InputError, TaskError};

use crate::GeneratedText;

/// Why a text could not be generated.
///
/// Models report the first group from [`Autoregressive::prefill`](crate::Autoregressive::prefill), the loop the rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerationError {
    /// The input does not fit. The message says what was found and what was expected.
    #[error(transparent)]
    Input(#[from] InputError),

    /// The prompt is longer than the model can read at once.
    #[error(
        "the prompt has {tokens} tokens: the context of this model holds {max_seq_len}; shorten the prompt to its last {max_seq_len} tokens"
    )]
    PromptTooLong {
        /// Length of the prompt, in tokens.
        tokens: usize,
        /// The model's context, in tokens.
        max_seq_len: usize,
    },

    /// One or more generation options are out of range.
    #[error("invalid generation options: {}", .problems.join("; "))]
    InvalidOptions {
        /// One sentence for each bad field: the field, the value found, the values allowed.
        problems: Vec<String>,
    },

    /// The model's output is no distribution.
    #[error(
        "the model's logits for new token {step} are not finite (row {row}): its weights are damaged or its training \
         diverged; use an earlier checkpoint or train with a lower learning rate"
    )]
    NonFiniteLogits {
        /// Index of the new token, 0-based.
        step: usize,
        /// Row of the batch, 0-based.
        row: usize,
    },

    /// Bans and other processors hide every token.
    #[error(
        "no token is left to choose as new token {step} (row {row}): bans, forced tokens or constraints exclude all of them; relax them"
    )]
    NothingLeft {
        /// Index of the new token, 0-based.
        step: usize,
        /// Row of the batch, 0-based.
        row: usize,
    },

    /// The weaker model of a [`ContrastiveDecoding`](crate::processors::ContrastiveDecoding) fails.
    #[error("the weaker model of contrastive decoding failed: {cause}")]
    Amateur {
        /// What it answered.
        cause: Box<GenerationError>,
    },

    /// Nothing satisfies a constraint.
    #[error("{problem}; relax it")]
    Unsatisfiable {
        /// What is asked for, and why nothing satisfies it, if that is known.
        problem: String,
    },

    /// The search for a first text that satisfies a constraint came to its limit. There may be one:
    /// [`ConstraintCompiler::with_search_limit`](crate::ConstraintCompiler::with_search_limit) searches for longer.
    #[error(
        "the search for a text that satisfies {constraint} gave up after trying {tried} bytes; simplify the constraint, or \
         let a shorter text satisfy it"
    )]
    SearchGaveUp {
        /// The constraint, as it is called in a sentence.
        constraint: String,
        /// The bytes that were tried.
        tried: usize,
    },

    /// The device did not hand over the logits.
    #[error("the logits could not be read from the device: {reason}")]
    Device {
        /// What the backend said.
        reason: String,
    },

    /// The prompt or the vocabulary failed in the tokenizer.
    #[error(transparent)]
    Data(#[from] DataError),

    /// Texts had begun when an error ended them. The message is that of the error.
    #[error("{cause}")]
    Unfinished {
        /// What was written until then, one for each row. Rows that had ended before keep their reason; the others have
        /// [`StopReason::Failed`](crate::StopReason::Failed), and under a [`Constraint`](crate::Constraint) those that have begun are completed by
        /// tokens that nobody chose. Functions that return ids alone leave `text` empty.
        texts: Vec<GeneratedText>,
        /// Why they ended.
        cause: Box<GenerationError>,
    },
}

impl GenerationError {
    /// True when the user can fix it (a prompt, an option), false when the machine or the model's files failed.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Input(_) | Self::PromptTooLong { .. } | Self::InvalidOptions { .. } | Self::NothingLeft { .. } => {
                true
            }
            Self::Unsatisfiable { .. } | Self::SearchGaveUp { .. } => true,
            Self::NonFiniteLogits { .. } | Self::Device { .. } => false,
            Self::Data(error) => error.is_user_error(),
            Self::Amateur { cause } | Self::Unfinished { cause, .. } => cause.is_user_error(),
        }
    }

    /// What was written before the error; none where nothing was.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use firelight_generation::{Autoregressive, GenerationOptions, generate};
    ///
    /// fn ids_in_any_case<M: Autoregressive>(model: &M, prompt: M::Prompt) -> Vec<Vec<u32>> {
    ///     match generate(model, prompt, &GenerationOptions::new(100), |_| ControlFlow::Continue(())) {
    ///         Ok(rows) => rows.into_iter().map(|row| row.ids).collect(),
    ///         Err(error) => {
    ///             eprintln!("{error}");
    ///             error.texts().iter().map(|row| row.ids.clone()).collect()
    ///         }
    ///     }
    /// }
    /// ```
    pub fn texts(&self) -> &[GeneratedText] {
        if let Self::Unfinished { texts, .. } = self { texts } else { &[] }
    }

    /// What was written before the error of a task; none where nothing was, or it is another error.
    pub fn texts_before(error: &TaskError) -> &[GeneratedText] {
        error.cause().downcast_ref::<Self>().map_or(&[], Self::texts)
    }

    /// The error with texts that were written before it, of the rows in front of those that it has.
    pub(crate) fn after(self, mut written: Vec<GeneratedText>) -> Self {
        let cause = match self {
            Self::Unfinished { texts, cause } => {
                written.extend(texts);
                cause
            }
            error => Box::new(error),
        };
        match written.iter().all(|text| text.ids.is_empty()) {
            true => *cause,
            false => Self::Unfinished { texts: written, cause },
        }
    }

    /// The error with the text of each row, as `read` makes it of the ids.
    #[must_use]
    pub fn with_texts(mut self, read: impl Fn(&[u32]) -> String) -> Self {
        if let Self::Unfinished { texts, .. } = &mut self {
            texts.iter_mut().for_each(|row| row.text = read(&row.ids));
        }
        self
    }

    /// Replaces the row of the error by `number(row)`, for callers whose rows have other numbers.
    pub(crate) fn of_row(mut self, number: impl Fn(usize) -> usize) -> Self {
        if let Some(row) = self.row_mut() {
            *row = number(*row);
        }
        self
    }

    fn row_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::NonFiniteLogits { row, .. } | Self::NothingLeft { row, .. } => Some(row),
            Self::Amateur { cause } => cause.row_mut(),
            _ => None,
        }
    }

    /// The problems, one line each: every option that is out of its range, or the error itself.
    pub fn problems(&self) -> Vec<String> {
        match self {
            Self::InvalidOptions { problems } => problems.clone(),
            Self::Unfinished { cause, .. } => cause.problems(),
            error => vec![error.to_string()],
        }
    }
}

impl From<GenerationError> for TaskError {
    fn from(error: GenerationError) -> Self {
        let problems = error.problems();
        Self::new(error.is_user_error(), error).listing(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StopReason;
    use crate::prompt::empty_prompt;

    #[test]
    fn messages_say_what_was_expected_and_found() {
        let long = GenerationError::PromptTooLong { tokens: 70, max_seq_len: 64 };
        assert_eq!(
            long.to_string(),
            "the prompt has 70 tokens: the context of this model holds 64; shorten the prompt to its last 64 tokens"
        );
    }

    #[test]
    fn a_search_that_gave_up_says_how_to_help_and_is_not_unsatisfiable() {
        let gave_up = GenerationError::SearchGaveUp { constraint: "the JSON schema".into(), tried: 3_000_000 };
        let nothing = GenerationError::Unsatisfiable { problem: "no text satisfies the grammar".into() };
        assert_eq!(
            gave_up.to_string(),
            "the search for a text that satisfies the JSON schema gave up after trying 3000000 bytes; simplify the \
             constraint, or let a shorter text satisfy it"
        );
        assert_eq!(nothing.to_string(), "no text satisfies the grammar; relax it");
        assert!(gave_up.is_user_error() && nothing.is_user_error());
    }

    #[test]
    fn an_error_keeps_what_was_written_and_says_what_it_said() {
        let text = |ids: &[u32]| GeneratedText {
            text: String::new(),
            ids: ids.to_vec(),
            scores: Vec::new(),
            stop_reason: StopReason::Failed,
        };
        let broken = || GenerationError::NonFiniteLogits { step: 1, row: 0 };
        assert!(broken().texts().is_empty() && broken().after(vec![text(&[])]).texts().is_empty());
        let one = broken().after(vec![text(&[]), text(&[5])]);
        assert_eq!((one.to_string(), one.is_user_error()), (broken().to_string(), false));
        let both = one.after(vec![text(&[3])]).with_texts(|ids| format!("{ids:?}"));
        assert!(matches!(&both, GenerationError::Unfinished { cause, .. } if cause.texts().is_empty()));
        let both = TaskError::from(both);
        let texts: Vec<&str> = GenerationError::texts_before(&both).iter().map(|row| row.text.as_str()).collect();
        assert_eq!(texts, ["[3]", "[]", "[5]"]);
        assert!(GenerationError::texts_before(&empty_prompt().into()).is_empty());
    }

    #[test]
    fn options_and_prompts_are_the_users_and_damaged_weights_are_not() {
        assert!(GenerationError::from(empty_prompt()).is_user_error());
        assert!(GenerationError::InvalidOptions { problems: vec![] }.is_user_error());
        assert!(!GenerationError::NonFiniteLogits { step: 0, row: 0 }.is_user_error());
        assert!(!GenerationError::Device { reason: "lost".into() }.is_user_error());
    }
}
