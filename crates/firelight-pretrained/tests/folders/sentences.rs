//! Tiny sentence models as sentence-transformers saves them, and the vectors that it makes of texts: `tests/fixtures/sentence_folders.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_classification::Embedder;
use firelight_kernels::Difference;
use firelight_pretrained::{PublishedModel, export};
use firelight_storage::Checkpoint;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    texts: Vec<String>,
    /// Vectors by folder and prompt.
    folders: BTreeMap<String, BTreeMap<String, Vec<Vec<f32>>>>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/sentence_folders")
}

fn expected() -> Expected {
    serde_json::from_slice(&fs::read(fixtures().join("expected.json")).unwrap()).unwrap()
}

/// The run folder of a published one.
fn imported(folder: &Path, run: PathBuf) -> PathBuf {
    let opened = PublishedModel::open(folder).unwrap_or_else(|error| panic!("{:#?}", error.problems()));
    opened.import(&run).unwrap();
    run
}

fn embedder(run: &Path, prompt: &str) -> Embedder {
    let embedder = Embedder::load_from(run, &Checkpoint::Last, &Device::default()).unwrap();
    match prompt {
        "default" => embedder,
        "none" => embedder.with_prompt(""),
        name => embedder.with_prompt_name(name).unwrap(),
    }
}

fn assert_agrees(run: &Path, name: &str) {
    let Expected { texts, folders } = expected();
    assert_eq!(folders[name].len(), 3);
    for (prompt, vectors) in &folders[name] {
        let found = embedder(run, prompt).embed(&texts).unwrap();
        assert_eq!(found.len(), vectors.len());
        for ((text, found), vector) in texts.iter().zip(&found).zip(vectors) {
            let largest = Difference::between(found, vector).absolute;
            assert!(largest < 1e-5, "{name}, prompt {prompt}: {text:?} differs by {largest}");
        }
    }
}

#[test]
fn vectors_of_texts_are_those_of_sentence_transformers_also_behind_an_export() {
    for name in ["dense", "plain"] {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let run = imported(&fixtures().join(name), path("run"));
        assert_agrees(&run, name);
        export(&run, &Checkpoint::Last, path("exported")).unwrap();
        assert_agrees(&imported(&path("exported"), path("again")), name);
    }
}
