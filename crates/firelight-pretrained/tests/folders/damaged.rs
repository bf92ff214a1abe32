//! Folders that are damaged, or made to do harm: each is one clear error, nothing is written, and nothing panics.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_pretrained::{
    Array, Arrays, AutoModel, ForwardOptions, Numbers, PublishedModel, Structure, compare_outputs,
};
use firelight_storage::{Checkpoint, TaskError};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::golden::imported;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained").join(name)
}

/// A copy of a fixture that may be damaged.
pub(super) fn copy(name: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, home.path().join(path.file_name().unwrap())).unwrap();
    }
    home
}

pub(super) fn error(folder: &Path) -> TaskError {
    let error = PublishedModel::open(folder).and_then(|model| model.load(&Device::default())).unwrap_err();
    assert!(error.is_user_error(), "{error}");
    error
}

/// The error of a copy in whose file `from` is `to`.
fn edited(name: &str, file: &str, from: &str, to: &str) -> String {
    let home = copy(name);
    let path = home.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    error(home.path()).to_string()
}

#[test]
fn configurations_that_say_something_else_name_the_key() {
    let config = |from: &str, to: &str| edited("llama-plain", "config.json", from, to);
    for (from, to, expected) in [
        ("\"model_type\": \"llama\"", "\"model_type\": \"lama\"", "has the unknown model_type \"lama\"; known are "),
        (
            "\"model_type\": \"llama\"",
            "\"model_type\": \"mamba\"",
            "describes a mamba, which is not read: it has no attention",
        ),
        (
            "\"model_type\": \"llama\"",
            "\"model_type\": \"gemma4_text\"",
            "describes a gemma4_text, which is not read: its layers have embeddings of their own",
        ),
        (
            "\"model_type\": \"llama\"",
            "\"model_type\": \"qwen3_5_moe\"",
            "describes a qwen3_5_moe, which is not read: its gated delta layers",
        ),
        ("\"model_type\": \"llama\"", "\"model_type\": \"gemma3\"", "models of text alone (gemma3_text) are read"),
        (
            "\"LlamaForCausalLM\"",
            "\"LlamaForTokenClassification\"",
            "has architectures = [\"LlamaForTokenClassification\"], whose head is not read; expected a class that ends in ForCausalLM",
        ),
        ("\"model_type\": \"llama\",", "", "lacks the key `model_type`"),
        ("\"hidden_size\": 16,", "", "lacks the key `hidden_size`"),
        ("\"hidden_size\": 16", "\"hidden_size\": \"16\"", "has hidden_size = \"16\": expected a number"),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": -16",
            "has hidden_size = -16: expected a number that is not negative",
        ),
        ("\"hidden_size\": 16", "\"hidden_size\": 0", "config.json`: "),
        (
            "\"hidden_size\": 16",
            "\"hidden_size\": 32",
            "of another shape (model.embed_tokens.weight (expected [48, 32], found [48, 16])",
        ),
        ("\"hidden_act\": \"silu\"", "\"hidden_act\": \"sine\"", "has hidden_act = \"sine\": expected gelu"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "9 missing (model.layers.2.input_layernorm.weight"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "9 unknown to the model (model.layers.1."),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 999999999",
            "has num_hidden_layers = 999999999: expected at most 10000 layers",
        ),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 0", "config.json`: "),
        (
            "\"tie_word_embeddings\": false",
            "\"tie_word_embeddings\": 1",
            "has tie_word_embeddings = 1: expected true or false",
        ),
        (
            "\"rope_type\": \"default\"",
            "\"rope_type\": \"spiral\"",
            "has rope_parameters.rope_type = \"spiral\": expected default",
        ),
    ] {
        let found = config(from, to);
        assert!(found.contains(expected), "{to}: {found}");
    }
    assert!(
        edited("bert-base", "config.json", "\"BertModel\"", "\"BertForDivination\"").contains("has architectures =")
    );
    assert!(edited("bert-base", "config.json", "\"BertModel\"", "\"BertLMHeadModel\"").contains("has architectures ="));
    for (folder, class, other, why) in [
        ("gpt2-plain", "\"GPT2LMHeadModel\"", "\"GPT2DoubleHeadsModel\"", "whose head is not read"),
        (
            "bart-plain",
            "\"BartForConditionalGeneration\"",
            "\"BartForSequenceClassification\"",
            "whose head is not read",
        ),
        ("t5-relu", "\"T5ForConditionalGeneration\"", "\"T5EncoderModel\"", "which has no decoder"),
        ("llama-plain", "\"LlamaForCausalLM\"", "\"LlamaModel\"", "which has no head, and tie_word_embeddings = false"),
    ] {
        let found = edited(folder, "config.json", class, other);
        assert!(found.contains(&format!("{why}; expected a class that ends in ")), "{found}");
    }
    let decoder = edited("bert-base", "config.json", "\"is_decoder\": false", "\"is_decoder\": true");
    assert!(decoder.contains("has is_decoder = true: expected false"), "{decoder}");
    let groups = edited("albert-base", "config.json", "\"num_hidden_groups\": 1", "\"num_hidden_groups\": 2");
    assert!(groups.contains("has num_hidden_groups = 2: expected 1"), "{groups}");
    let gated = edited("dinov2-base", "config.json", "\"use_swiglu_ffn\": false", "\"use_swiglu_ffn\": true");
    assert!(gated.contains("has use_swiglu_ffn = true: expected false"), "{gated}");
}

#[test]
fn every_tensor_that_does_not_fit_is_a_line() {
    let home = copy("llama-plain");
    let path = home.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")).unwrap();
    let problems = error(home.path()).problems();
    assert_eq!(problems.len(), 10, "{problems:?}");
    assert!(
        problems[0].contains("` holds weights that do not fit its config.json: 9 missing; download"),
        "{problems:?}"
    );
    assert!(problems[1].ends_with("`: missing: model.layers.2.input_layernorm.weight"), "{problems:?}");
}

