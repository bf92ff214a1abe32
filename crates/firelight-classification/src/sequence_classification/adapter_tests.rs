//! Whole trainings of adapters: what they change, how they go on, and what becomes of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_core::{BlockFormat, dequantize, weights_of};
use firelight_kernels::assert_close;
use firelight_storage::{Checkpoint, Existing, ModelFolder, average_weights};
use firelight_training::{RunRequest, TrainingError, evaluate_run, merge};
use safetensors::SafeTensors;
use tempfile::TempDir;

use super::records::tests::folder;
use super::{Classification, Run};
use crate::tiny::tiny;
use crate::{Classifier, Embedder, MaskedLanguage, Prediction, TextClassifierConfig};

const ADAPTERS: &str = "{ rank = 2, alpha = 16, targets = [\"query\", \"feed_forward.up\"] }";

const TEXTS: [&str; 3] = ["a fine film", "a dull and empty film", "a warm one"];

/// Texts and runs on them.
struct Home {
    data: TempDir,
}

impl Home {
    /// Texts, and a masked language model of them in `base`.
    fn new() -> Self {
        let home = Self { data: folder(12) };
        firelight_training::Run::<MaskedLanguage>::prepare(&home.request("base", &[])).unwrap().fit().unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.data.path().join(name)
    }

    fn request(&self, out: &str, changes: &[(&str, &str)]) -> RunRequest {
        let request = RunRequest::new(&Device::default()).with_data(self.data.path()).with_out(self.path(out));
        tiny(request, changes)
    }

    /// A training of adapters on another run.
    fn adapted(&self, from: &str, out: &str, changes: &[(&str, &str)]) -> RunRequest {
        let from = format!("{:?}", self.path(from).display().to_string());
        let rate = ("optimizer.learning_rate", "0.05");
        self.request(out, &[&[("init.from", from.as_str()), ("model.adapters", ADAPTERS), rate], changes].concat())
    }

    fn trained(&self, request: &RunRequest) -> PathBuf {
        Run::prepare(request).unwrap().fit().unwrap();
        request.out.clone().unwrap()
    }

    /// The loss of a run on the texts that it validates on.
    fn loss(&self, run: &Path, device: &Device) -> f64 {
        let asked = Some((self.data.path(), None));
        evaluate_run::<Classification>(run, &Checkpoint::Last, asked, &(), device).unwrap().loss
    }

    /// The error of a training that cannot begin; it leaves no folder.
    fn error(&self, request: &RunRequest) -> String {
        let error = Run::prepare(request).unwrap_err();
        assert!(error.is_user_error() && !request.out.as_ref().unwrap().exists(), "{error}");
        error.to_string()
    }
}

/// The bytes of every parameter of a file.
fn parameters(file: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.iter().map(|(key, view)| (key.to_string(), view.data().to_vec())).collect()
}

fn weights(run: &Path) -> BTreeMap<String, Vec<u8>> {
    parameters(&run.join("model.safetensors"))
}

fn is_adapter(key: &str) -> bool {
    key.contains(".adapter.")
}

fn probabilities(run: &Path, checkpoint: &Checkpoint) -> Vec<f64> {
    let found = Classifier::load_from(run, checkpoint, &Device::default()).unwrap().classify(&TEXTS).unwrap();
    found.iter().flat_map(Prediction::probabilities).map(|(_, probability)| *probability).collect()
}

