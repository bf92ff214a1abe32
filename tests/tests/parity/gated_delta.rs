//! Gated DeltaNet against the module of Qwen3-Next in transformers; [`stacks`](super::stacks) has it in a stack.

use firelight::nn::{
    AttentionContext, AttentionMask, GatedDelta, LayerContext, LayerPass, MixerConfig, ParamBuilder, TokenMixer,
    TransformerConfig,
};

use super::described::{assert_felt, config, paths};
use crate::support::device;
use crate::support::golden::Golden;

fn mixer(golden: &Golden) -> GatedDelta {
    let config: TransformerConfig = config(golden, "config");
    let MixerConfig::GatedDelta(delta) = config.first().block.mixer else { panic!("a gated delta rule") };
    delta.init_with(&config.first().block.attention, &ParamBuilder::new(&device().autodiff(), 0))
}

#[test]
fn the_module_agrees() {
    let golden = Golden::load("gated_delta");
    let x = golden.input::<3>("x", &device());
    let mixer = golden.fill(mixer(&golden));
    let attention = AttentionContext::masked(AttentionMask::causal());
    let context = LayerContext { attention, ..LayerContext::default() };
    let output = mixer.forward(x.clone(), &context, &mut LayerPass::default());
    golden.agrees(output, [("x", &x)], &mixer);
    assert_felt(&golden, &paths(&mixer));
}
