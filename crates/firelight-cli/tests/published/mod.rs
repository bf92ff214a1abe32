//! Models go out as Hugging Face has them and come back, and stand wherever a command takes a model.

mod tasks;

use std::fs;
use std::path::Path;

use firelight::data::{Image, ImageShape, Tokenizer, TokenizerConfig};
use firelight::pretrained::{Array, Arrays, Numbers, View, Weights};
use serde_json::Value;

use crate::USER;
use crate::support::{Finished, Model, command, finish, firelight, model, text};

/// The arguments of a pass.
fn inputs(path: &Path, ids: Vec<i64>) {
    let mut arrays = Arrays::default();
    arrays.insert("input_ids", Array { shape: vec![1, ids.len()], numbers: Numbers::Integers(ids) });
    arrays.write(path).unwrap();
}

fn generate(model: &str, cache: &Path) -> Finished {
    let mut command = command(["generate", model, "--prompt", "A fox", "--max-new-tokens", "12", "--greedy"]);
    command.env("FIRELIGHT_CACHE", cache);
    finish(command).succeeds()
}

#[test]
fn a_trained_model_goes_out_and_comes_back_and_writes_the_same() {
    let home = Model::scratch();
    let path = |name: &str| text(&home.path().join(name));
    let run = text(&model().dir);
    firelight(["export", &run, "--to", &path("exported")]).succeeds();
    let config: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(home.path().join("exported/config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"][0], "GPT2LMHeadModel");

    inputs(&home.path().join("inputs"), vec![1, 4, 2, 3]);
    let forward = ["--inputs", &path("inputs"), "--output", &path("outputs"), "--greedy", "8", "--attentions"];
    let said = firelight(["forward", &run].into_iter().chain(forward)).succeeds().stderr;
    assert!(said.contains("checkpoint: last, step "), "{said}");
    let verify = ["--inputs", &path("inputs"), "--expected", &path("outputs")];
    let verified = firelight(["verify", &path("exported")].into_iter().chain(verify)).succeeds();
    for output in ["logits", "last_hidden_state", "attentions.0", "greedy"] {
        let line = verified.stdout.lines().find(|line| line.starts_with(output)).unwrap_or_else(|| panic!("{output}"));
        assert!(line.contains("agrees") && line.contains("0.00e0"), "{line}");
    }

    firelight(["import", &path("exported"), "--out", &path("imported")]).succeeds();
    let cache = home.path().join("cache");
    let expected = generate(&run, &cache);
    assert_eq!(generate(&path("imported"), &cache).stdout, expected.stdout);
    assert!(!cache.exists(), "runs are not converted");
    let first = generate(&path("exported"), &cache);
    assert_eq!(first.stdout, expected.stdout);
    assert!(first.stderr.contains("converting `"), "{}", first.stderr);
    let again = generate(&path("exported"), &cache);
    assert_eq!(again.stdout, expected.stdout);
    assert!(!again.stderr.contains("converting"), "once is enough: {}", again.stderr);
    let left: Vec<_> = fs::read_dir(cache.join("imported")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_both_stacks_of_a_translator_put_out_is_verified() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained/bart-uneven");
    let path = |name: &str| text(&folder.join(name));
    let verify = ["--inputs", &path("inputs.safetensors"), "--expected", &path("expected.safetensors")];
    let verified = firelight(["verify", &text(&folder)].into_iter().chain(verify)).succeeds();
    for output in ["encoder_hidden_states.1", "decoder_hidden_states.3", "cross_attentions.2", "logits"] {
        let line = verified.stdout.lines().find(|line| line.starts_with(output)).unwrap_or_else(|| panic!("{output}"));
        assert!(line.contains("agrees"), "{line}");
    }
}

#[test]
fn a_mask_of_targets_is_verified_and_arguments_of_other_models_are_refused() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained");
    let path = |name: &str| text(&home.join(name));
    let (inputs, expected) = (path("t5-gated/more_inputs.safetensors"), path("t5-gated/more_expected.safetensors"));
    let files = ["--inputs", &inputs, "--expected", &expected];
    let verified = firelight(["verify", &path("t5-gated")].into_iter().chain(files)).succeeds().stdout;
    assert!(verified.lines().any(|line| line.starts_with("logits") && line.contains("agrees")), "{verified}");
    let refused = firelight(["verify", &path("vit-classes")].into_iter().chain(files));
    refused.fails(USER, &["the model has no argument `attention_mask`", "known are `pixel_values`"]);
}

