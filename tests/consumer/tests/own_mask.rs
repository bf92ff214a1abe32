//! A mask rule of this project's own in a stack of `firelight-core`, and the properties that every part of a stack has.

use burn::tensor::{Device, Distribution, Tensor};
use firelight_consumer::{fit, model::D_MODEL};
use firelight_core::invariants::{Violation, stack};
use firelight_core::{
    AttentionPattern, MaskRule, PairRule, Pass, PositionConfig, SequenceInput, Trace, Transformer, TransformerConfig,
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

/// A stack that hides nothing by itself.
fn open_stack() -> Transformer {
    let config = TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::rotary());
    config.with_patterns(vec![AttentionPattern::Full]).init(&Device::default())
}

fn random(length: usize) -> Tensor<3> {
    Tensor::random([2, length, D_MODEL], Distribution::Default, &Device::default())
}

#[test]
fn a_rule_of_ones_own_has_the_properties_of_ours() -> Result<(), Violation> {
    stack(&open_stack(), &PairRule::custom(Comb), random(13), 1e-4)
}

#[test]
fn one_layer_alone_has_it() -> Result<(), Violation> {
    let config = TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::rotary());
    let mixed = config.init(&Device::default()).with_layer_rule(1, PairRule::custom(Comb));
    stack(&mixed, &PairRule::Full, random(13), 1e-4)
}

#[test]
fn a_trace_has_weights_where_the_rule_shows_a_key_and_nowhere_else() {
    let (input, mut trace) = (SequenceInput::default().with_rule(PairRule::custom(Comb)), Trace::default());
    open_stack().forward(random(9), &input, &mut Pass::default().with_trace(&mut trace));
    let weights = trace.layers[1].attention.clone().expect("the weights of a layer").into_data();
    assert_eq!(weights.num_elements(), 2 * 4 * 81);
    for (pair, weight) in weights.iter::<f32>().enumerate() {
        assert_eq!(weight > 0.0, !Comb.hidden(0, pair / 9 % 9, pair % 9), "pair {pair}: {weight}");
    }
}

#[test]
fn a_model_learns_under_it() {
    let [before, after] = fit(open_stack(), PairRule::custom(Comb), 50).expect("a training");
    assert!(after < 0.9 * before, "the loss went from {before} to {after}");
}
