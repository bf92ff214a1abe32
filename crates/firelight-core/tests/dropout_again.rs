//! Blocks that are computed twice drop the same numbers both times, on the default device. A test of its own program: no other
//! one draws from the generators of the process.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use firelight_core::{ParamBuilder, Pass, SequenceInput, TransformerConfig};
use firelight_kernels::{Difference, assert_close};

struct Collect<'a>(&'a Gradients, Vec<Option<TensorData>>);

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.1.push(param.val().grad(self.0).map(Tensor::into_data));
    }
}

/// The output of a stack with every kind of dropout, the gradient of its input and those of its parameters.
fn run(config: &TransformerConfig, seed: u64, recompute: bool) -> Vec<Option<TensorData>> {
    let device = Device::default().autodiff();
    let model = config.init_with(&ParamBuilder::new(&device, 3));
    let numbers: Vec<f32> = (0..96).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Tensor::<3>::from_data(TensorData::new(numbers, [2, 6, 8]), &device).require_grad();
    device.seed(seed);
    let mut pass = Pass::default().with_recomputation(recompute);
    let output = model.forward(x.clone(), &SequenceInput::default(), &mut pass);
    let grads = output.clone().square().mean().backward();
    let mut collect = Collect(&grads, vec![Some(output.to_data()), x.grad(&grads).map(Tensor::into_data)]);
    model.visit(&mut collect);
    collect.1
}

#[test]
fn the_numbers_of_the_forward_pass_are_dropped_again() {
    let stack = || TransformerConfig::new(8, 2, 2).with_max_seq_len(8);
    // To the bit on a CPU; a device that tunes its kernels need not repeat the last bits.
    let default = Device::default();
    let is_cpu = ["Flex", "NdArray"].iter().any(|name| format!("{default:?}").contains(name));
    let tolerance = if is_cpu { 0.0 } else { 1e-4 };
    for config in [
        stack().with_attention_dropout(0.4),
        stack().with_residual_dropout(0.4),
        stack().with_stochastic_depth(0.4),
        stack().with_dropout(0.4).with_stochastic_depth(0.2),
    ] {
        let (found, expected) = (run(&config, 5, true), run(&config, 5, false));
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().flatten().count() > 20, "gradients are missing");
        for (found, expected) in
            found.iter().zip(&expected).filter(|(found, expected)| found.is_some() || expected.is_some())
        {
            assert_close(found, expected, tolerance);
        }
        let other = run(&config, 6, true);
        assert!(Difference::between(&found[0], &other[0]).absolute > 1e-3, "another seed drops the same: {config:?}");
    }
}
