//! Whole runs of the smallest task: how they begin, go on and end.

use super::super::toy_task::{Toy, request};
use super::*;
use crate::toy::alone;
use crate::{Precision, Recompute, Switches};
use burn::tensor::{FloatDType, GradientCheckpointingStrategy};

#[test]
fn precision_and_recomputation_of_a_recipe_reach_every_training_pass() {
    let _alone = alone();
    let passes = |changes: &[(&str, &str)]| {
        let (_home, request) = request(changes);
        let run = Run::<Toy>::prepare(&request).unwrap();
        let noted = run.recipe.loss.clone();
        run.fit().unwrap();
        noted.passes()
    };
    let plain = passes(&[]);
    assert_eq!(plain.len(), 3);
    assert!(plain.iter().all(|(switches, _)| *switches == Switches::default()));
    assert!(plain.iter().all(|(_, strategy)| *strategy != Some(GradientCheckpointingStrategy::Balanced)));
    for (precision, dtype) in [("bf16", FloatDType::BF16), ("f16", FloatDType::F16)] {
        let half = passes(&[("training.precision", precision)]);
        assert!(half.iter().all(|(switches, _)| switches.dtype == Some(dtype)), "{half:?}");
    }
    let burn = passes(&[("training.recompute", "burn")]);
    assert!(burn.iter().all(|(_, strategy)| *strategy == Some(GradientCheckpointingStrategy::Balanced)), "{burn:?}");
    // Where the kernels of the CPU are built in, as in a test of the whole workspace.
    if Recompute::Blocks.check(&Device::flex()).is_ok() {
        let blocks = passes(&[("training.recompute", "blocks")]);
        assert!(blocks.iter().all(|(switches, _)| switches.recompute_blocks), "{blocks:?}");
    }
}

#[test]
fn a_run_tells_its_size_and_what_decides_about_it() {
    let (_home, request) = request(&[]);
    let run = Run::<Toy>::prepare(&request).unwrap();
    assert_eq!(run.non_embedding_parameters(), 2, "a line has no rows for tokens");
    assert_eq!(run.monitored(), Score::lower("loss"));
}

#[test]
fn what_is_frozen_has_no_gradient_and_no_moments_in_the_estimate() {
    let (_home, request) = request(&[("training.freeze", "[\"slope\"]")]);
    let found = Run::<Toy>::estimate(&request).unwrap();
    assert_eq!((found.parameters, found.trained, found.state_bytes), (2, 1, 4 * (2 + 3)));
    assert!(found.to_string().starts_with("2 parameters, 1 of them trained, 0.0 MFLOP"), "{found}");
    assert_eq!(Run::<Toy>::prepare(&request).unwrap().cost(), found);
}

#[test]
fn a_moving_average_is_one_more_copy_of_all_weights_in_the_estimate() {
    let (_home, request) = request(&[("training.ema_decay", "0.9")]);
    assert_eq!(Run::<Toy>::estimate(&request).unwrap().state_bytes, 4 * (2 * 2 + 3 * 2));
}

#[test]
#[allow(deprecated)] // Burn's older CPU backend has no half precision.
fn a_run_is_not_resumed_on_a_device_without_its_precision() {
    let _alone = alone();
    let (_home, request) = request(&[("training.precision", "bf16")]);
    Run::<Toy>::prepare(&request).unwrap().fit().unwrap();
    let elsewhere = RunRequest { device: Device::ndarray(), ..request.with_existing(Existing::Resume) };
    let error = Run::<Toy>::prepare(&elsewhere).unwrap_err();
    assert!(error.to_string().contains("cannot compute in bf16"), "{error}");
}

#[test]
fn half_precision_needs_nothing_of_the_task_but_its_scale() {
    let _alone = alone();
    let (_home, request) = request(&[("training.precision", "f16")]);
    let run = Run::<Toy>::prepare(&request).unwrap();
    assert_eq!(run.recipe.training.precision, Precision::F16);
    assert_eq!(run.fit().unwrap().steps, 3);
}

#[test]
fn a_run_begins_from_another_one_and_needs_it_no_more() {
    let _alone = alone();
    let (home, request) = request(&[]);
    let first = Run::<Toy>::prepare(&request).unwrap().fit().unwrap();
    let learnt = first.model.slope();
    let from = format!("{:?}", first.folder.path().display().to_string());
    let begun = request.clone().with_out(home.path().join("begun")).with_override("init.from", &from);
    let run = Run::<Toy>::prepare(&begun).unwrap();
    assert_eq!(run.model().slope(), learnt);
    let report = run.init_report().unwrap().to_string();
    assert!(
        report.starts_with("step 3, ") && report.ends_with("model.safetensors: 2 parameters taken over"),
        "{report}"
    );
    let noted = std::fs::read_to_string(run.folder.init()).unwrap();
    assert!(noted.contains("\"taken\": 2") && noted.contains("\"step\": 3"), "{noted}");
    let folder = run.fit().unwrap().folder.path().to_path_buf();
    drop(first.folder);
    std::fs::remove_dir_all(home.path().join("run")).unwrap();
    let on = RunRequest::new(&request.device).with_out(&folder).with_existing(Existing::Resume);
    let resumed = Run::<Toy>::prepare(&on.with_override("training.steps", 4)).unwrap();
    assert!(resumed.done() == 3 && resumed.init_report().is_none());
    resumed.fit().unwrap();
    assert!(folder.join("init.json").is_file());
    let error = Run::<Toy>::prepare(&begun.with_out(home.path().join("none"))).unwrap_err().to_string();
    assert!(error.contains("there is no folder") && !home.path().join("none").exists(), "{error}");
}

#[test]
fn weights_that_do_not_fit_are_refused_before_a_folder_is_made() {
    let (home, request) = request(&[]);
    let weights = home.path().join("other.safetensors");
    firelight_storage::save_weights(&burn::nn::LinearConfig::new(2, 3).init(&request.device), &weights).unwrap();
    let from = format!("{:?}", weights.display().to_string());
    let error = Run::<Toy>::prepare(&request.clone().with_override("init.from", &from)).unwrap_err().to_string();
    for part in
        ["other.safetensors`, which init.from names", "2 missing in it (`slope`, `offset`)", "(`bias`, `weight`)"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(!request.out.as_ref().unwrap().exists());
    let error = Run::<Toy>::prepare(&request.with_override("init.exclude", "[\"slope\"]")).unwrap_err().to_string();
    assert_eq!(error, "`--set init.exclude`: init.exclude needs init.from, or --from: the run to begin from");
}

#[test]
fn a_finished_run_that_is_resumed_changes_no_file() {
    let _alone = alone();
    let (_home, request) = request(&[]);
    let files = |folder: &ModelFolder| {
        [folder.metrics(), folder.sessions(), folder.recipe()].map(|path| std::fs::read(path).unwrap())
    };
    let before = files(&Run::<Toy>::prepare(&request).unwrap().fit().unwrap().folder);
    let again = Run::<Toy>::prepare(&request.with_existing(Existing::Resume)).unwrap();
    assert!(again.is_finished());
    assert_eq!(files(&again.fit().unwrap().folder), before);
}
