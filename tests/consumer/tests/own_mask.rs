//! A mask rule of this project's own in a stack of `firelight-core`, and the properties that every part of a stack has.

use burn::tensor::{Bool, Device, Int, Tensor};
use firelight_core::invariants::{Violation, batch_mates, causality, gradients, padding, parts_equal_whole};
use firelight_core::{
    AttentionPattern, AttentionTrace, MaskRule, PairRule, Pass, PositionConfig, SequenceInput, Transformer,
    TransformerConfig,
};

/// A query sees itself, the token before it and every fourth one further back: a comb.
#[derive(Debug)]
struct Comb;

impl MaskRule for Comb {
    fn hidden(&self, _row: usize, query: usize, key: usize) -> bool {
        key > query || (query - key > 1 && !(query - key).is_multiple_of(4))
    }

    fn is_causal(&self) -> bool {
        true
    }
}

fn stack(device: &Device) -> Transformer {
    let config = TransformerConfig::new(16, 4, 2).with_position(PositionConfig::rotary());
    config.with_patterns(vec![AttentionPattern::Full]).init(device)
}

fn run(stack: &Transformer, x: Tensor<3>, padding: Option<Tensor<2, Bool>>, mut pass: Pass) -> Tensor<3> {
    let input = SequenceInput { padding, ..SequenceInput::default() };
    stack.forward(x, &input.with_rule(PairRule::own(Comb)), &mut pass)
}

fn waves(shape: [usize; 3], device: &Device) -> Tensor<3> {
    let count = shape.iter().product::<usize>() as i64;
    Tensor::<1, Int>::arange(0..count, device).float().mul_scalar(0.7).sin().reshape(shape)
}

#[test]
fn a_rule_of_ones_own_has_the_properties_of_ours() -> Result<(), Violation> {
    let device = Device::flex();
    let (model, x) = (stack(&device), waves([2, 13, 16], &device));
    let whole = |x| run(&model, x, None, Pass::default());
    causality(whole, x.clone(), 1e-5)?;
    batch_mates(whole, x.clone(), 1e-5)?;
    padding(|x, flags| run(&model, x, Some(flags), Pass::default()), x.clone(), [2, 3], 1e-5)?;
    for part in [1, 5] {
        let mut cache = model.cache(13);
        parts_equal_whole(whole, |x| run(&model, x, None, Pass::cached(&mut cache)), x.clone(), part, 1e-5)?;
    }
    let trained = stack(&device.autodiff());
    gradients(|x: Tensor<3>| run(&trained, x, None, Pass::default()).powi_scalar(3).sum(), x.narrow(1, 0, 6), 1e-2)
}

#[test]
fn blocks_are_recomputed_to_the_bit() {
    let device = Device::flex().autodiff();
    let (model, x) = (stack(&device), waves([1, 9, 16], &device).require_grad());
    let gradient = |recomputes| {
        let output = run(&model, x.clone(), None, Pass::default().with_recomputation(recomputes));
        x.grad(&output.powi_scalar(3).sum().backward()).expect("a gradient of x").into_data()
    };
    assert_eq!(gradient(true), gradient(false));
}

#[test]
fn a_trace_has_weights_where_the_rule_shows_a_key_and_nowhere_else() {
    let (device, mut trace) = (Device::flex(), AttentionTrace::default());
    run(&stack(&device), waves([1, 9, 16], &device), None, Pass::default().with_trace(&mut trace));
    let weights = trace.layers[1].attention.clone().expect("the weights of a layer").into_data();
    assert_eq!(weights.num_elements(), 4 * 81);
    for (pair, weight) in weights.iter::<f32>().enumerate() {
        assert_eq!(weight > 0.0, !Comb.hidden(0, pair / 9 % 9, pair % 9), "pair {pair}: {weight}");
    }
}
