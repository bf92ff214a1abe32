//! The gradients of a step over all ranks, in one sum: each rank hands over what its share of the batches makes, and all get what one process
//! would have after the same group.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use firelight_storage::InputError;

use super::Ranks;
use crate::accumulate::{Accumulated, Part};
use crate::evaluate::device_of;
use crate::{LossOutput, TrainingError};

/// What is added where a rank has nothing to add: with it every number stays itself, a negative zero included.
const NOTHING: f32 = -0.0;

/// The numbers of the losses in front of those of the gradients.
const LOSSES: usize = 4;

impl Ranks {
    /// The gradients, losses and batches of all ranks together. `own` is none where a group ends before the share of this rank.
    pub(crate) fn together<M: Module>(
        &self,
        model: &M,
        own: Option<Accumulated>,
    ) -> Result<Accumulated, TrainingError> {
        if self.are_one() {
            return Ok(own.unwrap_or_else(|| unreachable!("a step has at least one batch")));
        }
        let counts = self.counts(own.as_ref())?;
        let mut values = written(model, own.map(|own| own.part_of(model, counts[0])))?;
        self.0.sum_f32(&mut values)?;
        let (losses, gradients) = values.split_at(LOSSES);
        let output = self.losses(losses, &device_of(model).inner());
        Ok(Accumulated::of_ranks(read(model, gradients), output, counts))
    }

    /// How many batches all ranks have, and how many come before the first whose loss is not finite.
    fn counts(&self, own: Option<&Accumulated>) -> Result<[usize; 2], TrainingError> {
        let own = own.map_or(Ok([0, 0]), Accumulated::counts).map_err(TrainingError::device("training loss"))?;
        let all = self.0.gather("step", own.into_iter().flat_map(|count| (count as u64).to_le_bytes()).collect())?;
        let (mut all_good, mut sums) = (true, [0, 0]);
        for bytes in all.iter() {
            let counts: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
            let &[count, good] = counts.as_slice() else { continue };
            sums = [sums[0] + count as usize, sums[1] + if all_good { good as usize } else { 0 }];
            all_good &= good == count;
        }
        Ok(sums)
    }

    fn losses(&self, sums: &[f32], device: &Device) -> LossOutput {
        let number = |index: usize| tensor::<1>(vec![sums[index]], [1], device);
        let all_tell = sums[3] == self.0.world() as f32;
        LossOutput::new(number(0), number(1)).with_training_total(all_tell.then(|| number(2)))
    }
}

/// What a rank hands over: the sum of its losses, their count, the sum of the training losses, whether it tells them, and then for each
/// trained parameter whether it has a gradient, and the gradient.
fn written<M: Module>(model: &M, part: Option<Part>) -> Result<Vec<f32>, TrainingError> {
    let (mut gradients, losses) = match part {
        Some(Part { gradients, output }) => (gradients, of_output(output)?),
        None => (GradientsParams::new(), vec![NOTHING, NOTHING, NOTHING, 1.0]),
    };
    let mut write = Write { gradients: &mut gradients, seen: HashSet::new(), values: losses, failure: None };
    model.visit(&mut write);
    match write.failure {
        Some(failure) => Err(failure),
        None => Ok(write.values),
    }
}

fn of_output(LossOutput { total, count, training_total }: LossOutput) -> Result<Vec<f32>, TrainingError> {
    let (mut values, tells) = ([host(total)?, host(count)?].concat(), training_total.is_some());
    values.extend(training_total.map_or(Ok(vec![NOTHING]), host)?);
    values.push(f32::from(u8::from(tells)));
    Ok(values)
}

/// The numbers of a tensor in single precision, which is what ranks exchange.
fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, TrainingError> {
    match tensor.dtype() {
        DType::F32 => tensor.without_autodiff().try_into_vec_as().map_err(TrainingError::device("gradients")),
        other => {
            let problem = format!("several ranks add up gradients and losses of f32, and there are some of {other:?}");
            Err(InputError::new(problem).advise("keep the parameters in f32; `training.precision` may differ").into())
        }
    }
}

fn tensor<const D: usize>(values: Vec<f32>, shape: impl Into<burn::tensor::Shape>, device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (device, DType::F32))
}

