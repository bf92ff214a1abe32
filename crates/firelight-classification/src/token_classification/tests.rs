//! Whole trainings, small enough for seconds: what is learnt, measured and answered, and what is refused.

use std::fs;
use std::path::Path;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;
use firelight_core::{LossConfig, ParamBuilder};
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{
    DataModule, OptimizerConfig, RunRequest, ScheduleConfig, ScheduleKind, Task, TaskEvaluation, Trainer, evaluate_run,
    merge,
};

use super::{TaggedBatcher, TokenClassification, TokenClassificationRun, TokenClassifierTask};
use crate::records::RecordTask;
use crate::records::block_tests::adapters_learn_beside_blocks;
use crate::records::tests::shared_scores;
use crate::tagger::Tagger;

/// The settings of the built-in recipe that differ: the sentences are few and short.
const SMALL: [(&str, &str); 9] = [
    ("data.tokenizer", "word:1"),
    ("model.d_model", "32"),
    ("model.n_layers", "2"),
    ("model.dropout", "0"),
    ("training.epochs", "30"),
    ("training.evaluate_every", "60"),
    ("training.batch_size", "8"),
    ("optimizer.learning_rate", "0.005"),
    ("schedule.warmup_steps", "5"),
];

/// Sentences whose tags depend on the word in front: behind `in` a word is a place, behind `saw` the same word is a person.
fn line(i: usize) -> [(&'static str, &'static str); 7] {
    let [one, two] = [["paris", "london", "milan", "lima"][i % 4], ["milan", "paris", "lima", "rose"][i / 4 % 4]];
    let (first, second) = if (i / 16).is_multiple_of(2) { ("in", "saw") } else { ("saw", "in") };
    let kind = |word| if word == "in" { ("B-LOC", "I-LOC") } else { ("B-PER", "I-PER") };
    let more = if i.is_multiple_of(3) { ("hill", kind(second).1) } else { ("today", "O") };
    [(first, "O"), (one, kind(first).0), ("he", "O"), (second, "O"), (two, kind(second).0), more, (".", "O")]
}

/// A folder with `train.conll` and `dev.jsonl`.
fn folder() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    // Of 96 different sentences every fifth is validated on.
    let is_held = |i: &usize| i.is_multiple_of(5);
    let columns = |i: usize| line(i).map(|(word, tag)| format!("{word}\tX\t{tag}\n")).concat() + "\n";
    let training: String = (0..96).filter(|i| !is_held(i)).map(columns).collect();
    fs::write(home.path().join("train.conll"), training).unwrap();
    let json = |i: usize| {
        let (tokens, tags): (Vec<&str>, Vec<&str>) = line(i).into_iter().unzip();
        format!("{}\n", serde_json::json!({"tokens": tokens, "tags": tags}))
    };
    fs::write(home.path().join("dev.jsonl"), (0..96).filter(is_held).map(json).collect::<String>()).unwrap();
    home
}

fn prepare(data: &Path, more: &[(&str, &str)]) -> Result<TokenClassificationRun, TaskError> {
    let request = RunRequest::new(&Device::default()).with_data(data).with_out(data.join("run"));
    let settings = SMALL.iter().chain(more);
    TokenClassificationRun::prepare(&settings.fold(request, |request, (key, value)| request.with_override(key, value)))
}

fn measure(data: &Path, split: Option<&str>) -> TaskEvaluation {
    evaluated(&data.join("run"), (data, split), &Device::default())
}

fn evaluated(run: &Path, asked: (&Path, Option<&str>), device: &Device) -> TaskEvaluation {
    evaluate_run::<TokenClassification>(run, &Checkpoint::Last, Some(asked), &(), device).unwrap()
}

