//! GGUF files in blocks become run folders in the same blocks: the bytes of the file, in the order of our rows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Int, Tensor};
use firelight_core::{Init, ParamBuilder, WeightInit, weights_of};
use firelight_kernels::Difference;
use firelight_language::{LanguageModel, LanguageModelConfig, TextGenerator};
use firelight_pretrained::{
    AutoModel, HubFolder, PublishedModel, Structure, Weights, describe, export_gguf, run_folder, run_folder_of_floats,
};
use firelight_storage::{Checkpoint, ModelFolder, load_weights, save_weights};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use super::golden::imported;

/// Bytes of a block of `q8_0`, which holds 32 numbers.
const BLOCK: usize = 34;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained").join(name)
}

/// A file in blocks of the tiny model of a family, wide enough for them by other sizes in its `config.json`.
fn written(name: &str, sizes: &Value, format: &str, home: &Path) -> PathBuf {
    let run = ModelFolder::open(imported(&fixture(name), home)).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(fixture(name).join("config.json")).unwrap()).unwrap();
    for (key, size) in sizes.as_object().unwrap() {
        config[key] = size.clone();
    }
    let wide = home.join("wide");
    fs::create_dir(&wide).unwrap();
    fs::write(wide.join("config.json"), config.to_string()).unwrap();
    let structure = describe(&HubFolder::open(&wide).unwrap()).unwrap().structure;
    let Structure::Language(config) = &structure else { panic!("no language model") };
    let far = WeightInit { weight: Init::Normal { std: 0.15 }, scale_residual: false };
    let drawn = config.clone().with_transformer(|stack| stack.with_init(far));
    let model = drawn.init_with(&ParamBuilder::new(&Device::flex(), 0));
    save_weights(&model, run.weights_path(&Checkpoint::Last)).unwrap();
    structure.write(&run).unwrap();
    let out = home.join("wide.gguf");
    export_gguf(run.path(), &Checkpoint::Last, &out, format).unwrap_or_else(|error| panic!("{name}: {error}"));
    out
}

fn llama(home: &Path) -> PathBuf {
    let sizes = json!({"hidden_size": 64, "head_dim": 16, "intermediate_size": 96});
    written("llama-plain", &sizes, "q8_0", home)
}

/// The model of a folder, and its logits for a few tokens: so few that they are multiplied with blocks as integers.
fn logits(run: &ModelFolder) -> (LanguageModel, Vec<f32>) {
    let generator = TextGenerator::load_from(run.path(), &Checkpoint::Last, &Device::flex()).unwrap();
    (generator.model().clone(), logits_of(generator.model()))
}

fn logits_of(model: &LanguageModel) -> Vec<f32> {
    let tokens = Tensor::<2, Int>::from_ints([[1, 5, 2, 7, 0, 44, 9]], &Device::flex());
    model.forward(tokens).try_into_vec_as::<f32>().unwrap()
}

