//! Parts of a model that are computed twice: the forward pass keeps their inputs alone, and the backward pass computes the
//! rest again, one part after another.
//!
//! Source: Chen et al. 2016, Training deep nets with sublinear memory cost, §3 and §4 (<https://arxiv.org/abs/1604.06174>).
//! One operation of the graph stands for a whole part. Its backward pass runs the part again, on leaves of a graph of its
//! own, runs a backward pass through that graph, and hands on the gradients that it finds.

#[cfg(feature = "extension")]
mod autodiff;
#[cfg(feature = "extension")]
#[cfg_attr(feature = "ndarray", allow(deprecated))] // Burn's name for its older CPU backend.
mod extension;
#[cfg(feature = "extension")]
mod parameters;
#[cfg(feature = "extension")]
pub(crate) mod replay;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// Inputs that a part may have.
pub(crate) const MOST_INPUTS: usize = 3;

/// Whether parts of models on `device` can be computed twice: on every backend that this crate was built with the feature of.
pub fn can_recompute(device: &Device) -> bool {
    crate::path::is_extended(device)
}

/// `forward` of a part of a model with its inputs, as it is, but for the memory that it takes: between the passes the
/// graph holds the inputs alone. The gradients of inputs and parameters are those of the part itself, to the bit. The exception
/// is a tensor that several parts read more than once each: its gradient is summed in another order. What a part drops at random by
/// [`dropout`](crate::dropout) or in [`attention`](crate::attention) it drops again.
///
/// The inputs are all tensors through which gradients flow; whatever else `forward` reads it must hold without a graph.
/// Inputs and outputs are vectors, since tensors of many shapes cannot stand in one list: a
/// [`reshape`](burn::tensor::Tensor::reshape) at the border costs nothing. Without autodiff `forward` just runs.
///
/// # Panics
/// If there is no input or more than three, no output, or the device is none of [`can_recompute`].
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::recomputed;
///
/// let device = Device::flex().autodiff();
/// let layer = LinearConfig::new(2, 2).init(&device);
/// let x = Tensor::<1>::ones([2], &device);
/// let outputs = recomputed(&layer, vec![x], |layer, inputs| vec![layer.forward(inputs[0].clone()).tanh()]);
/// let gradients = outputs[0].clone().sum().backward();
/// assert!(layer.weight.val().grad(&gradients).is_some());
/// ```
#[doc(alias = "gradient checkpointing")]
#[doc(alias = "activation checkpointing")]
pub fn recomputed<M: Module + 'static>(
    module: &M,
    inputs: Vec<Tensor<1>>,
    forward: impl Fn(&M, Vec<Tensor<1>>) -> Vec<Tensor<1>> + Send + 'static,
) -> Vec<Tensor<1>> {
    assert!(
        (1..=MOST_INPUTS).contains(&inputs.len()),
        "recomputed: {} inputs are not 1 to {MOST_INPUTS}",
        inputs.len()
    );
    let device = inputs[0].device();
    if !device.is_autodiff() {
        return forward(module, inputs);
    }
    assert!(
        can_recompute(&device),
        "recomputed: {device:?} belongs to a backend that firelight-kernels was built without"
    );
    #[cfg(feature = "extension")]
    return autodiff::recomputed(module, inputs, forward);
    #[cfg(not(feature = "extension"))]
    unreachable!("no device can recompute")
}

#[cfg(all(test, feature = "extension"))]
mod tests {
    use super::*;
    #[cfg(feature = "ndarray")]
    use crate::testing::alone;
    use crate::{GeluForm, assert_same_bits, dropout, gelu, linear};
    use burn::module::Param;
    use burn::tensor::TensorData;
    use proptest::prelude::*;

    /// Two layers with dropout and a loss of its own, of `[N, D]` and a shift of `[D]`.
    #[derive(Module, Debug)]
    struct TwoLayers {
        first: Param<Tensor<2>>,
        second: Param<Tensor<2>>,
        rate: f64,
    }

    fn wave(shape: [usize; 2], step: f32, device: &Device) -> Tensor<2> {
        let numbers = (0..shape[0] * shape[1]).map(|i| (step * i as f32).sin()).collect();
        Tensor::from_data(TensorData::new(numbers, shape), device)
    }

    impl TwoLayers {
        fn new(width: usize, rate: f64, device: &Device) -> Self {
            let matrix = |step| Param::from_tensor(wave([width, width], step, device));
            Self { first: matrix(1.3), second: matrix(0.7), rate }
        }

        fn forward(&self, inputs: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
            let [width, _] = self.first.dims();
            let x = inputs[0].clone().reshape([-1, width as i64]) + inputs[1].clone().unsqueeze();
            let hidden = dropout(gelu(linear(x, self.first.val(), None), GeluForm::Exact), self.rate);
            let output = dropout(linear(hidden.clone(), self.second.val(), None), self.rate);
            vec![output.reshape([-1]), hidden.square().mean()]
        }
    }

    /// The outputs, and the gradients of both inputs and both matrices.
    fn run(again: bool, [rows, width]: [usize; 2], rate: f64, seed: u64, device: &Device) -> Vec<TensorData> {
        let layers = TwoLayers::new(width, rate, device);
        let inputs =
            [wave([rows, width], 0.9, device), wave([1, width], 0.4, device)].map(|x| x.reshape([-1]).require_grad());
        // The inputs are results themselves, so that gradients have to flow on.
        let given: Vec<_> = inputs.iter().map(|x| x.clone() * 2.0).collect();
        let forward = || if again { recomputed(&layers, given, TwoLayers::forward) } else { layers.forward(given) };
        let outputs = replay::with_seeds(vec![seed, seed ^ 1], forward);
        let cotangent = wave([1, rows * width], 0.3, device).reshape([-1]);
        let loss = (outputs[0].clone() * cotangent).sum() + outputs[1].clone() * 3.0;
        let grads = loss.backward();
        let matrices = [&layers.first, &layers.second].map(|p| p.val().grad(&grads).expect("a gradient").into_data());
        let inputs = inputs.iter().map(|x| x.grad(&grads).expect("a gradient").into_data());
        outputs.iter().map(|x| x.to_data()).chain(inputs).chain(matrices).collect()
    }