struct Write<'a> {
    gradients: &'a mut GradientsParams,
    seen: HashSet<ParamId>,
    values: Vec<f32>,
    failure: Option<TrainingError>,
}

impl ModuleVisitor for Write<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let weight = param.val();
        if !weight.is_require_grad() || !self.seen.insert(param.id) {
            return;
        }
        let gradient = self.gradients.remove::<D>(param.id);
        self.values.push(f32::from(u8::from(gradient.is_some())));
        match gradient.map(host) {
            Some(Ok(values)) => self.values.extend(values),
            Some(Err(failure)) => self.failure = Some(failure),
            None => self.values.resize(self.values.len() + weight.shape().num_elements(), NOTHING),
        }
    }
}

/// The gradients of `model` that a sum over ranks holds.
fn read<M: Module>(model: &M, values: &[f32]) -> GradientsParams {
    let mut read = Read { values, seen: HashSet::new(), gradients: GradientsParams::new() };
    model.visit(&mut read);
    read.gradients
}

struct Read<'a> {
    values: &'a [f32],
    seen: HashSet<ParamId>,
    gradients: GradientsParams,
}

impl ModuleVisitor for Read<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let weight = param.val();
        if !weight.is_require_grad() || !self.seen.insert(param.id) {
            return;
        }
        let (own, rest) = self.values.split_at(1 + weight.shape().num_elements());
        self.values = rest;
        if own[0] > 0.0 {
            let gradient = tensor::<D>(own[1..].to_vec(), weight.shape(), &weight.device().inner());
            self.gradients.register(param.id, gradient);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter_ids::ids_of;
    use crate::toy::Line;
    use crate::{Threads, ThreadsOptions};
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn what_a_rank_lacks_changes_nothing_of_what_the_others_have() {
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let ranks = Ranks::new(Arc::new(rank));
                    let model = Line::new(1.0, 0.0, &Device::default().autodiff());
                    let [slope, offset] = ["slope", "offset"].map(|path| ParamId::from(ids_of(&model)[path]));
                    let number = |number: f32| Tensor::<1>::from_floats([number], &Device::default());
                    let mut gradients = GradientsParams::new();
                    if ranks.is_first() {
                        gradients.register(slope, number(-0.0).unsqueeze::<2>());
                    }
                    let output = LossOutput::new(number(3.0), number(2.0));
                    let training = ranks.is_first().then(|| number(1.0));
                    let own = Accumulated::new(1, gradients, output.with_training_total(training));
                    let (gradients, output, batches) = ranks.together(&model, Some(own)).unwrap().mean(&model);
                    let found: Vec<f32> = gradients.get::<2>(slope).unwrap().try_into_vec_as().unwrap();
                    assert_eq!(found[0].to_bits(), (-0.0_f32).to_bits());
                    assert!(gradients.get::<1>(offset).is_none() && output.training_total.is_none());
                    assert_eq!((output.read().unwrap(), batches.bad(5)), ((6.0, 4.0), 5..=6));
                });
            }
        });
    }

    #[test]
    fn a_group_may_end_before_the_share_of_a_rank() {
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let ranks = Ranks::new(Arc::new(rank));
                    let model = Line::new(1.0, 0.0, &Device::default().autodiff());
                    let slope = ParamId::from(ids_of(&model)["slope"]);
                    let number = |number: f32| Tensor::<1>::from_floats([number], &Device::default());
                    let own = ranks.is_first().then(|| {
                        let mut gradients = GradientsParams::new();
                        gradients.register(slope, number(0.1).unsqueeze::<2>());
                        Accumulated::new(1, gradients, LossOutput::new(number(f32::NAN), number(3.0)))
                    });
                    let (gradients, output, batches) = ranks.together(&model, own).unwrap().mean(&model);
                    let found: Vec<f32> = gradients.get::<2>(slope).unwrap().try_into_vec_as().unwrap();
                    assert_eq!(found, [0.1], "one batch is not weighed");
                    assert_eq!((output.read().unwrap().1, batches.bad(7)), (3.0, 7..=7));
                });
            }
        });
    }
}
