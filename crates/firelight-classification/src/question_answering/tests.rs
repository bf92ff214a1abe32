//! Whole trainings, small enough for seconds: what is learnt, measured and answered, and what is refused.

use firelight_core::ParamBuilder;
use std::fs;
use std::path::Path;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{
    DataModule, OptimizerConfig, RunRequest, ScheduleConfig, ScheduleKind, Task, TaskEvaluation, Trainer, evaluate_run,
    merge,
};

use super::{QuestionAnswering, QuestionAnsweringRun, SpanBatcher, SpanLossConfig, SpanTask};
use crate::question_answerer::QuestionAnswerer;
use crate::records::RecordTask;
use crate::records::block_tests::adapters_learn_beside_blocks;
use crate::records::tests::shared_scores;

/// The settings of the built-in recipe that differ: the texts are few and short.
const SMALL: [(&str, &str); 9] = [
    ("data.tokenizer", "word:1"),
    ("model.d_model", "32"),
    ("model.n_layers", "2"),
    ("model.dropout", "0"),
    ("training.epochs", "40"),
    ("training.evaluate_every", "200"),
    ("training.batch_size", "8"),
    ("optimizer.learning_rate", "0.005"),
    ("schedule.warmup_steps", "5"),
];

/// A question for the colour, or for the one who has it, whose answer stands behind the word that it asks by.
fn question(i: usize) -> (String, String, String) {
    let [name, other] = [["ada", "rose", "eva", "ida"][i % 4], ["tom", "jim", "ben"][i / 4 % 3]];
    let [one, two] = [["red", "blue", "green"][i / 12 % 3], ["dark red", "pink", "white"][i / 2 % 3]];
    let context = format!("here {name} wears {one} . there {other} likes {two} now .");
    let (asked, answer) = match i / 3 % 3 {
        0 => ("what is worn ?", one),
        1 => ("what is liked ?", two),
        _ => ("who is here ?", name),
    };
    (asked.into(), context, answer.into())
}

/// A line of a file; no answer where it is empty.
fn line((question, context, answer): (String, String, String)) -> String {
    let answers = match answer.as_str() {
        "" => serde_json::json!({"text": [], "answer_start": []}),
        answer => {
            serde_json::json!({"text": [answer], "answer_start": [context.find(&format!(" {answer} ")).unwrap() + 1]})
        }
    };
    format!("{}\n", serde_json::json!({"question": question, "context": context, "answers": answers}))
}

/// A folder with `train.jsonl` and `dev.jsonl`.
fn folder(question: impl Fn(usize) -> (String, String, String)) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    // Of 108 questions every sixth is validated on.
    for (split, is_held) in [("train", false), ("dev", true)] {
        let some = (0..108).filter(|i| (i % 6 == 5) == is_held);
        let lines: String = some.map(|i| line(question(i))).collect();
        fs::write(home.path().join(format!("{split}.jsonl")), lines).unwrap();
    }
    home
}

fn prepare(data: &Path, more: &[(&str, &str)]) -> Result<QuestionAnsweringRun, TaskError> {
    let request = RunRequest::new(&Device::default()).with_data(data).with_out(data.join("run"));
    let settings = SMALL.iter().chain(more);
    QuestionAnsweringRun::prepare(&settings.fold(request, |request, (key, value)| request.with_override(key, value)))
}

fn measure(data: &Path, split: Option<&str>) -> TaskEvaluation {
    evaluated(&data.join("run"), (data, split), &Device::default())
}

fn evaluated(run: &Path, asked: (&Path, Option<&str>), device: &Device) -> TaskEvaluation {
    evaluate_run::<QuestionAnswering>(run, &Checkpoint::Last, Some(asked), &(), device).unwrap()
}