#[test]
fn ranks_share_the_scores() {
    let home = folder();
    let scores = shared_scores(&prepare(home.path(), &[]).unwrap());
    assert!(scores.len() == 4 && scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
}

#[test]
fn tags_that_depend_on_a_neighbour_are_learnt_measured_and_answered() {
    let home = folder();
    let trained = prepare(home.path(), &[]).unwrap().fit().unwrap();
    let found = measure(home.path(), Some("dev"));
    assert!((found.loss - trained.evaluation.unwrap().loss).abs() < 1e-5, "{found:?} {:?}", trained.evaluation);
    let line = serde_json::to_value(&found).unwrap();
    for name in ["accuracy", "f1", "precision", "recall"] {
        assert_eq!(line[name], 1.0, "{line}");
    }
    assert!(line["examples"] == 20 && line["seconds"].is_number() && found.loss < 0.05, "{line}");
    let metrics = fs::read_to_string(trained.folder.metrics()).unwrap();
    assert!(metrics.contains("\"f1\":1.0") && metrics.contains("\"recall\":1.0"), "{metrics}");
    let tagger = Tagger::load(home.path().join("run")).unwrap();
    let found = tagger.tag(&["in milan he saw rose hill."]).unwrap().remove(0);
    let tags: Vec<&str> = found.tokens.iter().map(|token| token.tag.as_str()).collect();
    assert_eq!(tags, ["O", "B-LOC", "O", "O", "B-PER", "I-PER", "O"]);
    let entities: Vec<_> = found
        .entities
        .iter()
        .map(|entity| (entity.entity_group.as_str(), entity.word.as_str(), entity.start, entity.end))
        .collect();
    assert_eq!(entities, [("LOC", "milan", 3, 8), ("PER", "rose hill", 16, 25)]);
    assert!(found.entities.iter().all(|entity| entity.score > 0.9));
}

#[test]
fn plain_tags_are_learnt_through_pieces_and_parts_and_from_sentences_held_back() {
    let home = folder();
    let plain = fs::read_to_string(home.path().join("train.conll")).unwrap().replace("B-", "").replace("I-", "");
    fs::write(home.path().join("train.conll"), plain).unwrap();
    let more = [
        ("data.scheme", "plain"),
        ("data.tokenizer", "byte"),
        ("data.split.validation", "9"),
        ("model.max_seq_len", "24"),
        ("training.monitor", "accuracy"),
        ("training.epochs", "12"),
    ];
    let trained = prepare(home.path(), &more).unwrap().fit().unwrap();
    assert!(trained.corpus.training().len() > 67, "sentences are longer than 24 bytes: {}", trained.corpus.sizes());
    let found = measure(home.path(), None);
    assert_eq!((found.examples, found.scores.len()), (9, 1), "{found:?}");
    assert!(found.score("accuracy").unwrap() > 0.9, "{found:?}");
    assert!((found.loss - trained.evaluation.unwrap().loss).abs() < 1e-5, "{found:?} {:?}", trained.evaluation);
    let tagged = Tagger::load(home.path().join("run")).unwrap().tag(&["in milan"]).unwrap().remove(0);
    assert!(tagged.entities.is_empty() && tagged.tokens.len() == 2);
}

#[test]
fn an_encoder_begins_from_another_run_and_a_stopped_training_goes_on() {
    let home = folder();
    let first = prepare(home.path(), &[("training.epochs", "1")]).unwrap().fit().unwrap();
    let other = folder();
    let from = first.folder.path().display().to_string();
    let begun = prepare(other.path(), &[("training.epochs", "0"), ("training.steps", "1"), ("init.from", &from)]);
    begun.unwrap().fit().unwrap();
    let narrow = prepare(&other.path().join("."), &[("init.from", &from), ("model.d_ff", "48")]).unwrap_err();
    assert!(
        narrow.to_string().contains("model.d_ff = 48, but") && narrow.to_string().contains("leave it out"),
        "{narrow}"
    );
    let third = folder();
    let few =
        [("training.epochs", "0"), ("training.steps", "1"), ("init.from", &from), ("model.adapters", "{ rank = 2 }")];
    prepare(third.path(), &few).unwrap().fit().unwrap();
    let merged = third.path().join("merged");
    merge::<TokenClassification>(third.path().join("run"), &Checkpoint::Last, &merged, &Device::default()).unwrap();
    assert_eq!(Tagger::load(&merged).unwrap().tag(&["in paris"]).unwrap().len(), 1);
    crate::Embedder::load(other.path().join("run")).unwrap().embed(&["in paris"]).unwrap();
}

#[test]
fn adapters_learn_beside_an_encoder_in_blocks_and_go_on_to_the_bit() {
    let [first, second] = [folder(), folder()];
    prepare(first.path(), &[("training.epochs", "0"), ("training.steps", "1")]).unwrap().fit().unwrap();
    let loss = |run: &Path| evaluated(run, (second.path(), Some("dev")), &Device::flex()).loss;
    let home = adapters_learn_beside_blocks::<TokenClassification>(first, (second.path(), &SMALL[..]), loss);
    assert_eq!(Tagger::load(home.path().join("whole")).unwrap().tag(&["in paris"]).unwrap().len(), 1);
}

#[test]
fn one_batch_is_learnt_to_zero_loss() {
    let home = folder();
    let run = prepare(home.path(), &[]).unwrap();
    for check in run.self_check().unwrap() {
        assert!(check.holds(), "{check}");
    }
    let device = Device::default().autodiff();
    let config = TokenClassification::quiet(
        &TokenClassification::config(&run.recipe, &run.corpus, Path::new("entities.toml")).unwrap(),
    );
    let task = TokenClassifierTask::new(config.init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
    let batch = || TaggedBatcher.batch(run.corpus.training()[..8].to_vec(), &device);
    let optimizer = OptimizerConfig { learning_rate: 3e-3, weight_decay: 0.0, ..OptimizerConfig::default() };
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let mut trainer = Trainer::new(task, optimizer, schedule, 0);
    let losses: Vec<f64> = (0..80).map(|_| trainer.step(batch()).unwrap().loss).collect();
    assert!(losses[0] > 0.5 && losses[79] < 1e-2, "{losses:?}");
}

#[test]
fn what_does_not_fit_is_reported_before_a_folder_is_made() {
    let home = folder();
    let message = |more: &[(&str, &str)]| {
        let error = prepare(home.path(), more).unwrap_err();
        assert!(error.is_user_error());
        error.to_string()
    };
    let short = message(&[("model.max_seq_len", "3"), ("data.workers", "99")]);
    assert!(short.contains("max_seq_len must be at least 4") && short.contains("data.workers"), "{short}");
    assert!(message(&[("training.monitor", "macro_f1")]).contains("loss, accuracy, f1, precision, recall"));
    assert!(message(&[("data.scheme", "iob3")]).contains("iob1"));
    assert!(!home.path().join("run").exists());
}
