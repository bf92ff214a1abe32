//! The modules of `firelight-core` against PyTorch: outputs, input gradients and the gradient of every parameter.

use burn::tensor::Tensor;
use firelight::core::{
    Activation, AttentionConfig, AttentionContext, AttentionMask, BlockContext, FeedForwardConfig, LayerPass, Memory,
    NormPlacement, Pass, PositionConfig, PositionScheme, Positions, Projection, ProjectionKind, Rotary, RotaryLayout,
    SequenceInput, Sinusoidal, TransformerBlockConfig, TransformerConfig,
};

use crate::support::device;
use crate::support::golden::Golden;

fn causal() -> AttentionContext {
    AttentionContext::masked(AttentionMask::causal())
}

#[test]
fn self_attention_agrees() {
    let golden = Golden::load("attention_module");
    let x = golden.input::<3>("x", &device());
    let layer = golden.fill(AttentionConfig::new(16, 4).with_n_kv_heads(2).init(&x.device()));
    let output = layer.forward(x.clone(), &causal(), &mut LayerPass::default());
    golden.check("output", output.clone());
    let gradients = golden.backward(output);
    golden.check_gradient("x", &x, &gradients);
    golden.check_gradients(&layer, &gradients);
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
    let (x, hidden) = (golden.input::<3>("x", &device()), golden.input::<3>("memory", &device()));
    let layer = golden.fill(AttentionConfig::new(16, 4).init(&x.device()));
    let memory = Memory::new(hidden.clone()).with_padding(Some(golden.flags("memory_padding", &x.device())));
    let output = layer.forward_cross(x.clone(), &memory, &mut LayerPass::default());
    golden.check("output", output.clone());
    let gradients = golden.backward(output);
    golden.check_gradient("x", &x, &gradients);
    golden.check_gradient("memory", &hidden, &gradients);
    golden.check_gradients(&layer, &gradients);
}

#[test]
fn feed_forward_agrees() {
    for (name, activation, bias) in [
        ("feed_forward_relu", Activation::Relu, true),
        ("feed_forward_gelu", Activation::Gelu, true),
        ("feed_forward_gelu_tanh", Activation::GeluTanh, true),
        ("feed_forward_swiglu", Activation::SwiGlu, false),
    ] {
        let golden = Golden::load(name);
        let x = golden.input::<3>("x", &device());
        let d_ff = golden.data("up.weight").shape()[1];
        let config = FeedForwardConfig::new(16, activation).with_d_ff(d_ff).with_bias(bias);
        let layer = golden.fill(config.init(&x.device()));
        let output = layer.forward(x.clone());
        golden.check("output", output.clone());
        let gradients = golden.backward(output);
        golden.check_gradient("x", &x, &gradients);
        golden.check_gradients(&layer, &gradients);
    }
}

#[test]
fn rotary_agrees() {
    for (prefix, layout) in [("halves.", RotaryLayout::Halves), ("interleaved.", RotaryLayout::Interleaved)] {
        let golden = Golden::load("rotary").part(prefix);
        let x = golden.input::<4>("x", &device());
        let positions = Positions::PerRow { index: golden.ints("positions", &x.device()), bound: usize::MAX };
        let rotation = Rotary::new(8, 10_000.0, layout).rotation(&positions, &x.device()).expect("a rotation");
        let output = rotation.apply(x.clone());
        golden.check("output", output.clone());
        golden.check_gradient("x", &x, &golden.backward(output));
    }
}

#[test]
fn sinusoidal_agrees() {
    let golden = Golden::load("sinusoidal");
    let table = |start, len| -> Tensor<2> {
        Sinusoidal::new(8).table(&Positions::Contiguous { start, len }, &device()).squeeze_dim(0)
    };
    golden.check("table", table(0, 12));
    golden.check("offset_table", table(golden.number("offset") as usize, 5));
}

fn block() -> TransformerBlockConfig {
    let feed_forward = FeedForwardConfig::new(16, Activation::Gelu).with_d_ff(32);
    TransformerBlockConfig::new(AttentionConfig::new(16, 4), feed_forward)
}

#[test]
fn blocks_agree() {
    for (name, placement) in [("block_pre", NormPlacement::Pre), ("block_post", NormPlacement::Post)] {
        let golden = Golden::load(name);
        let x = golden.input::<3>("x", &device());
        let layer = golden.fill(block().with_norm_placement(placement).init(&x.device()));
        let context = BlockContext { attention: causal(), ..BlockContext::default() };
        let output = layer.forward(x.clone(), &context, &mut LayerPass::default());
        golden.check("output", output.clone());
        let gradients = golden.backward(output);
        golden.check_gradient("x", &x, &gradients);
        golden.check_gradients(&layer, &gradients);
    }
}

#[test]
fn a_decoder_block_agrees() {
    let golden = Golden::load("decoder_block");
    let (x, hidden) = (golden.input::<3>("x", &device()), golden.input::<3>("memory", &device()));
    let layer = golden.fill(block().with_cross_attention(true).init(&x.device()));
    let memory = Memory::new(hidden.clone()).with_padding(Some(golden.flags("memory_padding", &x.device())));
    let context = BlockContext { attention: causal(), memory: Some(memory), ..BlockContext::default() };
    let output = layer.forward(x.clone(), &context, &mut LayerPass::default());
    golden.check("output", output.clone());
    let gradients = golden.backward(output);
    golden.check_gradient("x", &x, &gradients);
    golden.check_gradient("memory", &hidden, &gradients);
    golden.check_gradients(&layer, &gradients);
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