#[test]
fn without_a_mask_every_token_is_read_and_padding_that_a_family_does_not_count_is_refused() {
    let folder = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained").join(name);
    let bert = folder("bert-unmasked");
    let file = |name: &str| text(&bert.join(name));
    let verify = ["--inputs", &file("inputs.safetensors"), "--expected", &file("expected.safetensors")];
    firelight(["verify", &text(&bert)].into_iter().chain(verify)).succeeds();

    let home = Model::scratch();
    let path = |name: &str| text(&home.path().join(name));
    inputs(&home.path().join("inputs"), vec![5, 1, 6]);
    let refused = "the argument `attention_mask` is missing, but `input_ids` holds the padding token 1";
    for roberta in [text(&folder("roberta-unmasked")), roberta_run(home.path(), &folder("roberta-unmasked"))] {
        let forward = ["forward", &roberta, "--inputs", &path("inputs"), "--output", &path("never")];
        firelight(forward).fails(USER, &[refused]);
        assert!(!home.path().join("never").exists());
        let verify = ["verify", &roberta, "--inputs", &path("inputs"), "--expected", &file("expected.safetensors")];
        firelight(verify).fails(USER, &[refused]);
    }
}

/// The run folder of a published model, to which a tokenizer is added.
fn roberta_run(home: &Path, fixture: &Path) -> String {
    let [folder, run] = ["roberta", "roberta-run"].map(|name| home.join(name));
    fs::create_dir(&folder).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(name), folder.join(name)).unwrap();
    }
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
    tokenizer.save(folder.join("tokenizer.json")).unwrap();
    firelight(["import", &text(&folder), "--out", &text(&run)]).succeeds();
    text(&run)
}

#[test]
fn a_trained_model_goes_out_as_one_file_and_writes_the_same() {
    let home = Model::scratch();
    let path = |name: &str| text(&home.path().join(name));
    let (run, file, cache) = (text(&model().dir), path("tiny.gguf"), home.path().join("cache"));
    let said = firelight(["export", &run, "--to", &file]).succeeds().stderr;
    assert!(said.contains("checkpoint: last, step "), "{said}");
    assert_eq!(generate(&file, &cache).stdout, generate(&run, &cache).stdout);
    firelight(["export", &run, "--to", &file]).fails(USER, &["tiny.gguf` is there already; choose another file"]);
    let folder = path("folder");
    firelight(["export", &run, "--to", &folder, "--dtype", "f16"]).fails(USER, &["--dtype is for GGUF files"]);
}

#[test]
fn a_name_on_the_hub_is_exported_and_run_as_its_folder_is() {
    let home = Model::scratch();
    let path = |name: &str| text(&home.path().join(name));
    let (trained, published) = (model(), home.path().join("hub/models--somebody--tiny"));
    let snapshot = text(&published.join("snapshots/0a1b"));
    for folder in ["refs", "snapshots"] {
        fs::create_dir_all(published.join(folder)).unwrap();
    }
    fs::write(published.join("refs/main"), "0a1b").unwrap();
    firelight(["export", &text(&trained.dir), "--to", &snapshot]).succeeds();
    let with_hub = |words: &[&str]| {
        let mut command = command(words);
        command.env("HF_HUB_CACHE", path("hub")).env("FIRELIGHT_CACHE", path("cache"));
        finish(command)
    };

    with_hub(&["export", "somebody/tiny", "--to", &path("tiny.gguf")]).succeeds();
    firelight(["export", &text(&trained.dir), "--to", &path("same.gguf")]).succeeds();
    let [one, same] = ["tiny.gguf", "same.gguf"].map(|name| generate(&path(name), &home.path().join("cache")).stdout);
    assert_eq!(one, same);
    with_hub(&["export", "somebody/other", "--to", &path("other")]).fails(USER, &["no folder `somebody/other`"]);

    inputs(&home.path().join("inputs"), vec![1, 4, 2, 3]);
    let forward = ["--inputs", &path("inputs"), "--output", &path("outputs")];
    with_hub(&[&["forward", "somebody/tiny"][..], &forward].concat()).succeeds();
    let verify = ["verify", "somebody/tiny", "--inputs", &path("inputs"), "--expected", &path("outputs")];
    assert!(with_hub(&verify).succeeds().stdout.contains("agrees"));
}

