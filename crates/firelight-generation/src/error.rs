//! What can go wrong between a prompt and its continuation.

use firelight_data::DataError;

/// Why a text could not be generated.
///
/// Models report the first group from [`Autoregressive::prefill`](crate::Autoregressive::prefill), the loop the rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerationError {
    /// The prompt holds no token.
    #[error(
        "the prompt is empty: expected at least one token to continue from, found none; give a prompt of one character or more"
    )]
    EmptyPrompt,

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

    /// The prompt holds an id that the model has no embedding for.
    #[error("token id {id} is outside the vocabulary: the model knows the ids 0 to {}; encode the prompt with the tokenizer saved beside the model", .vocab_size - 1)]
    UnknownToken {
        /// The id found.
        id: u32,
        /// Number of ids that the model knows.
        vocab_size: usize,
    },

    /// One or more generation options are out of range.
    #[error("invalid generation options: {}", .problems.join("; "))]
    InvalidOptions {
        /// One sentence for each bad field: the field, the value found, the values allowed.
        problems: Vec<String>,
    },

    /// The model's output is no distribution.
    #[error(
        "the model's logits for new token {step} are not finite (row {row}): its weights are damaged or its training diverged; use an earlier checkpoint or train with a lower learning rate"
    )]
    NonFiniteLogits {
        /// Index of the new token, 0-based.
        step: usize,
        /// Row of the batch, 0-based.
        row: usize,
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
}

impl GenerationError {
    /// True when the user can fix it (a prompt, an option), false when the machine or the model's files failed.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::EmptyPrompt
            | Self::PromptTooLong { .. }
            | Self::UnknownToken { .. }
            | Self::InvalidOptions { .. } => true,
            Self::NonFiniteLogits { .. } | Self::Device { .. } => false,
            Self::Data(error) => error.is_user_error(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_was_expected_and_found() {
        let long = GenerationError::PromptTooLong { tokens: 70, max_seq_len: 64 };
        assert_eq!(
            long.to_string(),
            "the prompt has 70 tokens: the context of this model holds 64; shorten the prompt to its last 64 tokens"
        );
        let unknown = GenerationError::UnknownToken { id: 300, vocab_size: 65 };
        assert!(
            unknown.to_string().starts_with("token id 300 is outside the vocabulary: the model knows the ids 0 to 64")
        );
    }

    #[test]
    fn options_and_prompts_are_the_users_and_damaged_weights_are_not() {
        assert!(GenerationError::EmptyPrompt.is_user_error());
        assert!(GenerationError::InvalidOptions { problems: vec![] }.is_user_error());
        assert!(!GenerationError::NonFiniteLogits { step: 0, row: 0 }.is_user_error());
        assert!(!GenerationError::Device { reason: "lost".into() }.is_user_error());
    }
}
