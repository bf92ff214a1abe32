//! Whole models of published families against `transformers`: what they do to embeddings and logits, the loss through the head, and
//! the gradient of every parameter.

use burn::module::Module;
use burn::tensor::Tensor;
use firelight::classification::{MaskedLanguageModelConfig, TextInput};
use firelight::language::LanguageModelConfig;
use firelight::nn::{LossConfig, Pass, SequenceInput};

use super::described::{assert_felt, config, paths};
use crate::support::device;
use crate::support::golden::Golden;

#[test]
fn published_models_agree_with_transformers() {
    let golden = Golden::load("family_models");
    let compared = golden.cases().map(|golden| if golden.has("segments") { masked(&golden) } else { causal(&golden) });
    // Gemma 2, Cohere, GPT-J, Granite, OPT, ALBERT.
    assert_eq!(compared.collect::<Vec<_>>(), [24, 10, 15, 11, 20, 28]);
}

/// The number of parameters compared.
fn causal(golden: &Golden) -> usize {
    let config: LanguageModelConfig = config(golden, "config");
    config.validate().expect("a configuration");
    let model = golden.fill(config.init(&device().autodiff()));
    assert_eq!(model.cost(7).parameters, model.num_params());
    let tokens = golden.ints("tokens", &device().autodiff());
    let hidden = model.hidden(tokens, &SequenceInput::default(), &mut Pass::default());
    golden.check("logits", model.logits(hidden.clone()));
    let targets = golden.ints("targets", &hidden.device());
    let loss = LossConfig::default().init().forward_head(model.lazy_logits(hidden), targets, None);
    agree(golden, &model, loss.mean())
}

fn masked(golden: &Golden) -> usize {
    let config: MaskedLanguageModelConfig = config(golden, "config");
    config.validate().expect("a configuration");
    let device = device().autodiff();
    let model = golden.fill(config.init(&device));
    assert_eq!(model.cost(7).parameters, model.num_params());
    let input = TextInput::new(golden.ints("tokens", &device)).with_segments(golden.ints("segments", &device));
    let logits = model.forward(&input, &mut Pass::default());
    golden.check("logits", logits.clone());
    let loss = LossConfig::default().init().forward(logits, golden.ints("targets", &device), None);
    agree(golden, &model, loss.mean())
}

fn agree(golden: &Golden, model: &impl Module, loss: Tensor<1>) -> usize {
    golden.check("loss", loss.clone());
    golden.check_gradients(model, &loss.backward());
    assert_felt(golden, &paths(model));
    paths(model).len()
}
