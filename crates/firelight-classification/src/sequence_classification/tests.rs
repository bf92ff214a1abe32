//! Whole trainings of every kind of label, small enough for seconds: what is learnt, measured and answered, and what is refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;
use firelight_core::ParamBuilder;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{
    DataModule, Estimate, OptimizerConfig, RunRequest, ScheduleConfig, ScheduleKind, Task, TaskEvaluation, Threads,
    ThreadsOptions, Trainer, evaluate_run, evaluate_run_on,
};

use super::records::tests as texts;
use super::{Classification, ClassificationRecipe, Run, TrainedRun};
use crate::classifier::{Classifier, Prediction};
use crate::data::TextBatcher;
use crate::loss::SequenceLossConfig;
use crate::records::tests::shared_scores;
use crate::records::{RecordData, RecordTask};
use crate::training::ClassifierTask;

/// The settings of the built-in recipe that differ: the texts are few and short.
const SMALL: [(&str, &str); 9] = [
    ("data.tokenizer", "word:1"),
    ("model.d_model", "16"),
    ("model.n_layers", "1"),
    ("model.dropout", "0"),
    ("training.epochs", "40"),
    ("training.evaluate_every", "60"),
    ("training.batch_size", "8"),
    ("optimizer.learning_rate", "0.01"),
    ("schedule.warmup_steps", "5"),
];

/// A folder with `train.tsv` and `dev.tsv`, whose lines are made of three words.
fn folder(label: impl Fn([&str; 3]) -> String) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let line = |i: usize| {
        let words = [["dry", "rain"][i % 2], ["calm", "wind"][i / 2 % 2], ["dark", "sun"][i / 4 % 2]];
        format!("{} today\t{}\n", words.join(" and "), label(words))
    };
    for (split, lines) in [("train", 0..24), ("dev", 24..32)] {
        fs::write(home.path().join(format!("{split}.tsv")), lines.map(line).collect::<String>()).unwrap();
    }
    home
}

fn several() -> tempfile::TempDir {
    folder(|words| words.into_iter().filter(|word| ["rain", "wind"].contains(word)).collect::<Vec<_>>().join("|"))
}

fn number() -> tempfile::TempDir {
    folder(|words| words.into_iter().filter(|word| ["rain", "wind", "sun"].contains(word)).count().to_string())
}

fn prepare(data: &Path, more: &[(&str, &str)]) -> Result<Run, TaskError> {
    let request = RunRequest::new(&Device::default()).with_data(data).with_out(data.join("run"));
    Run::prepare(&SMALL.iter().chain(more).fold(request, |request, (key, value)| request.with_override(key, value)))
}

/// Trains, checks that the answers have the loss that the training found, and measures.
fn train(data: &Path, more: &[(&str, &str)]) -> (TrainedRun, TaskEvaluation) {
    let trained = prepare(data, more).unwrap().fit().unwrap();
    let found = measure(data);
    assert!((found.loss - trained.evaluation.unwrap().loss).abs() < 1e-5, "{found:?} {:?}", trained.evaluation);
    (trained, found)
}

fn measure(data: &Path) -> TaskEvaluation {
    let (run, device) = (data.join("run"), Device::default());
    evaluate_run::<Classification>(run, &Checkpoint::Last, Some((data, None)), &(), &device).unwrap()
}

fn answers(data: &Path, texts: &[&str]) -> Vec<Prediction> {
    Classifier::load(data.join("run")).unwrap().classify(texts).unwrap()
}

fn names(found: &TaskEvaluation) -> Vec<&str> {
    found.scores.iter().map(|(name, _)| *name).collect()
}

#[test]
fn several_labels_are_learnt_measured_and_answered() {
    let home = several();
    let multi = [("data.problem_type", "multi_label"), ("training.monitor", "micro_f1")];
    let (trained, found) = train(home.path(), &multi);
    assert_eq!(trained.corpus.sizes(), "24 texts with any of 2 labels to train on, 8 to validate on");
    assert_eq!(names(&found), ["micro_f1", "macro_f1", "exact_match"]);
    assert_eq!((found.score("exact_match"), found.examples), (Some(1.0), 8), "{found:?}");
    let metrics = fs::read_to_string(trained.folder.metrics()).unwrap();
    assert!(metrics.contains("\"exact_match\":1.0") && metrics.contains("\"micro_f1\":1.0"), "{metrics}");
    let found = answers(
        home.path(),
        &["dry and wind and dark today", "rain and wind and dark today", "dry and calm and sun today"],
    );
    assert_eq!(found.iter().map(Prediction::labels).collect::<Vec<_>>(), [&["wind"][..], &["rain", "wind"], &[]]);
    let other = number();
    let run = home.path().join("run").display().to_string();
    let regression = [("data.problem_type", "regression"), ("training.monitor", "loss"), ("init.from", run.as_str())];
    let error = prepare(other.path(), &regression).unwrap_err();
    let text = error.to_string();
    assert!(
        error.is_user_error() && text.contains("\"multi_label\"") && text.contains("set init.exclude = [\"head\"]"),
        "{text}"
    );
}