#[test]
fn a_file_in_blocks_writes_from_them_and_is_trained_as_floats() {
    let home = Model::scratch();
    let path = |name: &str| text(&home.path().join(name));
    let (file, blocks, floats) = (path("small.gguf"), path("blocks"), path("floats"));
    // Rows of 16 numbers are of no whole blocks; those of the second matrix of the feed-forward network are of 32.
    firelight(["export", &text(&model().dir), "--to", &file, "--dtype", "q8_0"]).succeeds();
    let said = firelight(["import", &file, "--out", &blocks]).succeeds().stderr;
    assert!(said.contains(" matrices are not in blocks and stay floats: embedding.weight, "), "{said}");
    let formats = fs::read_to_string(home.path().join("blocks/quantization.json")).unwrap();
    assert_eq!(formats.trim(), r#"{"transformer.blocks.0.feed_forward.down.weight":"q8_0"}"#);
    let cache = home.path().join("cache");
    assert_eq!(generate(&blocks, &cache).stdout, generate(&file, &cache).stdout);
    firelight(["export", &blocks, "--to", &path("again")]).fails(USER, &["in blocks of few bits", "--floats"]);
    firelight(["import", &file, "--out", &floats, "--floats"]).succeeds();
    assert!(!home.path().join("floats/quantization.json").exists());
    firelight(["export", &floats, "--to", &path("again")]).succeeds();
}

/// What a report says of GPT-2, but for its two layers: matrices lie as they do in a run folder, and each layer has a mask that is computed.
const GPT2: [&str; 2] = [
    "wte.weight [48, 16] -> embedding.weight [48, 16]\n",
    "ln_f.bias [16] -> transformer.norm.beta [16]\n\
     ln_f.weight [16] -> transformer.norm.gamma [16]\n\
     wpe.weight [40, 16] -> transformer.position.weight [40, 16]\n\
     h.0.attn.bias is not needed\n\
     h.1.attn.bias is not needed\n",
];

/// A layer of it, whose number is N.
const GPT2_LAYER: &str = "\
h.N.attn.c_proj.bias [16] -> transformer.blocks.N.attention.output.bias [16]
h.N.attn.c_proj.weight [16, 16] -> transformer.blocks.N.attention.output.weight [16, 16]
h.N.attn.c_attn.bias [48] -> transformer.blocks.N.attention.projection.qkv.bias [48]
h.N.attn.c_attn.weight [16, 48] -> transformer.blocks.N.attention.projection.qkv.weight [16, 48]
h.N.ln_1.bias [16] -> transformer.blocks.N.attention_norm.beta [16]
h.N.ln_1.weight [16] -> transformer.blocks.N.attention_norm.gamma [16]
h.N.mlp.c_proj.bias [16] -> transformer.blocks.N.feed_forward.down.bias [16]
h.N.mlp.c_proj.weight [64, 16] -> transformer.blocks.N.feed_forward.down.weight [64, 16]
h.N.mlp.c_fc.bias [64] -> transformer.blocks.N.feed_forward.up.bias [64]
h.N.mlp.c_fc.weight [16, 64] -> transformer.blocks.N.feed_forward.up.weight [16, 64]
h.N.ln_2.bias [16] -> transformer.blocks.N.feed_forward_norm.beta [16]
h.N.ln_2.weight [16] -> transformer.blocks.N.feed_forward_norm.gamma [16]
";

/// The same of Phi-3: matrices are transposed, and one of a layer is split.
const PHI3: [&str; 2] = [
    "model.embed_tokens.weight [48, 16] -> embedding.weight [48, 16]\n\
     lm_head.weight [48, 16] -> head.weight [16, 48], transposed\n",
    "model.norm.weight [16] -> transformer.norm.gamma [16]\n",
];

/// A layer of it.
const PHI3_LAYER: &str = "\
model.layers.N.self_attn.o_proj.weight [16, 16] -> transformer.blocks.N.attention.output.weight [16, 16], transposed
model.layers.N.self_attn.qkv_proj.weight [32, 16] -> transformer.blocks.N.attention.projection.qkv.weight [16, 32], transposed
model.layers.N.input_layernorm.weight [16] -> transformer.blocks.N.attention_norm.gamma [16]
model.layers.N.mlp.down_proj.weight [16, 24] -> transformer.blocks.N.feed_forward.down.weight [24, 16], transposed
model.layers.N.mlp.gate_up_proj.weight [48, 16] -> transformer.blocks.N.feed_forward.gate.weight [16, 24], a part, transposed
model.layers.N.mlp.gate_up_proj.weight [48, 16] -> transformer.blocks.N.feed_forward.up.weight [16, 24], a part, transposed
model.layers.N.post_attention_layernorm.weight [16] -> transformer.blocks.N.feed_forward_norm.gamma [16]
";

fn report(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained");
    let report = firelight(["import", &text(&fixtures.join(name)), "--report"]).succeeds().stdout;
    let weights = Weights::of_file(fixtures.join(name).join("model.safetensors")).unwrap();
    for tensor in weights.names() {
        assert!(report.lines().any(|line| line.starts_with(&format!("{tensor} "))), "{tensor} of {name}: {report}");
    }
    report
}

#[test]
fn an_import_shows_every_tensor_with_its_place_and_what_is_done() {
    for (name, [before, behind], layer) in [("gpt2-plain", GPT2, GPT2_LAYER), ("phi3-plain", PHI3, PHI3_LAYER)] {
        let layers = ["0", "1"].map(|number| layer.replace(".N.", &format!(".{number}."))).concat();
        assert_eq!(report(name), format!("{before}{layers}{behind}"));
    }
    // Rows of heads in another order; a norm whose weight is one less; a number in front of all others, and positions that no token has.
    for (name, expected) in [
        (
            "gpt_neox-parallel",
            "query_key_value.bias [96] -> transformer.blocks.1.attention.projection.qkv.bias [96], rearranged",
        ),
        ("gpt_neox-parallel", "attention.projection.qkv.weight [32, 96], rearranged, transposed"),
        (
            "gemma-one",
            "model.layers.1.input_layernorm.weight [16] -> transformer.blocks.1.attention_norm.gamma [16], plus 1",
        ),
        ("bart-plain", "final_logits_bias [1, 48] -> head.bias [48], rearranged"),
        (
            "bart-plain",
            "model.encoder.embed_positions.weight [42, 16] -> stacks.encoder.position.weight [40, 16], a part",
        ),
    ] {
        assert!(report(name).lines().any(|line| line.ends_with(expected)), "{name}: {expected}");
    }
}

#[test]
fn mistakes_with_published_models_are_told() {
    let home = Model::scratch();
    let path = |name: &str| text(&home.path().join(name));
    let run = text(&model().dir);
    firelight(["export", &run, "--to", &path("exported")]).succeeds();
    firelight(["export", &run, "--to", &path("exported")]).fails(USER, &["is not empty; choose another folder"]);
    firelight(["import", &path("exported")]).fails(USER, &["name the run folder to write: --out DIR"]);
    firelight(["import", &run, "--out", &path("again")]).fails(USER, &["lacks the key `model_type`"]);
    firelight(["import", &path("none"), "--out", &path("again")]).fails(USER, &["there is no folder `"]);
    firelight(["generate", "no/such", "--prompt", "A"])
        .fails(USER, &["there is no folder `no/such`", "hf download no/such"]);
    firelight(["generate", "../no/such", "--prompt", "A"]).fails(USER, &["there is no folder `../no/such`"]);

    inputs(&home.path().join("inputs"), vec![1, 4, 2, 3]);
    inputs(&home.path().join("others"), vec![4, 1, 3, 2]);
    let forward = ["forward", &run, "--inputs", &path("inputs"), "--output", &path("outputs")];
    firelight(forward).succeeds();
    let verify = ["verify", &run, "--inputs", &path("others"), "--expected", &path("outputs")];
    firelight(verify).fails(USER, &["2 of 2 outputs differ"]);
    inputs(&home.path().join("unknown"), vec![1, 100_000]);
    let forward = ["forward", &run, "--inputs", &path("unknown"), "--output", &path("never")];
    firelight(forward).fails(USER, &["`input_ids` holds 100000: expected numbers from 0 to "]);
    assert!(!home.path().join("never").exists());

    fs::write(home.path().join("exported/model.safetensors"), "cut").unwrap();
    let cache = home.path().join("cache");
    let mut generate = command(["generate", &path("exported"), "--prompt", "A"]);
    generate.env("FIRELIGHT_CACHE", &cache);
    finish(generate).fails(USER, &["model.safetensors` is no whole safetensors file (3 bytes)"]);
    let left = fs::read_dir(cache.join("imported")).map_or(0, |files| files.count());
    assert_eq!(left, 0, "no half of a model is kept");
}

/// A tiny CLIP with random weights, and a tokenizer of 45 characters with the tokens around a text.
fn clip(home: &Path) -> String {
    let [folder, run] = ["clip", "clip-run"].map(|name| home.join(name));
    fs::create_dir(&folder).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained/clip-highest");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(fixture.join(name), folder.join(name)).unwrap();
    }
    let characters: String = ('a'..='z').chain('A'..='R').chain([' ']).collect();
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &characters).unwrap();
    let tokenizer = tokenizer.with_special_tokens(&["<s>", "</s>"]).unwrap().with_frame(45, 46).unwrap().0;
    tokenizer.save(folder.join("tokenizer.json")).unwrap();
    firelight(["import", &text(&folder), "--out", &text(&run)]).succeeds();
    text(&run)
}

