//! Readers of texts as a user trains, asks and measures them, and the mistakes that can be made on the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::USER;
use crate::support::{Model, command, finish, firelight};

pub(super) const RECIPE: &str = r#"
task = "question_answering"

[data]
tokenizer = "word:1"

[model]
d_model = 32
n_heads = 2
n_layers = 2
d_ff = 64
max_seq_len = 24
position = "rotary"

[training]
steps = 120
batch_size = 8
evaluate_every = 60
checkpoint_every = 60
monitor = "f1"

[optimizer]
learning_rate = 0.005

[schedule]
kind = "constant"
warmup_steps = 0
"#;

/// A trained reader, the folder of its splits, and its recipe.
pub(super) struct Questions {
    pub(super) data: PathBuf,
    recipe: PathBuf,
    pub(super) run: PathBuf,
}

/// Questions whose answer is the name behind `saw`.
pub(super) fn write_splits(data: &Path) {
    fs::create_dir_all(data).unwrap();
    let line = |i: usize| {
        let [one, two] = [["ada", "rose", "ida"][i % 3], ["tom", "jim", "ben", "max"][i % 4]];
        let context = format!("{}{one} saw {two} today", "then ".repeat(i % 3));
        let answers = json!({"text": [two], "answer_start": [context.find(two)]});
        format!("{}\n", json!({"question": "who was seen ?", "context": context, "answers": answers}))
    };
    for (split, lines) in [("train", 0..40), ("dev", 40..52), ("test", 52..60)] {
        fs::write(data.join(format!("{split}.jsonl")), lines.map(line).collect::<String>()).unwrap();
    }
}

/// The shared reader: the answer is the name behind `saw`.
pub(super) fn questions() -> &'static Questions {
    static QUESTIONS: LazyLock<Questions> = LazyLock::new(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answering");
        let _ = fs::remove_dir_all(&home); // of an earlier run of the tests
        let [data, recipe, run] = ["data", "tiny.toml", "run"].map(|name| home.join(name));
        write_splits(&data);
        fs::write(&recipe, RECIPE).unwrap();
        firelight(train(&recipe, &data, &run)).succeeds();
        Questions { data, recipe, run }
    });
    &QUESTIONS
}

fn train(recipe: &Path, data: &Path, out: &Path) -> Vec<String> {
    let [recipe, data, out] = [recipe, data, out].map(|path| path.display().to_string());
    ["train", &recipe, "--data", &data, "--out", &out].map(str::to_string).to_vec()
}

fn train_on(data: &Path, out: &Path, more: &[&str]) -> Vec<String> {
    train(&questions().recipe, data, out).into_iter().chain(more.iter().map(ToString::to_string)).collect()
}

#[test]
fn a_question_is_answered_with_its_place_and_a_split_is_measured() {
    let Questions { data, run, .. } = questions();
    let [run, data] = [run, data].map(|path| path.display().to_string());
    let asked = "who was seen ?\tthen rose saw max today";
    let found = firelight(["classify", &run, "--text", asked, "--json"]).succeeds().stdout;
    let mut line: Value = serde_json::from_str(&found).unwrap();
    assert!(line.as_object_mut().unwrap().remove("score").unwrap().as_f64().unwrap() > 0.5, "{found}");
    assert_eq!(line, json!({"text": asked, "answer": "max", "start": 14, "end": 17}));
    let plain = firelight(["classify", &run, "--text", asked]).succeeds().stdout;
    assert!(plain.starts_with("max\t") && plain.ends_with("\t14\t17\n"), "{plain}");
    firelight(["classify", &run, "--text", "who was seen ?"]).fails(USER, &["line 1 of `--text` has no tab"]);
    let home = Model::scratch();
    let file = home.path().join("asked.txt");
    fs::write(&file, format!("{asked}\nwho was seen ?\n")).unwrap();
    let without = ["classify", &run, "--file", &file.display().to_string()];
    firelight(without).fails(USER, &[&format!("line 2 of `{}` has no tab", file.display())]);
    let mut piped = command(["classify", &run]);
    piped.stdin(fs::File::open(&file).unwrap());
    finish(piped).fails(USER, &["line 2 of `the standard input` has no tab"]);
    let found = firelight(["evaluate", &run, "--data", &data, "--split", "test", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&found).unwrap();
    assert!(line["exact_match"] == 1.0 && line["f1"] == 1.0 && line["examples"] == 8, "{line}");
    let text = firelight(["evaluate", &run, "--data", &data]).succeeds().stdout;
    assert!(text.contains("nats per window") && text.contains("exact match  100.00 %"), "{text}");
}

#[test]
fn a_run_stopped_half_way_ends_with_the_bytes_of_one_that_was_not() {
    let home = Model::scratch();
    let out = home.path().join("run");
    firelight(train_on(&questions().data, &out, &["--steps", "60"])).succeeds();
    firelight(train_on(&questions().data, &out, &["--resume"])).succeeds();
    let [found, expected] = [&out, &questions().run].map(|run| fs::read(run.join("model.safetensors")).unwrap());
    assert!(found == expected);
}

#[test]
fn what_does_not_fit_together_is_reported_before_a_folder_is_made() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let run = questions().run.display().to_string();
    let short = ["--set", "model.max_seq_len=11"];
    firelight(train_on(&questions().data, &out, &short)).fails(USER, &["line 2", "data.stride"]);
    let narrow = ["--from", &run, "--set", "model.d_ff=48"];
    firelight(train_on(&questions().data, &out, &narrow)).fails(USER, &["model.d_ff = 48, but", "leave it out"]);
    assert!(!out.exists());
    let begun = ["--from", &run, "--steps", "1", "--self-check"];
    assert_eq!(firelight(train_on(&questions().data, &out, &begun)).succeeds().stderr.matches(": ok (").count(), 2);
    let data = questions().data.display().to_string();
    let dry = firelight(["train", "answers", "--data", &data, "--dry-run"]).succeeds().stdout;
    assert!(dry.contains("parameters"), "{dry}");
}