/// The type and the bytes of a parameter of a run.
fn parameter(run: &ModelFolder, path: &str) -> (Dtype, Vec<u8>) {
    let whole = fs::read(run.weights_path(&Checkpoint::Last)).unwrap();
    let tensors = SafeTensors::deserialize(&whole).unwrap();
    let tensor = tensors.tensor(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    (tensor.dtype(), tensor.data().to_vec())
}

/// The same, of a parameter in blocks.
fn blocks(run: &ModelFolder, path: &str) -> Vec<u8> {
    let (dtype, bytes) = parameter(run, path);
    assert_eq!(dtype, Dtype::U8, "{path}");
    bytes
}

/// The blocks of a tensor of a GGUF file, by its own name.
fn stored(file: &Path, name: &str) -> Vec<u8> {
    let weights = Weights::of_file(file).unwrap();
    weights.blocks(name).unwrap().unwrap_or_else(|| panic!("{name} is in no blocks")).into_owned()
}

/// Imports a file as it is and as floats, which gives the same logits up to the error of activations in eight bits. Returns the folder as it is.
fn imports(file: &Path, home: &Path) -> (ModelFolder, BTreeMap<String, String>) {
    let published = PublishedModel::open(file).unwrap();
    let run = published.import(home.join("blocks")).unwrap();
    let floats = published.import_floats(home.join("floats")).unwrap();
    assert_eq!(floats.read_quantization().unwrap(), None);
    let formats = run.read_quantization().unwrap().expect("blocks");
    let ((model, found), (_, expected)) = (logits(&run), logits(&floats));
    let in_blocks = weights_of(&model).into_iter().filter_map(|weight| Some((weight.path, weight.format?)));
    let named: BTreeMap<String, String> = in_blocks.map(|(path, format)| (path, format.name().into())).collect();
    assert_eq!(named, formats);
    let apart = Difference::between(&found, &expected);
    assert!(apart.absolute > 0.0 && apart.absolute < 0.03 * apart.largest, "{}: {apart:?}", file.display());
    // A program that takes the weights of the file has them as floats.
    let AutoModel::Language(loaded) = published.load(&Device::flex()).unwrap() else { panic!("no language model") };
    assert!(weights_of(&loaded).iter().all(|weight| weight.format.is_none()));
    assert_eq!(logits_of(&loaded), expected);
    (run, formats)
}

/// All matrices are in blocks.
fn all_in_blocks(run: &ModelFolder, formats: &BTreeMap<String, String>) {
    let Structure::Language(config) = Structure::of_run(run).unwrap() else { panic!("no language model") };
    let expected: Vec<String> =
        weights_of(&config.init(&Device::flex())).into_iter().map(|weight| weight.path).collect();
    let lacking: Vec<&String> = expected.iter().filter(|path| !formats.contains_key(*path)).collect();
    assert!(lacking.is_empty() && formats.len() == expected.len(), "{lacking:?} are floats");
}

#[test]
fn rows_of_heads_are_put_in_our_order_and_all_others_stay() {
    let home = tempfile::tempdir().unwrap();
    let file = llama(home.path());
    let (run, formats) = imports(&file, home.path());
    all_in_blocks(&run, &formats);
    assert!(PublishedModel::open(&file).unwrap().import_notes().is_empty());
    assert!(formats.values().all(|format| format == "q8_0"), "{formats:?}");
    let layer = "transformer.blocks.1.";
    for (ours, theirs) in [
        ("embedding.weight".to_string(), "token_embd.weight"),
        ("head.weight".into(), "output.weight"),
        (format!("{layer}attention.projection.value.weight"), "blk.1.attn_v.weight"),
        (format!("{layer}attention.output.weight"), "blk.1.attn_output.weight"),
        (format!("{layer}feed_forward.down.weight"), "blk.1.ffn_down.weight"),
    ] {
        assert_eq!(blocks(&run, &ours), stored(&file, theirs), "{ours}");
    }
    // In the file both halves of the 16 rows of a head lie in turn.
    let row = 64 / 32 * BLOCK;
    for (name, theirs, heads) in [("query", "attn_q", 4), ("key", "attn_k", 2)] {
        let found = blocks(&run, &format!("{layer}attention.projection.{name}.weight"));
        let stored = stored(&file, &format!("blk.1.{theirs}.weight"));
        assert_eq!(stored.len(), heads * 16 * row);
        let places = (0..heads * 16).map(|index| index / 16 * 16 + index % 8 * 2 + index % 16 / 8);
        let expected: Vec<u8> = places.flat_map(|place| stored[place * row..][..row].to_vec()).collect();
        assert_eq!(found, expected, "{name}");
        assert_ne!(found, stored, "{name}");
    }
}

/// The matrices of GPT-2 are transposed in a folder, and not in a GGUF file; its head is the table.
#[test]
fn transposed_and_split_matrices_have_the_rows_of_the_file() {
    let home = tempfile::tempdir().unwrap();
    let file = written("gpt2-plain", &json!({"n_embd": 64}), "q8_0", home.path());
    let (run, formats) = imports(&file, home.path());
    all_in_blocks(&run, &formats);
    assert!(!formats.contains_key("head.weight"));
    let layer = "transformer.blocks.0.";
    for (ours, theirs) in [("attention.projection.qkv", "attn_qkv"), ("feed_forward.down", "ffn_down")] {
        let theirs = stored(&file, &format!("blk.0.{theirs}.weight"));
        assert_eq!(blocks(&run, &format!("{layer}{ours}.weight")), theirs, "{ours}");
    }

    let home = tempfile::tempdir().unwrap();
    let file = written("phi3-plain", &json!({"hidden_size": 64, "intermediate_size": 96}), "q4_0", home.path());
    let (run, formats) = imports(&file, home.path());
    all_in_blocks(&run, &formats);
    assert!(formats.values().all(|format| format == "q4_0"), "{formats:?}");
    let halves = ["gate", "up"].map(|half| blocks(&run, &format!("{layer}feed_forward.{half}.weight")));
    assert_eq!(halves.concat(), stored(&file, "blk.0.ffn_up.weight"));
}

/// As the mix of a language model in blocks of four bits has it.
#[test]
fn embedding_and_head_have_more_bits_than_layers_of_q4_k() {
    let home = tempfile::tempdir().unwrap();
    let sizes = json!({"hidden_size": 256, "head_dim": 64, "intermediate_size": 256});
    let file = written("llama-plain", &sizes, "q4_k", home.path());
    let run = PublishedModel::open(&file).unwrap().import(home.path().join("blocks")).unwrap();
    let formats = run.read_quantization().unwrap().expect("blocks");
    all_in_blocks(&run, &formats);
    for (path, format) in &formats {
        let is_end = ["embedding.weight", "head.weight"].contains(&path.as_str());
        assert_eq!(format, if is_end { "q6_k" } else { "q4_k" }, "{path}");
    }
}

#[test]
fn matrices_whose_rows_are_no_whole_blocks_stay_floats() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tiny.gguf");
    let run = imported(&fixture("gpt_neox-parallel"), home.path());
    export_gguf(&run, &Checkpoint::Last, &file, "q8_0").unwrap();
    let (run, formats) = imports(&file, home.path());
    // Rows of 24 numbers are half precision in the file.
    let down = "transformer.blocks.1.feed_forward.down.weight";
    assert_eq!((formats.len(), formats.get(down)), (8, None), "{formats:?}");
    let floats = format!("not in blocks and stay floats: transformer.blocks.0.feed_forward.down.weight, {down}");
    assert_eq!(PublishedModel::open(&file).unwrap().import_notes(), [format!("2 of 10 matrices are {floats}")]);
    assert_eq!(parameter(&run, down).0, Dtype::F16);
    assert_eq!(parameter(&run, "transformer.norm.gamma").0, Dtype::F32);
    // The file has all queries, all keys, all values, and so has the model; a folder has the three of each head.
    let qkv = blocks(&run, "transformer.blocks.1.attention.projection.qkv.weight");
    assert_eq!(qkv, stored(&file, "blk.1.attn_qkv.weight"));
}