#[test]
fn ranks_share_the_scores_of_every_kind_of_label() {
    let multi = [("data.problem_type", "multi_label"), ("training.monitor", "micro_f1")];
    let regression = [("data.problem_type", "regression"), ("training.monitor", "pearson")];
    let single = folder(|words| words[0].to_string());
    for (home, changes) in [(several(), &multi[..]), (number(), &regression[..]), (single, &[][..])] {
        let scores = shared_scores(&prepare(home.path(), changes).unwrap());
        assert!(!scores.is_empty() && scores.iter().all(|score| score.is_finite()), "{scores:?}");
    }
}

#[test]
fn ranks_that_read_other_texts_are_told() {
    let (home, other) = (folder(|words| words[0].to_string()), tempfile::tempdir().unwrap());
    prepare(home.path(), &[("training.epochs", "1"), ("schedule.warmup_steps", "1")]).unwrap().fit().unwrap();
    let texts = fs::read_to_string(home.path().join("dev.tsv")).unwrap();
    fs::write(other.path().join("dev.tsv"), texts.replacen("calm", "wind", 1)).unwrap();
    let run = home.path().join("run");
    thread::scope(|scope| {
        for (rank, data) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip([&home, &other]) {
            let (run, data) = (&run, data.path());
            scope.spawn(move || {
                let (asked, device) = (Some((data, Some("dev"))), Device::default());
                let (last, rank) = (Checkpoint::Last, Arc::new(rank));
                let error = evaluate_run_on::<Classification>(run, &last, asked, &(), &device, rank).unwrap_err();
                let told = "its validation data is `8 examples with the checksum ";
                assert!(error.is_user_error() && error.to_string().contains(told), "{error}");
            });
        }
    });
}

#[test]
fn numbers_are_learnt_measured_and_answered() {
    let home = number();
    let (trained, found) = train(home.path(), &[("data.problem_type", "regression"), ("training.monitor", "pearson")]);
    assert_eq!(trained.corpus.sizes(), "24 texts with a number each to train on, 8 to validate on");
    assert_eq!(names(&found), ["pearson", "spearman", "mean_squared_error"]);
    assert!(found.score("pearson").unwrap() > 0.95 && found.score("spearman").unwrap() > 0.8, "{found:?}");
    assert!((found.loss - found.score("mean_squared_error").unwrap()).abs() < 1e-6 && found.loss < 0.1, "{found:?}");
    let answered = answers(home.path(), &["rain and wind and sun today", "dry and calm and dark today"]);
    let [Prediction::Value(most), Prediction::Value(least)] = answered[..] else { panic!("{answered:?}") };
    assert!((most - 3.0).abs() < 0.8 && least.abs() < 0.8, "{most} {least}");
}

#[test]
fn one_label_has_its_scores_beside_the_old_fields() {
    let home = folder(|[rain, ..]| rain.into());
    let (trained, found) = train(home.path(), &[]);
    let line = serde_json::to_value(&found).unwrap();
    assert_eq!((&line["accuracy"], &line["macro_f1"], &line["examples"]), (&1.0.into(), &1.0.into(), &8.into()));
    for name in ["loss", "seconds", "weighted_f1", "matthews", "calibration_error", "auroc"] {
        assert!(line[name].is_number(), "{name}: {line}");
    }
    let recipe = fs::read_to_string(trained.folder.recipe()).unwrap();
    assert!(!recipe.contains("problem_type"), "{recipe}");
    fs::write(home.path().join("dev.tsv"), "rain today\train\n").unwrap();
    assert!(measure(home.path()).score("auroc").is_none(), "one class has no area");
}

#[test]
fn texts_with_several_labels_are_held_back_and_found_again() {
    let home = several();
    let more = [
        ("data.problem_type.kind", "multi_label"),
        ("data.problem_type.separator", "|"),
        ("data.split.validation", "5"),
    ];
    let (trained, found) = train(home.path(), &[&more[..], &[("training.monitor", "loss")]].concat());
    assert_eq!((trained.corpus.training().len(), found.examples), (19, 5));
}

