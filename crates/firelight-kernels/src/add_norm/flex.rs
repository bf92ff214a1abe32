//! A residual addition and the norm of its sum on the flex backend: a row of the sum is still in the first cache when it is
//! normalised.

use super::{AddNormExtension, AddNormKernel, NormOfSum};
use crate::flex::{Number, Real, contiguous, filled, for_each_pair_of_blocks, values, vectorised, with_number};
use crate::layer_norm::flex::normalise as normalise_layer;
use crate::optional::OptionalFloat;
use crate::rms_norm::flex::normalise as normalise_rms;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

impl AddNormExtension for Flex {
    fn add_norm(
        x: FlexTensor,
        branch: FlexTensor,
        gamma: FlexTensor,
        beta: OptionalFloat<Self>,
        norm: NormOfSum,
    ) -> (FlexTensor, FlexTensor) {
        Self::sum_and_norm(x, branch, gamma, beta.into_option(), norm).into()
    }
}

impl AddNormKernel for Flex {
    fn sum_and_norm(
        x: FlexTensor,
        branch: FlexTensor,
        gamma: FlexTensor,
        beta: Option<FlexTensor>,
        norm: NormOfSum,
    ) -> [FlexTensor; 2] {
        with_number!(x, sum_and_norm(x, branch, gamma, beta, norm))
    }
}

fn sum_and_norm<T: Number>(
    x: FlexTensor,
    branch: FlexTensor,
    gamma: FlexTensor,
    beta: Option<FlexTensor>,
    norm: NormOfSum,
) -> [FlexTensor; 2] {
    let ([x, branch, gamma], beta) = ([x, branch, gamma].map(contiguous), beta.map(contiguous));
    let shape = x.layout().shape().clone();
    let [x, branch, gamma] = [&x, &branch, &gamma].map(values::<T>);
    let zeros = vec![T::round(T::Sum::ZERO); gamma.len()];
    let beta = beta.as_ref().map_or(zeros.as_slice(), values);
    let mut normed = Vec::new();
    let sum = filled(x.len(), |sum| {
        normed = filled(x.len(), |normed| {
            for_each_pair_of_blocks(sum, normed, gamma.len(), |first, sum, normed| {
                let inputs = [&x[first..first + sum.len()], &branch[first..first + sum.len()]];
                add_rows(sum, normed, inputs, [gamma, beta], norm);
            });
        });
    });
    [T::tensor(sum, shape.clone()), T::tensor(normed, shape)]
}

fn add_rows<T: Number>(
    sum: &mut [T],
    normed: &mut [T],
    [x, branch]: [&[T]; 2],
    [gamma, beta]: [&[T]; 2],
    norm: NormOfSum,
) {
    let width = gamma.len();
    vectorised(
        #[inline(always)]
        || {
            let outputs = sum.chunks_exact_mut(width).zip(normed.chunks_exact_mut(width));
            for ((sum, normed), (x, branch)) in outputs.zip(x.chunks_exact(width).zip(branch.chunks_exact(width))) {
                for ((sum, x), branch) in sum.iter_mut().zip(x).zip(branch) {
                    *sum = T::round(x.widen() + branch.widen());
                }
                match norm {
                    NormOfSum::Layer { epsilon } => normalise_layer(normed, sum, gamma, beta, Real::of(epsilon)),
                    NormOfSum::Rms { epsilon } => normalise_rms(normed, sum, gamma, Real::of(epsilon)),
                }
            }
        },
    );
}
