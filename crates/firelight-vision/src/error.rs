//! What can go wrong between images and a trained model, or a model and its answers.

/// Why a model could not be trained, loaded, evaluated or asked: the error of every task.
pub type VisionError = firelight_storage::TaskError;
