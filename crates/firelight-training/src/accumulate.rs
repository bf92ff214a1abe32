//! The gradients of several batches as those of one: each batch weighs by its number of counted targets, so that the step
//! is the one of a single batch with all the items, also where batches differ in length or the last group is smaller. The
//! trainer adds here in the order of [`OrderedSum`], which is the same for one process and for several; nothing of it outlives a step, so
//! a checkpoint has nothing of it to keep. One sum for each halving of a group is in memory at a time.

use std::ops::RangeInclusive;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor, TensorReadError};

use crate::gradients::scaled;
use crate::{LossOutput, OrderedSum};

/// The sums over the batches so far.
pub(crate) struct Accumulated {
    /// The first batch as it is, while it is the only one, or the sum over all ranks.
    only: Option<GradientSum>,
    sum: OrderedSum<GradientSum>,
    batches: Batches,
}

/// The gradients of the mean loss of one batch, or the sum of `count * gradient` over several, with the sums of their losses.
pub(crate) struct GradientSum {
    pub(crate) gradients: GradientsParams,
    pub(crate) output: LossOutput,
}

impl GradientSum {
    /// The gradients of the sum of the losses in the place of those of the mean.
    fn weighed<M: Module>(self, model: &M) -> Self {
        Self { gradients: scaled(model, self.gradients, self.output.count.clone()), ..self }
    }

    fn plus<M: Module>(mut self, mut other: Self, model: &M) -> Self {
        model.visit(&mut Add { sum: &mut self.gradients, more: &mut other.gradients });
        Self { gradients: self.gradients, output: self.output.plus(other.output) }
    }
}

/// The batches of a step, of which the first bad one is found.
pub(crate) struct Batches {
    count: usize,
    /// How many come before the first whose loss is not finite, `[1]`; none while there is one batch.
    good: Option<Tensor<1, Int>>,
}

impl Batches {
    /// Counts one more batch, after a first one.
    fn and(self, first: Option<&LossOutput>, loss: &Tensor<1>) -> Self {
        let good = self.good.or_else(|| first.map(|first| is_good(&first.total)));
        let good = good.map(|good| good.clone() + good.equal_elem(self.count as i64).int() * is_good(loss));
        Self { count: self.count + 1, good }
    }

    /// The first batch whose loss is not finite, where they are counted from `first`; all of them, where only their sum tells.
    pub(crate) fn bad(&self, first: usize) -> RangeInclusive<usize> {
        let good = self.good.as_ref().and_then(|good| good.clone().try_into_scalar::<i64>().ok());
        match good.and_then(|good| usize::try_from(good).ok()).filter(|&good| good < self.count) {
            Some(good) => first + good..=first + good,
            None => first..=first + self.count - 1,
        }
    }
}

/// 1 for a loss that is finite, and else 0.
fn is_good(loss: &Tensor<1>) -> Tensor<1, Int> {
    loss.clone().is_finite().int()
}

impl Accumulated {
    /// The gradients of the mean loss of one batch, the first of a group of so many.
    pub(crate) fn new(group: usize, gradients: GradientsParams, output: LossOutput) -> Self {
        let batches = Batches { count: 1, good: None };
        Self { only: Some(GradientSum { gradients, output }), sum: OrderedSum::of(group), batches }
    }

    /// What all ranks have summed up: the gradients of one batch, or weighed sums, and how many batches there are, with how many before
    /// the first bad one.
    pub(crate) fn of_ranks(gradients: GradientsParams, output: LossOutput, [count, good]: [usize; 2]) -> Self {
        let good = Some(Tensor::from_ints([good as i32], &output.total.device()));
        Self { batches: Batches { count, good }, ..Self::new(1, gradients, output) }
    }

    /// Adds those of one more batch of the same `model`.
    pub(crate) fn add<M: Module>(mut self, model: &M, gradients: GradientsParams, output: LossOutput) -> Self {
        let plus = |one: GradientSum, other: GradientSum| one.plus(other, model);
        let batches = self.batches.and(self.only.as_ref().map(|first| &first.output), &output.total);
        if let Some(first) = self.only.take() {
            self.sum.add(first.weighed(model), plus);
        }
        self.sum.add(GradientSum { gradients, output }.weighed(model), plus);
        Self { batches, ..self }
    }

    /// How many batches there are, and how many come before the first whose loss is not finite.
    pub(crate) fn counts(&self) -> Result<[usize; 2], TensorReadError> {
        let first = || self.only.as_ref().map(|first| is_good(&first.output.total));
        let good = self.batches.good.clone().or_else(first).map_or(Ok(0), |good| good.try_into_scalar::<i64>())?;
        Ok([self.batches.count, usize::try_from(good).unwrap_or(0)])
    }

