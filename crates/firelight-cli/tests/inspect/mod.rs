//! The parts of a model, of a run and of a recipe, one that no machine holds included.

use serde_json::Value;

use crate::USER;
use crate::support::{firelight, model, text};
use crate::vision::images;

fn tree(arguments: &[&str]) -> Value {
    let printed = firelight(["inspect", "--json"].iter().chain(arguments)).succeeds().stdout;
    serde_json::from_str(&printed).unwrap()
}

#[test]
fn a_run_and_its_recipe_have_the_same_parts() {
    let run = text(&model().dir);
    let found = tree(&[&run]);
    assert_eq!(found["parameters"], tree(&[&text(&model().dir), "--length", "5"])["parameters"]);
    assert_eq!(tree(&[&run, "--length", "5"])["context"], 5);
    for part in found["parts"].as_array().unwrap().iter().chain([&found]) {
        assert_eq!(part["parameter_bytes"].as_u64(), part["parameters"].as_u64().map(|numbers| 4 * numbers), "{part}");
    }
    let parts: Vec<_> = found["parts"].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(parts, ["embedding", "transformer", "head"]);
    let shown = firelight(["inspect", &run]).succeeds().stdout;
    for line in ["language  ", "├ embedding  ", "└ head  ", "in a context of ", "a cache of one sequence takes"] {
        assert!(shown.contains(line), "`{line}` is not in {shown}");
    }
}

#[test]
fn a_model_that_no_machine_holds_is_counted() {
    let sizes = ["model.d_model=12288", "model.n_heads=96", "model.n_layers=96"];
    let sizes = sizes.iter().flat_map(|size| ["--set", size]);
    let found = tree(&["stories"].into_iter().chain(sizes).collect::<Vec<_>>());
    assert_eq!(found["parameters"].as_u64().unwrap() / 1_000_000_000, 173, "GPT-3");
}

#[test]
fn an_encoder_has_no_cache() {
    let run = text(&images().run);
    let shown = firelight(["inspect", &run]).succeeds().stdout;
    assert!(shown.contains("in a context of ") && !shown.contains("cache"), "{shown}");
}

#[test]
fn what_is_no_model_is_refused_in_a_line() {
    firelight(["inspect", "nowhere"]).fails(USER, &["no file `nowhere`", "stories, dates"]);
    firelight(["inspect", "stories", "--length", "0"]).fails(USER, &["'--length <N>'"]);
    firelight(["inspect", "stories", "--set", "model.n_layers=70000"]).fails(USER, &["must be at most 65536"]);
}
