//! The affine map in `f32` on the flex backend with three products of `bf16` for each: see [`MatmulPrecision::Bf16x3`].

use super::few::are_few;
use super::flex::matrix;
use super::row::are_long;
use crate::MatmulPrecision;
use crate::flex::halves::{Units, product};
use crate::flex::{Matrix, Number, contiguous, filled, values, with_last};
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Shape};

/// The units that multiply a tensor as three products of `bf16`, where that is asked for and the processor has them.
pub(super) fn units(tensor: &FlexTensor, precision: MatmulPrecision) -> Option<Units> {
    let are_three = precision == MatmulPrecision::Bf16x3 && tensor.dtype() == DType::F32;
    // In the tests of this crate the plain units stand in for those that a processor lacks, so that the whole graph is tested everywhere.
    let chosen = || Units::chosen().or(cfg!(test).then_some(Units::Plain));
    are_three.then(chosen).flatten()
}

/// `x weight + bias`. Few rows and a large weight go the way of single precision: they take as long as the weight is read, and parts
/// are as many bytes.
pub(super) fn forward(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>, units: Units) -> FlexTensor {
    let x = contiguous(x);
    if reads_weight_once(&x, &weight, bias.is_some()) {
        return super::flex::forward::<f32>(x, weight, bias);
    }
    let (weight, bias) = (matrix::<f32>(&weight), bias.map(contiguous));
    let rows = Matrix::rows(values::<f32>(&x), weight.shape()[0]);
    let out = multiply(rows, weight, bias.as_ref().map(values::<f32>), units);
    f32::tensor(out, with_last(&x, weight.shape()[1]))
}

fn reads_weight_once(x: &FlexTensor, weight: &FlexTensor, has_bias: bool) -> bool {
    let weight = matrix::<f32>(weight);
    let rows = Matrix::rows(values::<f32>(x), weight.shape()[0]);
    are_long(rows.shape()[0], &weight) || !has_bias && are_few(&rows, &weight)
}

/// `grad weightᵀ`, of the shape of `x`.
pub(super) fn input_gradient(weight: FlexTensor, grad: FlexTensor, x: &[usize], units: Units) -> FlexTensor {
    let grad = contiguous(grad);
    let weight = matrix::<f32>(&weight).transposed();
    let out = multiply(Matrix::rows(values(&grad), weight.shape()[0]), weight, None, units);
    f32::tensor(out, Shape::from(x.to_vec()))
}

/// `xᵀ grad`.
pub(super) fn weight_gradient(x: FlexTensor, grad: FlexTensor, units: Units) -> FlexTensor {
    let (x, grad) = (contiguous(x), contiguous(grad));
    let [d_in, d_out] = [&x, &grad].map(|tensor| tensor.layout().shape()[tensor.layout().num_dims() - 1]);
    let x = Matrix::rows(values::<f32>(&x), d_in).transposed();
    f32::tensor(multiply(x, Matrix::rows(values(&grad), d_out), None, units), Shape::from(vec![d_in, d_out]))
}

