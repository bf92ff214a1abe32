//! Blocks and stacks against PyTorch, and blocks that leave out their parts against those that do not.

use burn::tensor::Tensor;
use firelight::nn::{
    Activation, AttentionConfig, AttentionContext, AttentionMask, FeedForwardConfig, FeedForwardNetwork, Init, Layer,
    LayerContext, LayerPass, NormConfig, NormPlacement, ParamBuilder, Pass, PositionConfig, SequenceInput,
    TransformerBlock, TransformerBlockConfig, TransformerConfig,
};

use crate::support::golden::{Golden, with_memory};
use crate::support::{Noise, device, distance};

fn block() -> TransformerBlockConfig {
    let feed_forward = FeedForwardConfig::new(16, Activation::Gelu).with_d_ff(32);
    TransformerBlockConfig::new(AttentionConfig::new(16, 4), feed_forward)
}

fn causal() -> LayerContext {
    LayerContext { attention: AttentionContext::masked(AttentionMask::causal()), ..LayerContext::default() }
}

fn agrees(name: &str, config: &TransformerBlockConfig) {
    let golden = Golden::load(name);
    let x = golden.input::<3>("x", &device());
    let layer = golden.fill(config.init(&x.device()));
    let output = layer.forward(x.clone(), &causal(), &mut LayerPass::default());
    golden.agrees(output, [("x", &x)], &layer);
}

#[test]
fn placements_agree() {
    for (name, placement, norm) in [
        ("block_pre", NormPlacement::Pre, NormConfig::layer()),
        ("block_post", NormPlacement::Post, NormConfig::layer()),
        ("block_sandwich", NormPlacement::Sandwich, NormConfig::layer()),
        ("block_parallel", NormPlacement::Parallel, NormConfig::layer()),
        ("block_without_norm", NormPlacement::Pre, NormConfig::None),
    ] {
        agrees(name, &block().with_norm_placement(placement).with_norm(norm));
    }
}

#[test]
fn scaled_parts_agree() {
    agrees("block_layer_scale", &block().with_layer_scale(0.1));
}

#[test]
fn a_decoder_block_agrees() {
    let golden = Golden::load("decoder_block");
    let (x, hidden, memory) = with_memory(&golden);
    let layer = golden.fill(block().with_cross_attention(true).init(&x.device()));
    let context = LayerContext { encoder_output: Some(memory), ..causal() };
    let output = layer.forward(x.clone(), &context, &mut LayerPass::default());
    golden.agrees(output, [("x", &x), ("memory", &hidden)], &layer);
}

#[test]
fn an_encoder_agrees_at_every_visible_token() {
    let golden = Golden::load("encoder_stack");
    let x = golden.input::<3>("x", &device());
    let config = TransformerConfig::encoder(16, 4, 2)
        .with_d_ff(32)
        .with_activation(Activation::Gelu)
        .with_position(PositionConfig::Learned)
        .with_max_seq_len(8);
    let stack = golden.fill(config.init(&x.device()));
    let padding = golden.flags::<2>("padding", &x.device());
    let input = SequenceInput::default().with_padding(padding.clone());
    let output = stack.forward(x.clone(), &input, &mut Pass::default());
    // What stands at a padded token is nobody's business: the golden output takes its place.
    let hidden = padding.unsqueeze_dim::<3>(2).expand(output.dims());
    golden.check("output", output.clone().mask_where(hidden, golden.floats("output", &x.device())));
    let gradients = golden.backward(output);
    golden.check_gradient("x", &x, &gradients);
    golden.check_gradients(&stack, &gradients);
}

#[test]
fn a_row_takes_a_part_twice_as_large_or_not_at_all() {
    // At a rate of a half: in training what is kept counts double, in evaluation everything counts once.
    let mut config = block().with_norm_placement(NormPlacement::Parallel);
    config.attention = config.attention.with_init(Init::XavierUniform, Init::XavierUniform);
    config.feed_forward = config.feed_forward.with_init(Init::XavierUniform, Init::XavierUniform);
    let forward = |block: &TransformerBlock, x| block.forward(x, &causal(), &mut LayerPass::default());
    let whole = config.init_with(&ParamBuilder::new(&device(), 0));
    let dropping = config.with_stochastic_depth(0.5);
    let x = Noise::new(21).tensor([1, 5, 16]);
    let y = forward(&whole, x.clone());
    forward(&dropping.init_with(&ParamBuilder::new(&device(), 0)), x.clone()).into_data().assert_eq(&y.to_data(), true);

    let normed = whole.attention_norm.as_ref().expect("a norm").forward(x.clone());
    let feed_forward = whole.feed_forward.forward(normed, &LayerContext::default(), &mut LayerPass::default());
    let attention = y - x.clone() - feed_forward.clone();
    let outcomes = [
        x.clone(),
        x.clone() + attention.clone() * 2.0,
        x.clone() + feed_forward.clone() * 2.0,
        x.clone() + (attention + feed_forward) * 2.0,
    ];
    let rows = Tensor::from_inner(x.expand([64, 5, 16]));
    let rows = forward(&dropping.init_with(&ParamBuilder::new(&device().autodiff(), 0)), rows).without_autodiff();
    let mut seen = [0; 4];
    for row in rows.split(1, 0) {
        let outcome = outcomes.iter().position(|outcome| distance(&row, outcome) < 1e-4);
        seen[outcome.expect("both parts twice or not at all")] += 1;
    }
    assert!(seen.iter().all(|rows| *rows > 0), "{seen:?} of 64 rows");
}
