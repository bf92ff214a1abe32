//! Benchmarks are measured at small sizes for what they print; nothing is said of a time.

use serde_json::Value;

use crate::USER;
use crate::support::firelight;

#[test]
fn an_encoder_decoder_is_measured_by_the_tokens_of_both_sides() {
    let found = firelight(["bench", "train", "--config", "seq2seq", "--runs", "1", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&found).unwrap();
    let tokens = line["tokens_per_second"].as_f64().unwrap() * line["seconds"].as_f64().unwrap();
    assert!(line["name"] == "train-seq2seq" && (tokens - 4096.0).abs() < 1e-6, "{line}");
}

#[test]
fn a_text_encoder_is_measured_by_all_its_tokens() {
    let found = firelight(["bench", "train", "--config", "bert", "--runs", "1", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&found).unwrap();
    let tokens = line["tokens_per_second"].as_f64().unwrap() * line["seconds"].as_f64().unwrap();
    assert!(line["name"] == "train-bert" && (tokens - 2080.0).abs() < 1e-6, "{line}");
}

#[test]
fn a_vision_transformer_is_measured_by_its_patches_and_its_class_token() {
    let found = firelight(["bench", "train", "--config", "vit", "--runs", "1", "--json"]).succeeds().stdout;
    let line: Value = serde_json::from_str(&found).unwrap();
    let tokens = line["tokens_per_second"].as_f64().unwrap() * line["seconds"].as_f64().unwrap();
    assert!(line["name"] == "train-vit" && (tokens - 6400.0).abs() < 1e-6, "{line}");
    firelight(["bench", "decode", "--config", "vit"]).fails(USER, &["`bench train`"]);
}

/// Only Linux tells the peak of a process.
#[test]
#[cfg(target_os = "linux")]
fn blocks_that_are_computed_twice_take_less_memory() {
    for config in ["char6", "seq2seq"] {
        let peak = |recompute: &str| {
            let bench = ["bench", "train", "--config", config, "--runs", "1", "--recompute", recompute];
            let found = firelight(bench.into_iter().chain(["--device", "flex", "--json"])).succeeds().stdout;
            serde_json::from_str::<Value>(&found).unwrap()["peak_above_start_mib"].as_f64().unwrap()
        };
        let [kept, recomputed] = ["none", "blocks"].map(peak);
        assert!(recomputed < 0.9 * kept, "{config}: {recomputed} MiB instead of {kept} MiB");
    }
}

#[test]
fn a_benchmark_prints_one_line_for_each_length() {
    let bench = ["bench", "attention", "--runs", "1", "--threads", "1", "--pattern", "window:4", "--json"];
    let finished = firelight(bench.into_iter().chain(["--lengths", "8,16"])).succeeds();
    let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!([&lines[0]["name"], &lines[1]["name"]], ["attention-8", "attention-16"]);
    assert!(lines.iter().all(|line| line["seconds"].as_f64().unwrap() > 0.0 && line["threads"] == 1));
    firelight(["bench", "attention", "--pattern", "wide"]).fails(USER, &["'wide'", "window:256"]);
    firelight(["bench", "decode", "--config", "seq2seq"]).fails(USER, &["`bench train`"]);
}
