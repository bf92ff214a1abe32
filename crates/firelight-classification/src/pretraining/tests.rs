//! Whole pre-trainings of every objective: how they go on, what they measure, and the classifiers that begin from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_data::StepLoader;
use firelight_kernels::assert_close;
use firelight_storage::{Checkpoint, Existing, ModelFolder, TaskError, save_weights};
use firelight_training::{
    Run, RunRequest, Task, Threads, ThreadsOptions, assert_shared, evaluate_run, evaluate_run_on, merge,
};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use super::examples::{ExampleDataset, PretrainingBatch, PretrainingBatcher};
use super::{MaskedLanguage, PretrainingTask};
use crate::records::block_tests::adapters_learn_beside_blocks;
use crate::tiny::tiny;
use crate::{Classification, Embedder, MaskFiller, PretrainingConfig};

/// An objective, what it needs of the model, and what is measured on the way.
type Trained = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const OBJECTIVES: [Trained; 3] = [
    ("masked", &[], &[]),
    ("masked_and_next_sentence", &[("model.n_segments", "2")], &["next_sentence_loss", "next_sentence_accuracy"]),
    ("{ kind = \"replaced\", generator_size = 0.5 }", &[], &["generator_loss", "replaced_accuracy", "replaced_f1"]),
];

/// Documents and labelled texts, and runs on them.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let document = |i: usize| format!("a film of {}\nit was {}\nand so on\n\n", i % 4, ["dull", "fine"][i % 2]);
        let row = |i: usize| format!("it was {}\t{}\n", ["dull", "fine"][i % 2], i % 2);
        for (split, count) in [("train", 8), ("dev", 4)] {
            for (name, line) in [("texts", &document as &dyn Fn(usize) -> String), ("labelled", &row)] {
                fs::create_dir_all(home.path(name)).unwrap();
                let ending = if name == "texts" { "txt" } else { "tsv" };
                let file = home.path(name).join(format!("{split}.{ending}"));
                fs::write(file, (0..count).map(line).collect::<String>()).unwrap();
            }
        }
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn request(&self, data: &str, out: &str, changes: &[(&str, &str)]) -> RunRequest {
        let request = RunRequest::new(&Device::default()).with_data(self.path(data)).with_out(self.path(out));
        tiny(request, changes)
    }

    fn pretraining(&self, objective: &str, out: &str, changes: &[(&str, &str)]) -> RunRequest {
        self.request("texts", out, &[&[("data.objective", objective)], changes].concat())
    }

    fn trained(&self, request: &RunRequest) -> PathBuf {
        Run::<MaskedLanguage>::prepare(request).unwrap().fit().unwrap();
        request.out.clone().unwrap()
    }

    /// The parameters of a classifier before its first step.
    fn begun(&self, from: &Path, changes: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let from = format!("{:?}", from.display().to_string());
        let request = self.request("labelled", "classifier", &[&[("init.from", from.as_str())], changes].concat());
        let run = Run::<Classification>::prepare(&request.with_existing(Existing::Force)).unwrap();
        save_weights(run.model(), self.path("begun.safetensors")).unwrap();
        run.fit().unwrap();
        parameters(&self.path("begun.safetensors"))
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

#[test]
fn a_stopped_run_ends_with_the_bytes_of_one_that_was_not() {
    for (objective, changes, _) in OBJECTIVES {
        let home = Home::new();
        let whole = home.trained(&home.pretraining(objective, "whole", changes));
        let half = home.pretraining(objective, "half", &[changes, &[("schedule.steps", "4")]].concat());
        home.trained(&half.clone().with_override("training.steps", 2));
        home.trained(&half.with_existing(Existing::Resume));
        assert_eq!(weights(&home.path("half")), weights(&whole), "{objective}");
    }
}

#[test]
fn ranks_share_the_scores_of_every_objective() {
    for (objective, changes, scores) in OBJECTIVES {
        let home = Home::new();
        let run = Run::<MaskedLanguage>::prepare(&home.pretraining(objective, "run", changes)).unwrap();
        let (found, values) = assert_shared::<PretrainingTask>(|| {
            let dataset = ExampleDataset { examples: run.corpus.validation(&run.recipe), is_fixed: true };
            let loader = StepLoader::new(dataset, PretrainingBatcher, 2, &Device::default());
            let loader: Arc<dyn DataLoader<PretrainingBatch>> = Arc::new(loader);
            let task = PretrainingTask::new(run.model().clone(), LossConfig::default());
            (task, loader, MaskedLanguage::evaluator(&run.corpus, &run.recipe))
        });
        assert!(found.loss > 0.0 && values.len() == scores.len(), "{found:?} {values:?}");
    }
}

#[test]
fn ranks_that_read_other_texts_are_told() {
    let (objective, changes, _) = OBJECTIVES[0];
    let home = Home::new();
    let run = home.trained(&home.pretraining(objective, "run", changes));
    let [texts, other] = ["texts", "other"].map(|name| home.path(name));
    fs::create_dir(&other).unwrap();
    let text = fs::read_to_string(texts.join("dev.txt")).unwrap();
    fs::write(other.join("dev.txt"), text.replacen("fine", "dull", 1)).unwrap();
    thread::scope(|scope| {
        for (rank, data) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip([&texts, &other]) {
            let run = &run;
            scope.spawn(move || {
                let (asked, device) = (Some((data.as_path(), Some("dev"))), Device::default());
                let (last, rank) = (Checkpoint::Last, Arc::new(rank));
                let error = evaluate_run_on::<MaskedLanguage>(run, &last, asked, &(), &device, rank).unwrap_err();
                assert!(error.is_user_error() && error.to_string().contains("its validation data is `"), "{error}");
            });
        }
    });
}

#[test]
fn losses_and_scores_stand_in_the_metrics() {
    for (objective, changes, scores) in OBJECTIVES {
        let home = Home::new();
        let run = home.trained(&home.pretraining(objective, "run", changes));
        let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
        let lines: Vec<Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (evaluations, steps): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["validation_loss"].is_number());
        assert_eq!((evaluations.len(), steps.len()), (2, 4), "{metrics}");
        assert!(evaluations.iter().all(|line| scores.iter().all(|name| line[*name].is_number())), "{metrics}");
        let has_training_loss = steps.iter().all(|line| line["training_loss"].is_number());
        assert_eq!(has_training_loss, !scores.is_empty(), "{metrics}");
        let best = |name: &&str| {
            let changes = [changes, &[("training.monitor", *name)]].concat();
            home.trained(&home.pretraining(objective, name, &changes));
        };
        scores.iter().for_each(best);
    }
}

