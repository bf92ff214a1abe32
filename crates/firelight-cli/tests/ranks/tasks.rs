//! Every task on two ranks and on four: the run folder is that of one process, to the byte.

use crate::support::{Model, finish, firelight, text};
use crate::{answering, classification, tagging, vision};

use super::job::{STORIES, assert_same, on_ranks, remains, train};

const STEPS: [&str; 2] = ["--steps", "4"];

fn is_the_same(recipe: &[&str]) {
    let home = Model::scratch();
    let folder = |name: &str| home.path().join(name);
    firelight(train(recipe, &folder("one"), &STEPS)).succeeds();
    let expected = remains(&folder("one"));
    for name in ["model.safetensors", "metrics.jsonl", "checkpoints/best/model.safetensors"] {
        assert!(expected.contains_key(name), "{name} is not among {:?}", expected.keys());
    }
    for world in [2, 4] {
        let out = folder(&world.to_string());
        let said = finish(on_ranks(world, &train(recipe, &out, &STEPS))).succeeds().stderr;
        assert!(said.contains(&format!(" on {world} ranks, ")), "{said}");
        assert_same(&out, &expected, &format!("{world} ranks"));
    }
}

#[test]
fn a_language_model() {
    is_the_same(&STORIES);
}

#[test]
fn a_language_model_whose_ranks_share_the_optimiser() {
    is_the_same(&[&STORIES[..], &["--set", "training.shard_optimizer=true"]].concat());
}

#[test]
fn an_encoder_decoder() {
    is_the_same(&["dates", "--set", "data.toy_pairs=120", "--set", "data.translated=4"]);
}

#[test]
fn a_classifier() {
    let data = Model::scratch();
    classification::write_splits(data.path());
    is_the_same(&["texts", "--data", &text(data.path())]);
}

#[test]
fn a_classifier_of_tokens() {
    let data = Model::scratch();
    tagging::write_splits(data.path());
    is_the_same(&["entities", "--data", &text(data.path())]);
}

#[test]
fn a_reader() {
    let data = Model::scratch();
    answering::write_splits(data.path());
    is_the_same(&["answers", "--data", &text(data.path())]);
}

#[test]
fn a_masked_language_model() {
    is_the_same(&["masked", "--set", "data.stories=3000"]);
}

#[test]
fn a_classifier_of_images() {
    let data = Model::scratch();
    vision::write_images(data.path());
    is_the_same(&["images", "--data", &text(data.path())]);
}

#[test]
fn a_describer_of_images() {
    let few = ["data.drawn_digits=60", "data.scenes=40", "data.split.validation=6", "data.described=2"];
    let few = few.iter().flat_map(|setting| ["--set", setting]);
    is_the_same(&["captions"].into_iter().chain(few).collect::<Vec<_>>());
}