#[test]
fn each_tensor_that_does_not_fit_is_told_once_and_of_its_kind() {
    let home = copy("llama-plain");
    let layer = "model.layers.0.self_attn";
    edit_header(&home.path().join("model.safetensors"), |tensors| {
        let norm = tensors.remove("model.norm.weight").unwrap();
        tensors.insert("model.last_norm.weight".into(), norm);
        tensors[&format!("{layer}.k_proj.weight")]["shape"] = json!([4, 32]);
        tensors[&format!("{layer}.o_proj.weight")]["dtype"] = json!("I32");
    });
    let error = error(home.path());
    let told = error.to_string();
    assert!(told.contains("1 missing (model.norm.weight), 1 unknown to the model (model.last_norm.weight)"), "{told}");
    let problems = error.problems();
    let counts = "1 missing, 1 unknown to the model, 1 of another shape, 1 of a type that is no float; ";
    assert!(problems[0].contains(&format!("do not fit its config.json: {counts}")), "{problems:?}");
    let kinds = [
        "missing: model.norm.weight".to_string(),
        "unknown to the model: model.last_norm.weight".to_string(),
        format!("of another shape: {layer}.k_proj.weight (expected "),
        format!("of a type that is no float: {layer}.o_proj.weight (I32)"),
    ];
    assert_eq!(problems.len(), 1 + kinds.len(), "{problems:?}");
    for (problem, kind) in problems[1..].iter().zip(kinds) {
        assert!(problem.contains(&format!("`: {kind}")), "{kind}: {problem}");
    }
}

/// The parts of one tensor are several parameters.
#[test]
fn a_tensor_of_many_parts_is_told_once() {
    let home = copy("gpt_oss-window");
    edit_header(&home.path().join("model.safetensors"), |tensors| {
        tensors["model.layers.0.mlp.experts.gate_up_proj"]["dtype"] = json!("I32");
        tensors["model.layers.0.mlp.experts.down_proj"]["shape"] = json!([3, 16, 24]);
    });
    let problems = error(home.path()).problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(
        problems[1].contains("`: of another shape: model.layers.0.mlp.experts.down_proj (expected "),
        "{problems:?}"
    );
    assert!(problems[2].ends_with("of a type that is no float: model.layers.0.mlp.experts.gate_up_proj (I32)"));
}

