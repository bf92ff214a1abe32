//! DoRA, the scaling of rsLoRA and layer-wise learning rates in every task: what `[model.adapters]` and `[optimizer]` say is no task's own.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Model, firelight, text};
use crate::{answering, classification, tagging, vision};

/// A model of a few thousand weights, which learns much in a step.
const SMALL: [&str; 9] = [
    "model.d_model=16",
    "model.n_heads=2",
    "model.n_layers=2",
    "model.d_ff=16",
    "model.dropout=0.0",
    "training.batch_size=4",
    "optimizer.learning_rate=0.05",
    "schedule.min_learning_rate=0.0",
    "schedule.warmup_steps=0",
];

/// How DoRA is asked for; the scaling follows.
const DECOMPOSED: &str = "model.adapters={ rank = 4, decomposed = true, scaling = ";

/// Small trainings by a recipe, in a folder of their own.
struct Trainings<'a> {
    home: TempDir,
    recipe: &'a [&'a str],
}

impl Trainings<'_> {
    fn path(&self, name: &str) -> String {
        text(&self.home.path().join(name))
    }

    fn file(&self, name: &str, file: &str) -> Vec<u8> {
        fs::read(Path::new(&self.path(name)).join(file)).unwrap()
    }

    fn train(&self, name: &str, more: &[&str]) {
        let out = self.path(name);
        let small = SMALL.iter().flat_map(|setting| ["--set", setting]);
        let all = ["train"].into_iter().chain(self.recipe.iter().copied()).chain(["--out", &out, "--steps", "3"]);
        firelight(all.chain(small).chain(more.iter().copied())).succeeds();
    }

    fn adapt(&self, name: &str, scaling: &str) {
        self.train(name, &["--from", &self.path("base"), "--set", &format!("{DECOMPOSED}\"{scaling}\" }}")]);
    }

    /// The loss of the last weights on what the run validates on.
    fn loss(&self, name: &str) -> f64 {
        let found = firelight(["evaluate", &self.path(name), "--json"]).succeeds();
        serde_json::from_str::<Value>(&found.stdout).unwrap()["loss"].as_f64().unwrap()
    }
}

/// Trains with a rate for each layer, and from there with adapters, which are merged.
fn is_adapted(recipe: &[&str]) {
    let runs = Trainings { home: Model::scratch(), recipe };
    runs.train("base", &[]);
    runs.train("by-layer", &["--set", "optimizer.layer_decay=0.5"]);
    let [base, by_layer] = ["base", "by-layer"].map(|name| runs.file(name, "model.safetensors"));
    assert!(base != by_layer, "layer_decay changes nothing");

    runs.adapt("standard", "standard");
    runs.adapt("stabilized", "rank_stabilized");
    let adapters = ["standard", "stabilized"].map(|name| runs.file(name, "adapters.safetensors"));
    assert!(adapters[0] != adapters[1], "the scaling changes nothing");
    assert!(String::from_utf8_lossy(&adapters[1]).contains("adapter.magnitude"), "no lengths of columns are learnt");

    firelight(["merge", &runs.path("stabilized"), "--out", &runs.path("merged")]).succeeds();
    let [adapted, merged] = ["stabilized", "merged"].map(|name| runs.loss(name));
    assert!((adapted - merged).abs() < 1e-4 * adapted.max(1.0), "{adapted} became {merged}");
}

#[test]
fn a_language_model() {
    is_adapted(&["stories", "--set", "data.stories=3000"]);
}

#[test]
fn an_encoder_decoder() {
    is_adapted(&["dates", "--set", "data.toy_pairs=120", "--set", "data.translated=4"]);
}

#[test]
fn a_classifier() {
    let data = Model::scratch();
    classification::write_splits(data.path());
    is_adapted(&["texts", "--data", &text(data.path())]);
}

#[test]
fn a_classifier_of_tokens() {
    let data = Model::scratch();
    tagging::write_splits(data.path());
    is_adapted(&["entities", "--data", &text(data.path())]);
}

#[test]
fn a_reader() {
    let data = Model::scratch();
    answering::write_splits(data.path());
    is_adapted(&["answers", "--data", &text(data.path())]);
}

#[test]
fn a_masked_language_model() {
    is_adapted(&["masked", "--set", "data.stories=3000"]);
}

#[test]
fn a_classifier_of_images() {
    let data = Model::scratch();
    vision::write_images(data.path());
    is_adapted(&["images", "--data", &text(data.path())]);
}

#[test]
fn a_describer_of_images() {
    let few = ["data.drawn_digits=60", "data.scenes=40", "data.split.validation=6", "data.described=2"];
    let few = few.iter().flat_map(|setting| ["--set", setting]);
    is_adapted(&["captions"].into_iter().chain(few).collect::<Vec<_>>());
}
