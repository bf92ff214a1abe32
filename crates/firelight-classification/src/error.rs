//! What can go wrong between labelled texts and a trained model, or a model and its answers.

/// Why a model could not be trained, loaded, evaluated or asked: the error of every task.
pub type ClassificationError = firelight_storage::TaskError;
