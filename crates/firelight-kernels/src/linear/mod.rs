//! The affine map of a linear layer.

mod reference;

use burn::tensor::Tensor;

/// `x weight + bias`, with every leading dimension of `x` flattened into rows.
///
/// # Shapes
/// - `x`: `[..., I]`, `weight`: `[I, O]`, `bias`: `[O]`; output: `[..., O]`
///
/// # Panics
/// If the last dimension of `x` is not `I`, or `bias` is not as long as `O`.
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let [d_in, d_out] = weight.dims();
    assert!(x.dims()[D - 1] == d_in, "linear: x {:?} does not end in the {d_in} inputs of the weight", x.dims());
    assert!(
        bias.as_ref().is_none_or(|bias| bias.dims()[0] == d_out),
        "linear: the bias is not as long as the {d_out} outputs of the weight"
    );
    reference::linear(x, weight, bias)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, TensorData, Tolerance};

    #[test]
    fn a_product_by_hand() {
        let device = Device::default();
        let x = Tensor::<3>::from_floats([[[1.0, 2.0]], [[3.0, 4.0]]], &device);
        let weight = Tensor::<2>::from_floats([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]], &device);
        let output = linear(x, weight, Some(Tensor::from_floats([0.5, 0.0, 0.0], &device))).into_data();
        output.assert_eq(&TensorData::from([[[1.5f32, 2.0, 0.0]], [[3.5, 4.0, 2.0]]]), false);
    }

    #[test]
    fn batched_rows_equal_single_rows() {
        let device = Device::default();
        let x = Tensor::<3>::random([3, 4, 5], Distribution::Default, &device);
        let weight = Tensor::<2>::random([5, 6], Distribution::Default, &device);
        let whole = linear(x.clone(), weight.clone(), None).slice([1..2, 2..3]).into_data();
        let single = linear(x.slice([1..2, 2..3]), weight, None).into_data();
        whole.assert_approx_eq::<f32>(&single, Tolerance::absolute(1e-6));
    }

    #[test]
    #[should_panic(expected = "does not end in the 3 inputs")]
    fn a_wrong_width_panics() {
        let device = Device::default();
        linear(Tensor::<2>::zeros([2, 4], &device), Tensor::zeros([3, 4], &device), None);
    }
}
