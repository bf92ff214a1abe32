//! The forecaster learns, and a training that was killed ends in the bytes of one that was not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::tensor::Device;
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::store::Split;
use firelight_consumer::forecaster::{Forecaster, Waves, burn_metrics, train_by_burn};
use firelight_storage::load_weights;

fn begin(folder: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firelight-consumer"));
    command.arg("forecast").arg(folder).spawn().expect("the program")
}

/// The mean squared error of the forecasts for series that no training has seen.
fn error_of(model: &Forecaster) -> f32 {
    let unseen: Vec<_> = (10_000..10_064).filter_map(|item| Waves(usize::MAX).get(item).ok()).collect();
    model.regress(Waves(0).batch(unseen, &Device::default())).loss.into_scalar()
}

/// Kills a training when it has left a checkpoint and is not done.
fn kill_within(folder: &Path) {
    let mut training = begin(folder);
    let checkpoint = folder.join("checkpoints");
    let has_one = || fs::read_dir(&checkpoint).is_ok_and(|mut found| found.next().is_some());
    let begun = Instant::now();
    while !has_one() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no checkpoint was written");
        assert!(training.try_wait().expect("a state").is_none(), "it ended before it was killed");
        sleep(Duration::from_millis(2));
    }
    training.kill().expect("a running program");
    assert!(!training.wait().expect("an end").success(), "it was done before it was killed");
}

/// Burn's logger has the losses of the ten stretches between evaluations, and says of the last one what Firelight says.
fn check_metrics(run: &Path) {
    let mut log = FileMetricLogger::new(burn_metrics(run));
    let mut losses = |stretch: usize, split: &Split| -> Vec<f64> {
        let entries = log.read_numeric("Loss", stretch, split).expect("numbers");
        entries.iter().map(|entry| entry.current()).collect()
    };
    let counts = [1, 10, 11].map(|stretch| [&Split::Train, &Split::Valid].map(|split| losses(stretch, split).len()));
    assert_eq!(counts, [[21, 5], [21, 5], [0, 0]], "of 20 steps, of 64 series in batches of 16, and their means");
    let (first, last) = (losses(1, &Split::Train)[0], losses(10, &Split::Train)[19]);
    assert!(last < first / 5.0, "the loss went from {first} to {last}");

    let mean = losses(10, &Split::Valid)[4];
    let ours = fs::read_to_string(run.join("metrics.jsonl")).expect("the metrics of the run");
    let ours = ours.rsplit("\"validation_loss\":").next().and_then(|rest| rest.split([',', '}']).next());
    let ours: f64 = ours.and_then(|number| number.parse().ok()).expect("a validation loss");
    assert!((mean - ours).abs() < 1e-6, "Burn's metric is {mean}, the run says {ours}");
}

#[test]
fn a_killed_training_ends_in_the_bytes_of_one_that_was_not() {
    let home = tempfile::tempdir().expect("a folder");
    let [whole, killed]: [PathBuf; 2] = ["whole", "killed"].map(|name| home.path().join(name));
    // In processes of their own: Burn draws initial weights from one generator for all threads.
    assert!(begin(&whole).wait().expect("an end").success());
    let mut model = Forecaster::new(&Device::default());
    let untrained = error_of(&model);
    load_weights(&mut model, whole.join("model.safetensors")).expect("its weights");
    let error = error_of(&model);
    assert!(error < untrained / 20.0, "the error went from {untrained} to {error}");

    check_metrics(&whole);

    kill_within(&killed);
    assert!(begin(&killed).wait().expect("an end").success());
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).expect("weights");
    assert!(weights(&whole) == weights(&killed), "the weights of a training that was killed are others");
    let page = fs::read_to_string(killed.join("report.html")).expect("a report");
    assert!(page.contains("waves") && page.contains("<svg"), "{page}");
}

/// The messages of an event file, which stand between their lengths and their checksums.
fn events(folder: &Path) -> Vec<Vec<u8>> {
    let mut files = fs::read_dir(folder).expect("event files").map(|file| file.expect("a file").path());
    let (bytes, mut messages) = (fs::read(files.next().expect("a file")).expect("events"), Vec::new());
    assert_eq!(files.count(), 0, "one training writes one file");
    let mut left = bytes.as_slice();
    while let Some((length, rest)) = left.split_first_chunk() {
        let end = 4 + u64::from_le_bytes(*length) as usize;
        messages.push(rest[4..end].to_vec());
        left = &rest[end + 4..];
    }
    messages
}

#[test]
fn burns_learner_trains_it_as_well_and_tensorboard_shows_it() {
    let home = tempfile::tempdir().expect("a folder");
    let untrained = error_of(&Forecaster::new(&Device::default()));
    let error = error_of(&train_by_burn(home.path(), 40).expect("a training").valid());
    assert!(error < untrained / 4.0, "the error went from {untrained} to {error}");

    let events = events(&home.path().join("tensorboard"));
    let has = |event: &Vec<u8>, text: &str| event.windows(text.len()).any(|window| window == text.as_bytes());
    let counts = ["brain.Event:2", "training/Loss", "validation/Loss"]
        .map(|text| events.iter().filter(|event| has(event, text)).count());
    assert_eq!(counts, [1, 80, 2], "the version, every batch, and the validation after each of two epochs");
}
