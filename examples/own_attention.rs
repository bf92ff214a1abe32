//! Attention that this program defines, in a stack of Firelight's: it is proved, trained on generated stories, and sampled through its
//! cache. A query weighs a key by their distance, `softmax(-|q - k|^2 / sqrt(E))`, as Kim et al. 2021, §3.3
//! (<https://arxiv.org/abs/2006.04710>), but for their bound, which needs one matrix for queries and keys.
//!
//! Command: cargo run --release -p firelight-examples --example own_attention
//! Time: below a minute once it is built, on two CPU cores.
//! Expect: a loss that falls from 4.0 to below 1.5 nats per character, and a story of which every second word is one.

use anyhow::Result;
use burn::prelude::*;
use firelight::kernels::{AttentionOptions, attention_from_scores};
use firelight::nn::*;
use firelight_examples::try_on_stories;

/// Attention by distances.
#[derive(Module, Debug)]
struct DistanceAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    n_heads: usize,
}

impl DistanceAttention {
    fn new(width: usize, n_heads: usize, params: &ParamBuilder) -> Self {
        let linear = |name: &str| LinearConfig::new(width, width).init_with(&params.scope(name));
        let [query, key, value, output] = ["query", "key", "value", "output"].map(linear);
        Self { query, key, value, output, n_heads }
    }
}

impl TokenMixer for DistanceAttention {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let channels = width / self.n_heads;
        let [query, key, value] = [&self.query, &self.key, &self.value].map(|linear| {
            linear.forward(x.clone()).reshape([batch, length, self.n_heads, channels]).swap_dims(1, 2) // [B, H, T, E]
        });
        // Distances of turned vectors depend on how far apart their tokens are.
        let turned = |x: Tensor<4>| match &context.attention.rotation {
            Some(rotation) => rotation.apply(x),
            None => x,
        };
        let (query, key) = (turned(query), turned(key));
        // With a cache these are the keys and values of all tokens that the layer can see.
        let (key, value) = KeyValues::append_to(pass, key, value);
        // -|q - k|^2 without -|q|^2, which is the same for all keys: [B, H, T, K].
        let scores = query.matmul(key.clone().transpose()) * 2 - key.square().sum_dim(3).transpose();
        let options = AttentionOptions::default().with_mask(context.attention.mask.clone());
        let (heads, weights) = attention_from_scores(scores / (channels as f64).sqrt(), value, &options);
        pass.trace_attention(|| weights);
        self.output.forward(heads.swap_dims(1, 2).reshape([batch, length, width]))
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        KeyValues::new(rule.max_lookback(), capacity).boxed()
    }
}

/// Three layers that look at the last 16 characters, and one that looks at the whole text.
fn stack(params: &ParamBuilder) -> Transformer<TransformerBlock<DistanceAttention>> {
    let near = AttentionPattern::SlidingWindow { left: 15, right: 0 };
    let config = TransformerConfig::new(64, 4, 4)
        .with_position(PositionConfig::rotary())
        .with_patterns(vec![near, near, near, AttentionPattern::Causal])
        .with_norm(NormConfig::rms());
    config.init_layers(params, |_, block, params| {
        let mixer = |params: &ParamBuilder| DistanceAttention::new(64, 4, params);
        block.init_parts(params, mixer, |params| block.init_feed_forward(params))
    })
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(|| run(600, 160).map(drop))
}

/// Proves the stack, trains it for `steps` steps, lets it write `length` characters, and returns the losses.
fn run(steps: usize, length: usize) -> Result<Vec<f32>> {
    let device = firelight::device::select(None)?;
    let x = Tensor::random([2, 9, 64], burn::tensor::Distribution::Default, &device);
    invariants::stack(&stack(&ParamBuilder::new(&device, 1)), &PairRule::Full, x, 1e-4)?;
    try_on_stories(stack, steps, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_and_learns() {
        let losses = run(60, 20).unwrap();
        assert!(losses[59] < losses[0] - 1.0, "{losses:?}");
    }
}
