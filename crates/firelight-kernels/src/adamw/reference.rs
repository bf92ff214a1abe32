//! AdamW from Burn primitives.

use super::AdamWStep;
use burn::tensor::Tensor;

pub(super) fn adamw<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    [mean, square]: [Tensor<D>; 2],
    step: &AdamWStep,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let AdamWStep { learning_rate, beta_1, beta_2, epsilon, weight_decay, .. } = *step;
    let mean = mean * beta_1 + gradient.clone() * (1.0 - beta_1);
    let square = square * beta_2 + gradient.square() * (1.0 - beta_2);
    let [mean_correction, square_correction] = step.corrections();
    let direction = (mean.clone() / mean_correction) / ((square.clone() / square_correction).sqrt() + epsilon);
    let parameter = parameter * (1.0 - learning_rate * weight_decay) - direction * learning_rate;
    (parameter, [mean, square])
}
