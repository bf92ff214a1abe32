//! Blocks that are computed twice drop the same numbers both times, on the default device. A test binary of its own, so that no
//! other test draws from the generators of the process.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use firelight_core::{Init, ParamBuilder, Pass, SequenceInput, TransformerConfig, WeightInit};
use firelight_kernels::{Difference, assert_same_bits};

struct Collect<'a>(&'a Gradients, Vec<Option<TensorData>>);

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.1.push(param.val().grad(self.0).map(Tensor::into_data));
    }
}

/// Numbers from -1 to 1, `[2, 6, 8]`.
fn wave(step: f32, device: &Device) -> Tensor<3> {
    let numbers: Vec<f32> = (0..96).map(|i| (step * i as f32).sin()).collect();
    Tensor::from_data(TensorData::new(numbers, [2, 6, 8]), device)
}

/// The loss of a stack, the gradient of its input and those of its parameters.
fn run(config: &TransformerConfig, x: &Tensor<3>, seed: u64, recompute: bool) -> (f64, Vec<Option<TensorData>>) {
    let device = Device::default().autodiff();
    let model = config.init_with(&ParamBuilder::new(&device, 3));
    let x = Tensor::<3>::from_data(x.to_data(), &device).require_grad();
    device.seed(seed);
    let mut pass = Pass::default().with_recomputation(recompute);
    let output = model.forward(x.clone(), &SequenceInput::default(), &mut pass);
    let loss = (output * wave(0.3, &device)).sum();
    let grads = loss.backward();
    let mut collect = Collect(&grads, vec![x.grad(&grads).map(Tensor::into_data)]);
    model.visit(&mut collect);
    (loss.into_scalar::<f64>(), collect.1)
}

/// Asserts that the gradient of the input is the slope of the loss along itself, which it is not where the backward pass drops
/// other numbers.
fn assert_slope(config: &TransformerConfig, x: &Tensor<3>) {
    let gradient = run(config, x, 5, true).1.swap_remove(0).expect("the input requires a gradient");
    let gradient = Tensor::<3>::from_data(gradient, &Device::default());
    let size = gradient.clone().square().sum().into_scalar::<f64>().sqrt();
    let at = |step: f64| run(config, &(x.clone() + gradient.clone() * (step / size)), 5, true).0;
    let slope = (at(1e-3) - at(-1e-3)) / 2e-3; // A norm of a token that lost most of its numbers bends within longer steps.
    assert!((slope / size - 1.0).abs() < 0.02, "{slope} for {size}: {config:?}");
}

#[test]
fn the_numbers_of_the_forward_pass_are_dropped_again() {
    // Weights so wide that every branch has its part in the gradient.
    let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
    let stack = || TransformerConfig::new(8, 2, 2).with_max_seq_len(8).with_init(wide);
    let x = wave(0.7, &Device::default());
    for config in [
        stack().with_attention_dropout(0.4),
        stack().with_residual_dropout(0.4),
        stack().with_stochastic_depth(0.4),
        stack().with_dropout(0.4).with_stochastic_depth(0.2),
    ] {
        assert_slope(&config, &x);
        let (_, found) = run(&config, &x, 5, true);
        let differs = |seed| Difference::between(&found[0], &run(&config, &x, seed, true).1[0]).absolute > 1e-3;
        assert!((6..9).any(differs), "every seed drops the same numbers: {config:?}");
        // Other devices draw other numbers in a pass that is to be repeated.
        if Device::default() == Device::flex() {
            let (_, expected) = run(&config, &x, 5, false);
            assert_eq!(found.len(), expected.len());
            let pairs: Vec<_> =
                found.iter().zip(&expected).filter(|(found, plain)| found.is_some() || plain.is_some()).collect();
            assert!(pairs.len() > 20, "{} gradients", pairs.len());
            pairs.into_iter().for_each(|(found, expected)| assert_same_bits(found, expected));
        }
    }
}