/// Changes what the header of a file says of its tensors.
fn edit_header(path: &Path, change: impl FnOnce(&mut Map<String, Value>)) {
    let bytes = fs::read(path).unwrap();
    let end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Map<String, Value> = serde_json::from_slice(&bytes[8..end]).unwrap();
    change(&mut header);
    let mut header = serde_json::to_vec(&header).unwrap();
    header.resize(header.len().next_multiple_of(8), b' ');
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[end..]].concat()).unwrap();
}

#[test]
fn damaged_files_of_weights_are_told() {
    let weights = "model.safetensors";
    let bytes = fs::read(fixture("llama-plain").join(weights)).unwrap();
    let with = |bytes: &[u8]| {
        let home = copy("llama-plain");
        fs::write(home.path().join(weights), bytes).unwrap();
        error(home.path()).to_string()
    };
    for cut in [0, 7, 8, 200, bytes.len() - 1] {
        let found = with(&bytes[..cut]);
        assert!(found.contains(&format!("model.safetensors` is no whole safetensors file ({cut} bytes)")), "{found}");
    }
    // A header of 2 GB, of which there is no byte.
    let huge = [&(2_u64 << 30).to_le_bytes()[..], b"{}"].concat();
    assert!(with(&huge).contains("is no whole safetensors file"));
    assert!(with(&[&bytes[..], b"more"].concat()).contains("is no whole safetensors file"));
    let found = with(&overlapping(&bytes));
    assert!(found.contains("is no whole safetensors file"), "{found}");
    let mut nan = bytes.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    let found = with(&nan);
    assert!(found.contains("has numbers that are NaN or infinite"), "{found}");
    assert!(found.contains("`model."), "it names the tensor: {found}");
    let home = copy("llama-plain");
    fs::remove_file(home.path().join(weights)).unwrap();
    assert!(error(home.path()).to_string().contains("holds no weights: expected one of "));
}

/// A file whose second tensor lies where the first one does.
fn overlapping(bytes: &[u8]) -> Vec<u8> {
    let end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..end]).unwrap();
    let tensors = header.as_object_mut().unwrap();
    let of_one_shape = |name: &str| name.ends_with("q_proj.weight");
    let names: Vec<String> = tensors.keys().filter(|name| of_one_shape(name)).cloned().collect();
    tensors[&names[1]]["data_offsets"] = tensors[&names[0]]["data_offsets"].clone();
    let header = header.to_string().into_bytes();
    [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[end..]].concat()
}

/// Every byte of the header in turn, with a bit that is flipped: an error, or a model.
#[test]
fn a_flipped_bit_of_a_header_never_panics() {
    let bytes = fs::read(fixture("gpt2-inner").join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let home = copy("gpt2-inner");
    let mut refused = 0;
    for at in (0..header).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(home.path().join("model.safetensors"), &damaged).unwrap();
        refused += usize::from(PublishedModel::open(home.path()).is_err());
    }
    assert!(refused > header / 7 / 2, "{refused} of {} were refused", header / 7);
}

#[test]
fn an_index_names_files_beside_it_alone() {
    let index = "model.safetensors.index.json";
    let text = fs::read_to_string(fixture("llama-sharded").join(index)).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let shard = value["weight_map"]["lm_head.weight"].as_str().unwrap().to_string();
    for outside in ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..\\\\secret", ""] {
        let found = edited("llama-sharded", index, &shard, outside);
        assert!(found.contains("which is not beside it"), "{outside}: {found}");
    }
    let long = edited("llama-sharded", index, &shard, &"x".repeat(9000));
    assert!(long.contains("a name of 9000 bytes, of which file systems take 255") && long.len() < 900, "{long}");
    let missing = edited("llama-sharded", index, &shard, "model-9.safetensors");
    assert!(missing.contains("cannot read `") && missing.contains("model-9.safetensors"), "{missing}");
    let unknown = edited("llama-sharded", index, "\"lm_head.weight\"", "\"lm_tail.weight\"");
    assert!(unknown.contains("names tensors that its files do not hold: lm_tail.weight"), "{unknown}");
    assert!(edited("llama-sharded", index, "{", "[").contains(index));
}

