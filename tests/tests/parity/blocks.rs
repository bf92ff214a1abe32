//! Blocks with other placements of the norm, and with scaled parts, against PyTorch.

use firelight::core::{
    Activation, AttentionConfig, AttentionContext, AttentionMask, BlockContext, FeedForwardConfig, LayerPass,
    NormConfig, NormPlacement, TransformerBlockConfig,
};

use crate::support::device;
use crate::support::golden::Golden;

fn block() -> TransformerBlockConfig {
    let feed_forward = FeedForwardConfig::new(16, Activation::Gelu).with_d_ff(32);
    TransformerBlockConfig::new(AttentionConfig::new(16, 4), feed_forward)
}

#[test]
fn placements_agree() {
    for (name, placement, norm) in [
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

fn agrees(name: &str, config: &TransformerBlockConfig) {
    let golden = Golden::load(name);
    let x = golden.input::<3>("x", &device());
    let layer = golden.fill(config.init(&x.device()));
    let attention = AttentionContext::masked(AttentionMask::causal());
    let context = BlockContext { attention, ..BlockContext::default() };
    let output = layer.forward(x.clone(), &context, &mut LayerPass::default());
    golden.check("output", output.clone());
    let gradients = golden.backward(output);
    golden.check_gradient("x", &x, &gradients);
    golden.check_gradients(&layer, &gradients);
}
