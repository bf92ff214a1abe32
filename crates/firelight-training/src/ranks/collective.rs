//! The gradients of a step over all ranks, summed by the devices themselves: what passes over the host is which parameters have one.

use std::vec;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::Ranks;
use super::gradients::{NOTHING, single};
use super::shards::Trained;
use crate::{Collective, CommunicatorError, TrainingError};

impl Ranks {
    /// The sums of the gradients over all ranks, in the order of the devices.
    pub(super) fn summed_by<M: Module>(
        &self,
        collective: &dyn Collective,
        model: &M,
        gradients: GradientsParams,
    ) -> Result<GradientsParams, TrainingError> {
        let mut found = Found { gradients: &gradients, trained: Trained::default(), found: Vec::new(), failure: None };
        model.visit(&mut found);
        // Before the others wait for this rank in a sum, which might not end.
        found.failure.map_or(Ok(()), Err)?;
        let there = self.on_any(found.found)?;
        let mut flat =
            Flat { gradients, trained: Trained::default(), there: there.clone().into_iter(), flat: Vec::new() };
        model.visit(&mut flat);
        let sums = collective.sum(flat.flat)?.into_iter();
        let mut back = Back { gradients: flat.gradients, trained: Trained::default(), there: there.into_iter(), sums };
        model.visit(&mut back);
        Ok(back.gradients)
    }

    /// Which of the parameters have a gradient on any rank.
    fn on_any(&self, own: Vec<u8>) -> Result<Vec<bool>, CommunicatorError> {
        let parameters = own.len();
        let all = self.0.gather("gradients", own)?;
        if let Some(rank) = all.iter().position(|found| found.len() != parameters) {
            let problem = format!("it trains {} parameters, and rank {} {parameters}", all[rank].len(), self.0.rank());
            return Err(CommunicatorError::Mismatch { rank, operation: "gradients", problem });
        }
        Ok((0..parameters).map(|index| all.iter().any(|found| found[index] > 0)).collect())
    }
}

/// Finds which trained parameters have a gradient here: 1 for each that has, and else 0.
struct Found<'a> {
    gradients: &'a GradientsParams,
    trained: Trained,
    found: Vec<u8>,
    failure: Option<TrainingError>,
}

impl ModuleVisitor for Found<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.trained.is_new(param) {
            return;
        }
        let gradient = self.gradients.get::<D>(param.id);
        self.found.push(u8::from(gradient.is_some()));
        if let Some(error) = gradient.and_then(|gradient| single(&gradient).err()) {
            self.failure.get_or_insert(error);
        }
    }
}

/// Takes the gradients that any rank has, each as a vector; zeros where this one has none.
struct Flat {
    gradients: GradientsParams,
    trained: Trained,
    there: vec::IntoIter<bool>,
    flat: Vec<Tensor<1>>,
}

impl ModuleVisitor for Flat {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.trained.is_new(param) || self.there.next() != Some(true) {
            return;
        }
        let value = param.val();
        let numbers = value.shape().num_elements();
        self.flat.push(match self.gradients.remove::<D>(param.id) {
            Some(gradient) => gradient.without_autodiff().reshape([numbers]),
            None => Tensor::full([numbers], NOTHING, &value.device().inner()),
        });
    }
}

/// Puts the sums in the place of the gradients.
struct Back {
    gradients: GradientsParams,
    trained: Trained,
    there: vec::IntoIter<bool>,
    sums: vec::IntoIter<Tensor<1>>,
}

