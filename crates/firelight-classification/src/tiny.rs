//! Trainings that are small enough for a test.

use firelight_training::RunRequest;

/// What makes the built-in recipes tiny. Without dropout, so that trainings beside one another change nothing of each other.
const TINY: [(&str, &str); 12] = [
    ("model.d_model", "16"),
    ("model.n_heads", "2"),
    ("model.n_layers", "1"),
    ("model.d_ff", "24"),
    ("model.dropout", "0"),
    ("data.tokenizer", "word:1"),
    ("training.epochs", "0"),
    ("training.steps", "4"),
    ("training.batch_size", "4"),
    ("training.evaluate_every", "2"),
    ("training.checkpoint_every", "2"),
    ("schedule.warmup_steps", "0"),
];

/// The request of a tiny training, with further changes of the recipe.
pub(crate) fn tiny(request: RunRequest, changes: &[(&str, &str)]) -> RunRequest {
    let change = |request: RunRequest, (key, value): &(&str, &str)| request.with_override(key, value);
    TINY.iter().chain(changes).fold(request, change)
}