#[test]
fn adapters_and_head_are_trained_and_the_encoder_keeps_its_bytes() {
    let home = Home::new();
    let run = home.trained(&home.adapted("base", "run", &[]));
    let (base, found) = (weights(&home.path("base")), weights(&run));
    let of_encoder = |key: &&String| key.starts_with("encoder.") && !is_adapter(key);
    assert!(found.keys().filter(of_encoder).eq(base.keys().filter(of_encoder)));
    assert!(found.keys().any(|key| of_encoder(&key)) && found.keys().any(|key| !of_encoder(&key)));
    assert!(found.iter().filter(|(key, _)| of_encoder(key)).all(|(key, bytes)| *bytes == base[key]));

    let begun = Run::prepare(&home.adapted("base", "begun", &[("training.steps", "1")])).unwrap();
    let cost = begun.cost();
    begun.fit().unwrap();
    let early = weights(&home.path("begun"));
    assert!(found.iter().filter(|(key, _)| !of_encoder(key)).all(|(key, bytes)| *bytes != early[key]));
    let numbers = |keep: &dyn Fn(&str) -> bool| {
        found.iter().filter(|(key, _)| keep(key)).map(|(_, bytes)| bytes.len() / 4).sum::<usize>()
    };
    let trained = numbers(&|key| is_adapter(key) || key.starts_with("head."));
    assert_eq!((cost.parameters, cost.trained), (numbers(&|_| true), trained));
    assert!(cost.to_string().contains(&format!(" parameters, {trained} of them trained, ")), "{cost}");

    let alone = parameters(&run.join("adapters.safetensors"));
    assert!(alone.iter().eq(found.iter().filter(|(key, _)| is_adapter(key))) && alone.len() == 4, "{:?}", alone.keys());
    assert!(!home.path("base").join("adapters.safetensors").exists());
}

#[test]
fn merged_weights_say_what_the_adapters_said() {
    let home = Home::new();
    let run = home.trained(&home.adapted("base", "run", &[]));
    for checkpoint in [Checkpoint::Last, Checkpoint::Step(2)] {
        let out = home.path(&format!("merged-{checkpoint}"));
        merge::<Classification>(&run, &checkpoint, &out, &Device::default()).unwrap();
        assert!(weights(&out).keys().all(|key| !is_adapter(key)));
        assert_close(&probabilities(&out, &Checkpoint::Last), &probabilities(&run, &checkpoint), 1e-5);
    }
    let merged = home.path("merged-last");
    let config: TextClassifierConfig = ModelFolder::open(&merged).unwrap().read_config(crate::TASK).unwrap();
    assert_eq!(config.encoder.adapters, None);
    let [expected, found] = [&run, &merged].map(|run| home.loss(run, &Device::default()));
    assert!((found - expected).abs() < 1e-5);
    let vectors = |run: &Path| Embedder::load(run).unwrap().embed(&TEXTS).unwrap().concat();
    assert_close(&vectors(&merged), &vectors(&run), 1e-5);

    let again =
        merge::<Classification>(&merged, &Checkpoint::Last, home.path("again"), &Device::default()).unwrap_err();
    assert!(again.is_user_error() && again.to_string().contains("a model without adapters"), "{again}");
    assert!(merge::<Classification>(&run, &Checkpoint::Last, &merged, &Device::default()).unwrap_err().is_user_error());
    let resumed = RunRequest::new(&Device::default()).with_out(&merged).with_existing(Existing::Resume);
    let error = Run::prepare(&resumed).unwrap_err();
    assert!(error.cause().is::<TrainingError>() && error.to_string().contains("`model`"), "{error}");
}

#[test]
fn a_stopped_run_ends_with_the_bytes_of_one_that_was_not() {
    let home = Home::new();
    let whole = home.trained(&home.adapted("base", "whole", &[("training.ema_decay", "0.5")]));
    let half = home.adapted("base", "half", &[("training.ema_decay", "0.5"), ("schedule.steps", "4")]);
    home.trained(&half.clone().with_override("training.steps", 2));
    home.trained(&half.with_existing(Existing::Resume));
    assert_eq!(weights(&home.path("half")), weights(&whole));
    let files = ["half", "whole"].map(|name| parameters(&home.path(name).join("adapters.safetensors")));
    assert_eq!(files[0], files[1]);

    let folder = ModelFolder::open(&whole).unwrap();
    let files = [2, 4].map(|step| folder.weights(&Checkpoint::Step(step)).unwrap());
    folder.write_checkpoint(&Checkpoint::Average, |average| average_weights(&files, average.weights())).unwrap();
    assert_eq!(probabilities(&whole, &Checkpoint::Average).len(), 6);
}

/// Rows of whole blocks, and what puts them there.
const WIDE: [(&str, &str); 2] = [("model.d_model", "32"), ("model.d_ff", "64")];
const BLOCKS: [(&str, &str); 3] = [WIDE[0], WIDE[1], ("init.quantize", "q8_0")];

