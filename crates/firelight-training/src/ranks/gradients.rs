//! The gradients of a step over all ranks: each rank hands over what its share of the batches makes, bucket by bucket, and all get what one
//! process would have after the same group.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};
use firelight_storage::InputError;

use super::Ranks;
use super::buckets::{BUCKET, Buckets};
use super::incoming::{Incoming, tensor};
use super::shards::Trained;
use crate::accumulate::{Accumulated, GradientSum};
use crate::evaluate::device_of;
use crate::{Exchange, LossOutput, TrainingError};

/// What is added where a rank has nothing to add: with it every number stays itself, a negative zero included.
pub(super) const NOTHING: f32 = -0.0;

/// The numbers that tell of the losses.
const LOSSES: usize = 4;

impl Ranks {
    /// The gradients, losses and batches of all ranks together. `own` is none where a group ends before the share of this rank.
    pub(crate) fn together<M: Module>(
        &self,
        model: &M,
        own: Option<Accumulated>,
        exchange: Exchange,
    ) -> Result<Accumulated, TrainingError> {
        if self.are_one() {
            return Ok(own.unwrap_or_else(|| unreachable!("a step has at least one batch")));
        }
        let counts = self.counts(own.as_ref())?;
        let (gradients, mut losses) = match own.map(|own| own.part_of(model, counts[0])) {
            Some(GradientSum { gradients, output }) => (gradients, of_output(output)?),
            None => (GradientsParams::new(), [NOTHING, NOTHING, NOTHING, 1.0]),
        };
        self.0.sum_f32(&mut losses)?;
        let gradients = match (exchange, self.0.collective()) {
            (Exchange::F32, Some(collective)) => self.summed_by(collective, model, gradients)?,
            _ => self.summed(BUCKET, model, gradients, exchange)?,
        };
        let output = self.losses(&losses, &device_of(model).inner());
        Ok(Accumulated::of_ranks(gradients, output, counts))
    }

    /// The sums of the gradients over all ranks, by buckets of so many numbers.
    fn summed<M: Module>(
        &self,
        bucket: usize,
        model: &M,
        mut gradients: GradientsParams,
        exchange: Exchange,
    ) -> Result<GradientsParams, TrainingError> {
        let mut expect = Expect::default();
        model.visit(&mut expect);
        let mut sums = expect.sums;
        let sum = |numbers: &mut [f32]| exchange.sum(&*self.0, numbers);
        Buckets::with(bucket, sum, |mut buckets| {
            let (trained, failure) = (Trained::default(), None);
            let mut write =
                Write { gradients: &mut gradients, trained, buckets: &mut buckets, sums: &mut sums, failure };
            model.visit(&mut write);
            write.failure.map_or(Ok(()), Err)?;
            buckets.finish(&mut sums)?;
            Ok(sums.into_complete())
        })
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

/// What a rank hands over of its losses: their sum, their count, the sum of the training losses, and whether it tells those.
fn of_output(LossOutput { total, count, training_total }: LossOutput) -> Result<[f32; LOSSES], TrainingError> {
    let number = |tensor: Tensor<1>| host(tensor).map(|numbers| numbers.first().copied().unwrap_or(NOTHING));
    let tells = f32::from(u8::from(training_total.is_some()));
    Ok([number(total)?, number(count)?, training_total.map_or(Ok(NOTHING), number)?, tells])
}

/// The numbers of a tensor in single precision, which is what ranks exchange.
pub(super) fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, TrainingError> {
    single(&tensor)?;
    tensor.without_autodiff().try_into_vec_as().map_err(TrainingError::device("gradients"))
}

/// Refuses a tensor that is not in single precision.
pub(super) fn single<const D: usize>(tensor: &Tensor<D>) -> Result<(), TrainingError> {
    match tensor.dtype() {
        DType::F32 => Ok(()),
        other => {
            let problem = format!("several ranks exchange numbers of f32, and there are some of {other:?}");
            Err(InputError::new(problem).advise("keep the parameters in f32; `training.precision` may differ").into())
        }
    }
}

/// Expects the sums of the gradients of all trained parameters.
#[derive(Default)]
struct Expect {
    trained: Trained,
    sums: Incoming,
}

impl ModuleVisitor for Expect {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.trained.is_new(param) {
            self.sums.expect_gradient(param);
        }
    }
}

/// Hands over of each trained parameter whether it has a gradient, and the gradient.
struct Write<'a> {
    gradients: &'a mut GradientsParams,
    trained: Trained,
    buckets: &'a mut Buckets,
    sums: &'a mut Incoming,
    failure: Option<TrainingError>,
}

impl Write<'_> {
    fn write<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> Result<(), TrainingError> {
        let gradient = self.gradients.remove::<D>(param.id);
        self.buckets.push(&[f32::from(u8::from(gradient.is_some()))], self.sums)?;
        let numbers = match gradient {
            Some(gradient) => host(gradient)?,
            None => vec![NOTHING; param.val().shape().num_elements()],
        };
        Ok(self.buckets.push(&numbers, self.sums)?)
    }
}

