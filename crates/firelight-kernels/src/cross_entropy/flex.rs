//! Cross-entropy on the flex backend: two reads of the logits forward, one read and one write backward.

use super::{CrossEntropyExtension, CrossEntropyKernel};
use crate::flex::{
    Real, block_rows, contiguous, filled, for_each_block, integers, maximum, sum, values, vectorised, with_real,
};
use crate::optional::OptionalBool;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;
use rayon::prelude::*;
use std::sync::Arc;

impl CrossEntropyExtension for Flex {
    fn cross_entropy(
        logits: FlexTensor,
        targets: FlexTensor,
        ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> FlexTensor {
        let targets = <Self as CrossEntropyKernel>::targets(targets, ignored.into_option(), smoothing);
        let [losses, _] = Self::forward(logits, &targets);
        losses
    }
}

/// The class of every row, `None` where it is ignored, and the share that is spread over all classes.
#[derive(Debug, Clone)]
pub(crate) struct Targets {
    classes: Arc<[Option<i64>]>,
    smoothing: f64,
}

impl Targets {
    /// The classes as indices.
    ///
    /// # Panics
    /// If one is outside `0 .. classes`, where the reference reads beside the row or panics with less to say.
    fn indices(&self, classes: usize) -> Vec<Option<usize>> {
        let index = |(row, target): (usize, &Option<i64>)| {
            target.map(|target| {
                let index = usize::try_from(target).ok().filter(|&index| index < classes);
                index.unwrap_or_else(|| {
                    panic!("cross_entropy: target {target} of row {row} is not one of {classes} classes")
                })
            })
        };
        self.classes.iter().enumerate().map(index).collect()
    }
}

impl CrossEntropyKernel for Flex {
    type Targets = Targets;

    fn targets(targets: FlexTensor, ignored: Option<FlexTensor>, smoothing: f64) -> Targets {
        let ignored = ignored.map(|ignored| ignored.to_contiguous());
        let counts = |row: usize| ignored.as_ref().is_none_or(|ignored| ignored.storage::<u8>()[row] == 0);
        let classes =
            integers(&targets).into_iter().enumerate().map(|(row, target)| counts(row).then_some(target)).collect();
        Targets { classes, smoothing }
    }

    fn forward(logits: FlexTensor, targets: &Targets) -> [FlexTensor; 2] {
        with_real!(logits, forward(logits, targets))
    }

    fn backward(logits: FlexTensor, sums: FlexTensor, grad: FlexTensor, targets: &Targets) -> FlexTensor {
        with_real!(logits, backward(logits, sums, grad, targets))
    }
}

/// `loss = log Σ exp(x) - (1 - a) x(target) - a mean(x)`, all relative to the largest logit of the row: their sum would
/// round the logarithm away where logits are large.
fn forward<T: Real>(logits: FlexTensor, targets: &Targets) -> [FlexTensor; 2] {
    let logits = contiguous(logits);
    let numbers = values::<T>(&logits);
    let rows = targets.classes.len();
    let width = numbers.len() / rows;
    let indices = targets.indices(width);
    // Loss, largest logit and logarithm of a row lie side by side, so that one loop over rows writes all three.
    let all = filled(3 * rows, |all| {
        let block = block_rows(width);
        all.par_chunks_mut(3 * block).enumerate().for_each(|(index, all)| {
            for (row, found) in (index * block..).zip(all.chunks_exact_mut(3)) {
                let logits = &numbers[row * width..(row + 1) * width];
                found.copy_from_slice(&vectorised(
                    #[inline(always)]
                    || loss(logits, indices[row], T::of(targets.smoothing)),
                ));
            }
        });
    });
    let losses = all.iter().step_by(3).copied().collect();
    let sums = all.chunks_exact(3).flat_map(|row| [row[1], row[2]]).collect();
    [T::tensor(losses, Shape::from(vec![rows])), T::tensor(sums, Shape::from(vec![rows, 2]))]
}

/// The loss of a row, its largest logit, and the logarithm of the sum of exponentials relative to that.
#[inline(always)]
fn loss<T: Real>(logits: &[T], target: Option<usize>, smoothing: T) -> [T; 3] {
    let largest = maximum(logits);
    let log_sum = sum(
        [logits],
        #[inline(always)]
        |[logit]| (logit - largest).exp(),
    )
    .ln();
    let Some(target) = target else { return [T::ZERO, largest, log_sum] };
    let mut mean = (T::ONE - smoothing) * (logits[target] - largest);
    if smoothing > T::ZERO {
        mean += smoothing * sum([logits], |[logit]| logit - largest) / T::of(logits.len() as f64);
    }
    [log_sum - mean, largest, log_sum]
}

/// `(softmax(x) - (1 - a) [target] - a / V) grad`, over the logits themselves if this was their last use.
fn backward<T: Real>(logits: FlexTensor, sums: FlexTensor, grad: FlexTensor, targets: &Targets) -> FlexTensor {
    let mut logits = logits.to_contiguous();
    let (shape, grad) = (logits.layout().shape().clone(), contiguous(grad));
    let (sums, grads) = (values::<T>(&sums), values::<T>(&grad));
    let width = shape[1];
    let (indices, smoothing) = (targets.indices(width), T::of(targets.smoothing));
    let slope = |row: usize| Slope::new(&sums[2 * row..2 * row + 2], grads[row], smoothing, width);
    if let Some(numbers) = T::storage_mut(&mut logits) {
        for_each_block(numbers, width, |first, numbers| {
            for (row, numbers) in (first..).zip(numbers.chunks_exact_mut(width)) {
                slope(row).over(numbers, indices[row]);
            }
        });
        return logits;
    }
    let numbers = values::<T>(&logits);
    let out = filled(numbers.len(), |out| {
        for_each_block(out, width, |first, out| {
            for (row, out) in (first..).zip(out.chunks_exact_mut(width)) {
                slope(row).of(&numbers[row * width..(row + 1) * width], out, indices[row]);
            }
        });
    });
    T::tensor(out, shape)
}

/// What the gradient of the logits of a row is made of. The loops read plain numbers: an index in them, which may fail, would
/// keep them from being vectorised.
#[derive(Clone, Copy)]
struct Slope<T> {
    largest: T,
    log_sum: T,
    grad: T,
    /// What every class has of the smoothed target, times the gradient.
    share: T,
    /// What the target has more.
    rest: T,
}

impl<T: Real> Slope<T> {
    fn new(sums: &[T], grad: T, smoothing: T, classes: usize) -> Self {
        let (share, rest) = (smoothing / T::of(classes as f64) * grad, (T::ONE - smoothing) * grad);
        Self { largest: sums[0], log_sum: sums[1], grad, share, rest }
    }

    #[inline(always)]
    fn at(self, x: T) -> T {
        (x - self.largest - self.log_sum).exp() * self.grad - self.share
    }

    fn of(self, logits: &[T], out: &mut [T], target: Option<usize>) {
        let Some(target) = target else { return out.fill(T::ZERO) };
        vectorised(
            #[inline(always)]
            || out.iter_mut().zip(logits).for_each(move |(out, &x)| *out = self.at(x)),
        );
        out[target] += -self.rest;
    }

    fn over(self, logits: &mut [T], target: Option<usize>) {
        let Some(target) = target else { return logits.fill(T::ZERO) };
        vectorised(
            #[inline(always)]
            || logits.iter_mut().for_each(move |x| *x = self.at(*x)),
        );
        logits[target] += -self.rest;
    }
}
