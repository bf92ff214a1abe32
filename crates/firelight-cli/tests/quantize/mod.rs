//! A language model goes into blocks of few bits, which write and score as any other model, and are neither trained nor converted again.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::USER;
use crate::support::{Finished, Model, firelight, generate, model, text, train};

fn quantize(run: &Path, out: &Path, more: &[&str]) -> Finished {
    let common = ["quantize", &text(run), "--out", &text(out)].map(str::to_string);
    firelight(common.into_iter().chain(more.iter().map(ToString::to_string)))
}

#[test]
fn a_model_in_blocks_writes_and_scores_and_is_not_trained() {
    let scratch = Model::scratch();
    let out = scratch.path().join("blocks");
    let given = ["--to", "q8_0", "--text", &text(&model().text), "--json"];
    let found: Value = serde_json::from_str(&quantize(&model().dir, &out, &given).succeeds().stdout).unwrap();
    // Rows of 16 numbers are of no whole blocks; those of the second matrix of the feed-forward network are of 32.
    assert_eq!((found["tensors"].as_u64(), found["formats"]["q8_0"].as_u64()), (Some(1), Some(1)), "{found}");
    let kept = found["kept"].as_array().unwrap();
    assert_eq!((kept.len(), kept[0]["path"].as_str()), (6, Some("embedding.weight")), "{found}");
    assert!(kept[0]["reason"].as_str().unwrap().contains("rows of 16 numbers"), "{found}");
    let number = |key: &str| found[key].as_f64().unwrap();
    assert_eq!(number("bytes_before") - number("bytes_after"), 16.0 * (128.0 - 34.0));
    let ratio = number("perplexity_after") / number("perplexity_before");
    assert!(ratio != 1.0 && (ratio - 1.0).abs() < 0.01, "{found}");
    let formats = fs::read_to_string(out.join("quantization.json")).unwrap();
    assert_eq!(formats.trim(), r#"{"transformer.blocks.0.feed_forward.down.weight":"q8_0"}"#);

    let written = firelight(generate(&out, &["--greedy"])).succeeds().stdout;
    assert_eq!(firelight(generate(&out, &["--greedy", "--no-cache"])).succeeds().stdout, written);
    let scored = firelight(["score", &text(&out), "--text", "The fox met a hen."]).succeeds().stdout;
    assert!(scored.starts_with("tokens 17, "), "{scored}");

    let resumed = ["train", "--resume", "--out", &text(&out), "--steps", "30"];
    firelight(resumed).fails(USER, &["in blocks of few bits", "train the model that was quantised"]);
    let from = train(model(), &scratch.path().join("from")).into_iter().chain(["--from".into(), text(&out)]);
    firelight(from).fails(USER, &["in blocks of few bits where floats are expected"]);
    quantize(&out, &scratch.path().join("again"), &["--to", "q4_0"]).fails(USER, &["in blocks already"]);
}

#[test]
fn the_summary_lists_what_stays_floats() {
    let scratch = Model::scratch();
    let shown = quantize(&model().dir, &scratch.path().join("blocks"), &["--to", "q4_0"]).succeeds().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.len() == 7 && lines[0].starts_with("matrices 1 (1 in q4_0), bytes "), "{shown}");
    assert!(lines[1..].iter().all(|line| line.starts_with("floats: ")), "{shown}");
}

#[test]
fn a_text_to_calibrate_on_is_read_first() {
    let scratch = Model::scratch();
    let (out, read) = (scratch.path().join("blocks"), text(&model().text));
    let given = ["--to", "q4_0", "--text", &read, "--calibrate", &read, "--json"];
    let found: Value = serde_json::from_str(&quantize(&model().dir, &out, &given).succeeds().stdout).unwrap();
    assert_eq!((found["tensors"].as_u64(), found["calibrated"].as_u64()), (Some(1), Some(1)), "{found}");
    assert!(found["perplexity_after"].is_number(), "{found}");
    let plain = scratch.path().join("plain");
    let shown = quantize(&model().dir, &plain, &["--to", "q4_0"]).succeeds().stdout;
    assert!(!shown.contains("calibrated"), "{shown}");
    let weights = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
    assert_ne!(weights(&out), weights(&plain));
    let few = ["--to", "q4_0", "--calibrate", &read, "--calibrate-tokens", "20"];
    let shown = quantize(&model().dir, &scratch.path().join("few"), &few).succeeds().stdout;
    assert!(shown.ends_with("calibrated 1 of 1 matrices\n"), "{shown}");
}

#[test]
fn a_text_that_is_too_short_to_calibrate_on_leaves_no_folder() {
    let scratch = Model::scratch();
    let (out, short) = (scratch.path().join("blocks"), scratch.path().join("short.txt"));
    fs::write(&short, "A").unwrap();
    let given = ["--to", "q4_0", "--calibrate", &text(&short)];
    quantize(&model().dir, &out, &given).fails(USER, &["the text to calibrate on has 1 token: expected at least "]);
    assert!(!out.exists());
    let without = quantize(&model().dir, &out, &["--to", "q4_0", "--calibrate-tokens", "9"]);
    assert!(without.code == USER && without.stderr.contains("--calibrate"), "{}", without.stderr);
}

#[test]
fn what_cannot_be_quantised_is_refused() {
    let scratch = Model::scratch();
    let out = scratch.path().join("blocks");
    quantize(&model().dir, &out, &["--to", "q5_9"]).fails(USER, &["q5_9", "expected one of q8_0, q4_0, q4_k, q6_k"]);
    let texts = ["no matrix of the model goes into blocks of q4_k", "`embedding.weight`: its rows of 16 numbers"];
    quantize(&model().dir, &out, &["--to", "q4_k"]).fails(USER, &texts);
    assert!(!out.exists());
    quantize(&model().dir, scratch.path(), &["--to", "q8_0"]).succeeds();
    quantize(&model().dir, scratch.path(), &["--to", "q8_0"]).fails(USER, &["is not an empty folder", "--out"]);
}