#[test]
fn untrained_models_of_every_kind_hold_what_they_must() {
    for (data, problem_type, count) in [(several(), "multi_label", 3), (number(), "regression", 2)] {
        let run = prepare(data.path(), &[("data.problem_type", problem_type), ("training.monitor", "loss")]).unwrap();
        let checks = run.self_check().unwrap();
        assert_eq!(checks.len(), count);
        assert!(checks.iter().all(firelight_training::Check::holds), "{checks:?}");
    }
}

#[test]
fn what_does_not_fit_the_kind_of_the_labels_is_reported() {
    let home = several();
    let message = |more: &[(&str, &str)]| {
        let error = prepare(home.path(), more).unwrap_err();
        assert!(error.is_user_error());
        error.to_string()
    };
    let multi = ("data.problem_type", "multi_label");
    let unknown = message(&[multi]);
    assert!(unknown.contains("`accuracy`") && unknown.contains("loss, micro_f1, macro_f1, exact_match"), "{unknown}");
    let weights = message(&[multi, ("loss.class_weights", "balanced"), ("loss.label_smoothing", "0.1")]);
    assert!(weights.contains("loss.class_weights") && weights.contains("loss.label_smoothing"), "{weights}");
    let by_loss = ("training.monitor", "loss");
    let number = message(&[("data.problem_type", "regression"), by_loss, ("data.columns.label", "\"0\"")]);
    assert!(number.contains("train.tsv") && number.contains("needs a finite number"), "{number}");
    fs::write(home.path().join("dev.tsv"), "rain\train\nsnow\train|snow\n").unwrap();
    let label = message(&[multi, by_loss]);
    for word in ["line 2", "dev.tsv", "`snow`", "rain, wind"] {
        assert!(label.contains(word), "{label}");
    }
}

#[test]
fn the_built_in_model_holds_what_it_must() {
    let data = texts::folder(12);
    let run =
        Run::prepare(&RunRequest::new(&Device::default()).with_data(data.path()).with_out(data.path().join("run")));
    for check in run.unwrap().self_check().unwrap() {
        assert!(check.holds(), "{check}");
    }
}

#[test]
fn one_batch_is_learnt_to_zero_loss() {
    let data = texts::folder(8);
    let mut recipe = texts::recipe(&[]);
    let corpus = RecordData::<Classification>::read(&mut recipe, Path::new("x.toml"), &[data.path().into()]).unwrap();
    let config = Classification::quiet(&Classification::config(&recipe, &corpus, Path::new("x.toml")).unwrap());
    let device = Device::default().autodiff();
    let task = ClassifierTask::new(config.init_with(&ParamBuilder::new(&device, 0)), SequenceLossConfig::default());
    let batch = |device: &Device| TextBatcher.batch(corpus.training().to_vec(), device);
    let optimizer = OptimizerConfig { learning_rate: 3e-3, weight_decay: 0.0, ..OptimizerConfig::default() };
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let mut trainer = Trainer::new(task, optimizer, schedule, 0);
    let losses: Vec<f64> = (0..60).map(|_| trainer.step(batch(&device)).unwrap().loss).collect();
    assert!(losses[59] < 1e-3, "{losses:?}");
    assert!(losses[0] > 0.5, "{losses:?}");
}

#[test]
fn the_stack_is_counted() {
    let text = "task = \"classification\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\nmax_seq_len = 4\n\
                position = \"none\"\n[training]\nsteps = 10\nbatch_size = 3\n";
    let recipe = ClassificationRecipe::parse(text, "small.toml", &[]).unwrap();
    let config = recipe.model.config(5, vec!["a".into(), "b".into()]);
    let found = Estimate::of::<Classification>(&recipe, &config, &Device::default());
    // A block has 288 + 552 + 32 numbers, the stack a norm of 16, the embedding 40, the head 18.
    assert_eq!(found.parameters, 872 + 16 + 40 + 18);
    // The head of 16 numbers is computed once in 4 tokens.
    assert_eq!(found.flops_per_token, 6.0 * (768.0 + 4.0) + 3.0 * 128.0);
    assert_eq!((found.tokens_per_step, found.activation_bytes), (12, 4 * 12 * 144));
}

#[test]
fn a_training_that_no_machine_holds_is_refused_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    let data = texts::folder(12);
    let request = RunRequest::new(&Device::default()).with_data(data.path()).with_out(home.path().join("run"));
    let error = Run::prepare(&request.with_override("model.n_layers", 60_000)).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("would take about"), "{error}");
    assert!(!home.path().join("run").exists());
}
