//! Tiny models of every family with random weights, as `transformers` saves and computes them: `tests/fixtures/pretrained.py`.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, FloatDType};
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_pretrained::{Arrays, AutoModel, ForwardOptions, PublishedModel, compare_outputs, export, load};
use firelight_storage::Checkpoint;

fn folders(family: &str) -> Vec<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained");
    let folders = fs::read_dir(home).expect("the fixtures").map(|entry| entry.unwrap().path());
    let of_family = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        path.is_dir() && name.split_once('-').map_or(&*name, |(family, _)| family) == family
    };
    let mut found: Vec<PathBuf> = folders.filter(of_family).collect();
    found.sort();
    found
}

/// Every output of every variant of a family is what `transformers` computes.
fn agrees(family: &str, variants: usize) {
    let folders = folders(family);
    assert_eq!(folders.len(), variants, "{folders:?}");
    for folder in folders {
        agrees_with(&folder, &folder);
        let home = tempfile::tempdir().unwrap();
        agrees_with(&written_back(&folder, home.path()), &folder);
    }
}

/// The folder as it is after an import and an export.
fn written_back(folder: &Path, home: &Path) -> PathBuf {
    let (run, out) = (imported(folder, home), home.join("exported"));
    export(&run, &Checkpoint::Last, &out).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    out
}

/// The run folder of a folder, to which a tokenizer is added.
pub(super) fn imported(folder: &Path, home: &Path) -> PathBuf {
    let [with_tokenizer, run] = ["published", "run"].map(|name| home.join(name));
    fs::create_dir(&with_tokenizer).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, with_tokenizer.join(path.file_name().unwrap())).unwrap();
    }
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
    tokenizer.save(with_tokenizer.join("tokenizer.json")).unwrap();
    PublishedModel::open(&with_tokenizer).unwrap().import(&run).unwrap();
    run
}

/// The model of a folder puts out what is expected of another.
pub(super) fn agrees_with(model: &Path, folder: &Path) {
    let name = folder.file_name().unwrap().display();
    let device = Device::default();
    let [inputs, expected] =
        ["inputs", "expected"].map(|file| Arrays::read(folder.join(format!("{file}.safetensors"))).unwrap());
    let opened = PublishedModel::open(model).unwrap_or_else(|error| panic!("{name}: {:#?}", error.problems()));
    opened.check_padding(&inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
    let model = opened.load(&device).unwrap();
    let greedy = expected.get("greedy").map_or(0, |_| 16);
    let found = model.forward(&inputs, ForwardOptions { hidden_states: true, attentions: true, greedy }, &device);
    let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
    let compared = compare_outputs(&found, &expected, &inputs, 1e-4);
    assert!(!compared.is_empty(), "{name} expects nothing");
    let differing: Vec<_> = compared.iter().filter(|output| !output.agrees()).collect();
    assert!(differing.is_empty(), "{name}: {differing:#?}");
    let largest = compared.iter().map(|output| output.largest).fold(0.0, f64::max);
    println!("{name}: {} outputs, largest difference {largest:.1e}", compared.len());
}

#[test]
fn a_program_loads_a_model_in_five_lines() {
    let folder = folders("llama").into_iter().find(|path| path.ends_with("llama-plain")).expect("the fixture");
    let expected = Arrays::read(folder.join("expected.safetensors")).unwrap();
    let inputs = Arrays::read(folder.join("inputs.safetensors")).unwrap();
    let home = tempfile::tempdir().unwrap();
    for model in [imported(&folder, home.path()), folder] {
        let device = Device::default();
        let model = load(model, &device).unwrap();
        assert!(matches!(model, AutoModel::Language(_)));
        let found = model.forward(&inputs, ForwardOptions::default(), &device).unwrap();
        let compared = compare_outputs(&found, &expected, &inputs, 1e-4);
        assert!(compared.iter().any(|output| output.name == "logits" && output.agrees()), "{compared:?}");
    }
    let missing = load(home.path().join("none"), &Device::default()).unwrap_err().to_string();
    assert!(missing.starts_with("there is no folder `"), "{missing}");
}

/// Checkpoints in half precision are read into a model of that type bit by bit.
#[test]
fn half_precision_is_kept() {
    for (name, half, dtype) in
        [("llama-bf16", FloatDType::BF16, DType::BF16), ("llama-f16", FloatDType::F16, DType::F16)]
    {
        let folder = folders("llama").into_iter().find(|path| path.ends_with(name)).expect("the fixture");
        let opened = PublishedModel::open(folder).unwrap();
        let device = Device::flex(); // Others may lack these types.
        let AutoModel::Language(kept) = opened.load_in(&device, half).unwrap() else { panic!("another task") };
        let AutoModel::Language(widened) = opened.load(&device).unwrap() else { panic!("another task") };
        let [kept, widened] = [kept, widened].map(|model| model.embedding.weight.val());
        assert_eq!((kept.dtype(), widened.dtype()), (dtype, DType::F32));
        kept.cast(FloatDType::F32).into_data().assert_eq(&widened.into_data(), true);
    }
}

macro_rules! families {
    ($($family:ident: $variants:literal;)+) => {$(
        #[test]
        fn $family() {
            agrees(stringify!($family), $variants);
        }
    )+};
}

families! {
    albert: 6;
    bart: 3;
    bert: 8;
    camembert: 2;
    clip: 2;
    deepseek_v3: 2;
    deit: 4;
    dinov2: 3;
    distilbert: 6;
    electra: 7;
    gemma: 2;
    gemma2: 2;
    gemma3_text: 2;
    gpt2: 3;
    gpt_neox: 2;
    gpt_oss: 2;
    llama: 8;
    marian: 2;
    mbart: 2;
    mistral: 2;
    mixtral: 2;
    modernbert: 7;
    mpnet: 6;
    olmo2: 2;
    phi3: 2;
    qwen2: 2;
    qwen3: 2;
    qwen3_moe: 2;
    roberta: 7;
    smollm3: 2;
    starcoder2: 2;
    t5: 2;
    timm: 3;
    vit: 2;
    xlm_roberta: 2;
}
