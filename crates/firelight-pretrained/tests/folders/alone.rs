//! Folders of a model without its head: where it repeats the embedding they give the outputs of the folder with the head, else those of
//! the model alone.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use firelight_classification::HeadActivation;
use firelight_pretrained::{Arrays, ForwardOptions, PublishedModel, Structure, compare};
use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};

use super::damaged::copy;

fn outputs(folder: &Path, inputs: &Arrays) -> Arrays {
    let device = Device::default();
    let opened = PublishedModel::open(folder).unwrap_or_else(|error| panic!("{:#?}", error.problems()));
    let options = ForwardOptions { hidden_states: true, attentions: false, greedy: 8 };
    opened.load(&device).unwrap().forward(inputs, options, &device).unwrap()
}

/// Writes the tensors again, each under the name that `change` gives it, or not at all, and with the bytes that it leaves.
fn rewrite(folder: &Path, change: impl Fn(&str, &mut Vec<u8>) -> Option<String>) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let mut tensors = Vec::new();
    for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let mut data = tensor.data().to_vec();
        if let Some(name) = change(&name, &mut data) {
            tensors.push((name, tensor.dtype(), tensor.shape().to_vec(), data));
        }
    }
    let views = tensors.iter().map(|(name, dtype, shape, data)| {
        let view = TensorView::new(*dtype, shape.clone(), data).unwrap();
        (name.clone(), view)
    });
    fs::write(&path, serialize(views, None).unwrap()).unwrap();
}

/// The model alone in the place of a class: its tensors have no prefix, and what belongs to the head is left out.
fn model_alone(name: &str, class: &str, alone: &str) -> tempfile::TempDir {
    let home = copy(name);
    let path = home.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(class), "{text}");
    fs::write(&path, text.replacen(class, alone, 1)).unwrap();
    rewrite(home.path(), |name, _| {
        let is_of_head = name.starts_with("lm_head") || name == "final_logits_bias";
        (!is_of_head).then(|| name.strip_prefix("model.").unwrap_or(name).to_string())
    });
    home
}

#[test]
fn a_model_without_its_head_writes_by_its_embedding() {
    for (name, class, alone) in [
        ("gpt2-plain", "\"GPT2LMHeadModel\"", "\"GPT2Model\""),
        ("qwen2-tied", "\"Qwen2ForCausalLM\"", "\"Qwen2Model\""),
        ("bart-plain", "\"BartForConditionalGeneration\"", "\"BartModel\""),
        ("t5-relu", "\"T5ForConditionalGeneration\"", "\"T5Model\""),
    ] {
        let with_head = copy(name);
        // A model alone has no bias of its logits, which is as one of zeros.
        rewrite(with_head.path(), |name, data| {
            if name == "final_logits_bias" {
                data.fill(0);
            }
            Some(name.to_string())
        });
        let inputs = Arrays::read(with_head.path().join("inputs.safetensors")).unwrap();
        let expected = outputs(with_head.path(), &inputs);
        let found = outputs(model_alone(name, class, alone).path(), &inputs);
        let compared = compare(&found, &expected, inputs.get("attention_mask"), 1e-6);
        assert!(compared.iter().any(|output| output.name == "logits"), "{name}");
        assert!(compared.iter().all(|output| output.agrees()), "{name}: {compared:#?}");
    }
}

#[test]
fn a_discriminator_without_its_head_is_its_encoder() {
    let home = copy("electra-discriminator");
    let inputs = Arrays::read(home.path().join("inputs.safetensors")).unwrap();
    let whole = outputs(home.path(), &inputs);
    assert_eq!(whole.get("logits").map(|logits| &logits.shape[..]), Some(&[2, 9][..]));
    rewrite(home.path(), |name, _| (!name.starts_with("discriminator_predictions")).then(|| name.to_string()));
    let alone = outputs(home.path(), &inputs);
    assert!(alone.get("logits").is_none());
    let compared = compare(&whole, &alone, inputs.get("attention_mask"), 1e-5);
    assert!(compared.iter().any(|output| output.name == "last_hidden_state"), "{compared:?}");
    assert!(compared.iter().all(|output| output.agrees()), "{compared:?}");
}

#[test]
fn the_head_of_a_discriminator_has_the_activation_of_its_stack() {
    for (name, expected) in [("relu", HeadActivation::Relu), ("gelu_new", HeadActivation::GeluTanh)] {
        let home = copy("electra-discriminator");
        let path = home.path().join("config.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"hidden_act\": \"gelu\""), "{text}");
        fs::write(&path, text.replacen("\"hidden_act\": \"gelu\"", &format!("\"hidden_act\": \"{name}\""), 1)).unwrap();
        let model = PublishedModel::open(home.path()).unwrap();
        let Structure::Encoder(encoder) = model.structure() else { panic!("{:?}", model.structure()) };
        assert_eq!(encoder.discriminator, Some(expected));
    }
}
