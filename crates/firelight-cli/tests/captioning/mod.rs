//! Captions as a user meets them: trained on drawn digits and on images with captions, asked for, evaluated, and every mistake in a
//! line.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use firelight::data::{Image, ImageShape};
use serde_json::Value;

use crate::USER;
use crate::support::{Model, contents, firelight, model, text};

const SMALL: &[&str] = &[
    "data.drawn_digits=60",
    "data.scenes=40",
    "data.split.validation=6",
    "data.described=2",
    "model.d_model=16",
    "model.n_heads=2",
    "model.n_layers=1",
    "model.d_ff=16",
    "training.batch_size=8",
];

/// A trained model.
pub(super) fn run() -> &'static Path {
    static RUN: LazyLock<PathBuf> = LazyLock::new(|| {
        let run = Path::new(env!("CARGO_TARGET_TMPDIR")).join("captioning");
        let _ = fs::remove_dir_all(&run); // of an earlier run of the tests
        let sizes = SMALL.iter().flat_map(|size| ["--set", size]);
        let command = ["train", "captions", "--steps", "6", "--out"].map(str::to_string);
        let shown = firelight(command.into_iter().chain([text(&run)]).chain(sizes.map(str::to_string))).succeeds();
        assert!(shown.stderr.contains("40 images of 1 x 64 x 64 with captions to train on"), "{}", shown.stderr);
        assert!(shown.stderr.contains("firelight caption "), "{}", shown.stderr);
        run
    });
    &RUN
}

/// Two images of digits.
fn images(home: &Path) -> [PathBuf; 2] {
    ["a.png", "b.png"].map(|name| {
        let path = home.join(name);
        let pixels = (0..64 * 64).map(|place| (place % 251) as u8).collect();
        Image::new(ImageShape::new(1, [64, 64]), pixels).write_png(&path).unwrap();
        path
    })
}

#[test]
fn images_are_described_and_every_word_says_where_it_looked() {
    let (home, run) = (Model::scratch(), text(run()));
    let [first, second] = images(home.path()).map(|path| text(&path));
    let found =
        firelight(["caption", &run, "--image", &first, "--image", &second, "--json", "--beams", "2"]).succeeds();
    let lines: Vec<Value> = found.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["image"]), (2, &Value::from(first.clone())));
    assert_eq!(lines[0]["caption"], lines[1]["caption"], "the images are one");
    for word in lines[0]["words"].as_array().unwrap() {
        let attention = word["attention"].as_array().unwrap();
        let sum: f64 = attention.iter().map(|share| share.as_f64().unwrap()).sum();
        assert!(attention.len() == 64 && (sum - 1.0).abs() < 1e-4, "{word}");
    }
    let picture = home.path().join("words.png");
    let plain = firelight(["caption", &run, "--image", &first, "--attention", &text(&picture)]).succeeds();
    assert!(plain.stdout.starts_with(&format!("{first}\t")) && plain.stderr.contains("wrote "), "{}", plain.stderr);
    assert_eq!(Image::open(&picture).unwrap().shape().size()[0] % 160, 0);
}

#[test]
fn a_run_is_evaluated_on_its_own_images_and_on_a_list() {
    let (home, run) = (Model::scratch(), text(run()));
    let own: Value = serde_json::from_str(&firelight(["evaluate", &run, "--json"]).succeeds().stdout).unwrap();
    assert_eq!(own["examples"], 6);
    assert!(["loss", "token_accuracy", "exact_match", "bleu"].iter().all(|name| own[name].is_f64()), "{own}");
    let shown = firelight(["evaluate", &run]).succeeds().stdout;
    assert!(shown.contains("nats per token") && shown.contains("exact match"), "{shown}");

    images(home.path());
    let line = |name: &str| format!("{{\"image\": \"{name}\", \"caption\": \"a seven at the top left\"}}\n");
    fs::write(home.path().join("captions.jsonl"), line("a.png") + &line("b.png")).unwrap();
    let list = ["evaluate", &run, "--data", &text(home.path()), "--json"];
    let found: Value = serde_json::from_str(&firelight(list).succeeds().stdout).unwrap();
    assert_eq!(found["examples"], 2);
    fs::write(home.path().join("captions.jsonl"), line("a.png") + &line("missing.png")).unwrap();
    firelight(list).fails(USER, &["missing.png"]);
}

#[test]
fn mistakes_are_told_in_a_line() {
    let (home, run) = (Model::scratch(), text(run()));
    let [first, second] = images(home.path()).map(|path| text(&path));
    firelight(["caption", &run]).fails(USER, &["--image <FILE>"]);
    firelight(["caption", &run, "--image", &first, "--image", &second, "--attention", "x.png"])
        .fails(USER, &["give one --image"]);
    let before = contents(home.path());
    firelight(["caption", &run, "--image", &first, "--attention", &first]).fails(USER, &["replace the image"]);
    assert!(contents(home.path()) == before);
    firelight(["caption", &run, "--image", "nowhere.png"]).fails(USER, &["nowhere.png"]);
    firelight(["caption", &run, "--image", &first, "--beams", "0"]).fails(USER, &["--beams"]);
    firelight(["classify", &run, "--image", &first]).fails(USER, &["`captioning`", "firelight caption"]);
    firelight(["caption", &text(&model().dir), "--image", &first]).fails(USER, &["`language`", "firelight generate"]);
    let train = ["train", "captions", "--out", &text(&home.path().join("run")), "--data", &text(home.path())];
    firelight(train).fails(USER, &["holds no captions", "captions.jsonl"]);
    firelight(["evaluate", &run, "--split", "test", "--data", &text(home.path())]).fails(USER, &["--split"]);
}
