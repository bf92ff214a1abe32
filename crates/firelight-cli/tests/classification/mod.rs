//! Classifiers of texts as a user trains, asks and measures them, and the mistakes that can be made on the way.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use firelight::kernels::{Difference, assert_close};
use serde_json::Value;

use crate::USER;
use crate::support::{Model, command, firelight, model};

pub(super) const RECIPE: &str = r#"
task = "classification"

[data]
tokenizer = "word:1"

[model]
d_model = 16
n_heads = 2
n_layers = 1
d_ff = 32
max_seq_len = 12
position = "learned"
pooling = "mean"

[training]
steps = 40
batch_size = 8
evaluate_every = 20
checkpoint_every = 20
monitor = "accuracy"

[optimizer]
learning_rate = 0.01

[schedule]
kind = "constant"
warmup_steps = 0
"#;

/// A trained classifier, the folder of its splits, and its recipe.
pub(super) struct Texts {
    pub(super) data: PathBuf,
    recipe: PathBuf,
    pub(super) run: PathBuf,
}

/// Texts of which one word decides.
pub(super) fn write_splits(data: &Path) {
    fs::create_dir_all(data).unwrap();
    let line = |i: usize| {
        let (word, label) = if i.is_multiple_of(2) { ("fine", "good") } else { ("dull", "bad") };
        format!("a {word} film{}\t{label}\n", " and more".repeat(i % 4))
    };
    for (split, lines) in [("train", 0..40), ("dev", 40..52), ("test", 52..60)] {
        fs::write(data.join(format!("{split}.tsv")), lines.map(line).collect::<String>()).unwrap();
    }
}

/// The shared classifier: one word decides.
pub(super) fn texts() -> &'static Texts {
    static TEXTS: LazyLock<Texts> = LazyLock::new(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("classification");
        let _ = fs::remove_dir_all(&home); // of an earlier run of the tests
        let [data, recipe, run] = ["data", "tiny.toml", "run"].map(|name| home.join(name));
        write_splits(&data);
        fs::write(&recipe, RECIPE).unwrap();
        firelight(train(&recipe, &data, &run)).succeeds();
        Texts { data, recipe, run }
    });
    &TEXTS
}

fn train(recipe: &Path, data: &Path, out: &Path) -> Vec<String> {
    let [recipe, data, out] = [recipe, data, out].map(|path| path.display().to_string());
    ["train", &recipe, "--data", &data, "--out", &out].map(str::to_string).to_vec()
}

/// The arguments of a training on this folder or file, with more.
fn train_on(data: &Path, out: &Path, more: &[&str]) -> Vec<String> {
    train(&texts().recipe, data, out).into_iter().chain(more.iter().map(ToString::to_string)).collect()
}

fn classify(options: &[&str]) -> Vec<String> {
    let run = texts().run.display().to_string();
    ["classify", &run].iter().chain(options).map(ToString::to_string).collect()
}