    /// The sum as a part of that of `all` batches of a group: not weighed where it is the only one.
    pub(crate) fn part_of<M: Module>(self, model: &M, all: usize) -> GradientSum {
        let is_one_of_several = self.batches.count == 1 && all > 1;
        let (part, _) = self.summed(model);
        if is_one_of_several { part.weighed(model) } else { part }
    }

    fn summed<M: Module>(self, model: &M) -> (GradientSum, Batches) {
        let sum = self.only.or_else(|| self.sum.finish(|one, other| one.plus(other, model)));
        (sum.unwrap_or_else(|| unreachable!("there is a first batch")), self.batches)
    }

    /// The gradients of the mean loss over all targets, the sums of the losses, and the batches.
    pub(crate) fn mean<M: Module>(self, model: &M) -> (GradientsParams, LossOutput, Batches) {
        let (GradientSum { gradients, output }, batches) = self.summed(model);
        let gradients = match batches.count {
            1 => gradients,
            _ => scaled(model, gradients, output.count.clone().clamp_min(1.0).recip()),
        };
        (gradients, output, batches)
    }
}

/// Adds the gradients `more` to `sum`; each is taken once, also if the module holds a parameter twice.
struct Add<'a> {
    sum: &'a mut GradientsParams,
    more: &'a mut GradientsParams,
}

impl ModuleVisitor for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(more) = self.more.remove::<D>(param.id) else { return };
        let sum = match self.sum.remove::<D>(param.id) {
            Some(sum) => sum + more,
            None => more,
        };
        self.sum.register(param.id, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, Points};
    use burn::tensor::Device;
    use burn::train::TrainStep;

    fn gradients(model: &Line, points: &[(f32, f32)]) -> (GradientsParams, LossOutput) {
        let output = TrainStep::step(model, Points::new(points.to_vec(), &Device::default().autodiff()));
        (output.grads, output.item)
    }

    fn accumulated(model: &Line, batches: &[&[(f32, f32)]]) -> Accumulated {
        let (first, rest) = batches.split_first().unwrap();
        let (grads, output) = gradients(model, first);
        let first = Accumulated::new(batches.len(), grads, output);
        rest.iter().fold(first, |sum, points| {
            let (grads, output) = gradients(model, points);
            sum.add(model, grads, output)
        })
    }

    fn values(model: &Line, accumulated: Accumulated) -> Vec<f64> {
        let (gradients, output, _) = accumulated.mean(model);
        let (total, count) = output.read().unwrap();
        let norm = crate::global_norm(model, &gradients).unwrap().try_into_scalar::<f64>().unwrap();
        vec![norm, total, count]
    }

    #[test]
    fn batches_of_unequal_size_are_one_batch() {
        let model = Line::new(2.0, 0.5, &Device::default().autodiff());
        let points = [(1.0, 1.0), (0.5, -1.0), (2.0, 0.0), (-1.0, 3.0)];
        let whole = values(&model, accumulated(&model, &[&points]));
        let thirds = values(&model, accumulated(&model, &[&points[..2], &points[2..3], &points[3..]]));
        let quarters: Vec<_> = points.chunks(1).collect();
        for parts in [thirds, values(&model, accumulated(&model, &quarters))] {
            for (found, expected) in parts.into_iter().zip(&whole) {
                assert!((found - expected).abs() < 1e-5 * expected.abs(), "{found} instead of {expected}");
            }
        }
    }

    #[test]
    fn gradients_are_added_in_halves() {
        // One point at x = 0 in each of four batches, where the derivative by the offset is -2 y. (2^24 + 0) + (1 + 1) is 2^24 + 2, and
        // (2^24 + 1) + (1 + 0) rounds to 2^24, twice; from left to right both would be 2^24.
        let model = Line::new(0.0, 0.0, &Device::default().autodiff());
        let sum = |halves: [f32; 4]| {
            let points = halves.map(|y| [(0.0, y)]);
            let batches: Vec<&[(f32, f32)]> = points.iter().map(<[_; 1]>::as_slice).collect();
            let (gradients, ..) = accumulated(&model, &batches).mean(&model);
            4.0 * crate::global_norm(&model, &gradients).unwrap().try_into_scalar::<f64>().unwrap()
        };
        assert_eq!(sum([8_388_608.0, 0.0, 0.5, 0.5]), 16_777_218.0);
        assert_eq!(sum([8_388_608.0, 0.5, 0.5, 0.0]), 16_777_216.0);
    }
}
