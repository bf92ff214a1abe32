//! What can go wrong between pairs of texts and a trained model, or a model and its translations.

use firelight_storage::{InputError, TaskError};

/// Why a model could not be trained, loaded, evaluated or asked: the error of every task.
pub type Seq2SeqError = TaskError;

/// A text that the model cannot read at once: the line, counted from 1, and what it is.
pub(crate) fn too_long((line, side): (usize, &str), tokens: usize, max_seq_len: usize) -> InputError {
    let problem =
        format!("line {line} has {tokens} tokens, the end of the {side} included, but the model reads {max_seq_len}");
    InputError::new(problem).advise(
        "shorten it, train with a larger model.max_seq_len, or cut it with --truncate where it is only translated",
    )
}
