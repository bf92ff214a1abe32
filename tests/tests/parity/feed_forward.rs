//! Feed-forward networks with every activation against PyTorch.

use firelight::nn::{Activation, AuxiliaryLosses, ExpertsConfig, FeedForwardConfig, ParamBuilder, Pass};

use crate::support::device;
use crate::support::golden::Golden;

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
        golden.agrees(layer.forward(x.clone()), [("x", &x)], &layer);
    }
}

#[test]
fn activations_agree() {
    let activations = [
        Activation::Silu,
        Activation::QuickGelu,
        Activation::SquaredRelu,
        Activation::GeGlu,
        Activation::GeGluTanh,
        Activation::ReGlu,
    ];
    let golden = Golden::load("feed_forward_activations");
    assert_eq!(golden.cases().count(), activations.len());
    for (golden, activation) in golden.cases().zip(activations) {
        let x = golden.input::<3>("x", &device());
        let layer = golden.fill(FeedForwardConfig::new(16, activation).with_d_ff(24).init(&x.device()));
        golden.agrees(layer.forward(x.clone()), [("x", &x)], &layer);
    }
}

#[test]
fn experts_agree() {
    let configs = [ExpertsConfig::new(4), ExpertsConfig::new(4).with_top_k(1)];
    let golden = Golden::load("mixture_of_experts");
    assert_eq!(golden.cases().count(), configs.len());
    for (golden, config) in golden.cases().zip(configs) {
        let x = golden.input::<3>("x", &device());
        let expert = FeedForwardConfig::new(16, Activation::SwiGlu).with_d_ff(8).with_bias(false);
        let layer = golden.fill(config.init_with(&expert, &ParamBuilder::new(&x.device(), 0)));
        let mut losses = AuxiliaryLosses::default();
        let output = layer.forward(x.clone(), None, &mut Pass::default().with_losses(&mut losses).layer(0));
        let balance = losses.load_balance().expect("a loss");
        golden.check("output", output.clone());
        golden.check("load_balance", balance.clone());
        let cotangent = golden.floats("cotangent", &output.device());
        let gradients = ((output * cotangent).sum() + balance).backward();
        golden.check_gradient("x", &x, &gradients);
        golden.check_gradients(&layer, &gradients);
    }
}
