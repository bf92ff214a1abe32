//! What can go wrong between a text and a trained model, or a model and its text.

/// Why a language model could not be trained, loaded, evaluated or asked: the error of every task.
pub type LanguageError = firelight_storage::TaskError;
