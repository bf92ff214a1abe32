//! The exponential moving average of the weights: a slower, steadier model that runs beside the one that is trained and is
//! evaluated and kept in its place. The trainer updates it after every step.
//!
//! Source: Polyak and Juditsky 1992, Acceleration of stochastic approximation by averaging; the decay grows from 1/10 on as
//! `(1 + t) / (10 + t)`, as in TensorFlow's ExponentialMovingAverage, so that the first weights are soon forgotten.

use std::collections::HashSet;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

/// The averages, by the ids of their parameters.
pub(crate) struct Ema {
    decay: f64,
    averages: GradientsParams,
}

impl Ema {
    /// Begins with the weights of `model`; none for a `decay` of 0, with which there is nothing to average.
    pub(crate) fn new<M: Module>(decay: f64, model: &M) -> Option<Self> {
        let mut ema = Self { decay, averages: GradientsParams::new() };
        (decay > 0.0).then(|| {
            ema.mix(model, 0.0);
            ema
        })
    }

    /// Moves the averages towards the weights that `model` has after `done` steps.
    pub(crate) fn update<M: Module>(&mut self, model: &M, done: usize) {
        let t = done as f64;
        self.mix(model, self.decay.min((1.0 + t) / (10.0 + t)));
    }

    fn mix<M: Module>(&mut self, model: &M, decay: f64) {
        model.visit(&mut Mix { averages: &mut self.averages, seen: HashSet::new(), decay });
    }

    /// `model` with the averages in the place of its weights, without gradients.
    pub(crate) fn of<M: Module>(&self, model: &M) -> M {
        model.valid().map(&mut Replace { averages: &self.averages })
    }
}

/// Mixes every weight once into its average.
struct Mix<'a> {
    averages: &'a mut GradientsParams,
    seen: HashSet<ParamId>,
    decay: f64,
}

impl ModuleVisitor for Mix<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let is_trained = param.val().is_require_grad();
        let weight = param.val().without_autodiff();
        let mixed = match self.averages.remove::<D>(param.id) {
            // The mean of equal numbers is not always that number.
            Some(average) if is_trained => average * self.decay + weight * (1.0 - self.decay),
            _ => weight,
        };
        self.averages.register(param.id, mixed);
    }
}

struct Replace<'a> {
    averages: &'a GradientsParams,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.averages.get::<D>(param.id) {
            Some(average) => param.map(|_| average),
            None => param,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Line;
    use burn::tensor::Device;

    #[test]
    fn the_average_follows_slowly() {
        let device = Device::default().autodiff();
        let line = |slope| Line::new(slope, 0.0, &device);
        let first = line(1.0);
        let with_ids =
            |slope: f32| crate::parameter_ids::restore_ids(line(slope), &crate::parameter_ids::ids_of(&first)).unwrap();
        let mut ema = Ema::new(0.5, &first).unwrap();
        // (1 + 1) / (10 + 1) = 2/11 of the old 1 and 9/11 of the new 12 make 10.
        ema.update(&with_ids(12.0), 1);
        assert!((ema.of(&first).slope() - 10.0).abs() < 1e-5);
        // Later the decay is the one that was asked for.
        ema.update(&with_ids(20.0), 1000);
        let averaged = ema.of(&first);
        assert!((averaged.slope() - 15.0).abs() < 1e-5, "{}", averaged.slope());
        assert_eq!(first.slope(), 1.0);
        assert!(Ema::new(0.0, &first).is_none());
    }
}