#[test]
fn an_import_needs_a_tokenizer_and_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("run");
    let found = PublishedModel::open(fixture("llama-plain")).unwrap().import(&out).unwrap_err().to_string();
    assert!(found.contains("holds neither tokenizer.json nor another tokenizer"), "{found}");
    assert!(!out.exists());
}

#[test]
fn an_import_that_fails_leaves_nothing_behind_and_is_repeated() {
    let (home, out) = (copy("llama-plain"), tempfile::tempdir().unwrap());
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
    tokenizer.save(home.path().join("tokenizer.json")).unwrap();
    let (weights, empty) = (home.path().join("model.safetensors"), out.path().join("empty"));
    let whole = fs::read(&weights).unwrap();
    let mut damaged = whole.clone();
    let last = damaged.len() - 4;
    damaged[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::create_dir(&empty).unwrap();
    for run in [out.path().join("new"), empty] {
        fs::write(&weights, &damaged).unwrap();
        let found = PublishedModel::open(home.path()).unwrap().import(&run).unwrap_err().to_string();
        assert!(found.contains("has numbers that are NaN or infinite"), "{found}");
        assert!(!run.join("tokenizer.json").exists() && !run.join("recipe.toml").exists());
        fs::write(&weights, &whole).unwrap();
        PublishedModel::open(home.path()).unwrap().import(&run).unwrap();
        assert!(run.join("config.json").is_file() && run.join("tokenizer.json").is_file());
    }
}

/// The tokenizer has an id that no row of the embedding belongs to.
#[test]
fn a_tokenizer_larger_than_the_embedding_is_refused_before_anything_is_written() {
    let (home, out) = (copy("llama-plain"), tempfile::tempdir().unwrap());
    let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    bytes.save(home.path().join("tokenizer.json")).unwrap();
    let run = out.path().join("run");
    let model = PublishedModel::open(home.path()).unwrap();
    for found in [model.tokenizer().unwrap_err(), model.import(&run).unwrap_err()] {
        let found = found.to_string();
        assert!(found.contains("is for a vocabulary of 48 tokens, but tokenizer.json beside it has 256"), "{found}");
    }
    assert!(!run.exists());
}

/// As of the smallest Gemma 3, whose tokenizer marks the images of the others.
#[test]
fn added_tokens_behind_the_embedding_are_text() {
    let (home, out) = (copy("llama-plain"), tempfile::tempdir().unwrap());
    let letters: String = ('a'..='z').chain('A'..='T').collect();
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &letters).unwrap();
    let size = tokenizer.vocab_size();
    assert!(size < 48, "{size}");
    let special: Vec<String> = (size..50).map(|id| format!("<{id}>")).collect();
    let special: Vec<&str> = special.iter().map(String::as_str).collect();
    tokenizer.with_special_tokens(&special).unwrap().save(home.path().join("tokenizer.json")).unwrap();
    let run = PublishedModel::open(home.path()).unwrap().import(out.path().join("run")).unwrap();
    let tokenizer = Tokenizer::load(run.tokenizer()).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.token(47).as_deref(), tokenizer.token(48)), (48, Some("<47>"), None));
}

fn arrays(of: &[(&str, &[usize], Numbers)]) -> Arrays {
    let mut arrays = Arrays::default();
    of.iter().for_each(|(name, shape, numbers)| {
        arrays.insert(name, Array { shape: shape.to_vec(), numbers: numbers.clone() });
    });
    arrays
}

