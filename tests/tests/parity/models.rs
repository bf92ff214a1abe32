//! Whole language models against PyTorch: logits, loss, and the gradient of every parameter.

use burn::tensor::{Int, Tensor};
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::nn::{Activation, LossConfig, NormConfig, ParamBuilder, PositionConfig};

use crate::support::device;
use crate::support::golden::Golden;

pub(super) fn gpt() -> LanguageModelConfig {
    LanguageModelConfig::new(11, 16, 4, 2).with_max_seq_len(8).with_transformer(|stack| stack.with_d_ff(32))
}

fn llama() -> LanguageModelConfig {
    gpt().with_tied(false).with_transformer(|stack| {
        stack
            .with_n_kv_heads(2)
            .with_d_ff(24)
            .with_activation(Activation::SwiGlu)
            .with_norm(NormConfig::rms())
            .with_position(PositionConfig::rotary())
            .with_bias(false)
    })
}

fn filled(golden: &Golden, config: &LanguageModelConfig) -> LanguageModel {
    golden.fill(config.init(&device().autodiff()))
}

fn agree(name: &str, config: &LanguageModelConfig) {
    let golden = Golden::load(name);
    check(&golden, &filled(&golden, config));
}

/// Logits, loss and the gradients of all parameters, of a model with the golden weights.
pub(super) fn check(golden: &Golden, model: &LanguageModel) {
    let tracked = device().autodiff();
    let logits = model.forward(golden.ints("tokens", &tracked));
    golden.check("logits", logits.clone());
    let loss = LossConfig::default().init().forward(logits, golden.ints("targets", &tracked), None).mean();
    golden.check("loss", loss.clone());
    golden.check_gradients(model, &loss.backward());
}

#[test]
fn gpt_agrees() {
    agree("gpt_tiny", &gpt());
}

#[test]
fn llama_agrees() {
    agree("llama_tiny", &llama());
}

#[test]
fn a_tied_matrix_gets_the_sum_of_both_gradients() {
    // The same model with a head of its own, a copy of the embedding: the two gradients add up to the tied one.
    let golden = Golden::load("gpt_tiny");
    let tracked = device().autodiff();
    let tied = filled(&golden, &gpt());
    let mut untied = gpt().with_tied(false).init_with(&ParamBuilder::new(&tracked, 0));
    untied.embedding = tied.embedding.clone();
    untied.transformer = tied.transformer.clone();
    let copy = tied.embedding.weight.val().transpose().to_data();
    untied.head.weight = Some(burn::module::Param::from_tensor(Tensor::<2>::from_data(copy, &tracked)).into());

    let tokens: Tensor<2, Int> = golden.ints("tokens", &tracked);
    let targets: Tensor<2, Int> = golden.ints("targets", &tracked);
    let loss = LossConfig::default().init().forward(untied.forward(tokens), targets, None).mean();
    let gradients = loss.backward();
    let below = untied.embedding.weight.val().grad(&gradients).expect("the embedding's gradient");
    let above =
        untied.head.weight.as_ref().expect("an untied head").val().grad(&gradients).expect("the head's gradient");
    golden.check("grad.embedding.weight", below + above.transpose());
}
