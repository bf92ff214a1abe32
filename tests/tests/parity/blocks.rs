//! Blocks with other placements of the norm against PyTorch.

use firelight::core::{
    Activation, AttentionConfig, AttentionContext, AttentionMask, BlockContext, FeedForwardConfig, LayerPass,
    NormConfig, NormPlacement, TransformerBlockConfig,
};

use crate::support::device;
use crate::support::golden::Golden;

#[test]
fn placements_agree() {
    for (name, placement, norm) in [
        ("block_sandwich", NormPlacement::Sandwich, NormConfig::layer()),
        ("block_parallel", NormPlacement::Parallel, NormConfig::layer()),
        ("block_without_norm", NormPlacement::Pre, NormConfig::None),
    ] {
        let golden = Golden::load(name);
        let x = golden.input::<3>("x", &device());
        let feed_forward = FeedForwardConfig::new(16, Activation::Gelu).with_d_ff(32);
        let config = TransformerBlockConfig::new(AttentionConfig::new(16, 4), feed_forward)
            .with_norm_placement(placement)
            .with_norm(norm);
        let layer = golden.fill(config.init(&x.device()));
        let attention = AttentionContext::masked(AttentionMask::causal());
        let context = BlockContext { attention, memory: None };
        let output = layer.forward(x.clone(), &context, &mut LayerPass::default());
        golden.check("output", output.clone());
        let gradients = golden.backward(output);
        golden.check_gradient("x", &x, &gradients);
        golden.check_gradients(&layer, &gradients);
    }
}