#[test]
fn arguments_that_do_not_fit_the_model_are_named() {
    let device = Device::default();
    let model = |name: &str| AutoModel::open(fixture(name), &Checkpoint::Last, &device).unwrap();
    let ids = |ids: &[i64]| Numbers::Integers(ids.to_vec());
    let refuse = |name: &str, of: &[(&str, &[usize], Numbers)]| {
        model(name).forward(&arrays(of), ForwardOptions::default(), &device).unwrap_err().to_string()
    };
    let found = refuse("gpt2-plain", &[]);
    assert_eq!(found, "the argument `input_ids` is missing: expected the ids of tokens");
    let found = refuse("gpt2-plain", &[("input_ids", &[1, 1], ids(&[48]))]);
    assert_eq!(found, "the argument `input_ids` holds 48: expected numbers from 0 to 47");
    assert!(refuse("gpt2-plain", &[("input_ids", &[1, 1], ids(&[-1]))]).contains("holds -1"));
    assert!(refuse("gpt2-plain", &[("input_ids", &[1, 0], ids(&[]))]).contains("at least one token"));
    assert!(refuse("gpt2-plain", &[("input_ids", &[1], ids(&[1]))]).contains("is of shape [1]"));
    let long = ("input_ids", &[1, 41][..], ids(&[1; 41]));
    assert!(refuse("gpt2-plain", std::slice::from_ref(&long)).contains("has rows of 41 tokens: expected at most 40"));
    assert!(refuse("bert-base", std::slice::from_ref(&long)).contains("expected at most 20"));
    assert!(refuse("bart-plain", &[long]).contains("expected at most 40"));
    let two = ("input_ids", &[1, 2][..], ids(&[1, 2]));
    let left = ("attention_mask", &[1, 2][..], ids(&[0, 1]));
    assert!(refuse("bert-base", &[two, left]).contains("expected padding behind each text"));
    let one = ("input_ids", &[1, 1][..], ids(&[1]));
    let mask = ("attention_mask", &[1, 2][..], ids(&[1, 1]));
    assert!(refuse("llama-plain", &[one.clone(), mask]).contains("expected that of input_ids, [1, 1]"));
    assert!(refuse("t5-relu", &[one]).contains("`decoder_input_ids` is missing"));
    let pixels = ("pixel_values", &[1, 3, 12, 11][..], Numbers::Floats(vec![0.0; 3 * 12 * 11]));
    assert!(refuse("vit-base", &[pixels]).contains("a whole number of patches each way"));
}

/// Padding tokens have no positions of their own in RoBERTa and its relatives, masked or not.
#[test]
fn padding_that_a_family_does_not_count_must_be_hidden() {
    let ids = |ids: &[i64]| Numbers::Integers(ids.to_vec());
    let check = |model: &Structure, row: &[i64], mask: Option<&[i64]>| {
        let mut of = vec![("input_ids", &[1, 3][..], ids(row))];
        of.extend(mask.map(|mask| ("attention_mask", &[1, 3][..], ids(mask))));
        model.check_padding(&arrays(&of)).map_err(|error| error.to_string())
    };
    let families = [
        ("roberta-base", 1),
        ("roberta-shifted", 2),
        ("camembert-texts", 1),
        ("xlm_roberta-masked", 1),
        ("mpnet-base", 1),
        ("mpnet-zero", 1), // whatever `pad_token_id` says
    ];
    for (name, padding) in families {
        let why = format!("the padding token {padding}, which this family does not count in its positions");
        for model in &published_and_imported(name) {
            for row in [[5, padding, 6], [5, 6, padding]] {
                let missing = check(model, &row, None).unwrap_err();
                let expected = format!("the argument `attention_mask` is missing, but `input_ids` holds {why}");
                assert_eq!(missing, format!("{expected}: expected 0 at every padding token"), "{name}");
                let shown = check(model, &row, Some(&[1, 1, 1])).unwrap_err();
                assert!(shown.contains(&format!("`attention_mask` does not hide {why}")), "{name}: {shown}");
            }
            assert_eq!(check(model, &[5, padding, padding], Some(&[1, 0, 0])), Ok(()), "{name}");
            assert_eq!(check(model, &[5, padding + 2, 6], None), Ok(()), "{name}");
        }
    }
    for name in
        ["bert-base", "electra-wide", "albert-base", "distilbert-waves", "modernbert-base", "bart-plain", "gpt2-plain"]
    {
        for model in &published_and_imported(name) {
            assert_eq!(check(model, &[0, 1, 2], None), Ok(()), "{name}");
        }
    }
}

