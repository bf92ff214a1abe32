//! Attention of this project's own in a stack of `firelight-core`, and the properties that every part of a stack has.
//!
//! A query weighs a key by their distance: `softmax(-|q - k|^2)`, as Kim et al. 2021, §3.3 (<https://arxiv.org/abs/2006.04710>),
//! but for their bound, which needs one matrix for queries and keys.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Tensor};
use firelight_consumer::{fit, model::D_MODEL};
use firelight_core::invariants::{rows_sum_to_one, stack};
use firelight_core::*;
use firelight_kernels::{AttentionOptions, attention_from_scores};

const WINDOW: AttentionPattern = AttentionPattern::SlidingWindow { left: 3, right: 0 };

#[derive(Module, Debug)]
struct DistanceAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    n_heads: usize,
}

impl DistanceAttention {
    fn new(params: &ParamBuilder) -> Self {
        let linear = |name: &str| LinearConfig::new(D_MODEL, D_MODEL).init_with(&params.scope(name));
        let [query, key, value, output] = ["query", "key", "value", "output"].map(linear);
        Self { query, key, value, output, n_heads: 4 }
    }
}

impl TokenMixer for DistanceAttention {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        let split = |linear: &Linear| split_heads(linear.forward(x.clone()), self.n_heads); // [B, H, T, E]
        let (query, key, value) = (split(&self.query), split(&self.key), split(&self.value));
        let (key, value) = KeyValues::append_to(pass, key, value);
        // -|q - k|^2 without -|q|^2, which is the same for all keys.
        let scores = query.matmul(key.clone().transpose()) * 2 - key.square().sum_dim(3).transpose();
        let options = AttentionOptions::default().with_mask(context.attention.mask.clone());
        let (heads, weights) = attention_from_scores(scores, value, &options);
        pass.trace_attention(|| weights);
        self.output.forward(merge_heads(heads))
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        KeyValues::new(rule.max_lookback(), capacity).with_sizes([("heads", 4), ("d_key", 8), ("d_value", 8)]).boxed()
    }
}

fn own_stack(pattern: AttentionPattern) -> Transformer<TransformerBlock<DistanceAttention>> {
    let config = TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::Learned);
    config.with_patterns(vec![pattern]).init_layers(&ParamBuilder::new(&Device::default(), 0), |_, block, params| {
        block.init_parts(params, DistanceAttention::new, |params| block.init_feed_forward(params))
    })
}

#[test]
fn attention_of_ones_own_has_the_properties_of_ours_and_learns() {
    let x = Tensor::random([2, 9, D_MODEL], Distribution::Default, &Device::default());
    for pattern in [AttentionPattern::Causal, WINDOW, AttentionPattern::Full] {
        stack(&own_stack(pattern), &PairRule::Full, x.clone(), 1e-4).expect("the properties of a stack");
    }
    let [before, after] = fit(own_stack(AttentionPattern::Full), PairRule::Full, 50).expect("a training");
    assert!(after < 0.9 * before, "the loss went from {before} to {after}");
}

#[test]
fn a_trace_and_hooks_see_its_weights_and_its_output() {
    let x = Tensor::<3>::random([1, 5, D_MODEL], Distribution::Default, &Device::default());
    let hooks = Hooks::new().record("blocks.*.attention.weights").record("blocks.*.output");
    let mut hooks = hooks.ablate("blocks.1.*.output", Ablation::Zero, ActivationSlice::all());
    let mut trace = Trace::default();
    let mut pass = Pass::default().with_trace(&mut trace).with_hooks(&mut hooks);
    own_stack(WINDOW).forward(x, &SequenceInput::default(), &mut pass);
    let found = hooks.finish().expect("paths of this stack");
    let stream = |layer: usize| found.get::<3>(&format!("blocks.{layer}.output")).expect("recorded").into_data();
    assert_eq!(stream(0), stream(1));
    assert_eq!(found.shape("blocks.0.attention.weights"), Some(&[1, 4, 5, 5][..]));
    rows_sum_to_one(trace.layers[1].attention.clone().expect("weights"), 1e-5).expect("weights of each query");
}