#[test]
fn the_blocks_of_a_file_are_run_and_are_no_floats_to_train() {
    let home = tempfile::tempdir().unwrap();
    let (file, cache) = (llama(home.path()), home.path().join("cache"));
    let run = run_folder(&file, &cache, |_| ()).unwrap();
    let folder = ModelFolder::open(&run).unwrap();
    assert!(folder.read_quantization().unwrap().is_some());
    let floats = run_folder_of_floats(&file, &cache, |_| ()).unwrap();
    assert!(ModelFolder::open(&floats).unwrap().read_quantization().unwrap().is_none());
    AutoModel::open(&floats, &Checkpoint::Last, &Device::flex()).unwrap();
    let Ok(AutoModel::Language(model)) = AutoModel::open(&run, &Checkpoint::Last, &Device::flex()) else {
        panic!("no language model")
    };
    assert_eq!(logits_of(&model), logits(&folder).1);
    let config: LanguageModelConfig = folder.read_config(firelight_language::TASK).unwrap();
    let weights = folder.weights(&Checkpoint::Last).unwrap();
    let refused = load_weights(&mut config.init(&Device::flex()), weights).unwrap_err().to_string();
    assert!(refused.contains("in blocks of few bits") && refused.contains("import X.gguf --floats"), "{refused}");
}
