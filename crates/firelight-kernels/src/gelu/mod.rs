//! Gaussian error linear unit, exact, in its tanh form and in its sigmoid form.
//!
//! Source: Hendrycks and Gimpel 2016, §2 (<https://arxiv.org/abs/1606.08415>).

pub(crate) mod reference;

#[cfg(feature = "flex")]
use crate::activation::{Activation, activate};
use burn::tensor::Tensor;

/// Which of the three published formulas is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeluForm {
    /// `x Φ(x)` with the error function, as BERT and PyTorch's default.
    Exact,
    /// `x/2 (1 + tanh(sqrt(2/π) (x + 0.044715 x³)))`, as GPT-2.
    Tanh,
    /// `x σ(1.702 x)`, the quick GELU of CLIP.
    Sigmoid,
}

/// `x Φ(x)`, elementwise, where `Φ` is the distribution function of the standard normal.
///
/// # Shapes
/// - any; the output has the shape of `x`
pub fn gelu<const D: usize>(x: Tensor<D>, form: GeluForm) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::path::log_path("gelu", crate::path::is_fused_on_cpu_in_any_type(&x)) {
        return activate(x, form.activation());
    }
    reference::gelu(x, form)
}

#[cfg(feature = "flex")]
impl GeluForm {
    pub(crate) fn activation(self) -> Activation {
        match self {
            Self::Exact => Activation::GeluExact,
            Self::Tanh => Activation::GeluTanh,
            Self::Sigmoid => Activation::GeluSigmoid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};
    use proptest::prelude::*;

    #[test]
    fn values_by_hand() {
        // Φ(1) = .841345 and Φ(-2) = .022750; the tanh form at 1 is .5 (1 + tanh(.833 ...)) = .841192,
        // and the sigmoid form 1 / (1 + exp(-1.702)) = .845796.
        let device = Device::default();
        let x = Tensor::<1>::from_floats([-2.0, 0.0, 1.0], &device);
        let exact = gelu(x.clone(), GeluForm::Exact).into_data();
        let tanh = gelu(x.clone(), GeluForm::Tanh).into_data();
        let sigmoid = gelu(x, GeluForm::Sigmoid).into_data();
        assert_close(&exact, &TensorData::from([-0.0455f32, 0.0, 0.841345]), 1e-5);
        assert_close(&tanh, &TensorData::from([-0.045402f32, 0.0, 0.841192]), 1e-5);
        assert_close(&sigmoid, &TensorData::from([-0.064344f32, 0.0, 0.845796]), 1e-5);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn positive_minus_negative_is_the_identity(x in -30.0f32..30.0) {
            // Φ(x) + Φ(-x) = 1, so gelu(x) - gelu(-x) = x, in every form and far into the tails.
            let device = Device::default();
            for form in [GeluForm::Exact, GeluForm::Tanh, GeluForm::Sigmoid] {
                let at = |x: f32| gelu(Tensor::<1>::from_floats([x], &device), form).into_scalar::<f32>();
                prop_assert!((at(x) - at(-x) - x).abs() <= 1e-5 * x.abs().max(1.0));
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, normal};
        for case in Case::all(&[5, 33]) {
            for form in [GeluForm::Exact, GeluForm::Tanh, GeluForm::Sigmoid] {
                compare(&case, [normal(&case, 0)], |[x]| gelu(x, form), |[x]| reference::gelu(x, form));
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn the_far_ends_and_nan() {
        let device = Device::flex().autodiff();
        for form in [GeluForm::Exact, GeluForm::Tanh, GeluForm::Sigmoid] {
            let x = Tensor::<1>::from_floats([-1e30, -1e4, 1e4, 1e30, f32::NAN], &device).require_grad();
            let y = gelu(x.clone(), form);
            let slopes = x.grad(&y.clone().sum().backward()).expect("x requires a gradient");
            let (y, slopes) =
                (y.into_data().try_to_vec::<f32>().unwrap(), slopes.into_data().try_to_vec::<f32>().unwrap());
            assert!(y[0].abs() < 1e-3 && y[1].abs() < 1e-30 && y[2] == 1e4 && y[3] == 1e30 && y[4].is_nan());
            assert!(
                slopes[..2].iter().all(|slope| slope.abs() < 1e-6) && slopes[2..4] == [1.0, 1.0] && slopes[4].is_nan()
            );
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn a_checkpointing_graph_computes_it_again() {
        let slope = |device: Device| {
            let x = Tensor::<1>::from_floats([0.5], &device).require_grad();
            let y = gelu(gelu(x.clone() * 2.0, GeluForm::Tanh).exp(), GeluForm::Exact);
            x.grad(&y.backward()).expect("x requires a gradient").into_scalar::<f32>()
        };
        let device = Device::flex().autodiff();
        assert_eq!(slope(device.clone()), slope(device.gradient_checkpointing()));
    }
}