fn pictures(home: &Path) -> [String; 2] {
    [1, 2].map(|number: usize| {
        let path = home.join(format!("{number}.png"));
        let shape = ImageShape::new(3, [12, 15]);
        let pixels = (0..shape.volume()).map(|place| (place * (number + 5) % 251) as u8).collect();
        Image::new(shape, pixels).write_png(&path).unwrap();
        text(&path)
    })
}

#[test]
fn a_model_of_images_and_texts_compares_them() {
    let home = Model::scratch();
    let (run, [one, other]) = (clip(home.path()), pictures(home.path()));
    let labels = ["a cat", "some dog"];
    let similar = |label| {
        let found = firelight(["embed", &run, "--image", &one, "--image", &other, "--similarity", label]).succeeds();
        found.stdout.lines().map(|line| line.parse().unwrap()).collect::<Vec<f64>>()
    };
    let [cats, dogs] = labels.map(similar);
    let weights = Weights::of_file(Path::new(&run).join("model.safetensors")).unwrap();
    let scale = f64::from(weights.read("log_scale", &View::whole(&[1]), 0.0).unwrap()[0]).exp();
    let classify = ["classify", &run, "--image", &one, "--image", &other, "--label", labels[0], "--label", labels[1]];
    let found = firelight(classify.into_iter().chain(["--json"])).succeeds().stdout;
    let found: Vec<Value> = found.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (image, found) in found.iter().enumerate() {
        assert_eq!(found["label"], labels[usize::from(dogs[image] > cats[image])]);
        // Cosines of four digits leave this of what the model multiplies them by.
        let [cat, dog] = labels.map(|label| found["probabilities"][label].as_f64().unwrap());
        assert!(((cat / dog).ln() - scale * (cats[image] - dogs[image])).abs() < 2e-4 * scale, "{found} {scale}");
    }
    let plain = firelight(classify).succeeds().stdout;
    assert!(plain.starts_with(&format!("{one}\t{}\t", found[0]["label"].as_str().unwrap())), "{plain}");
    let vectors = firelight(["embed", &run, "--text", "a cat"]).succeeds().stdout;
    assert_eq!(vectors.split_whitespace().count(), 10);
    let attention = ["visualize", "attention", &run, "--image", &one, "--text", "a cat"];
    let drawn = firelight(attention).succeeds().stdout;
    let [image, words] = ["self-attention of the image, layer 1,", "self-attention of the text, layer 2,"];
    assert!(drawn.starts_with(image) && drawn.lines().any(|line| line.starts_with(words)), "{drawn}");
    let words = firelight(attention.into_iter().chain(["--kind", "text"])).succeeds().stdout;
    assert!(words.starts_with("self-attention of the text") && !words.contains("of the image"), "{words}");
    let exported = text(&home.path().join("exported"));
    firelight(["export", &run, "--to", &exported]).succeeds();
    let cache = home.path().join("cache");
    let mut again = command(["embed", &exported, "--text", "a cat"]);
    again.env("FIRELIGHT_CACHE", cache);
    assert_eq!(finish(again).succeeds().stdout, vectors);
}