#[test]
fn a_model_of_every_objective_is_worth_training() {
    for (objective, changes, _) in OBJECTIVES {
        let home = Home::new();
        let run = Run::<MaskedLanguage>::prepare(&home.pretraining(objective, "run", changes)).unwrap();
        for check in run.self_check().unwrap() {
            assert!(check.holds(), "{objective}: {check}");
        }
        assert_eq!(run.parameters(), run.model().report().parts(), "{objective}: as `firelight inspect` has them");
        let counted: usize = run.parameters().iter().map(|(_, count)| count).sum();
        assert_eq!(run.cost().parameters, counted, "{objective}");
    }
}

#[test]
fn a_classifier_begins_with_the_encoder_of_every_objective() {
    for (objective, changes, _) in OBJECTIVES {
        let home = Home::new();
        let run = home.trained(&home.pretraining(objective, "run", changes));
        let changes: Vec<_> = changes.iter().copied().filter(|(key, _)| key.starts_with("model.")).collect();
        let (learnt, begun) = (weights(&run), home.begun(&run, &changes));
        let encoder: Vec<_> = begun.iter().filter(|(key, _)| key.starts_with("encoder.")).collect();
        assert!(!encoder.is_empty() && encoder.iter().all(|(key, bytes)| learnt[*key] == **bytes), "{objective}");
        let vectors = Embedder::load(&run).unwrap().embed(&["it was fine"]).unwrap();
        assert_eq!((vectors.len(), vectors[0].len()), (1, 16));
    }
}

#[test]
fn a_pretraining_goes_on_from_a_classifier_with_a_head_of_its_own() {
    let home = Home::new();
    let first = home.trained(&home.pretraining("masked", "first", &[]));
    home.begun(&first, &[]);
    let from = format!("{:?}", home.path("classifier").display().to_string());
    let request = home.pretraining("masked", "second", &[("init.from", &from)]);
    let run = Run::<MaskedLanguage>::prepare(&request).unwrap();
    let report = run.init_report().unwrap();
    let is_head = |path: &String| path.starts_with("head.");
    assert!(report.new.iter().all(is_head) && report.unused.iter().all(is_head), "{report:?}");
    assert!(!report.new.is_empty() && !report.unused.is_empty() && report.taken > 5, "{report:?}");
    let learnt = weights(&home.path("classifier"));
    save_weights(run.model(), home.path("begun.safetensors")).unwrap();
    let begun = parameters(&home.path("begun.safetensors"));
    assert!(begun.keys().filter(|key| !is_head(key)).count() > 5);
    assert!(begun.iter().filter(|(key, _)| !is_head(key)).all(|(key, bytes)| learnt[key] == *bytes));
    run.fit().unwrap();
}