impl Home {
    /// A training of adapters beside blocks of a masked language model, on the device that multiplies them.
    fn beside_blocks(&self, out: &str, changes: &[(&str, &str)]) -> RunRequest {
        let request = self.adapted("wide", out, &[&BLOCKS[..], changes].concat());
        RunRequest { device: Device::flex(), ..request }
    }

    fn with_wide_base() -> Self {
        let home = Self { data: folder(12) };
        firelight_training::Run::<MaskedLanguage>::prepare(&home.request("wide", &WIDE)).unwrap().fit().unwrap();
        home
    }
}

#[test]
fn the_encoder_lies_in_blocks_and_merged_says_the_same() {
    let home = Home::with_wide_base();
    let begun = Run::prepare(&home.beside_blocks("run", &[])).unwrap();
    for entry in weights_of(begun.model()) {
        let expected = entry.path.starts_with("encoder.").then_some(BlockFormat::Q8_0);
        assert_eq!(entry.format, expected, "{}", entry.path);
    }
    assert_eq!(begun.cost(), Run::estimate(&home.beside_blocks("other", &[])).unwrap());
    firelight_storage::save_weights(begun.model(), home.path("begun")).unwrap();
    let before = parameters(&home.path("begun"));
    let trained = begun.fit().unwrap();
    let (run, found) = (home.path("run"), weights(&home.path("run")));
    let is_trained = |key: &str| is_adapter(key) || !key.starts_with("encoder.");
    assert!(found.keys().any(|key| !is_trained(key)));
    assert!(found.iter().filter(|(key, _)| !is_trained(key)).all(|(key, bytes)| *bytes == before[key]));
    assert_ne!(found["head.output.weight"], before["head.output.weight"]);

    let merged = home.path("merged");
    merge::<Classification>(&run, &Checkpoint::Last, &merged, &Device::flex()).unwrap();
    assert!(!merged.join("quantization.json").exists());
    let said = |classifier: &Classifier| {
        let found = classifier.classify(&TEXTS).unwrap();
        found.iter().flat_map(Prediction::probabilities).map(|(_, probability)| *probability).collect::<Vec<_>>()
    };
    let load = |run: &Path| Classifier::load_from(run, &Checkpoint::Last, &Device::flex()).unwrap();
    let (adapted, merged) = (load(&run), load(&merged));
    let config: TextClassifierConfig = ModelFolder::open(&run).unwrap().read_config(crate::TASK).unwrap();
    let floats = Classifier::new(dequantize(trained.model), adapted.vocabulary().clone(), config.labels);
    assert_close(&said(&merged), &said(&floats), 1e-5);
    assert_close(&said(&adapted), &said(&floats), 0.05); // Products with blocks round what they multiply.
    assert!(home.loss(&run, &Device::flex()) > 0.0);
    assert_eq!(Embedder::load_from(&run, &Checkpoint::Last, &Device::flex()).unwrap().embed(&TEXTS).unwrap().len(), 3);

    let folder = ModelFolder::open(&run).unwrap();
    let files = [2, 4].map(|step| folder.weights(&Checkpoint::Step(step)).unwrap());
    folder.write_checkpoint(&Checkpoint::Average, |average| average_weights(&files, average.weights())).unwrap();
    assert!(Classifier::load_from(&run, &Checkpoint::Average, &Device::flex()).is_ok());
}

#[test]
fn a_training_beside_blocks_goes_on_to_the_bit() {
    let home = Home::with_wide_base();
    let whole = home.trained(&home.beside_blocks("whole", &[]));
    let half = home.beside_blocks("half", &[("schedule.steps", "4")]);
    home.trained(&half.clone().with_override("training.steps", 2));
    fs::remove_dir_all(home.path("wide")).unwrap();
    home.trained(&half.with_existing(Existing::Resume));
    assert_eq!(weights(&home.path("half")), weights(&whole));
}

#[test]
fn a_masked_language_model_is_trained_beside_blocks() {
    let home = Home::with_wide_base();
    let request = home.beside_blocks("masked", &[]);
    let trained = firelight_training::Run::<MaskedLanguage>::prepare(&request).unwrap().fit().unwrap();
    let in_blocks = weights_of(&trained.model).into_iter().filter(|entry| entry.format.is_some()).count();
    assert!(in_blocks > 5, "{in_blocks}");
    // A classifier takes over floats alone.
    let from = home.adapted("masked", "classifier", &WIDE);
    let error = home.error(&RunRequest { device: Device::flex(), ..from });
    assert!(error.contains("in blocks of few bits") && error.contains("`firelight merge`"), "{error}");
}