impl ModuleVisitor for Write<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.failure.is_none() && self.trained.is_new(param) {
            self.failure = self.write(param).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter_ids::ids_of;
    use crate::toy::Line;
    use crate::{Threads, ThreadsOptions};
    use burn::module::ParamId;
    use std::sync::Arc;
    use std::thread;

    /// One of several ranks, and the model that each of them has.
    struct Rank {
        ranks: Ranks,
        model: Line,
    }

    impl Rank {
        fn number(&self) -> usize {
            self.ranks.0.rank()
        }

        fn id(&self, path: &str) -> ParamId {
            ParamId::from(ids_of(&self.model)[path])
        }

        /// Gradients of the two parameters, as far as there are some.
        fn gradients(&self, slope: Option<f32>, offset: Option<f32>) -> GradientsParams {
            let mut gradients = GradientsParams::new();
            if let Some(slope) = slope {
                gradients.register(self.id("slope"), scalar(slope).unsqueeze::<2>());
            }
            if let Some(offset) = offset {
                gradients.register(self.id("offset"), scalar(offset));
            }
            gradients
        }

        fn slope_in(&self, gradients: &GradientsParams) -> f32 {
            let found: Vec<f32> = gradients.get::<2>(self.id("slope")).unwrap().try_into_vec_as().unwrap();
            found[0]
        }

        fn offset_in(&self, gradients: &GradientsParams) -> Option<f32> {
            let found = gradients.get::<1>(self.id("offset"))?;
            let found: Vec<f32> = found.try_into_vec_as().unwrap();
            Some(found[0])
        }
    }

    fn scalar(value: f32) -> Tensor<1> {
        Tensor::from_floats([value], &Device::default())
    }

    /// Does `work` as each rank of a world.
    fn on_ranks(world: usize, work: impl Fn(&Rank) + Sync) {
        thread::scope(|scope| {
            let work = &work;
            for rank in Threads::ranks(world, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let model = Line::new(1.0, 0.0, &Device::default().autodiff());
                    work(&Rank { ranks: Ranks::new(Arc::new(rank)), model });
                });
            }
        });
    }

    #[test]
    fn what_a_rank_lacks_changes_nothing_of_what_the_others_have() {
        on_ranks(2, |rank| {
            let has = rank.ranks.is_first();
            let gradients = rank.gradients(has.then_some(-0.0), None);
            let output = LossOutput::new(scalar(3.0), scalar(2.0)).with_training_total(has.then(|| scalar(1.0)));
            let own = Accumulated::new(1, gradients, output);
            let (gradients, output, batches) =
                rank.ranks.together(&rank.model, Some(own), Exchange::F32).unwrap().mean(&rank.model);
            assert_eq!(rank.slope_in(&gradients).to_bits(), (-0.0_f32).to_bits());
            assert!(rank.offset_in(&gradients).is_none() && output.training_total.is_none());
            assert_eq!((output.read().unwrap(), batches.bad(5)), ((6.0, 4.0), 5..=6));
        });
    }

    #[test]
    fn a_group_may_end_before_the_share_of_a_rank() {
        on_ranks(2, |rank| {
            let own = rank.ranks.is_first().then(|| {
                let output = LossOutput::new(scalar(f32::NAN), scalar(3.0));
                Accumulated::new(1, rank.gradients(Some(0.1), None), output)
            });
            let (gradients, output, batches) =
                rank.ranks.together(&rank.model, own, Exchange::F32).unwrap().mean(&rank.model);
            assert_eq!(rank.slope_in(&gradients), 0.1, "one batch is not weighed");
            assert_eq!((output.read().unwrap().1, batches.bad(7)), (3.0, 7..=7));
        });
    }

    #[test]
    fn buckets_change_no_sum() {
        // 2^24 + 1 is no float: in the order of halves two of four ones are not lost.
        let slopes = [16_777_216.0, 0.0, 1.0, 1.0];
        for bucket in [1, 2, 3, 100] {
            on_ranks(4, |rank| {
                let offset = (!rank.ranks.is_first()).then_some(0.5);
                let gradients = rank.gradients(Some(slopes[rank.number()]), offset);
                let sums = rank.ranks.summed(bucket, &rank.model, gradients, Exchange::F32).unwrap();
                assert_eq!((rank.slope_in(&sums), rank.offset_in(&sums)), (16_777_218.0, Some(1.5)));
            });
        }
    }

    #[test]
    fn a_rounded_exchange_leaves_losses_as_they_are() {
        on_ranks(2, |rank| {
            let output = LossOutput::new(scalar(257.0), scalar(1.0));
            let own = Accumulated::new(1, rank.gradients(Some(257.0), None), output);
            let (gradients, output, _) =
                rank.ranks.together(&rank.model, Some(own), Exchange::Bf16).unwrap().mean(&rank.model);
            let found = rank.slope_in(&gradients);
            assert_eq!(found, 256.0, "the mean of twice 256, the even one of the two next to 257");
            assert_eq!(output.read().unwrap(), (514.0, 2.0));
        });
    }
}
