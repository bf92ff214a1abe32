//! What every model asks of the rows of ids that it reads as a prompt.

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
        return Err(GenerationError::EmptyPrompt);
    }
    if let Some(row) = rows.iter().find(|row| row.len() > max_seq_len) {
        return Err(GenerationError::PromptTooLong { tokens: row.len(), max_seq_len });
    }
    match rows.iter().flatten().find(|id| **id as usize >= vocab_size) {
        Some(id) => Err(GenerationError::UnknownToken { id: *id, vocab_size }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_that_does_not_fit_is_named() {
        let refused = |rows: &[Vec<u32>]| check_prompt(rows, 2, 3).unwrap_err();
        assert!(matches!(refused(&[]), GenerationError::EmptyPrompt));
        assert!(matches!(refused(&[vec![1], vec![]]), GenerationError::EmptyPrompt));
        assert!(matches!(
            refused(&[vec![1], vec![0; 3]]),
            GenerationError::PromptTooLong { tokens: 3, max_seq_len: 2 }
        ));
        assert!(matches!(refused(&[vec![1, 3]]), GenerationError::UnknownToken { id: 3, vocab_size: 3 }));
    }
}