/// The loss of a run on the validation split of the documents of a home. That of hidden tokens has a perplexity.
fn loss(home: &Home, run: &Path, device: &Device) -> f64 {
    let data = home.path("texts");
    let asked = Some((data.as_path(), Some("dev")));
    let found = evaluate_run::<MaskedLanguage>(run, &Checkpoint::Last, asked, &(), device).unwrap();
    let expected = (found.loss_unit == "nats per hidden token").then(|| found.loss.exp());
    assert_eq!(found.score("perplexity"), expected, "{found:?}");
    found.loss
}

#[test]
fn adapters_of_every_objective_are_trained_alone_and_merged_into_the_weights_beside_them() {
    for (objective, changes, _) in OBJECTIVES {
        let home = Home::new();
        let base = home.trained(&home.pretraining(objective, "base", changes));
        let from = format!("{:?}", base.display().to_string());
        let adapted = [("init.from", from.as_str()), ("model.adapters", "{ rank = 2, targets = [\"query\"] }")];
        let rate = [("optimizer.learning_rate", "0.05")];
        let run = home.trained(&home.pretraining(objective, "run", &[changes, &adapted, &rate].concat()));
        let merged = home.path("merged");
        merge::<MaskedLanguage>(&run, &Checkpoint::Last, &merged, &Device::default()).unwrap();

        let [base, found, whole] = [&base, &run, &merged].map(|run| weights(run));
        assert!(whole.keys().eq(base.keys()), "{objective}: a merged model has no adapters");
        let query = |key: &str| key.starts_with("encoder.") && key.ends_with(".query.weight");
        assert!(found.keys().any(|key| key.contains(".query.adapter.")), "{objective}: {:?}", found.keys());
        for (key, bytes) in base.iter().filter(|(key, _)| key.starts_with("encoder.")) {
            assert_eq!(found[key], *bytes, "{objective}: {key} stays as it was");
            assert_eq!(
                whole[key] != *bytes,
                query(key),
                "{objective}: {key}, of which the query's alone has an adapter"
            );
        }
        let is_of_head = |key: &&String| !key.starts_with("encoder.");
        assert!(base.keys().filter(is_of_head).any(|key| found[key] != base[key]), "{objective}: the head learns");

        let [adapted, merged_loss] = [&run, &merged].map(|run| loss(&home, run, &Device::default()));
        assert!((adapted - merged_loss).abs() < 1e-4 * adapted, "{objective}: {adapted} and {merged_loss}");
        let config: PretrainingConfig = ModelFolder::open(&merged).unwrap().read_config(MaskedLanguage::NAME).unwrap();
        assert_eq!(config.encoder.adapters, None);
        let again = merge::<MaskedLanguage>(&merged, &Checkpoint::Last, home.path("again"), &Device::default());
        let again = again.unwrap_err();
        assert!(again.is_user_error() && again.to_string().contains("a model without adapters"), "{again}");
    }
}

#[test]
fn masks_are_filled_alike_by_adapters_and_by_merged_weights() {
    let home = Home::new();
    let base = home.trained(&home.pretraining("masked", "base", &[]));
    let from = format!("{:?}", base.display().to_string());
    let adapted =
        [("init.from", from.as_str()), ("model.adapters", "{ rank = 2 }"), ("optimizer.learning_rate", "0.05")];
    let run = home.trained(&home.pretraining("masked", "run", &adapted));
    let merged = home.path("merged");
    merge::<MaskedLanguage>(&run, &Checkpoint::Last, &merged, &Device::default()).unwrap();
    let probabilities = |run: &Path| -> Vec<f64> {
        let filled = MaskFiller::load(run).unwrap().fill(&["it was [MASK]"], 2).unwrap();
        filled.iter().flatten().flatten().map(|found| found.probability).collect()
    };
    assert_eq!(probabilities(&run).len(), 2);
    assert_close(&probabilities(&merged), &probabilities(&run), 1e-5);
}

/// Trainings whose matrices have rows of whole blocks.
const WIDE: [(&str, &str); 9] = [
    ("data.tokenizer", "word:1"),
    ("model.d_model", "32"),
    ("model.n_heads", "2"),
    ("model.n_layers", "1"),
    ("model.d_ff", "64"),
    ("model.dropout", "0"),
    ("training.batch_size", "4"),
    ("training.evaluate_every", "2"),
    ("training.checkpoint_every", "2"),
];

