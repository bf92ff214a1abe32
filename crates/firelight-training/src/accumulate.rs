//! The gradients of several batches as those of one: each batch weighs by its number of counted targets, so that the step
//! is the one of a single batch with all the items, also where batches differ in length or the last group is smaller. The
//! trainer adds here; nothing of it outlives a step, so a checkpoint has nothing of it to keep, and nothing grows with the number
//! of batches.

use std::ops::RangeInclusive;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor};

use crate::LossOutput;
use crate::gradients::scaled;

/// The sum of `count * gradient` over the batches so far, with the sums of their losses.
pub(crate) struct Accumulated {
    gradients: GradientsParams,
    output: LossOutput,
    batches: Batches,
}

/// The batches of a step, of which the first bad one is found.
pub(crate) struct Batches {
    count: usize,
    /// How many come before the first whose loss is not finite, `[1]`; none while there is one batch.
    good: Option<Tensor<1, Int>>,
}

impl Batches {
    /// Counts one more batch, after those whose sum of losses is `before`.
    fn and(self, before: &LossOutput, loss: &Tensor<1>) -> Self {
        let good = self.good.unwrap_or_else(|| before.total.clone().is_finite().int());
        let is_next = good.clone().equal_elem(self.count as i64).int();
        Self { count: self.count + 1, good: Some(good + is_next * loss.clone().is_finite().int()) }
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

impl Accumulated {
    /// The gradients of the mean loss of one batch.
    pub(crate) fn new(gradients: GradientsParams, output: LossOutput) -> Self {
        Self { gradients, output, batches: Batches { count: 1, good: None } }
    }

    /// Adds those of one more batch of the same `model`.
    pub(crate) fn add<M: Module>(self, model: &M, gradients: GradientsParams, output: LossOutput) -> Self {
        let mut sum = match self.batches.count {
            1 => scaled(model, self.gradients, self.output.count.clone()),
            _ => self.gradients,
        };
        let mut more = scaled(model, gradients, output.count.clone());
        model.visit(&mut Add { sum: &mut sum, more: &mut more });
        let batches = self.batches.and(&self.output, &output.total);
        Self { gradients: sum, output: self.output.plus(output), batches }
    }

    /// The gradients of the mean loss over all targets, the sums of the losses, and the batches.
    pub(crate) fn mean<M: Module>(self, model: &M) -> (GradientsParams, LossOutput, Batches) {
        let gradients = match self.batches.count {
            1 => self.gradients,
            _ => scaled(model, self.gradients, self.output.count.clone().clamp_min(1.0).recip()),
        };
        (gradients, self.output, self.batches)
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

    fn gradients(model: &Line, points: &[(f32, f32)]) -> Accumulated {
        let output = TrainStep::step(model, Points::new(points.to_vec(), &Device::default().autodiff()));
        Accumulated::new(output.grads, output.item)
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
        let whole = values(&model, gradients(&model, &points));
        let [first, second, third] = [&points[..2], &points[2..3], &points[3..]].map(|part| gradients(&model, part));
        let parts = first.add(&model, second.gradients, second.output).add(&model, third.gradients, third.output);
        for (found, expected) in values(&model, parts).into_iter().zip(whole) {
            assert!((found - expected).abs() < 1e-5 * expected.abs(), "{found} instead of {expected}");
        }
    }
}
