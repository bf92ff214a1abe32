//! AdamW on the flex backend: one pass over memory, in place where nobody else holds the tensors.

use super::{AdamWExtension, AdamWStep};
use crate::flex::{BLOCK, Real, contiguous, values, values_mut, vectorised, with_real};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

impl AdamWExtension for Flex {
    fn adamw(
        parameter: FlexTensor,
        gradient: FlexTensor,
        mean: FlexTensor,
        square: FlexTensor,
        step: AdamWStep,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        with_real!(parameter, adamw([parameter, gradient, mean, square], &Factors::of(&step)))
    }
}

/// The numbers of the update, corrections included.
struct Factors {
    beta_1: f64,
    beta_2: f64,
    /// `1 - η λ`.
    keep: f64,
    /// `η / (1 - β₁ᵗ)`.
    rate: f64,
    /// `1 / (1 - β₂ᵗ)`.
    correction: f64,
    epsilon: f64,
}

impl Factors {
    fn of(step: &AdamWStep) -> Self {
        let [mean, square] = step.corrections();
        let AdamWStep { learning_rate, beta_1, beta_2, epsilon, weight_decay, .. } = *step;
        let keep = 1.0 - learning_rate * weight_decay;
        Self { beta_1, beta_2, keep, rate: learning_rate / mean, correction: 1.0 / square, epsilon }
    }
}

fn adamw<T: Real>(tensors: [FlexTensor; 4], factors: &Factors) -> (FlexTensor, FlexTensor, FlexTensor) {
    let [mut parameter, gradient, mut mean, mut square] = tensors.map(contiguous);
    let blocks = values_mut::<T>(&mut parameter)
        .par_chunks_mut(BLOCK)
        .zip(values_mut::<T>(&mut mean).par_chunks_mut(BLOCK))
        .zip(values_mut::<T>(&mut square).par_chunks_mut(BLOCK))
        .zip(values::<T>(&gradient).par_chunks(BLOCK));
    blocks.for_each(|(((parameter, mean), square), gradient)| {
        vectorised(
            #[inline(always)]
            || update(parameter, mean, square, gradient, factors),
        );
    });
    (parameter, mean, square)
}

#[inline(always)]
fn update<T: Real>(parameter: &mut [T], mean: &mut [T], square: &mut [T], gradient: &[T], factors: &Factors) {
    let [beta_1, beta_2, rest_1, rest_2] =
        [factors.beta_1, factors.beta_2, 1.0 - factors.beta_1, 1.0 - factors.beta_2].map(T::of);
    let [keep, rate, correction, epsilon] =
        [factors.keep, factors.rate, factors.correction, factors.epsilon].map(T::of);
    for (((parameter, mean), square), &gradient) in parameter.iter_mut().zip(mean).zip(square).zip(gradient) {
        *mean = beta_1 * *mean + rest_1 * gradient;
        *square = beta_2 * *square + rest_2 * gradient * gradient;
        *parameter = keep * *parameter - rate * *mean / ((correction * *square).sqrt() + epsilon);
    }
}