#[test]
fn a_run_with_adapters_is_begun_from_with_them_in_its_weights() {
    let home = Home::new();
    let first = home.trained(&home.adapted("base", "first", &[]));
    merge::<Classification>(&first, &Checkpoint::Last, home.path("merged"), &Device::default()).unwrap();
    let second = home.adapted("first", "second", &[]);
    let plan = Run::prepare(&second).unwrap();
    firelight_storage::save_base(plan.model(), home.path("begun")).unwrap();
    assert_eq!(parameters(&home.path("begun")), weights(&home.path("merged")), "the head, too, is the run's");
    plan.fit().unwrap();
    let kept = |run: &str| {
        let of_encoder = |key: &String| key.starts_with("encoder.") && !is_adapter(key);
        weights(&home.path(run)).into_iter().filter(|(key, _)| of_encoder(key)).collect::<Vec<_>>()
    };
    assert_eq!(kept("second"), kept("merged"));
}

#[test]
fn the_stack_is_that_of_the_other_run_whatever_its_recipe_says() {
    let home = Home::new();
    let recipe = home.path("base/recipe.toml");
    let said = fs::read_to_string(&recipe).unwrap();
    assert!(said.contains("n_heads = 2"), "{said}");
    fs::write(&recipe, said.replace("n_heads = 2", "n_heads = 4")).unwrap(); // as if heads had been pruned since
    let from = format!("{:?}", home.path("base").display().to_string());
    let begun = Run::prepare(&home.request("run", &[("init.from", &from)])).unwrap();
    assert_eq!(begun.config().encoder.transformer.first().block.attention.n_heads, 2);
    let error = home.error(&home.request("other", &[("init.from", &from), ("model.n_heads", "4")]));
    assert!(error.contains("model.n_heads = 4, but 2 in the run"), "{error}");
}

#[test]
fn what_the_recipe_freezes_has_the_last_word() {
    let home = Home::new();
    let freeze = ("training.freeze", "[\"head\", \"!encoder.embedding\"]");
    let run = home.trained(&home.adapted("base", "run", &[freeze]));
    let begun = home.trained(&home.adapted("base", "begun", &[freeze, ("training.steps", "1")]));
    let (base, early, found) = (weights(&home.path("base")), weights(&begun), weights(&run));
    assert_eq!(early["head.output.weight"], found["head.output.weight"]);
    assert_ne!(base["encoder.embedding.weight"], found["encoder.embedding.weight"]);
    let error = home.error(&home.adapted("base", "none", &[("training.freeze", "[\"*\"]")]));
    assert!(
        error.contains("`--set training.freeze`: training.freeze = [\"*\"] must be patterns that leave"),
        "{error}"
    );
}

#[test]
fn what_does_not_fit_is_reported_before_a_folder_is_made() {
    let home = Home::new();
    let targets = "[\"kernel\", \"query\", \"head.output\"]";
    let error = home.error(&home.adapted("base", "run", &[("model.adapters.targets", targets)]));
    let named = |target: &str| {
        format!("`--set model.adapters.targets`: model.adapters.targets names `{target}`, but there are `encoder.")
    };
    assert!(error.contains(&named("kernel")) && error.contains(&named("head.output")), "{error}");
    assert!(!error.contains("names `query`"), "{error}");
    let error = home.error(&home.adapted("base", "run", &[("model.adapters.rank", "0")]));
    assert_eq!(error, "`--set model.adapters.rank`: model.adapters.rank = 0 must be at least 1");
    let error = home.error(&home.adapted("base", "run", &[("init.exclude", "[\"encoder.embedding\"]")]));
    assert!(
        error.contains("`encoder.embedding.weight` begins anew and is not trained beside model.adapters"),
        "{error}"
    );
    let error = home.error(&home.request("run", &[("model.adapters", ADAPTERS)]));
    assert!(error.starts_with("`--set model.adapters`: adapters change a model that has learnt: name its"), "{error}");
}
