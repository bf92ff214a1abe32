//! Cross-entropy from Burn primitives.

use super::CrossEntropyOptions;
use burn::tensor::{Int, Tensor};

/// Works on logits shifted by their row maximum, `log p(v) = shifted(v) - log Σ exp(shifted)`, so that only one more
/// tensor of the size of the logits is formed.
pub(super) fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, options: &CrossEntropyOptions) -> Tensor<1> {
    let targets = match &options.ignored {
        Some(ignored) => targets.mask_fill(ignored.clone(), 0),
        None => targets,
    };
    let shifted = logits.clone() - logits.detach().max_dim(1);
    let log_sum = shifted.clone().exp().sum_dim(1).log(); // [N, 1]
    let target = shifted.clone().gather(1, targets.unsqueeze_dim(1)); // [N, 1]
    let smoothing = options.label_smoothing;
    let mean = if smoothing == 0.0 { target } else { target * (1.0 - smoothing) + shifted.mean_dim(1) * smoothing };
    let losses = (log_sum - mean).squeeze_dim::<1>(1);
    match &options.ignored {
        Some(ignored) => losses.mask_fill(ignored.clone(), 0.0),
        None => losses,
    }
}
