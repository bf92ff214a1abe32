//! Models go out as Hugging Face has them and come back, and stand wherever a command takes a model.

use std::fs;
use std::path::Path;

use firelight::pretrained::{Array, Arrays, Numbers};

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
    firelight(["forward", &run].into_iter().chain(forward)).succeeds();
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
fn an_import_shows_every_tensor() {
    let home = Model::scratch();
    let out = text(&home.path().join("exported"));
    firelight(["export", &text(&model().dir), "--to", &out]).succeeds();
    let report = firelight(["import", &out, "--report"]).succeeds().stdout;
    let line = "transformer.h.0.mlp.c_fc.bias [";
    assert!(report.contains(line) && report.contains("-> transformer.blocks.0.feed_forward.up.bias ["), "{report}");
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