#[test]
fn ranks_share_the_scores() {
    let home = folder(question);
    let scores = shared_scores(&prepare(home.path(), &[]).unwrap());
    assert!(scores.len() == 2 && scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
}

#[test]
fn answers_beside_what_is_asked_for_are_learnt_measured_and_given() {
    let home = folder(question);
    let trained = prepare(home.path(), &[]).unwrap().fit().unwrap();
    let found = measure(home.path(), Some("dev"));
    assert!((found.loss - trained.evaluation.unwrap().loss).abs() < 1e-5, "{found:?} {:?}", trained.evaluation);
    let line = serde_json::to_value(&found).unwrap();
    assert!(line["exact_match"] == 1.0 && line["f1"] == 1.0 && line["examples"] == 18, "{line}");
    let metrics = fs::read_to_string(trained.folder.metrics()).unwrap();
    assert!(metrics.contains("\"exact_match\":1.0") && metrics.contains("\"f1\":1.0"), "{metrics}");
    let reader = QuestionAnswerer::load(home.path().join("run")).unwrap();
    let (liked, worn) = (question(13), question(0));
    let found = reader.answer(&[(&liked.0, &liked.1), (&worn.0, &worn.1)]).unwrap();
    let answers: Vec<_> = found.iter().map(|found| (found.answer.as_str(), found.start, found.end)).collect();
    assert_eq!(liked.1, "here rose wears blue . there tom likes dark red now .");
    assert_eq!(answers, [("dark red", 39, 47), ("red", 15, 18)]);
    assert!(found.iter().all(|found| found.score > 0.5), "{found:?}");
}

#[test]
fn questions_without_an_answer_and_texts_in_windows_are_learnt() {
    // Behind `here` stands the name, or none at all.
    let asked = |i: usize| {
        let (_, context, _) = question(i);
        let name = context.split(' ').nth(1).unwrap().to_string();
        match i % 3 {
            0 => ("who is here ?".to_string(), context.replacen("here", "nobody", 1), String::new()),
            _ => ("who is here ?".to_string(), context, name),
        }
    };
    let home = folder(asked);
    let more =
        [("data.stride", "4"), ("model.max_seq_len", "14"), ("training.epochs", "20"), ("data.split.validation", "12")];
    let trained = prepare(home.path(), &more).unwrap().fit().unwrap();
    assert!(trained.corpus.sizes().starts_with("78 questions with "), "{}", trained.corpus.sizes());
    let found = measure(home.path(), None);
    assert_eq!((found.examples, found.score("exact_match")), (12, Some(1.0)), "{found:?}");
    assert!((found.loss - trained.evaluation.unwrap().loss).abs() < 1e-5, "{found:?} {:?}", trained.evaluation);
    let reader = QuestionAnswerer::load(home.path().join("run")).unwrap();
    let (question, context, _) = asked(21);
    let none = reader.answer(&[(question.as_str(), context.as_str())]).unwrap();
    assert_eq!((none[0].answer.as_str(), none[0].start, none[0].end), ("", 0, 0));
}

#[test]
fn a_reader_begins_from_another_one_and_its_adapters_are_merged() {
    let [first, second] = [folder(question), folder(question)];
    let few = [("training.epochs", "0"), ("training.steps", "1")];
    let base = prepare(first.path(), &few).unwrap().fit().unwrap();
    let from = base.folder.path().display().to_string();
    let begun = [&few[..], &[("init.from", from.as_str()), ("seed", "9"), ("model.adapters", "{ rank = 2 }")]].concat();
    let run = prepare(second.path(), &begun).unwrap();
    let head = |model: &crate::SpanReader| model.head.output.weight.val().into_data();
    head(run.model()).assert_eq(&head(&base.model), true);
    let new = &run.init_report().unwrap().new;
    assert!(!new.is_empty() && new.iter().all(|path| path.contains(".adapter.")), "{new:?}");
    run.fit().unwrap();
    let merged = second.path().join("merged");
    merge::<QuestionAnswering>(second.path().join("run"), &Checkpoint::Last, &merged, &Device::default()).unwrap();
    assert_eq!(
        QuestionAnswerer::load(&merged).unwrap().answer(&[("what is worn ?", "here ada wears red .")]).unwrap().len(),
        1
    );
}

#[test]
fn adapters_learn_beside_an_encoder_in_blocks_and_go_on_to_the_bit() {
    let [first, second] = [folder(question), folder(question)];
    prepare(first.path(), &[("training.epochs", "0"), ("training.steps", "1")]).unwrap().fit().unwrap();
    let loss = |run: &Path| evaluated(run, (second.path(), Some("dev")), &Device::flex()).loss;
    let home = adapters_learn_beside_blocks::<QuestionAnswering>(first, (second.path(), &SMALL[..]), loss);
    let asked = QuestionAnswerer::load(home.path().join("whole")).unwrap();
    assert_eq!(asked.answer(&[("what is worn ?", "here ada wears red .")]).unwrap().len(), 1);
}

#[test]
fn one_batch_is_learnt_to_zero_loss() {
    let home = folder(question);
    let run = prepare(home.path(), &[]).unwrap();
    for check in run.self_check().unwrap() {
        assert!(check.holds(), "{check}");
    }
    let device = Device::default().autodiff();
    let config = QuestionAnswering::quiet(
        &QuestionAnswering::config(&run.recipe, &run.corpus, Path::new("answers.toml")).unwrap(),
    );
    let task = SpanTask::new(config.init_with(&ParamBuilder::new(&device, 0)), SpanLossConfig::default());
    let batch = || SpanBatcher.batch(run.corpus.training()[..8].to_vec(), &device);
    let optimizer = OptimizerConfig { learning_rate: 1e-3, weight_decay: 0.0, ..OptimizerConfig::default() };
    let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
    let mut trainer = Trainer::new(task, optimizer, schedule, 0);
    let losses: Vec<f64> = (0..400).map(|_| trainer.step(batch()).unwrap().loss).collect();
    assert!(losses[0] > 0.5 && losses[399] < 1e-2, "{losses:?}");
}

#[test]
fn what_does_not_fit_is_reported_before_a_folder_is_made() {
    let home = folder(question);
    let message = |more: &[(&str, &str)]| {
        let error = prepare(home.path(), more).unwrap_err();
        assert!(error.is_user_error());
        error.to_string()
    };
    let short = message(&[("model.max_seq_len", "4"), ("model.n_segments", "0"), ("data.stride", "0")]);
    for part in ["max_seq_len must be at least 5", "n_segments must be 2", "data.stride = 0"] {
        assert!(short.contains(part), "{short}");
    }
    assert!(message(&[("training.monitor", "accuracy")]).contains("loss, exact_match, f1"));
    let long = message(&[("model.max_seq_len", "12")]);
    assert!(long.contains("line 1") && long.contains("data.stride"), "{long}");
    assert!(!home.path().join("run").exists());
}
