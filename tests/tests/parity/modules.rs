//! Attention layers against PyTorch: outputs, input gradients and the gradient of every parameter.

use firelight::nn::{
    Alibi, AttentionConfig, AttentionContext, AttentionMask, LayerPass, PositionScheme, Positions, Projection,
    ProjectionKind, ScoreScale,
};

use crate::support::device;
use crate::support::golden::{Golden, with_memory};

fn causal() -> AttentionContext {
    AttentionContext::masked(AttentionMask::causal())
}

#[test]
fn self_attention_agrees() {
    let golden = Golden::load("attention_module");
    let x = golden.input::<3>("x", &device());
    let layer = golden.fill(AttentionConfig::new(16, 4).with_n_kv_heads(2).init(&x.device()));
    let output = layer.forward(x.clone(), &causal(), &mut LayerPass::default());
    golden.agrees(output, [("x", &x)], &layer);
}

#[test]
fn the_choices_of_a_layer_agree() {
    let golden = Golden::load("attention_choices");
    let layer = AttentionConfig::new(12, 3);
    let layers = [
        layer.clone().with_scale(ScoreScale::Constant(golden.number("case0.scale"))),
        layer.clone().with_scale(ScoreScale::None),
        layer.clone().with_bias(false).with_qkv_bias(true),
        layer.clone().with_qkv_bias(false),
        layer.with_soft_cap(Some(golden.number("case4.soft_cap"))),
    ];
    assert_eq!(golden.cases().count(), layers.len());
    for (i, (golden, config)) in golden.cases().zip(layers).enumerate() {
        let x = golden.input::<3>("x", &device());
        let layer = golden.fill(config.init(&x.device()));
        let places = Positions::contiguous(0, 5);
        let bias = if i == 4 { Alibi::new(3).bias(&places, &places, &x.device()) } else { None };
        let output = layer.forward(x.clone(), &AttentionContext { bias, ..causal() }, &mut LayerPass::default());
        golden.agrees(output, [("x", &x)], &layer);
    }
}

#[test]
fn fused_self_attention_agrees() {
    let golden = Golden::load("attention_module");
    let fused = golden.fused();
    let x = golden.input::<3>("x", &device());
    let config = AttentionConfig::new(16, 4).with_n_kv_heads(2).with_projection(ProjectionKind::Fused);
    let layer = fused.fill(config.init(&x.device()));
    let output = layer.forward(x.clone(), &causal(), &mut LayerPass::default());
    golden.check("output", output.clone());
    let gradients = golden.backward(output);
    golden.check_gradient("x", &x, &gradients);
    fused.check_gradients(&layer, &gradients);

    // Each part by itself as well: small gradients must not hide behind the large ones of their neighbours.
    let Projection::Fused(projection) = &layer.projection else { panic!("a fused projection") };
    let weight = projection.qkv.weight.val().grad(&gradients).expect("the matrix's gradient");
    let bias = projection.qkv.bias.as_ref().expect("a bias").val().grad(&gradients).expect("the bias's gradient");
    for (name, start, width) in [("query", 0, 16), ("key", 16, 8), ("value", 24, 8)] {
        golden.check(&format!("grad.{name}.weight"), weight.clone().narrow(1, start, width));
        golden.check(&format!("grad.{name}.bias"), bias.clone().narrow(0, start, width));
    }
}

#[test]
fn cross_attention_agrees() {
    let golden = Golden::load("cross_attention_module");
    let (x, hidden, memory) = with_memory(&golden);
    let layer = golden.fill(AttentionConfig::new(16, 4).init(&x.device()));
    let output = layer.forward_cross(x.clone(), &memory, &mut LayerPass::default());
    golden.agrees(output, [("x", &x), ("memory", &hidden)], &layer);
}
