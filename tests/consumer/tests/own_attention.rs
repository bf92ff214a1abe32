//! Attention of this project's own in a stack of `firelight-core`, and the properties that every part of a stack has.
//!
//! A query weighs a key by their distance: `softmax(-|q - k|^2)`, as Kim et al. 2021, §3.3 (<https://arxiv.org/abs/2006.04710>),
//! but for their bound, which needs one matrix for queries and keys.

use burn::module::Module;
use burn::tensor::{Device, Distribution, Tensor};
use firelight_consumer::{fit, model::D_MODEL};
use firelight_core::invariants::{Violation, rows_sum_to_one, stack};
use firelight_core::{
    Ablation, AttentionPattern, Hooks, KeyValues, LayerContext, LayerPass, Linear, LinearConfig, PairRule,
    ParamBuilder, Pass, Places, PositionConfig, SequenceInput, State, TokenMixer, Trace, Transformer, TransformerBlock,
    TransformerConfig,
};
use firelight_kernels::{AttentionOptions, attention_from_scores};

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
        let [batch, length, width] = x.dims();
        let [query, key, value] = [&self.query, &self.key, &self.value].map(|linear| {
            linear.forward(x.clone()).reshape([batch, length, self.n_heads, width / self.n_heads]).swap_dims(1, 2)
        });
        let (key, value) = match pass.state() {
            Some(state) => state.expect_mut::<KeyValues>().append(key, value),
            None => (key, value),
        };
        // -|q - k|^2 without -|q|^2, which is the same for all keys.
        let scores = query.matmul(key.clone().transpose()) * 2 - key.square().sum_dim(3).transpose();
        let options = AttentionOptions::default().with_mask(context.attention.mask.clone());
        let (heads, weights) = attention_from_scores(scores, value, &options);
        pass.trace_attention(|| weights);
        self.output.forward(heads.swap_dims(1, 2).reshape([batch, length, width]))
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        KeyValues::new(rule.look_back(), capacity).boxed()
    }
}

fn own_stack(pattern: AttentionPattern) -> Transformer<TransformerBlock<DistanceAttention>> {
    let config =
        TransformerConfig::new(D_MODEL, 4, 2).with_position(PositionConfig::Learned).with_patterns(vec![pattern]);
    config.init_layers(&ParamBuilder::new(&Device::flex(), 0), |_, block, params| {
        block.init_parts(params, DistanceAttention::new, |params| block.init_feed_forward(params))
    })
}

#[test]
fn attention_of_ones_own_has_the_properties_of_ours() -> Result<(), Violation> {
    let x = Tensor::random([2, 9, D_MODEL], Distribution::Default, &Device::flex());
    let window = AttentionPattern::SlidingWindow { left: 3, right: 0 };
    for pattern in [AttentionPattern::Causal, window, AttentionPattern::Full] {
        stack(&own_stack(pattern), &PairRule::Full, x.clone(), 1e-4)?;
    }
    let mut trace = Trace::default();
    own_stack(window).forward(x, &SequenceInput::default(), &mut Pass::default().with_trace(&mut trace));
    rows_sum_to_one(trace.layers[1].attention.clone().expect("the weights of a layer"), 1e-5)
}

#[test]
fn hooks_meet_attention_of_ones_own() {
    let stack = own_stack(AttentionPattern::Causal);
    let x = Tensor::<3>::ones([1, 5, D_MODEL], &Device::flex());
    let hooks = Hooks::new().record("blocks.*.attention.weights").record("blocks.1.output");
    let mut hooks = hooks.ablate("blocks.1.*.output", Ablation::Zero, Places::all()).record("blocks.0.output");
    let forward = |pass: &mut Pass| stack.forward(x, &SequenceInput::default(), pass);
    let (_, found) = hooks.run(forward).expect("paths of this stack");
    let stream = |layer: usize| found.get::<3>(&format!("blocks.{layer}.output")).expect("recorded").into_data();
    assert_eq!(stream(0), stream(1));
    assert_eq!(found.shape("blocks.0.attention.weights"), Some(&[1, 4, 5, 5][..]));
}

#[test]
fn it_learns() {
    let losses = fit(own_stack(AttentionPattern::Full), PairRule::Full, 50).expect("a training");
    assert!(losses[1] < 0.9 * losses[0], "{losses:?}");
}