#[test]
fn both_stacks_of_a_model_of_images_and_texts_are_shown() {
    let home = Model::scratch();
    let run = clip(home.path());
    let positions = firelight(["visualize", "positions", &run]).succeeds().stdout;
    assert!(positions.contains("image: places of patches:"), "{positions}");
    assert!(positions.contains("text: learned positions:"), "{positions}");
    let mask = firelight(["visualize", "mask", &run, "--length", "3"]).succeeds().stdout;
    assert!(mask.contains("image: what a token sees in"), "{mask}");
    assert!(mask.contains("text: what a token reaches through"), "{mask}");
}

#[test]
fn mistakes_with_images_and_texts_are_told() {
    let home = Model::scratch();
    let (run, [one, _]) = (clip(home.path()), pictures(home.path()));
    firelight(["visualize", "attention", &run]).fails(USER, &["needs --image, --text or both"]);
    firelight(["classify", &run, "--image", &one]).fails(USER, &["say what an image may show with --label TEXT"]);
    firelight(["classify", &run, "--image", &one, "--label", "a", "--label", "a"]).fails(USER, &["is given twice"]);
    firelight(["classify", &run, "--text", "a"]).fails(USER, &["give --image"]);
    firelight(["classify", &run, "--label", "a"]).fails(USER, &["--image"]);
    firelight(["embed", &run, "--text", "a", "--prompt", "b"]).fails(USER, &["are for models of texts alone"]);
    firelight(["embed", &run, "--text", "a 9"]).fails(USER, &["line 1: the character '9'"]);
    firelight(["embed", &text(&model().dir), "--image", &one]).fails(USER, &["firelight generate"]);
    firelight(["train", "--from", &run, "--dry-run"])
        .fails(USER, &["is not trained itself: name a recipe, such as images"]);
}

