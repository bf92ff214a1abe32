//! All gradients of a model times a factor.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

/// What gradients are multiplied by: a number, or one on the device, `[1]`.
pub(crate) trait Factor {
    /// A gradient times the factor.
    fn times<const D: usize>(&self, gradient: Tensor<D>) -> Tensor<D>;
}

impl Factor for f64 {
    fn times<const D: usize>(&self, gradient: Tensor<D>) -> Tensor<D> {
        gradient.mul_scalar(*self)
    }
}

impl Factor for Tensor<1> {
    fn times<const D: usize>(&self, gradient: Tensor<D>) -> Tensor<D> {
        gradient * self.clone().without_autodiff().reshape([1; D])
    }
}

/// The gradients of `model` times a factor, each once, also if the module holds a parameter twice.
pub(crate) fn scaled<M: Module>(model: &M, mut gradients: GradientsParams, factor: impl Factor) -> GradientsParams {
    model.visit(&mut Scale { gradients: &mut gradients, seen: HashSet::new(), factor });
    gradients
}

struct Scale<'a, F> {
    gradients: &'a mut GradientsParams,
    seen: HashSet<ParamId>,
    factor: F,
}

impl<F: Factor> ModuleVisitor for Scale<'_, F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            self.gradients.register(param.id, self.factor.times(gradient));
        }
    }
}
