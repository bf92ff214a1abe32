//! Clipping of gradients by their norm over all parameters together, which Burn's per-parameter clipping does not offer.
//! The trainer measures once per step and scales only when the norm is above its bound.
//!
//! Source: Pascanu, Mikolov and Bengio 2013, On the difficulty of training recurrent neural networks, algorithm 1
//! (<https://arxiv.org/abs/1211.5063>).

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorReadError};
use firelight_kernels::square_sum;

use crate::gradients::scaled;

/// Added to the norm that is divided by, so that rounding never leaves the clipped norm above its bound.
const EPSILON: f64 = 1e-6;

/// Scales the gradients of `model` so that their global norm is at most `max_norm`, and returns the norm they had.
///
/// Every parameter counts once, also if the module holds it twice. A `max_norm` of 0 only measures; without any gradient
/// the norm is 0.
///
/// # Errors
/// Fails if the device could not compute the norm.
pub fn clip_global_norm<M: Module>(
    model: &M,
    gradients: GradientsParams,
    max_norm: f64,
) -> Result<(GradientsParams, f64), TensorReadError> {
    let norm = global_norm(model, &gradients).map_or(Ok(0.0), Tensor::try_into_scalar)?;
    Ok((scale_to_norm(model, gradients, norm, max_norm), norm))
}

/// The norm of all gradients of `model` taken as one vector, on the device: `[1]`. None if there is no gradient.
pub fn global_norm<M: Module>(model: &M, gradients: &GradientsParams) -> Option<Tensor<1>> {
    let mut squares = SquareSum { gradients, seen: HashSet::new(), sum: None };
    model.visit(&mut squares);
    squares.sum.map(Tensor::sqrt)
}

/// Scales gradients of a known `norm` down to `max_norm`, if they are above it.
pub(crate) fn scale_to_norm<M: Module>(
    model: &M,
    gradients: GradientsParams,
    norm: f64,
    max_norm: f64,
) -> GradientsParams {
    if max_norm > 0.0 && norm > max_norm {
        return scaled(model, gradients, max_norm / (norm + EPSILON));
    }
    gradients
}

/// Adds up the squares of all gradients.
struct SquareSum<'a> {
    gradients: &'a GradientsParams,
    seen: HashSet<ParamId>,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for SquareSum<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let squares = square_sum(gradient);
            self.sum = Some(self.sum.take().map_or(squares.clone(), |sum| sum + squares));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use proptest::prelude::*;

    #[derive(Module, Debug)]
    struct Two {
        matrix: Param<Tensor<2>>,
        vector: Param<Tensor<1>>,
        same_vector: Param<Tensor<1>>,
    }

    /// A model whose gradients are given; the vector appears twice under one id.
    fn given(matrix: [[f32; 2]; 1], vector: [f32; 1]) -> (Two, GradientsParams) {
        let device = Device::default();
        let shared = Param::from_tensor(Tensor::zeros([1], &device));
        let model = Two {
            matrix: Param::from_tensor(Tensor::zeros([1, 2], &device)),
            vector: shared.clone(),
            same_vector: shared,
        };
        let mut gradients = GradientsParams::new();
        gradients.register(model.matrix.id, Tensor::<2>::from_floats(matrix, &device));
        gradients.register(model.vector.id, Tensor::<1>::from_floats(vector, &device));
        (model, gradients)
    }

    fn values(model: &Two, gradients: &GradientsParams) -> Vec<f64> {
        let matrix = gradients.get::<2>(model.matrix.id).unwrap().try_into_vec_as::<f64>().unwrap();
        let vector = gradients.get::<1>(model.vector.id).unwrap().try_into_vec_as::<f64>().unwrap();
        [matrix, vector].concat()
    }

    #[test]
    fn a_norm_above_the_bound_is_scaled_once() {
        // sqrt(2^2 + 3^2 + 6^2) = 7, and 7 / 2 = 3.5; a tied vector counted twice would give sqrt(85).
        let (model, gradients) = given([[2.0, 3.0]], [6.0]);
        let (clipped, norm) = clip_global_norm(&model, gradients, 3.5).unwrap();
        assert!((norm - 7.0).abs() < 1e-6);
        for (found, expected) in values(&model, &clipped).into_iter().zip([1.0, 1.5, 3.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    #[test]
    fn a_norm_below_the_bound_and_a_bound_of_zero_change_nothing() {
        for max_norm in [7.5, 0.0] {
            let (model, gradients) = given([[2.0, 3.0]], [6.0]);
            let (same, _) = clip_global_norm(&model, gradients, max_norm).unwrap();
            assert_eq!(values(&model, &same), [2.0, 3.0, 6.0]);
        }
    }

    #[test]
    fn without_gradients_there_is_no_norm() {
        let (model, _) = given([[0.0, 0.0]], [0.0]);
        assert!(global_norm(&model, &GradientsParams::new()).is_none());
    }

    proptest! {
        #[test]
        fn the_clipped_norm_is_at_most_the_bound(a in -1e3_f32..1e3, b in -1e3_f32..1e3, max_norm in 1e-2_f64..10.0) {
            let (model, gradients) = given([[a, b]], [1.0]);
            let (clipped, norm) = clip_global_norm(&model, gradients, max_norm).unwrap();
            let after = clip_global_norm(&model, clipped, 0.0).unwrap().1;
            prop_assert!(after <= max_norm.min(norm) * (1.0 + 1e-5));
        }
    }
}
