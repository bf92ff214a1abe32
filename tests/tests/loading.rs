//! What opening a model holds: its weights in the type that they are wanted in, and of no tensor a copy in the type of the file.

use std::fs;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, FloatDType};
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::nn::ParamBuilder;
use firelight::pretrained::{AutoModel, PublishedModel};
use firelight::storage::{load_weights, load_weights_in, save_weights};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::support::memory::most_held;

/// Bytes that names, shapes and headers may take. The largest matrix takes eight times as many in single precision, four times in half.
const BESIDE: isize = 512 << 10;
const TOKENS: usize = 8192;
const WIDTH: usize = 128;

fn config() -> LanguageModelConfig {
    LanguageModelConfig::new(TOKENS, WIDTH, 2, 1).with_max_seq_len(16).with_transformer(|stack| stack.with_d_ff(WIDTH))
}

/// Asserts that the weights of a model, whose numbers have so many bytes, and no tensor beside them was held at once.
fn assert_lean(model: &LanguageModel, most: isize, bytes: usize, what: &str) {
    let weights = (model.num_params() * bytes) as isize;
    assert!(most >= weights, "{what}: {most} bytes held of {weights}: not all is counted");
    assert!(most < weights + BESIDE, "{what}: {most} bytes held for weights of {weights}");
}

/// Asserts that the weights of two models are the same to the bit, and of one type.
fn assert_same(found: &LanguageModel, expected: &LanguageModel, home: &Path, what: &str) {
    let bytes = [found, expected].map(|model| {
        let path = home.join("compared");
        save_weights(model, &path).unwrap();
        fs::read(path).unwrap()
    });
    assert!(bytes[0] == bytes[1], "{what}: other weights");
}

/// Opens weights as numbers of a type, and what is held meanwhile.
fn opened(path: &Path, dtype: FloatDType) -> (LanguageModel, isize) {
    most_held(|| {
        let mut model = config().init(&Device::flex());
        load_weights_in(&mut model, path, dtype).unwrap();
        model
    })
}

#[test]
fn a_run_folder_is_opened_in_half_precision_without_a_copy_in_single() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("model.safetensors");
    save_weights(&config().init_with(&ParamBuilder::new(&Device::flex(), 3)), &path).unwrap();
    for dtype in [FloatDType::BF16, FloatDType::F16] {
        let what = format!("{dtype:?}");
        let (model, most) = opened(&path, dtype);
        assert_lean(&model, most, 2, &what);
        let mut single = config().init(&Device::flex());
        load_weights(&mut single, &path).unwrap();
        assert_same(&model, &single.cast(dtype), home.path(), &what);
    }
}

#[test]
fn weights_in_half_precision_are_opened_in_single_without_a_copy_in_half() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("model.safetensors");
    let model = config().init_with(&ParamBuilder::new(&Device::flex(), 3));
    for dtype in [FloatDType::BF16, FloatDType::F16] {
        let what = format!("{dtype:?}");
        let half = model.clone().cast(dtype);
        save_weights(&half, &path).unwrap();
        let (single, most) = opened(&path, FloatDType::F32);
        assert_lean(&single, most, 4, &what);
        assert_same(&single, &half.cast(FloatDType::F32), home.path(), &what);
    }
}

/// The tensors of a GPT-2 of one layer, by their names there.
fn tensors() -> Vec<(&'static str, Vec<usize>)> {
    let (vector, matrix) = (vec![WIDTH], vec![WIDTH, WIDTH]);
    vec![
        ("transformer.wte.weight", vec![TOKENS, WIDTH]),
        ("transformer.wpe.weight", vec![16, WIDTH]),
        ("transformer.h.0.ln_1.weight", vector.clone()),
        ("transformer.h.0.ln_1.bias", vector.clone()),
        ("transformer.h.0.attn.c_attn.weight", vec![WIDTH, 3 * WIDTH]),
        ("transformer.h.0.attn.c_attn.bias", vec![3 * WIDTH]),
        ("transformer.h.0.attn.c_proj.weight", matrix.clone()),
        ("transformer.h.0.attn.c_proj.bias", vector.clone()),
        ("transformer.h.0.ln_2.weight", vector.clone()),
        ("transformer.h.0.ln_2.bias", vector.clone()),
        ("transformer.h.0.mlp.c_fc.weight", matrix.clone()),
        ("transformer.h.0.mlp.c_fc.bias", vector.clone()),
        ("transformer.h.0.mlp.c_proj.weight", matrix),
        ("transformer.h.0.mlp.c_proj.bias", vector.clone()),
        ("transformer.ln_f.weight", vector.clone()),
        ("transformer.ln_f.bias", vector),
    ]
}

/// The bytes of numbers of which most have more digits than half precision.
fn numbers(shape: &[usize]) -> Vec<u8> {
    let count: usize = shape.iter().product();
    (0..count).flat_map(|index| ((index * 7919 % 1000) as f32 / 997.0 - 0.5).to_le_bytes()).collect()
}

/// Writes a folder as Hugging Face has it.
fn publish(folder: &Path) {
    let config = serde_json::json!({
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": TOKENS,
        "n_embd": WIDTH,
        "n_head": 2,
        "n_layer": 1,
        "n_inner": WIDTH,
        "n_positions": 16,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let tensors: Vec<_> = tensors().into_iter().map(|(name, shape)| (name, numbers(&shape), shape)).collect();
    let views =
        tensors.iter().map(|(name, bytes, shape)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_published_model_is_opened_in_half_precision_without_a_copy_in_single() {
    let home = tempfile::tempdir().unwrap();
    publish(home.path());
    let published = PublishedModel::open(home.path()).unwrap();
    let open = |dtype| match published.load_in(&Device::flex(), dtype).unwrap() {
        AutoModel::Language(model) => model,
        _ => panic!("no language model"),
    };
    let single = open(FloatDType::F32);
    for dtype in [FloatDType::BF16, FloatDType::F16] {
        let what = format!("{dtype:?}");
        let (model, most) = most_held(|| open(dtype));
        assert_lean(&model, most, 2, &what);
        assert_same(&model, &single.clone().cast(dtype), home.path(), &what);
    }
}
