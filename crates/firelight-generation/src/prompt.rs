//! The checks that every model makes on the ids of a prompt.

use firelight_storage::InputError;

use crate::GenerationError;

/// Makes sure that a model can read these rows at once: there is one, none is empty or longer than `max_seq_len` tokens, and
/// every id is below `vocab_size`.
///
/// # Errors
/// Names the first thing that does not fit.
///
/// ```
/// use firelight_generation::check_prompt;
///
/// assert!(check_prompt(&[vec![1, 2], vec![0]], 2, 3).is_ok());
/// assert!(check_prompt(&[vec![1, 3]], 2, 3).unwrap_err().to_string().contains("token id 3"));
/// ```
pub fn check_prompt(rows: &[Vec<u32>], max_seq_len: usize, vocab_size: usize) -> Result<(), GenerationError> {
    if rows.is_empty() || rows.iter().any(Vec::is_empty) {
        return Err(empty_prompt().into());
    }
    if let Some(row) = rows.iter().find(|row| row.len() > max_seq_len) {
        return Err(GenerationError::PromptTooLong { tokens: row.len(), max_seq_len });
    }
    match rows.iter().flatten().find(|id| **id as usize >= vocab_size) {
        Some(id) => Err(unknown_token(*id, vocab_size).into()),
        None => Ok(()),
    }
}

/// A prompt that holds no token.
pub(crate) fn empty_prompt() -> InputError {
    InputError::new("the prompt is empty: expected at least one token to continue from, found none")
        .advise("give a prompt of one character or more")
}

/// An id that the model has no embedding for.
fn unknown_token(id: u32, vocab_size: usize) -> InputError {
    let known = format!("the model knows the ids 0 to {}", vocab_size - 1);
    InputError::new(format!("token id {id} is outside the vocabulary: {known}"))
        .advise("encode the prompt with the tokenizer saved beside the model")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_that_does_not_fit_is_named() {
        let refused = |rows: &[Vec<u32>]| check_prompt(rows, 2, 3).unwrap_err();
        for nothing in [&[][..], &[vec![1], vec![]]] {
            assert!(refused(nothing).to_string().starts_with("the prompt is empty: expected at least one token"));
        }
        assert!(matches!(
            refused(&[vec![1], vec![0; 3]]),
            GenerationError::PromptTooLong { tokens: 3, max_seq_len: 2 }
        ));
        let unknown = "token id 3 is outside the vocabulary: the model knows the ids 0 to 2; encode the prompt with";
        assert!(refused(&[vec![1, 3]]).to_string().starts_with(unknown));
    }
}
