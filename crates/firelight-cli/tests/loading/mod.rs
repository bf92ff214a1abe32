//! The folder that a model is loaded from: the file that is missing, damaged or not ours is named.

use std::fs;
use std::path::Path;

use crate::USER;
use crate::support::{Model, command, evaluate, finish, firelight, generate, model};

#[test]
fn a_folder_that_is_no_model_says_what_was_expected() {
    let empty = Model::scratch();
    firelight(generate(empty.path(), &[])).fails(USER, &["config.json"]);
    firelight(generate(Path::new("nowhere"), &[])).fails(USER, &["nowhere"]);
    firelight(evaluate(empty.path(), &model().text)).fails(USER, &["config.json"]);
}

#[test]
fn a_damaged_model_file_is_named() {
    let copy = model().copy();
    let weights = copy.path().join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["model.safetensors"]);
    fs::write(&weights, "GIF89a, and nothing that a model could use").unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["model.safetensors"]);
}

#[test]
fn a_foreign_configuration_is_named() {
    let copy = model().copy();
    let config = copy.path().join("config.json");
    let newer = fs::read_to_string(&config).unwrap().replace("\"version\": 2", "\"version\": 99");
    fs::write(&config, newer).unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["99", "version 2"]);
    fs::write(&config, "{\"layers\": 2}").unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["config.json", "firelight"]);
    fs::write(&config, "{\"model_type\": \"gpt2\"}").unwrap();
    let mut published = command(generate(copy.path(), &[]));
    published.env("FIRELIGHT_CACHE", copy.path().join("cache"));
    finish(published).fails(USER, &["do not fit its config.json", "missing: transformer.wte.weight"]);
}

#[test]
fn a_context_beyond_the_position_table_does_not_load() {
    let copy = model().copy();
    let config = copy.path().join("config.json");
    let wider = fs::read_to_string(&config).unwrap().replace("\"max_seq_len\": 8", "\"max_seq_len\": 16");
    fs::write(&config, wider).unwrap();
    firelight(generate(copy.path(), &[])).fails(USER, &["model.safetensors", "[16, 16]", "[8, 16]"]);
}