fn multiply(left: Matrix<'_, f32>, right: Matrix<'_, f32>, bias: Option<&[f32]>, units: Units) -> Vec<f32> {
    filled(left.shape()[0] * right.shape()[1], |out| product(out, left, right, bias, units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, random};
    use crate::{Difference, assert_same_bits, linear, recomputed};
    use burn::module::{Module, Param};
    use burn::tensor::{Tensor, TensorData};

    fn tensor<const D: usize>(numbers: &[f32], shape: [usize; D]) -> FlexTensor {
        f32::tensor(numbers.to_vec(), Shape::from(shape.to_vec()))
    }

    #[test]
    fn the_map_and_its_gradients_by_hand_on_every_unit() {
        // 1 + 2^-8 is 1 in `bf16`; all sums below are exact in `f32`.
        let e = 0.003_906_25f32;
        let (x, weight) = ([1.0 + e, -1.0, 2.0, 1.0 + e], [1.0, 4.0, 1.0, 1.0 + e]);
        let grad = [1.0, 1.0 + e, 0.0, 2.0];
        for units in Units::all() {
            let [x, weight, grad] = [&x, &weight, &grad].map(|numbers| tensor(numbers, [2, 2]));
            let output = forward(x.clone(), weight.clone(), Some(tensor(&[0.5, 0.0], [2])), units);
            assert_eq!(values::<f32>(&output), [0.5 + e, 3.0 + 3.0 * e, 3.5 + e, 9.0 + 2.0 * e]);
            // [1, 1 + e] weightᵀ and [0, 2] weightᵀ; of (1 + e)², the e² is left out.
            let found = input_gradient(weight, grad.clone(), &[2, 2], units);
            assert_eq!(values::<f32>(&found), [5.0 + 4.0 * e, 2.0 + 2.0 * e, 8.0, 2.0 + 2.0 * e]);
            let found = weight_gradient(x, grad, units);
            assert_eq!(values::<f32>(&found), [1.0 + e, 5.0 + 2.0 * e, -1.0, 1.0 + e]);
        }
    }

    #[test]
    fn only_single_precision_is_multiplied_in_parts() {
        let single = tensor(&[1.0], [1, 1]);
        assert!(units(&single, MatmulPrecision::F32).is_none());
        assert_eq!(units(&single, MatmulPrecision::Bf16x3), Some(Units::chosen().unwrap_or(Units::Plain)));
        let double = f64::tensor(vec![1.0], Shape::from(vec![1, 1]));
        assert!(units(&double, MatmulPrecision::Bf16x3).is_none());
    }

    /// Output and gradients of the map, by the precision that is asked for.
    fn run(precision: MatmulPrecision, [rows, d_in, d_out]: [usize; 3], is_turned: bool) -> [TensorData; 4] {
        let shape = if is_turned { [d_out, d_in] } else { [d_in, d_out] };
        let [x, weight, bias] = [([rows, d_in], 0), (shape, 1), ([1, d_out], 2)]
            .map(|(shape, seed)| random(&Case::plain(), shape, seed).require_grad());
        let turned = if is_turned { weight.clone().transpose() } else { weight.clone() };
        let output = precision.within(|| linear(x.clone(), turned, Some(bias.clone().reshape([-1]))));
        let grads = (output.clone() * random(&Case::plain(), [rows, d_out], 3)).sum().backward();
        let gradient = |leaf: Tensor<2>| leaf.grad(&grads).expect("all require a gradient").into_data();
        [output.into_data(), gradient(x), gradient(weight), gradient(bias)]
    }

    #[test]
    fn output_and_gradients_are_near_those_of_single_precision() {
        for shape in [[1, 5, 3], [6, 5, 130], [300, 70, 3], [40, 300, 130]] {
            for is_turned in [false, true] {
                let [found, expected] =
                    [MatmulPrecision::Bf16x3, MatmulPrecision::F32].map(|by| run(by, shape, is_turned));
                for (found, expected) in found.iter().zip(&expected) {
                    let difference = Difference::between(found, expected);
                    assert!(difference.relative(1.0) < 6e-5, "{difference:?} of {shape:?}");
                }
                // That of the bias has no product in it.
                let differ = |part: usize| Difference::between(&found[part], &expected[part]).absolute > 0.0;
                assert!((0..3).all(differ), "three products of {shape:?} round otherwise than one");
            }
        }
    }

    #[derive(Module, Debug)]
    struct Layer {
        weight: Param<Tensor<2>>,
    }

    #[test]
    fn a_part_that_is_computed_again_forms_the_products_of_the_first_time() {
        let case = Case::plain();
        let run = |again: bool| {
            let layer = Layer { weight: Param::from_tensor(random(&case, [64, 64], 1)) };
            let x = random(&case, [64, 64], 2).reshape([-1]).require_grad();
            let forward = |layer: &Layer, inputs: Vec<Tensor<1>>| {
                let x = linear(inputs[0].clone().reshape([-1, 64]), layer.weight.val(), None);
                vec![linear(x, layer.weight.val(), None).reshape([-1])]
            };
            let outputs = MatmulPrecision::Bf16x3.within(|| match again {
                true => recomputed(&layer, vec![x.clone()], forward),
                false => forward(&layer, vec![x.clone()]),
            });
            let cotangent = random(&case, [64 * 64], 3);
            let grads = (outputs[0].clone() * cotangent).sum().backward(); // Nothing is asked for here.
            let weight = layer.weight.val().grad(&grads).expect("a gradient").into_data();
            [x.grad(&grads).expect("a gradient").into_data(), weight]
        };
        let [found, expected] = [true, false].map(run);
        found.iter().zip(&expected).for_each(|(found, expected)| assert_same_bits(found, expected));
    }
}