/// What a fixture holds, and what the run folder does that is made of it.
fn published_and_imported(name: &str) -> [Structure; 2] {
    let home = tempfile::tempdir().unwrap();
    let run = imported(&fixture(name), home.path());
    [fixture(name), run].map(|folder| Structure::of_folder(folder).unwrap())
}

/// A run folder that was imported before the id of padding was kept.
#[test]
fn a_run_folder_that_does_not_say_its_padding_computes_the_same() {
    let (folder, home, device) = (fixture("roberta-base"), tempfile::tempdir().unwrap(), Device::default());
    let run = imported(&folder, home.path());
    let path = run.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let kept = config["encoder"].as_object_mut().unwrap().remove("uncounted_padding");
    assert_eq!(kept, Some(json!(1)));
    let inputs = Arrays::read(folder.join("inputs.safetensors")).unwrap();
    let outputs = |folder: &Path| {
        let model = AutoModel::open(folder, &Checkpoint::Last, &device).unwrap();
        model.forward(&inputs, ForwardOptions::default(), &device).unwrap()
    };
    let expected = outputs(&folder);
    let agrees = |found: &Arrays| compare_outputs(found, &expected, &inputs, 1e-5).iter().all(|one| one.agrees());
    assert!(agrees(&outputs(&run)));
    fs::write(&path, config.to_string()).unwrap();
    assert!(agrees(&outputs(&run)));
    let shown = arrays(&[("input_ids", &[1, 3][..], Numbers::Integers(vec![5, 1, 6]))]);
    Structure::of_folder(&run).unwrap().check_padding(&shown).unwrap();
}

#[test]
fn the_padding_of_a_family_that_does_not_count_it_is_a_token() {
    let error = edited("roberta-base", "config.json", "\"pad_token_id\": 1", "\"pad_token_id\": 40");
    assert!(error.contains("has pad_token_id = 40: expected less than vocab_size"), "{error}");
}

/// Sentence models are saved under the class that they were pre-trained with.
#[test]
fn a_sentence_model_is_the_model_alone() {
    let home = copy("mpnet-base");
    let path = home.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"MPNetModel\"", "\"MPNetForMaskedLM\"")).unwrap();
    assert!(error(home.path()).to_string().contains("missing (lm_head."));
    fs::write(home.path().join("modules.json"), "[]").unwrap();
    assert_eq!(PublishedModel::open(home.path()).unwrap().structure().task(), "text_encoder");
}

#[test]
fn pixels_of_clip_become_numbers_as_its_processor_says() {
    let home = copy("clip-end");
    let normalization = || match PublishedModel::open(home.path()).unwrap().structure() {
        Structure::ImageText(model) => model.normalization.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(normalization().mean[0], 0.481_454_66);
    let write = |text| fs::write(home.path().join("processor_config.json"), text).unwrap();
    write(r#"{"image_processor": {"image_mean": [0.1, 0.2, 0.3], "image_std": [1.0, 1.0, 1.0]}}"#);
    assert_eq!(normalization().mean, [0.1, 0.2, 0.3]);
    write(r#"{"image_processor": {"size": {"shortest_edge": 12}, "do_center_crop": false}}"#);
    let refused = error(home.path()).to_string();
    assert!(refused.contains("has image_processor.do_center_crop = false: expected true"), "{refused}");
    write("{}");
    let config = fs::read_to_string(home.path().join("config.json")).unwrap();
    let many = config.replace("\"num_channels\": 3", "\"num_channels\": 2000000000000000000");
    fs::write(home.path().join("config.json"), many).unwrap();
    let refused = error(home.path()).to_string();
    assert!(refused.contains("vision_config.num_channels = 2000000000000000000: expected at most 1024"), "{refused}");
}
