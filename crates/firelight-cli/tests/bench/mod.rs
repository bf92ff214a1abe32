//! Benchmarks are measured at small sizes for what they print; nothing is said of a time.

use serde_json::Value;

use crate::USER;
use crate::support::firelight;

/// What one run of `firelight bench` with these words prints.
fn measured(words: &str) -> Value {
    let found = firelight(format!("bench {words} --runs 1 --json").split(' ')).succeeds().stdout;
    serde_json::from_str(&found).unwrap()
}

#[test]
fn a_training_is_measured_by_the_tokens_of_its_batch() {
    // Both sides of 128 pairs of 16; 32 texts of 64 with a class token; 128 images of 49 patches with a class token.
    for (config, expected) in [("seq2seq", 4096.0), ("bert", 2080.0), ("vit", 6400.0)] {
        let line = measured(&format!("train --config {config}"));
        let tokens = line["tokens_per_second"].as_f64().unwrap() * line["seconds"].as_f64().unwrap();
        assert!(line["name"] == format!("train-{config}") && (tokens - expected).abs() < 1e-6, "{line}");
        firelight(["bench", "decode", "--config", config]).fails(USER, &["`bench train`"]);
    }
}

/// Only Linux tells the peak of a process.
#[test]
#[cfg(target_os = "linux")]
fn blocks_that_are_computed_twice_take_less_memory() {
    for config in ["char6", "seq2seq"] {
        let peak = |recompute: &str| {
            let line = measured(&format!("train --config {config} --recompute {recompute} --device flex"));
            line["peak_above_start_mib"].as_f64().unwrap()
        };
        let [kept, recomputed] = ["none", "blocks"].map(peak);
        assert!(recomputed < 0.9 * kept, "{config}: {recomputed} MiB instead of {kept} MiB");
    }
}

/// Steps that ran on now this and now that thread would leave their memory with all of them: 2.5 to 3 times that of one thread.
/// What eight threads need at the same time is 1.3 to 1.7 times.
#[test]
#[cfg(target_os = "linux")]
fn eight_threads_take_little_more_memory_than_one() {
    let peak = |threads: &str| {
        let bench = ["bench", "train", "--runs", "20", "--device", "flex", "--json", "--threads", threads];
        let line: Value = serde_json::from_str(&firelight(bench).succeeds().stdout).unwrap();
        line["peak_above_start_mib"].as_f64().unwrap()
    };
    let [one, eight] = ["1", "8"].map(peak);
    assert!(eight < 2.1 * one, "{eight} MiB instead of {one} MiB");
}

#[test]
fn an_option_of_another_benchmark_is_refused() {
    for (words, expected) in [
        ("train --kv-heads 4", "--kv-heads is for attention"),
        ("gated-delta --pattern window:4", "--pattern is for attention"),
        ("prefill --length 64", "--length is for attention, gated-delta"),
        ("decode --recompute blocks", "--recompute is for train"),
        ("attention --config baby", "--config is for train, prefill and decode"),
        ("train --keep a.gguf", "--keep is for prefill and decode"),
        ("train --dtype q8_0", "blocks of q8_0 have no gradient and are for prefill and decode"),
        ("attention --dtype q4_k", "blocks of q4_k have no gradient"),
    ] {
        firelight(format!("bench {words} --runs 1").split(' ')).fails(USER, &[expected]);
    }
}

#[test]
fn a_benchmark_prints_one_line_for_each_length() {
    let bench =
        ["bench", "attention", "--runs", "1", "--threads", "1", "--pattern", "window:4", "--kv-heads", "2", "--json"];
    let finished = firelight(bench.into_iter().chain(["--lengths", "8,16"])).succeeds();
    let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!([&lines[0]["name"], &lines[1]["name"]], ["attention-8", "attention-16"]);
    assert!(lines.iter().all(|line| line["seconds"].as_f64().unwrap() > 0.0 && line["threads"] == 1));
    assert!(lines.iter().all(|line| line["pattern"] == "window:4" && line["kv_heads"] == 2));
    let table = ["bench", "attention", "--runs", "1", "--threads", "1", "--lengths", "8,16"];
    let table = firelight(table).succeeds().stdout;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!([lines[0][0], lines[1][0], lines[2][0]], ["BENCHMARK", "attention-8", "attention-16"], "{table}");
    assert!(lines.len() == 3 && lines[0].contains(&"MS/STEP") && lines[0].contains(&"TOKENS/S"), "{table}");
    firelight(["bench", "attention", "--kv-heads", "3"]).fails(USER, &["'3'", "divisor of 8"]);
    firelight(["bench", "attention", "--pattern", "wide"]).fails(USER, &["'wide'", "window:256"]);
}

