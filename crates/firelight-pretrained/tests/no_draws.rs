//! A model whose weights come from a file draws no random numbers, and so leaves the generator of its device as it is. A test binary of
//! its own, so that no other test draws from that generator.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Distribution, Tensor};
use firelight_core::LinearConfig;
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_language::TextGenerator;
use firelight_pretrained::{AutoModel, PublishedModel};
use firelight_storage::Checkpoint;

/// One folder for each sort of model.
const FOLDERS: [&str; 11] = [
    "gpt2-plain",
    "deepseek_v3-latents",
    "bart-plain",
    "bert-base",
    "bert-masked",
    "bert-texts",
    "bert-tokens",
    "bert-answers",
    "deit-classes",
    "dinov2-base",
    "clip-end",
];

/// Whether the generator gives the same number after `work` as it gives without.
fn draws_nothing(device: &Device, work: impl FnOnce()) -> bool {
    let next = || Tensor::<1>::random([1], Distribution::Default, device).try_into_vec_as::<f32>().unwrap();
    device.seed(5);
    let expected = next();
    device.seed(5);
    work();
    next() == expected
}

/// A copy of a folder with a tokenizer, which an import asks for.
fn with_tokenizer(name: &str, home: &Path) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained").join(name);
    let to = home.join("published");
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap().save(to.join("tokenizer.json")).unwrap();
    to
}

#[test]
fn loading_draws_nothing_from_published_folders_and_from_run_folders() {
    let device = Device::default();
    let layer = || drop(LinearConfig::new(4, 4).init(&device).weight.val());
    assert!(!draws_nothing(&device, layer), "weights that are drawn are noticed");
    for name in FOLDERS {
        let home = tempfile::tempdir().unwrap();
        let (published, run) = (with_tokenizer(name, home.path()), home.path().join("run"));
        let open = |folder: &Path| drop(AutoModel::open(folder, &Checkpoint::Last, &device).unwrap());
        assert!(draws_nothing(&device, || open(published.as_path())), "{name}: loading it");
        let import = || drop(PublishedModel::open(&published).unwrap().import(&run).unwrap());
        assert!(draws_nothing(&device, import), "{name}: importing it");
        assert!(draws_nothing(&device, || open(run.as_path())), "{name}: loading its run folder");
        if name == "gpt2-plain" {
            let load = || drop(TextGenerator::load_from(&run, &Checkpoint::Last, &device).unwrap());
            assert!(draws_nothing(&device, load), "{name}: loading its text generator");
        }
    }
}