impl ModuleVisitor for Back {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.trained.is_new(param) || self.there.next() != Some(true) {
            return;
        }
        if let Some(sum) = self.sums.next() {
            self.gradients.register(param.id, sum.reshape::<D, _>(param.val().shape()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accumulate::Accumulated;
    use crate::parameter_ids::ids_of;
    use crate::toy::{Line, with_collectives};
    use crate::{Exchange, LossOutput, Threads};
    use burn::module::ParamId;
    use burn::tensor::Device;
    use std::sync::Arc;
    use std::thread;

    /// The gradients of slope and offset.
    type Gradients = (Option<f32>, Option<f32>);

    fn number(number: f32) -> Tensor<1> {
        Tensor::from_floats([number], &Device::default())
    }

    /// What a rank that has `own` finds to be the sums over all.
    fn found_by(rank: Threads, own: Gradients, exchange: Exchange) -> Gradients {
        let ranks = Ranks::new(Arc::new(rank));
        let model = Line::new(1.0, 0.0, &Device::default().autodiff());
        let [slope, offset] = ["slope", "offset"].map(|path| ParamId::from(ids_of(&model)[path]));
        let mut gradients = GradientsParams::new();
        if let Some(gradient) = own.0 {
            gradients.register(slope, number(gradient).unsqueeze::<2>());
        }
        if let Some(gradient) = own.1 {
            gradients.register(offset, number(gradient));
        }
        let own = Accumulated::new(1, gradients, LossOutput::new(number(3.0), number(1.0)));
        // The mean over as many targets as there are ranks.
        let (gradients, output, _) = ranks.together(&model, Some(own), exchange).unwrap().mean(&model);
        let count = output.read().unwrap().1 as f32;
        let sum = |mean: Vec<f32>| mean[0] * count;
        let of_slope = gradients.get::<2>(slope).map(|mean| sum(mean.try_into_vec_as().unwrap()));
        (of_slope, gradients.get::<1>(offset).map(|mean| sum(mean.try_into_vec_as().unwrap())))
    }

    /// What each rank of a world finds, of which each has one of `own`.
    fn together(own: &[Gradients], exchange: Exchange) -> Vec<Gradients> {
        thread::scope(|scope| {
            let rank = |(rank, own): (Threads, &Gradients)| {
                let own = *own;
                scope.spawn(move || found_by(rank, own, exchange))
            };
            let ranks: Vec<_> = with_collectives(own.len()).into_iter().zip(own).map(rank).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn gradients_are_summed_in_the_order_of_the_devices() {
        // 2^24 + 1 is no float: in the order of halves two of four ones would not be lost.
        let own = [16_777_216.0, 0.0, 1.0, 1.0].map(|slope| (Some(slope), Some(0.5)));
        assert_eq!(together(&own, Exchange::F32), [(Some(16_777_216.0), Some(2.0)); 4]);
    }

    #[test]
    fn a_gradient_of_one_rank_is_that_of_all_and_one_that_none_has_stays_none() {
        let found = together(&[(Some(-0.0), None), (None, None)], Exchange::F32);
        let bits = found.iter().map(|(slope, offset)| (slope.map(f32::to_bits), *offset)).collect::<Vec<_>>();
        assert_eq!(bits, [(Some((-0.0_f32).to_bits()), None); 2]);
        assert_eq!(together(&[(None, Some(0.5)), (None, Some(1.0))], Exchange::F32), [(None, Some(1.5)); 2]);
    }

    #[test]
    fn a_rounded_exchange_goes_over_the_host() {
        let own = [(Some(257.0), None); 2];
        assert_eq!(together(&own, Exchange::Bf16), [(Some(512.0), None); 2], "257 is rounded to 256");
        assert_eq!(together(&own, Exchange::F32), [(Some(514.0), None); 2]);
    }

    #[test]
    fn ranks_that_train_other_parameters_are_told() {
        let ranks = with_collectives(2);
        let errors: Vec<_> = thread::scope(|scope| {
            let rank = |(number, rank): (usize, Threads)| {
                scope.spawn(move || Ranks::new(Arc::new(rank)).on_any(vec![1; 1 + number]).unwrap_err())
            };
            let ranks: Vec<_> = ranks.into_iter().enumerate().map(rank).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let problem = "it trains 2 parameters, and rank 0 1".to_string();
        assert_eq!(errors[0], CommunicatorError::Mismatch { rank: 1, operation: "gradients", problem });
    }
}