#[test]
fn a_file_that_is_not_to_be_kept_is_refused_before_it_is_measured() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_string();
    std::fs::write(path("there.gguf"), "").unwrap();
    for (file, more, expected) in [
        ("there.gguf", "", "there.gguf` is there already"),
        ("model.bin", "", "model.bin` is not called as a GGUF file"),
        ("model.gguf", "--threads=1,2", "--keep writes one file"),
        ("model.gguf", "--runs=1", "needs 257 tokens"),
    ] {
        let bench = ["bench", "prefill", "--config", "baby", "--keep", &path(file)].map(str::to_string);
        let more = Some(more.to_string()).filter(|more| !more.is_empty());
        firelight(bench.into_iter().chain(more)).fails(USER, &[expected]);
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left");
}

#[test]
fn a_benchmark_prints_one_line_for_each_number_of_threads() {
    let bench = "bench prefill --config baby --dtype q8_0 --device cpu --runs 1 --threads 1,2";
    let finished = firelight(bench.split(' ').chain(["--json"])).succeeds();
    let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", finished.stdout);
    for (line, threads) in lines.iter().zip([1, 2]) {
        assert!(line["threads"] == threads && line["dtype"] == "q8_0" && line["name"] == "prefill-baby", "{line}");
    }
    let table = firelight(bench.split(' ')).succeeds().stdout;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines.iter().map(|line| line[..2].to_vec()).collect::<Vec<_>>(),
        [["BENCHMARK", "THREADS"], ["prefill-baby", "1"], ["prefill-baby", "2"],]
    );
}

#[test]
fn every_work_is_measured_in_half_precision() {
    for work in ["train", "prefill --config baby", "decode --config char6", "attention --length 16"] {
        for dtype in ["bf16", "f16"] {
            let line = measured(&format!("{work} --device cpu --dtype {dtype}"));
            assert!(line["dtype"] == dtype && line["device"] == "flex" && line["compile"] == false, "{line}");
            assert!(line["kernels"] == "fused kernels" && line["seconds"].as_f64().unwrap() > 0.0, "{line}");
        }
    }
    firelight(["bench", "decode", "--config", "baby"]).fails(USER, &["192 tokens", "64"]);
    firelight(["bench", "train", "--dtype", "f8"]).fails(USER, &["'f8'", "bf16"]);
}

/// Lengths of a few tokens: nothing is said of their exponents.
#[test]
fn kinds_of_layers_are_compared_over_the_length() {
    let home = tempfile::tempdir().unwrap();
    let picture = home.path().join("growth.svg");
    let bench = "bench attention --lengths 4,8 --runs 1 --threads 1 --device flex";
    let with_out = format!("{bench} --kinds softmax,reference --json --out {}", picture.display());
    let finished = firelight(with_out.split(' ')).succeeds();
    let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", finished.stdout);
    for (line, (kind, kernels)) in lines.iter().zip([("softmax", "fused kernels"), ("reference", "reference kernels")])
    {
        assert!(line["kind"] == kind && line["kernels"] == kernels && line["threads"] == 1, "{line}");
        assert!(line["time"]["exponent"].is_number() && line["time"]["interval"].is_null(), "{line}");
        assert!(line["seconds"].as_array().unwrap().iter().all(|seconds| seconds.as_f64().unwrap() > 0.0), "{line}");
    }
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("softmax T^") && svg.contains("log10 of seconds"), "{svg}");
    firelight(with_out.split(' ')).fails(USER, &["growth.svg` exists", "--force"]);

    let table = firelight(format!("{bench} --kinds lstm").split(' ')).succeeds().stdout;
    let first: Vec<&str> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(first, ["KIND", "lstm", "lstm", "", "KIND", "lstm"], "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn kinds_and_lengths_that_cannot_be_compared_are_refused() {
    for (words, expected) in [
        ("attention --lengths 4,8 --kinds softmax,gru", ["'gru'", "feed-forward or lstm"]),
        ("attention --kinds softmax", ["2 lengths or more, not 1", "--lengths 256,512,1024"]),
        ("attention --lengths 8,4 --kinds softmax", ["--lengths has 8 before 4", "from the shortest on"]),
        ("attention --lengths 4,4 --kinds softmax", ["--lengths has 4 before 4", "each length once"]),
        ("attention --lengths 0,4 --kinds softmax", ["'0'", "1..=16777216"]),
        ("train --kinds softmax", ["--kinds is for attention", "leave it out"]),
        ("attention --lengths 4,8 --kinds lstm --pattern window:4", ["--pattern is for attention without --kinds", ""]),
        ("attention --lengths 4,8 --kinds lstm --dtype bf16", ["--dtype is for", "f32"]),
        ("attention --lengths 4,8 --kinds lstm --out a.png", ["a.png", ".svg"]),
        ("attention --lengths 4,8 --out a.svg", ["--kinds", ""]),
    ] {
        firelight(format!("bench {words} --runs 1").split(' ')).fails(USER, &expected);
    }
}
