//! Layers of PyTorch itself, from the files that `torch.save` writes: `tests/fixtures/torch_layers.py` wrote them and what they compute.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor, TensorData};
use firelight_core::{
    Activation, EncoderDecoderConfig, EncoderOutput, NormPlacement, Pass, PositionConfig, SequenceInput, Transformer,
    TransformerConfig,
};
use firelight_kernels::assert_close;
use firelight_pretrained::{Table, Weights, load_file, torch_layers};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/torch").join(name)
}

/// Arguments and output of a case.
fn given(name: &str, tensor: &str) -> Tensor<3> {
    let weights = Weights::of_file(fixture(&format!("{name}.safetensors"))).unwrap();
    let shape = weights.info(tensor).unwrap().shape.clone();
    let numbers = weights.read(tensor, &firelight_pretrained::View::whole(&shape), 0.0).unwrap();
    Tensor::from_data(TensorData::new(numbers, shape), &Device::default())
}

fn post(stack: TransformerConfig, final_norm: bool) -> TransformerConfig {
    let stack = stack.with_d_ff(12).with_activation(Activation::Relu).with_position(PositionConfig::None);
    stack.with_norm_placement(NormPlacement::Post).with_final_norm(final_norm)
}

fn table() -> Table {
    Table { rows: torch_layers("", ""), ..Table::default() }
}

fn written(decoder: &Transformer, target: Tensor<3>, source: Tensor<3>) -> Tensor<3> {
    let source = EncoderOutput { hidden: source, padding: None };
    decoder.forward(target, &SequenceInput::default().with_encoder_output(source), &mut Pass::default())
}

#[test]
fn an_encoder_of_pytorch_computes_the_same() {
    let device = Device::default();
    let first = TransformerConfig::encoder(8, 2, 2).with_d_ff(12).with_activation(Activation::Gelu);
    for (name, config) in [
        ("encoder", post(TransformerConfig::encoder(8, 2, 2), false)),
        ("encoder_first", first.with_position(PositionConfig::None)),
    ] {
        let encoder = load_file(config.init(&device), &table(), fixture(&format!("{name}.pt"))).unwrap();
        let found = encoder.forward(given(name, "source"), &SequenceInput::default(), &mut Pass::default());
        assert_close(&found, &given(name, "output").into_data(), 1e-5);
    }
}

#[test]
fn a_decoder_of_pytorch_computes_the_same() {
    let config = post(TransformerConfig::decoder(8, 2, 2), false);
    let decoder = load_file(config.init(&Device::default()), &table(), fixture("decoder.pt")).unwrap();
    let found = written(&decoder, given("decoder", "target"), given("decoder", "source"));
    assert_close(&found, &given("decoder", "output").into_data(), 1e-5);
}

#[test]
fn a_whole_transformer_of_pytorch_computes_the_same() {
    let stacks = EncoderDecoderConfig {
        encoder: post(TransformerConfig::encoder(8, 2, 2), true),
        decoder: post(TransformerConfig::decoder(8, 2, 2), true),
    };
    let rows = [torch_layers("encoder.", "encoder."), torch_layers("decoder.", "decoder.")].concat();
    let table = Table { rows, ..Table::default() };
    let model = load_file(stacks.init(&Device::default()), &table, fixture("whole.pt")).unwrap();
    let source = model.encoder.forward(given("whole", "source"), &SequenceInput::default(), &mut Pass::default());
    let found = written(&model.decoder, given("whole", "target"), source);
    assert_close(&found, &given("whole", "output").into_data(), 1e-5);
}

/// A pickle is a program that makes objects. One that would call the shell is read as the names of what it calls, or refused.
#[test]
fn code_in_a_pickle_is_never_run() {
    let home = tempfile::tempdir().unwrap();
    let raw = home.path().join("raw.pt");
    std::fs::write(&raw, b"cos\nsystem\n(S'touch firelight-was-here'\ntR.").unwrap();
    for path in [fixture("code.pt"), raw] {
        let config = post(TransformerConfig::encoder(8, 2, 1), true);
        let error = load_file(config.init(&Device::default()), &table(), &path).unwrap_err();
        assert!(error.is_user_error(), "{error}");
        assert!(!Path::new("firelight-was-here").exists(), "{} was run", path.display());
    }
}

#[test]
fn what_does_not_fit_the_module_is_listed() {
    let config = post(TransformerConfig::encoder(8, 2, 3), true);
    let error = load_file(config.init(&Device::default()), &table(), fixture("encoder.pt")).unwrap_err();
    let text = error.to_string();
    assert!(error.is_user_error() && text.contains("encoder.pt` holds weights that do not fit the module: "), "{text}");
    // The third layer and the norm behind all of them.
    assert!(text.contains("14 missing (layers.2.norm1.weight, layers.2.norm1.bias, "), "{text}");
}