#[test]
fn a_training_without_a_recipe_has_the_task_and_the_structure_of_what_it_begins_from() {
    let home = Model::scratch();
    let path = |name: &str| text(&home.path().join(name));
    firelight(["export", &text(&model().dir), "--to", &path("exported")]).succeeds();
    fs::write(home.path().join("text.txt"), "A fox and a hen. ".repeat(400)).unwrap();
    let mut train = command(["train", "--data", &path("text.txt"), "--from", &path("exported"), "--steps", "2"]);
    train.args(["--out", &path("run"), "--set", "training.evaluate_every=2"]);
    train.env("FIRELIGHT_CACHE", home.path().join("cache"));
    finish(train).succeeds();
    let [own, begun] = [text(&model().dir), path("run")].map(|run| {
        let config = fs::read_to_string(Path::new(&run).join("config.json")).unwrap();
        let config: Value = serde_json::from_str(&config).unwrap();
        ["d_model", "n_heads", "n_layers"].map(|key| config["transformer"][key].clone())
    });
    assert!(own[0].is_number() && own == begun, "{own:?} {begun:?}");
}

#[test]
fn a_classifier_of_images_begins_from_the_tower_of_images() {
    let home = Model::scratch();
    let (run, data) = (clip(home.path()), home.path().join("data"));
    for class in ["a", "b"] {
        fs::create_dir_all(data.join(class)).unwrap();
        for number in 0..6 {
            let shape = ImageShape::new(3, [12, 12]);
            let pixels = (0..shape.volume()).map(|place| (place * (number + class.len()) % 251) as u8).collect();
            Image::new(shape, pixels).write_png(data.join(class).join(format!("{number}.png"))).unwrap();
        }
    }
    let out = text(&home.path().join("out"));
    let train = ["train", "images", "--data", &text(&data), "--from", &run, "--steps", "2", "--out", &out];
    let begun = firelight(train.into_iter().chain(["--set", "training.evaluate_every=2"])).succeeds();
    assert!(begun.stderr.contains(" taken over, ") && begun.stderr.contains(" not needed ("), "{}", begun.stderr);
    let init = fs::read_to_string(Path::new(&out).join("init.json")).unwrap();
    // 16 of each of two layers, two norms, patches, the class token and the places.
    assert!(init.contains("\"taken\": 39,") && init.contains("log_scale"), "{init}");
}

