//! Classifiers of tokens as a user trains, asks and measures them, and the mistakes that can be made on the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::USER;
use crate::support::{Model, firelight};

pub(super) const RECIPE: &str = r#"
task = "token_classification"

[data]
tokenizer = "word:1"

[model]
d_model = 16
n_heads = 2
n_layers = 1
d_ff = 32
max_seq_len = 12
position = "learned"

[training]
steps = 60
batch_size = 8
evaluate_every = 30
checkpoint_every = 30
monitor = "f1"

[optimizer]
learning_rate = 0.01

[schedule]
kind = "constant"
warmup_steps = 0
"#;

/// A trained tagger, the folder of its splits, and its recipe.
pub(super) struct Sentences {
    pub(super) data: PathBuf,
    recipe: PathBuf,
    pub(super) run: PathBuf,
}

/// Sentences in which the word in front of a name decides.
pub(super) fn write_splits(data: &Path) {
    fs::create_dir_all(data).unwrap();
    let sentence = |i: usize| {
        let (verb, kind) = if i.is_multiple_of(2) { ("in", "LOC") } else { ("saw", "PER") };
        let name = ["Ada", "Lima", "Rose"][i / 2 % 3];
        format!("she\tO\n{verb}\tO\n{name}\tB-{kind}\nHill\tI-{kind}\n{}\n", "today\tO\n".repeat(i % 4))
    };
    for (split, lines) in [("train", 0..40), ("dev", 40..52), ("test", 52..60)] {
        fs::write(data.join(format!("{split}.conll")), lines.map(sentence).collect::<String>()).unwrap();
    }
}

/// The shared tagger: the word in front decides whether a name is that of a person or of a place.
pub(super) fn sentences() -> &'static Sentences {
    static SENTENCES: LazyLock<Sentences> = LazyLock::new(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tagging");
        let _ = fs::remove_dir_all(&home); // of an earlier run of the tests
        let [data, recipe, run] = ["data", "tiny.toml", "run"].map(|name| home.join(name));
        write_splits(&data);
        fs::write(&recipe, RECIPE).unwrap();
        firelight(train(&recipe, &data, &run)).succeeds();
        Sentences { data, recipe, run }
    });
    &SENTENCES
}

fn train(recipe: &Path, data: &Path, out: &Path) -> Vec<String> {
    let [recipe, data, out] = [recipe, data, out].map(|path| path.display().to_string());
    ["train", &recipe, "--data", &data, "--out", &out].map(str::to_string).to_vec()
}

fn train_on(data: &Path, out: &Path, more: &[&str]) -> Vec<String> {
    train(&sentences().recipe, data, out).into_iter().chain(more.iter().map(ToString::to_string)).collect()
}

#[test]
fn a_neighbour_decides_and_entities_are_reported_as_by_a_pipeline() {
    let run = sentences().run.display().to_string();
    let found = firelight(["classify", &run, "--text", "she saw Lima Hill today", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&found).unwrap();
    let tags: Vec<&str> =
        line["tokens"].as_array().unwrap().iter().map(|token| token["tag"].as_str().unwrap()).collect();
    assert_eq!(tags, ["O", "O", "B-PER", "I-PER", "O"], "{line}");
    assert!(line["tokens"][2]["token"] == "Lima" && line["tokens"][2]["probability"].as_f64().unwrap() > 0.5);
    let mut entity = line["entities"][0].clone();
    assert!(entity.as_object_mut().unwrap().remove("score").unwrap().as_f64().unwrap() > 0.5);
    assert_eq!(entity, json!({"entity_group": "PER", "word": "Lima Hill", "start": 8, "end": 17}));
    assert_eq!(line["text"], "she saw Lima Hill today");
    let plain = firelight(["classify", &run, "--text", "she in Ada Hill"]).succeeds().stdout;
    assert!(plain.starts_with("she\tO\t") && plain.contains("\nAda\tB-LOC\t") && plain.ends_with("\n\n"), "{plain}");
}

#[test]
fn a_split_is_measured_and_its_mistakes_are_reported_with_their_lines() {
    let home = Model::scratch();
    let Sentences { data, run, .. } = sentences();
    let [run, whole, data] = [run, data, &home.path().to_path_buf()].map(|path| path.display().to_string());
    let found = firelight(["evaluate", &run, "--data", &whole, "--split", "test", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&found).unwrap();
    for name in ["accuracy", "f1", "precision", "recall"] {
        assert_eq!(line[name], 1.0, "{line}");
    }
    assert!(line["examples"] == 8 && line["loss"].as_f64().unwrap() < 0.2 && line["seconds"].is_number(), "{line}");
    let text = firelight(["evaluate", &run, "--data", &whole]).succeeds().stdout;
    assert!(text.contains("nats per word") && text.contains("F1         100.00 %"), "{text}");
    let measure = |content: &str, parts: &[&str]| {
        fs::write(home.path().join("test.txt"), content).unwrap();
        firelight(["evaluate", &run, "--data", &data, "--split", "test"]).fails(USER, parts);
    };
    measure("she O\nAda B-ORG\n", &["line 2", "`B-ORG`", "`Ada`", "B-LOC, B-PER, I-LOC, I-PER, O"]);
    measure("she\nAda\n", &["line 1", "one column"]);
    measure("she O\nAda I-PER\n", &["line 2", "`I-PER`", "begins with `B-PER`", "iob1"]);
    firelight(["evaluate", &run, "--data", &data, "--split", "dev"]).fails(USER, &["dev.conll", "there is test"]);
}

#[test]
fn a_run_stopped_half_way_ends_with_the_bytes_of_one_that_was_not() {
    let home = Model::scratch();
    let out = home.path().join("run");
    firelight(train_on(&sentences().data, &out, &["--steps", "30"])).succeeds();
    firelight(train_on(&sentences().data, &out, &["--resume"])).succeeds();
    let [found, expected] = [&out, &sentences().run].map(|run| fs::read(run.join("model.safetensors")).unwrap());
    assert!(found == expected);
}

#[test]
fn a_tagger_begins_from_another_run_and_is_checked_before_it_is_trained() {
    let home = Model::scratch();
    let (run, out) = (sentences().run.display().to_string(), home.path().join("run"));
    let begun = firelight(train_on(&sentences().data, &out, &["--from", &run, "--steps", "1", "--self-check"]));
    assert_eq!(begun.succeeds().stderr.matches(": ok (").count(), 3);
    let other = home.path().join("other");
    let narrow = ["--from", &run, "--set", "model.d_ff=48"];
    firelight(train_on(&sentences().data, &other, &narrow)).fails(USER, &["model.d_ff = 48, but", "leave it out"]);
    let best = ["--set", "training.monitor=macro_f1"];
    firelight(train_on(&sentences().data, &other, &best)).fails(USER, &["macro_f1", "accuracy, f1, precision, recall"]);
    let vectors = firelight(["embed", &run, "--text", "she saw Ada", "--json"]).succeeds().stdout;
    assert!(vectors.contains("\"embedding\""));
    let data = sentences().data.display().to_string();
    let dry = firelight(["train", "entities", "--data", &data, "--dry-run"]).succeeds().stdout;
    assert!(dry.contains("parameters"), "{dry}");
}