    #[test]
    fn outputs_and_gradients_are_those_of_the_part_itself_to_the_bit_with_the_same_numbers_dropped() {
        let device = Device::flex().autodiff();
        let config = proptest::test_runner::Config::with_cases(24);
        proptest!(config, |(rows in 1usize..9, width in 1usize..17, rate in 0.0f64..0.8, seed in any::<u64>())| {
            let [found, expected] = [true, false].map(|again| run(again, [rows, width], rate, seed, &device));
            assert_eq!((found.len(), expected.len()), (6, 6));
            found.iter().zip(&expected).for_each(|(found, expected)| assert_same_bits(found, expected));
        });
    }

    #[test]
    fn frozen_parameters_and_inputs_without_gradients_are_left_alone() {
        let device = Device::flex().autodiff();
        let layers = TwoLayers::new(4, 0.0, &device);
        let frozen = TwoLayers { first: layers.first.clone().set_require_grad(false), ..layers.clone() };
        let inputs = || vec![wave([3, 4], 0.9, &device).reshape([-1]), Tensor::zeros([4], &device)];
        let grads = recomputed(&frozen, inputs(), TwoLayers::forward)[0].clone().sum().backward();
        assert!(frozen.first.val().grad(&grads).is_none());
        let found = frozen.second.val().grad(&grads).expect("a gradient").into_data();
        let grads = layers.forward(inputs())[0].clone().sum().backward();
        found.assert_eq(&layers.second.val().grad(&grads).expect("a gradient").into_data(), true);
    }

    #[test]
    fn the_forward_pass_leaves_no_graph_and_the_backward_pass_makes_one() {
        let device = Device::flex().autodiff();
        let layers = TwoLayers::new(4, 0.0, &device);
        let inputs = vec![wave([3, 4], 0.9, &device).reshape([-1]).require_grad(), Tensor::zeros([4], &device)];
        let tracked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = tracked.clone();
        let outputs = recomputed(&layers, inputs, move |layers, inputs| {
            let outputs = layers.forward(inputs);
            heard.lock().expect("no panic").push(outputs[0].is_tracked());
            outputs
        });
        outputs[0].clone().sum().backward();
        assert_eq!(*tracked.lock().expect("no panic"), [false, true]);
    }

    #[test]
    fn a_parameter_of_two_parts_gathers_the_gradients_of_both() {
        let device = Device::flex().autodiff();
        let layers = TwoLayers::new(3, 0.0, &device);
        let gradient = |again: bool| {
            let mut x = wave([2, 3], 0.9, &device).reshape([-1]);
            for _ in 0..2 {
                let inputs = vec![x, Tensor::zeros([3], &device)];
                let outputs =
                    if again { recomputed(&layers, inputs, TwoLayers::forward) } else { layers.forward(inputs) };
                x = outputs[0].clone();
            }
            layers.first.val().grad(&x.sum().backward()).expect("a gradient").into_data()
        };
        assert_same_bits(&gradient(true), &gradient(false));
    }

    #[test]
    fn nothing_is_recomputed_without_a_graph() {
        let device = Device::flex();
        let layers = TwoLayers::new(3, 0.5, &device);
        let layers = TwoLayers { rate: 0.0, ..layers };
        let inputs = || vec![wave([2, 3], 0.9, &device).reshape([-1]), Tensor::zeros([3], &device)];
        let [found, expected] = [recomputed(&layers, inputs(), TwoLayers::forward), layers.forward(inputs())];
        found[0].to_data().assert_eq(&expected[0].to_data(), true);
        assert!(!found[0].device().is_autodiff());
    }

    #[cfg(feature = "ndarray")]
    #[test]
    #[allow(deprecated)]
    fn a_backend_without_kernels_repeats_what_its_generator_dropped() {
        alone(|| {
            let device = Device::ndarray().autodiff();
            let x = Tensor::<1>::ones([500], &device).require_grad();
            let layers = TwoLayers::new(2, 0.0, &device);
            let outputs = recomputed(&layers, vec![x.clone()], |_, inputs| vec![dropout(inputs[0].clone(), 0.5)]);
            let gradient = x.grad(&outputs[0].clone().sum().backward()).expect("a gradient");
            gradient.into_data().assert_eq(&outputs[0].to_data(), true);
        });
    }

    #[cfg(feature = "ndarray")]
    #[test]
    #[allow(deprecated)]
    fn what_is_drawn_after_a_part_ran_again_is_not_what_was_drawn_after_it_ran_first() {
        let device = Device::ndarray().autodiff();
        let x = Tensor::<1>::ones([500], &device).require_grad();
        let layers = TwoLayers::new(2, 0.0, &device);
        let outputs = recomputed(&layers, vec![x], |_, inputs| vec![dropout(inputs[0].clone(), 0.5)]);
        let draw = || Tensor::<1>::random([500], burn::tensor::Distribution::Default, &device).into_data();
        let first = draw();
        outputs[0].clone().sum().backward();
        assert_ne!(draw(), first);
    }
}