#[test]
fn one_word_is_learnt_and_a_pipe_gives_a_label_for_a_line_in_order() {
    let mut run = command(classify(&["--json"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    run.stdin.take().unwrap().write_all(b"a dull film\na fine film and more and more\n\na dull one").unwrap();
    let output = run.wait_with_output().unwrap();
    let piped = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = piped.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let labels: Vec<&str> = lines.iter().map(|line| line["label"].as_str().unwrap()).collect();
    assert_eq!((labels.len(), labels[0], labels[1], labels[3]), (4, "bad", "good", "bad"));
    assert_eq!(lines[1]["text"], "a fine film and more and more");
    let sum: f64 = lines[2]["probabilities"].as_object().unwrap().values().map(|value| value.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5);
    let alone = firelight(classify(&["--json", "--text", "a dull film"])).succeeds().stdout;
    let alone: Value = serde_json::from_str(&alone).unwrap();
    let chance = |line: &Value| line["probabilities"]["bad"].as_f64().unwrap();
    assert!((chance(&alone) - chance(&lines[0])).abs() < 1e-5, "{alone} {}", lines[0]);
    let plain = firelight(classify(&["--text", "a fine film"])).succeeds().stdout;
    assert!(plain.starts_with("good\t0.") || plain.starts_with("good\t1."), "{plain}");
}

/// What the tiny classifier says of a text with these options: the probability that it is good.
fn chance(text: &str, options: &[&str]) -> f64 {
    let options = [&["--json", "--text", text], options].concat();
    let line: Value = serde_json::from_str(&firelight(classify(&options)).succeeds().stdout).unwrap();
    line["probabilities"]["good"].as_f64().unwrap()
}

/// The vector that the tiny classifier's encoder makes of a text with these options.
fn vector(text: &str, options: &[&str]) -> Vec<f64> {
    let run = texts().run.display().to_string();
    let options = [&["embed", &run, "--json", "--text", text], options].concat();
    let line: Value = serde_json::from_str(&firelight(options).succeeds().stdout).unwrap();
    line["embedding"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The vector of length 1 in the direction of the sum.
fn direction(vectors: &[Vec<f64>]) -> Vec<f64> {
    let sum: Vec<f64> = (0..vectors[0].len()).map(|i| vectors.iter().map(|vector| vector[i]).sum()).collect();
    let length = sum.iter().map(|number| number * number).sum::<f64>().sqrt();
    sum.into_iter().map(|number| number / length).collect()
}

#[test]
fn a_long_text_is_read_in_windows_whose_probabilities_are_averaged() {
    let words: Vec<String> = format!("a fine film{}", " and more".repeat(5)).split(' ').map(str::to_string).collect();
    let (long, windows) = (words.join(" "), ["--long", "windows", "--stride", "5"]);
    // The model reads 12 tokens, 10 of them words.
    let parts = [&words[..10], &words[5..]].map(|part| chance(&part.join(" "), &[]));
    assert_close(&[chance(&long, &[])], &parts[..1], 1e-5);
    assert_close(&[chance(&long, &["--long", "truncate"])], &parts[..1], 1e-5);
    // Of the 13 words 5 are in both windows, which share their weight.
    assert_close(&[chance(&long, &windows)], &[(7.5 * parts[0] + 5.5 * parts[1]) / 13.0], 1e-5);
    assert_ne!(chance(&long, &["--long", "windows"]), chance(&long, &[]));
    for long in [&windows[..], &windows[..2], &["--long", "sentences"]] {
        let short = ["--text", "a fine film", "--json"];
        let found = firelight(classify(&[&short[..], long].concat())).succeeds().stdout;
        assert_eq!(found, firelight(classify(&short)).succeeds().stdout, "{long:?}: a text that fits is as it was");
    }
}

#[test]
fn the_vectors_of_the_parts_of_a_long_text_are_pooled() {
    let sentences = ["a fine film and more!", "a dull film and more!", "a fine film and more!"];
    let (long, parts) = (sentences.join(" "), sentences.map(|sentence| vector(sentence, &[])));
    assert_close(&vector(&long, &["--long", "sentences"]), &direction(&parts), 1e-5);
    let most = (0..parts[0].len()).map(|i| parts.iter().map(|part| part[i]).fold(f64::MIN, f64::max)).collect();
    assert_close(&vector(&long, &["--long", "sentences", "--pool", "max"]), &direction(&[most]), 1e-5);
    let windows = vector(&long, &["--long", "windows", "--stride", "10"]);
    assert_close(&[windows.iter().map(|number| number * number).sum::<f64>()], &[1.0], 1e-4);
    assert_eq!(vector(sentences[0], &["--long", "windows", "--pool", "max"]), parts[0]);
}

#[test]
fn options_of_long_texts_that_mean_nothing_are_refused() {
    let run = texts().run.display().to_string();
    let too_far = "--stride is 11, expected at least 1 and at most 10, the tokens of a text that a window holds";
    for command in ["classify", "embed"] {
        let refused = |options: &[&str], text: &str| {
            let options = [&[command, &run, "--text", "a fine film"], options].concat();
            firelight(options).fails(USER, &[text]);
        };
        refused(&["--long", "windows", "--stride", "11"], too_far);
        refused(&["--long", "windows", "--stride", "0"], "--stride is 0, expected at least 1");
        refused(&["--stride", "5"], "--stride is for windows: give --long windows");
        refused(&["--long", "sentences", "--stride", "5"], "--stride is for windows");
        refused(&["--long", "whole"], "expected truncate, windows or sentences");
    }
    firelight(["embed", &run, "--text", "a", "--pool", "max"]).fails(USER, &["--pool is for --long windows"]);
}

#[test]
fn a_split_is_measured_from_its_own_file_alone() {
    let home = Model::scratch();
    fs::copy(texts().data.join("test.tsv"), home.path().join("test.tsv")).unwrap();
    let [run, data] = [&texts().run, home.path()].map(|path| path.display().to_string());
    let found = firelight(["evaluate", &run, "--data", &data, "--split", "test", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&found).unwrap();
    assert!(line["accuracy"] == 1.0 && line["macro_f1"] == 1.0 && line["examples"] == 8, "{line}");
    assert!(line["loss"].as_f64().unwrap() < 0.2 && line["seconds"].is_number(), "{line}");
    firelight(["evaluate", &run, "--data", &data, "--split", "dev"])
        .fails(USER, &["no split `dev`", "dev.tsv", "there is test"]);
    fs::write(home.path().join("test.tsv"), "a film\tgood\na film\tugly\n").unwrap();
    firelight(["evaluate", &run, "--data", &data, "--split", "test"]).fails(USER, &["line 2", "`ugly`", "bad, good"]);
    fs::write(home.path().join("test.tsv"), "a film without a label\n").unwrap();
    firelight(["evaluate", &run, "--data", &data, "--split", "test"]).fails(USER, &["test.tsv", "line 1"]);
}

#[test]
fn without_a_split_it_is_what_the_run_validates_on() {
    let measure = |run: &Path, data: &Path, more: &[&str]| {
        let [run, data] = [run, data].map(|path| path.display().to_string());
        firelight(["evaluate", &run, "--data", &data, "--json"].iter().copied().chain(more.iter().copied()))
    };
    let examples = |run: &Path, data: &Path, more: &[&str]| {
        let line: Value = serde_json::from_str(&measure(run, data, more).succeeds().stdout).unwrap();
        line["examples"].as_u64().unwrap()
    };
    let Texts { data, run, .. } = texts();
    assert_eq!(examples(run, data, &[]), 12);
    assert_eq!(examples(run, &data.join("train.tsv"), &[]), 40);
    measure(run, &data.join("dev.tsv"), &["--split", "dev"]).fails(USER, &["dev.tsv", "no split `dev`", "folder"]);

    let home = Model::scratch();
    let held = home.path().join("held");
    firelight(train_on(data, &held, &["--set", "data.split.validation=7", "--steps", "2"])).succeeds();
    assert_eq!(examples(&held, data, &[]), 7);
    assert_eq!(examples(&held, &data.join("train.tsv"), &[]), 7);
    assert_eq!(examples(&held, &data.join("test.tsv"), &[]), 8, "none of another file was trained on");
    assert_eq!(examples(&held, data, &["--split", "test"]), 8);
}

#[test]
fn several_labels_and_numbers_are_answered_as_what_they_are() {
    let home = Model::scratch();
    let lines = |label: fn(usize) -> &'static str| -> String {
        (0..16).map(|i| format!("a {} day\t{}\n", ["dull", "fine"][i % 2], label(i))).collect()
    };
    let data = |name: &str, content: String| {
        let data = home.path().join(name);
        fs::create_dir_all(&data).unwrap();
        for split in ["train.tsv", "dev.tsv"] {
            fs::write(data.join(split), &content).unwrap();
        }
        data
    };
    let answer = |data: &Path, options: &[&str]| -> [Value; 2] {
        let out = data.join("run");
        firelight(train_on(data, &out, options)).succeeds();
        let [run, data] = [&out, data].map(|path| path.display().to_string());
        let classified = firelight(["classify", &run, "--text", "a fine day", "--json"]).succeeds().stdout;
        let measured = firelight(["evaluate", &run, "--data", &data, "--json"]).succeeds().stdout;
        [classified, measured].map(|line| serde_json::from_str(&line).unwrap())
    };
    let tags = data("tags", lines(|i| ["", "sun|warm"][i % 2]));
    let options = ["--set", "data.problem_type=multi_label", "--set", "training.monitor=micro_f1"];
    let [found, scores] = answer(&tags, &options);
    assert_eq!(found["labels"], serde_json::json!(["sun", "warm"]), "{found}");
    assert!(found["probabilities"]["warm"].as_f64().unwrap() > 0.5 && scores["exact_match"] == 1.0, "{found} {scores}");
    let numbers = data("numbers", lines(|i| ["-1", "1.5"][i % 2]));
    let options = ["--set", "data.problem_type=regression", "--set", "training.monitor=pearson"];
    let [found, scores] = answer(&numbers, &options);
    assert!(found["value"].as_f64().unwrap() > 0.5 && scores["pearson"].as_f64().unwrap() > 0.9, "{found} {scores}");
}

#[test]
fn the_metrics_decide_and_the_report_shows_the_confusion() {
    let metrics = fs::read_to_string(texts().run.join("metrics.jsonl")).unwrap();
    let evaluations: Vec<&str> = metrics.lines().filter(|line| line.contains("validation_loss")).collect();
    assert!(
        evaluations.len() == 2 && evaluations.iter().all(|line| line.contains("accuracy") && line.contains("macro_f1"))
    );
    let report = fs::read_to_string(texts().run.join("report.html")).unwrap();
    assert!(report.contains("Confusion matrix") && report.contains("nats per text"));
}

#[test]
fn a_run_stopped_half_way_ends_with_the_bytes_of_one_that_was_not() {
    let home = Model::scratch();
    let out = home.path().join("run");
    firelight(train_on(&texts().data, &out, &["--steps", "20"])).succeeds();
    firelight(train_on(&texts().data, &out, &["--resume"])).succeeds();
    let [found, expected] = [&out, &texts().run].map(|run| fs::read(run.join("model.safetensors")).unwrap());
    assert!(found == expected);
    let balanced = home.path().join("balanced");
    let more = ["--set", "loss.class_weights=balanced", "--steps", "2"];
    firelight(train_on(&texts().data, &balanced, &more)).succeeds();
    firelight(train_on(&texts().data, &balanced, &[&more[..2], &["--resume", "--steps", "3"]].concat())).succeeds();
}

#[test]
fn what_does_not_fit_together_is_reported_before_a_folder_is_made() {
    let home = Model::scratch();
    let (out, data) = (home.path().join("run"), home.path().join("data"));
    let file = texts().data.join("train.tsv");
    firelight(train_on(&file, &out, &["--set", "data.split.validation=40"])).fails(USER, &["below 40"]);
    firelight(train_on(&texts().data, &out, &["--set", "loss.class_weights=[1.0]"]))
        .fails(USER, &["2 classes: bad, good"]);
    firelight(train_on(&texts().data, &out, &["--set", "model.patterns=[\"causal\"]"]))
        .fails(USER, &["must not be causal"]);
    firelight(train_on(&texts().data, &out, &["--set", "training.monitor=bleu"])).fails(USER, &["bleu", "accuracy"]);
    fs::create_dir(&data).unwrap();
    firelight(train_on(&data, &out, &[])).fails(USER, &["no split `train`", "no such file"]);
    fs::write(data.join("train.csv"), "text,label\na,x\n\"b,y\n").unwrap();
    fs::write(data.join("dev.csv"), "text,label\na,x\n").unwrap();
    firelight(train_on(&data, &out, &[])).fails(USER, &["train.csv", "line 3"]);
    fs::write(data.join("train.csv"), "text,label\na,x\nb,x\n").unwrap();
    firelight(train_on(&data, &out, &[])).fails(USER, &["1 label (x)"]);
    assert!(!out.exists());
    let held = ["--set", "data.split.validation=10", "--dry-run"];
    firelight(train_on(&file, &out, &held)).succeeds();
    firelight(train_on(&file, &out, &["--dry-run"])).succeeds(); // a tenth of it
    let twice = ["--set", "data.split.validation=train", "--dry-run"];
    let said = firelight(train_on(&texts().data, &out, &twice)).succeeds().stderr;
    assert!(said.contains("warn: data.split.train and data.split.validation are both \"train\""), "{said}");
}

#[test]
fn models_of_another_task_are_refused_by_name_and_a_self_check_holds() {
    let language = model().dir.display().to_string();
    firelight(["classify", &language, "--text", "a"]).fails(USER, &["`language`", "firelight generate"]);
    let home = Model::scratch();
    let said = firelight(train_on(&texts().data, &home.path().join("run"), &["--self-check", "--steps", "1"]));
    let said = said.succeeds().stderr;
    assert_eq!(said.matches(": ok (").count(), 3, "{said}");
    let missing = home.path().join("nothing.txt").display().to_string();
    firelight(classify(&["--file", &missing])).fails(USER, &["nothing.txt"]);
    let folder = home.path().display().to_string();
    firelight(classify(&["--file", &folder])).fails(USER, &[&folder, "it is a folder"]);
    let file = home.path().join("latin.txt");
    fs::write(&file, b"a fine film\na caf\xe9\n").unwrap();
    let named = ["line 2 of `", "latin.txt` is not UTF-8", "the byte at offset 17", "0xe9"];
    firelight(classify(&["--file", &file.display().to_string()])).fails(USER, &named);
}

#[test]
fn the_recipes_of_the_repository_fit_their_data() {
    let home = Model::scratch();
    let line = |i: usize| format!("\"{}\",\"a title, {i}\",\"what is said\"\n", i % 4 + 1);
    fs::write(home.path().join("test.csv"), (0..16).map(line).collect::<String>()).unwrap();
    let news = home.path().to_path_buf();
    for (name, data, more) in [
        ("sst2", &texts().data, &[][..]),
        ("mlm-pretrain", &texts().data, &[]),
        ("mlm-pretrain", &texts().data, &["--set", "data.objective=replaced"]),
        ("ag-news", &news, &["--set", "data.split.validation=4"]),
    ] {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../recipes/{name}.toml"));
        let arguments = train(&recipe, data, &home.path().join("run")).into_iter();
        let arguments = arguments.chain(more.iter().map(ToString::to_string)).chain(["--dry-run".to_string()]);
        assert!(firelight(arguments).succeeds().stdout.contains("parameters"), "{name}");
    }
}

pub(super) const MASKED: &str = r#"
task = "masked_language"

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
steps = 4
batch_size = 8
evaluate_every = 2
checkpoint_every = 2
"#;

#[test]
fn vectors_by_three_products_are_nearly_those_of_f32() {
    let text = "a fine film";
    let difference = Difference::between(&vector(text, &["--precision", "bf16x3"]), &vector(text, &[]));
    assert!(difference.absolute < 1e-3, "{difference:?}");
    let run = texts().run.display().to_string();
    firelight(["embed", &run, "--text", "a", "--precision", "bf16"]).fails(USER, &["expected f32 or bf16x3"]);
}

#[test]
fn a_classifier_begins_from_a_masked_language_model_and_from_another_classifier() {
    let home = Model::scratch();
    let path = |name: &str| home.path().join(name);
    fs::write(path("masked.toml"), MASKED).unwrap();
    firelight(train(&path("masked.toml"), &texts().data, &path("masked"))).succeeds();
    let half: Vec<String> = train(&path("masked.toml"), &texts().data, &path("again"));
    firelight(half.iter().cloned().chain(["--steps", "2"].map(str::to_string))).succeeds();
    firelight(half.iter().cloned().chain(["--resume".to_string()])).succeeds();
    let [found, expected] = ["again", "masked"].map(|run| fs::read(path(run).join("model.safetensors")).unwrap());
    assert!(found == expected, "a stopped run ends with the bytes of one that was not");
    let masked = path("masked").display().to_string();
    let vectors = firelight(["embed", &masked, "--text", "a fine film", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&vectors).unwrap();
    let length: f64 = line["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap().powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-4 && line["embedding"].as_array().unwrap().len() == 16, "{line}");
    let lines = path("lines.txt");
    fs::write(&lines, "a fine film\na dull film and more\n").unwrap();
    let similar = ["embed", &masked, "--file", &lines.display().to_string(), "--similarity", "a fine film"];
    let cosines: Vec<f64> = firelight(similar).succeeds().stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(cosines.len() == 2 && (cosines[0] - 1.0).abs() < 1e-3 && cosines[1] < 0.9999, "{cosines:?}");
    let json = firelight(similar.iter().chain(&["--json"])).succeeds().stdout;
    let line: Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!(line["text"], "a dull film and more");
    assert!((line["similarity"].as_f64().unwrap() - cosines[1]).abs() < 1e-4, "{line} {cosines:?}");
    firelight(["classify", &masked, "--text", "a"]).fails(USER, &["`masked_language`", "firelight fill-mask"]);
    let filled = ["fill-mask", &masked, "--text", "a [MASK] film and [MASK]", "--top-k", "3"];
    let shown = firelight(filled).succeeds().stdout;
    assert!(shown.starts_with("a [MASK] film and [MASK]\nmask 1:\n") && shown.lines().count() == 9, "{shown}");
    let json: Value = serde_json::from_str(&firelight(filled.iter().chain(&["--json"])).succeeds().stdout).unwrap();
    assert!(json["masks"][1][2]["probability"].as_f64().unwrap() > 0.0 && json["masks"][1][2]["token"].is_string());
    firelight(["fill-mask", &masked, "--text", "a film"]).fails(USER, &["line 1", "[MASK]"]);
    firelight(["fill-mask", &texts().run.display().to_string(), "--text", "[MASK]"])
        .fails(USER, &["firelight classify"]);
    let measured = firelight(["evaluate", &masked, "--json"]).succeeds().stdout;
    let measured: Value = serde_json::from_str(&measured).unwrap();
    let last = fs::read_to_string(Path::new(&masked).join("metrics.jsonl")).unwrap();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    let [loss, expected] = [&measured["loss"], &last["validation_loss"]].map(|loss| loss.as_f64().unwrap());
    assert!((loss - expected).abs() < 1e-5 && measured["perplexity"].is_number(), "{measured} {last}");
    let data = texts().data.display().to_string();
    let named: Value = serde_json::from_str(
        &firelight(["evaluate", &masked, "--data", &data, "--split", "dev", "--json"]).succeeds().stdout,
    )
    .unwrap();
    assert_eq!((&named["loss"], &named["examples"]), (&measured["loss"], &measured["examples"]));
    let begun = firelight(train_on(&texts().data, &path("begun"), &["--from", &masked, "--steps", "2"])).succeeds();
    let from = Path::new(&masked).join("model.safetensors");
    assert!(begun.stderr.contains(&format!("begins from: step 4, {}: ", from.display())), "{}", begun.stderr);
    let run = texts().run.display().to_string();
    firelight(train_on(&texts().data, &path("more"), &["--from", &run, "--steps", "1"])).succeeds();
    let other = ["--from", &masked, "--set", "model.d_ff=48"];
    firelight(train_on(&texts().data, &path("other"), &other)).fails(USER, &["model.d_ff = 48, but", "leave it out"]);
    let three = path("three.tsv");
    fs::write(&three, "a film\tgood\na dull film\tbad\na day\tso\na night\tso\n").unwrap();
    let head = ["--from", &run, "--set", "data.split.validation=1", "--steps", "1"];
    firelight(train_on(&three, &path("head"), &head))
        .fails(USER, &["2 classes (bad, good)", "init.exclude = [\"head\"]"]);
    let anew = [&head[..], &["--set", "init.exclude=[\"head\"]"]].concat();
    firelight(train_on(&three, &path("head"), &anew)).succeeds();
}

#[test]
fn adapters_are_trained_on_a_run_and_merged_into_one_that_says_the_same() {
    let home = Model::scratch();
    let path = |name: &str| home.path().join(name);
    let run = texts().run.display().to_string();
    let adapters = "model.adapters={ rank = 2, targets = [\"query\", \"value\"] }";
    let training = train_on(&texts().data, &path("adapted"), &["--from", &run, "--set", adapters, "--steps", "4"]);
    let begun = firelight(training).succeeds();
    assert!(begun.stderr.contains(" of them trained, "), "{}", begun.stderr);
    assert!(path("adapted").join("adapters.safetensors").is_file());
    let [adapted, merged] = ["adapted", "merged"].map(|name| path(name).display().to_string());
    firelight(["merge", &adapted, "--out", &merged]).succeeds();
    let answer = |run: &str| firelight(["classify", run, "--text", "a fine film"]).succeeds().stdout;
    assert_eq!(answer(&merged), answer(&adapted));
    firelight(["merge", &merged, "--out", &path("again").display().to_string()]).fails(USER, &["without adapters"]);
    let full = firelight(["merge", &adapted, "--out", &merged]);
    assert!(!full.stderr.contains("--force") && !full.stderr.contains("--resume"), "{}", full.stderr);
    full.fails(USER, &["is not empty", "--out"]);
    let none = ["--set", "model.adapters.rank=2"];
    firelight(train_on(&texts().data, &path("none"), &none)).fails(USER, &["model.adapters", "--from"]);
}
