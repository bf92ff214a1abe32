//! The kernels against `torch.nn.functional`.

use burn::tensor::Tensor;
use firelight::kernels::{
    AttentionMask, AttentionOptions, CrossEntropyOptions, GeluForm, attention, cross_entropy, gelu, layer_norm, linear,
    rms_norm,
};

use crate::support::device;
use crate::support::golden::Golden;

#[test]
fn attention_agrees() {
    let device = device();
    let mut cases = 0;
    let files = ["attention", "attention_soft_cap"].map(Golden::load);
    for golden in files.iter().flat_map(Golden::cases) {
        let [query, key, value] = ["query", "key", "value"].map(|name| golden.input::<4>(name, &device));
        let tracked = query.device();
        let bias: Option<Tensor<4>> = golden.has("bias").then(|| golden.input("bias", &device));
        let causal = if golden.number("causal") == 1.0 { AttentionMask::causal() } else { AttentionMask::none() };
        let padding = golden.has("padding").then(|| AttentionMask::padding(golden.flags("padding", &tracked)));
        let options = AttentionOptions::default()
            .with_mask(causal.and(padding.unwrap_or_default()))
            .with_scale(golden.has("scale").then(|| golden.number("scale")))
            .with_soft_cap(golden.has("soft_cap").then(|| golden.number("soft_cap")))
            .with_bias(bias.clone());
        let output = attention(query.clone(), key.clone(), value.clone(), &options);
        golden.check("output", output.clone());
        let gradients = golden.backward(output);
        for (name, input) in [("query", &query), ("key", &key), ("value", &value)] {
            golden.check_gradient(name, input, &gradients);
        }
        if let Some(bias) = &bias {
            golden.check_gradient("bias", bias, &gradients);
        }
        cases += 1;
    }
    assert_eq!(cases, 12);
}

#[test]
fn layer_norm_agrees() {
    let device = device();
    let mut cases = 0;
    for golden in Golden::load("layer_norm").cases() {
        let (x, gamma) = (golden.input::<3>("x", &device), golden.input::<1>("gamma", &device));
        let beta: Option<Tensor<1>> = golden.has("beta").then(|| golden.input("beta", &device));
        let output = layer_norm(x.clone(), gamma.clone(), beta.clone(), 1e-5);
        golden.check("output", output.clone());
        let gradients = golden.backward(output);
        golden.check_gradient("x", &x, &gradients);
        golden.check_gradient("gamma", &gamma, &gradients);
        if let Some(beta) = &beta {
            golden.check_gradient("beta", beta, &gradients);
        }
        cases += 1;
    }
    assert_eq!(cases, 2);
}

#[test]
fn rms_norm_agrees() {
    let golden = Golden::load("rms_norm");
    let (x, gamma) = (golden.input::<3>("x", &device()), golden.input::<1>("gamma", &device()));
    let output = rms_norm(x.clone(), gamma.clone(), 1e-6);
    golden.check("output", output.clone());
    let gradients = golden.backward(output);
    golden.check_gradient("x", &x, &gradients);
    golden.check_gradient("gamma", &gamma, &gradients);
}

#[test]
fn gelu_agrees() {
    for (prefix, form) in [("erf.", GeluForm::Exact), ("tanh.", GeluForm::Tanh)] {
        let golden = Golden::load("gelu").part(prefix);
        let x = golden.input::<2>("x", &device());
        let output = gelu(x.clone(), form);
        golden.check("output", output.clone());
        golden.check_gradient("x", &x, &golden.backward(output));
    }
}

#[test]
fn cross_entropy_agrees() {
    let mut cases = 0;
    for golden in Golden::load("cross_entropy").cases() {
        let logits = golden.input::<2>("logits", &device());
        let tracked = logits.device();
        let options = CrossEntropyOptions::default()
            .with_ignored(Some(golden.flags("ignored", &tracked)))
            .with_label_smoothing(golden.number("smoothing"));
        let losses = cross_entropy(logits.clone(), golden.ints("targets", &tracked), &options);
        golden.check("output", losses.clone());
        golden.check_gradient("logits", &logits, &golden.backward(losses));
        cases += 1;
    }
    assert_eq!(cases, 2);
}

#[test]
fn linear_agrees() {
    let mut cases = 0;
    for golden in Golden::load("linear").cases() {
        let (x, weight) = (golden.input::<3>("x", &device()), golden.input::<2>("weight", &device()));
        let bias: Option<Tensor<1>> = golden.has("bias").then(|| golden.input("bias", &device()));
        let output = linear(x.clone(), weight.clone(), bias.clone());
        golden.check("output", output.clone());
        let gradients = golden.backward(output);
        golden.check_gradient("x", &x, &gradients);
        golden.check_gradient("weight", &weight, &gradients);
        if let Some(bias) = &bias {
            golden.check_gradient("bias", bias, &gradients);
        }
        cases += 1;
    }
    assert_eq!(cases, 2);
}