#[test]
fn captions_begin_from_a_published_encoder_of_images_and_from_the_run_that_this_makes() {
    let home = Model::scratch();
    let [data, cache, out, again] = ["data", "cache", "out", "again"].map(|name| home.path().join(name));
    fs::create_dir(&data).unwrap();
    let line = |number: usize| {
        let shape = ImageShape::new(3, [12, 12]);
        let pixels = (0..shape.volume()).map(|place| (place * (number + 3) % 251) as u8).collect();
        Image::new(shape, pixels).write_png(data.join(format!("{number}.png"))).unwrap();
        format!("{{\"image\": \"{number}.png\", \"caption\": \"stripes, {}\"}}\n", ["left", "right"][number % 2])
    };
    fs::write(data.join("captions.jsonl"), (0..12).map(line).collect::<String>()).unwrap();
    let train = |from: &str, out: &Path, more: &[&str]| {
        let mut train = command(["train", "captions", "--data", &text(&data), "--from", from, "--steps", "2"]);
        train.args(["--set", "training.evaluate_every=2", "--set", "training.batch_size=4", "--out", &text(out)]);
        train.args(["--set", "data.split.validation=4"]).args(more).env("FIRELIGHT_CACHE", &cache);
        finish(train)
    };
    let vit = text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained/vit-classes"));
    train(&vit, &out, &["--set", "init.include=[\"vit\"]"]).succeeds();
    let init = fs::read_to_string(out.join("init.json")).unwrap();
    // 16 of each of two layers, one norm, the projection of patches with its bias, the class token and the places.
    assert!(init.contains("\"taken\": 38,") && init.contains("vit.head.weight"), "{init}");
    let config: Value = serde_json::from_str(&fs::read_to_string(out.join("config.json")).unwrap()).unwrap();
    assert_eq!((&config["vit"]["pooling"], &config["decoder"]["d_model"]), (&"class_token".into(), &16.into()));
    let described = firelight(["caption", &text(&out), "--image", &text(&data.join("1.png")), "--json"]).succeeds();
    assert!(described.stdout.contains("\"words\""), "{}", described.stdout);

    let words = ["init.include must be [\"vit\"]", "of the task `vision`", "the encoder of images alone"];
    train(&vit, &again, &[]).fails(USER, &words);

    // From its own kind everything comes, the words included.
    train(&text(&out), &again, &[]).succeeds();
    let init = fs::read_to_string(again.join("init.json")).unwrap();
    assert!(init.contains("\"new\": []"), "{init}");
}
