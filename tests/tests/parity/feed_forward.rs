//! Feed-forward networks with every activation against PyTorch.

use firelight::core::{Activation, FeedForwardConfig};

use crate::support::device;
use crate::support::golden::Golden;

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
        let output = layer.forward(x.clone());
        golden.check("output", output.clone());
        let gradients = golden.backward(output);
        golden.check_gradient("x", &x, &gradients);
        golden.check_gradients(&layer, &gradients);
    }
}