#[test]
fn adapters_learn_beside_an_encoder_in_blocks_and_go_on_to_the_bit() {
    let [first, second] = [Home::new(), Home::new()];
    first.trained(&first.pretraining("masked", "run", &WIDE));
    let data = second.path("texts");
    let home = adapters_learn_beside_blocks::<MaskedLanguage>(first.0, (data.as_path(), &WIDE[..]), |run| {
        loss(&second, run, &Device::flex())
    });
    let filled = MaskFiller::load(home.path().join("whole")).unwrap().fill(&["it was [MASK]"], 2).unwrap();
    assert_eq!(filled.len(), 1);
}

#[test]
fn vectors_of_tokens_begin_anew_where_they_are_to() {
    let home = Home::new();
    let run = home.trained(&home.pretraining("masked", "run", &[]));
    let (learnt, begun) = (weights(&run), home.begun(&run, &[("init.exclude", "[\"encoder.embedding\"]")]));
    let differing: Vec<_> =
        learnt.iter().filter(|(key, bytes)| begun.get(*key).is_some_and(|begun| begun != *bytes)).collect();
    assert_eq!(differing.into_iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["encoder.embedding.weight"]);
    assert!(begun.keys().any(|key| key.starts_with("encoder.transformer.")));
}

#[test]
fn the_pooler_of_next_sentence_prediction_is_taken_over_where_it_fits() {
    let home = Home::new();
    let segments = ("model.n_segments", "2");
    let run = home.trained(&home.pretraining("masked_and_next_sentence", "run", &[segments]));
    let learnt = weights(&run);
    let is_taken = |changes: &[(&str, &str)]| {
        let begun = home.begun(&run, &[&[segments], changes].concat());
        begun["head.pooler.dense.weight"] == learnt["next_sentence.pooler.dense.weight"]
    };
    let [class, tanh] = [("model.pooling", "class"), ("model.pooler", "tanh")];
    assert!(is_taken(&[class, tanh]));
    assert!(!is_taken(&[class, tanh, ("init.exclude", "[\"head\"]")]));
    assert!(!is_taken(&[class, ("model.pooler", "gelu")]));
    assert!(!is_taken(&[("model.pooling", "mean"), tanh]));
}

#[test]
fn what_does_not_fit_is_reported_with_its_key() {
    let home = Home::new();
    let error = |objective: &str, changes: &[(&str, &str)]| {
        let request = home.pretraining(objective, "run", changes);
        let error: TaskError = Run::<MaskedLanguage>::prepare(&request).unwrap_err();
        assert!(error.is_user_error() && !home.path("run").exists(), "{error}");
        error.to_string()
    };
    let segments = [("model.n_segments", "2")];
    let found = error("masked_and_next_sentence", &[]);
    assert!(found.contains("n_segments = 0 must be 2"), "{found}");
    let ratio = [&segments[..], &[("data.masking.ratio", "1.5")]].concat();
    let found = error("masked_and_next_sentence", &ratio);
    assert!(found.contains("masking.ratio = 1.5 must be above 0"), "{found}");
    let short = [&segments[..], &[("model.max_seq_len", "4")]].concat();
    let found = error("masked_and_next_sentence", &short);
    assert!(found.contains("max_seq_len must be at least 5"), "{found}");
    let found = error("{ kind = \"replaced\", generator_size = 1.5, lambda = 0 }", &[]);
    assert!(found.contains("data.objective.generator_size = 1.5 must be above 0 and at most 1"), "{found}");
    assert!(found.contains("data.objective.lambda = 0 must be above 0"), "{found}");
    let found = error("{ kind = \"replaced\", generator_size = 0.7 }", &[]);
    assert!(found.contains("generator_size = 0.7 makes a generator that cannot be built"), "{found}");
    let found = error("{ kind = \"replaced\", size = 0.5 }", &[]);
    assert!(found.contains("size") && found.contains("generator_size"), "{found}");
    let found = error("next", &[]);
    assert!(found.contains("data.objective") && found.contains("masked_and_next_sentence"), "{found}");
    fs::write(home.path("texts").join("dev.txt"), "one\n\ntwo\n").unwrap();
    let found = error("masked_and_next_sentence", &segments);
    assert!(found.contains("the validation split") && found.contains("between two blank ones"), "{found}");
}
