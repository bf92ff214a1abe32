//! What ends a training before its time, and what it leaves behind.

use super::*;

#[test]
fn a_checkpoint_that_cannot_be_written_ends_the_run_long_before_its_last_step() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    fs::write(folder.path().join("checkpoints"), "a file where the folder is to be").unwrap();
    let listener = Listener::default();
    let mut input = input(20_000, StartPoint::default(), Some(&folder));
    input.training.evaluate_every = 0;
    input.observers = vec![Box::new(listener.clone())];
    let error = fit(line(), input).unwrap_err();
    assert!(error.to_string().contains("checkpoints"), "{error}");
    let taken = listener.heard.lock().unwrap().len();
    assert!(taken < 10_000, "{taken} steps after a checkpoint was lost");
}

#[test]
fn a_number_that_is_none_leaves_the_last_good_checkpoint_as_it_was() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    fit(line(), input(4, StartPoint::default(), Some(&folder))).unwrap();
    let files = folder.checkpoint_folder(&Checkpoint::Step(4));
    let read = || [files.weights(), files.optimizer(), files.state()].map(|file| fs::read(file).unwrap());
    let before = read();

    let start = resume_point(&folder).unwrap().unwrap();
    let mut spoilt = input(12, start, Some(&folder));
    spoilt.train_loader = Arc::new(PointLoader::of_steps(4, 12).spoilt(2));
    let error = fit(line(), spoilt).unwrap_err();
    assert!(error.to_string().starts_with("step 6, batch 6: the loss is NaN"), "{error}");
    assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 4);
    assert!(read() == before && bytes(&folder, Checkpoint::Best) == before[0]);
}

#[test]
fn an_evaluation_that_finds_no_number_stops_the_run_and_keeps_nothing_as_the_best() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let refused = |spoil: fn(&mut FitInput<Line>)| {
        let mut input = input(12, StartPoint::default(), Some(&folder));
        spoil(&mut input);
        fit(line(), input).unwrap_err().to_string()
    };
    let error = refused(|input| input.valid_loader = Arc::new(PointLoader::of_steps(0, 3).spoilt(2)));
    assert!(error.starts_with("step 4, batch 4: the validation loss is NaN"), "{error}");
    let error = refused(|input| {
        input.evaluator = Box::new(Worse(f64::NAN));
        input.training.monitor = "accuracy".into();
    });
    assert!(error.starts_with("step 4, batch 4: the metric of `training.monitor` is NaN"), "{error}");
    let error = refused(|input| input.evaluator = Box::new(Worse(f64::NAN)));
    assert!(error.starts_with("step 4: the score `accuracy` of the validation is NaN"), "{error}");
    assert!(folder.checkpoints().unwrap().is_empty());
}

#[test]
fn bad_settings_are_all_listed_before_anything_is_done() {
    let mut input = input(1, StartPoint::default(), None);
    (input.training.batch_size, input.optimizer.clip_norm) = (0, -1.0);
    let error = fit(line(), input).unwrap_err();
    assert_eq!(
        error.to_string(),
        "training.batch_size = 0 must be at least 1; optimizer.clip_norm = -1 must be at least 0 and finite"
    );
}

#[test]
fn too_few_batches_and_numbers_that_overflow_stop_the_run() {
    let _alone = alone();
    let mut short = input(5, StartPoint::default(), None);
    short.train_loader = Arc::new(PointLoader::of_steps(0, 3));
    let error = fit(line(), short).unwrap_err();
    assert!(error.to_string().starts_with("the training data ended before step 4 of 5"), "{error}");

    let (_home, folder) = run_folder();
    let mut wild = input(12, StartPoint::default(), Some(&folder));
    wild.optimizer.learning_rate = 1e30;
    wild.schedule = ScheduleConfig { warmup_steps: 0, ..wild.schedule };
    let error = fit(line(), wild).unwrap_err();
    assert!(error.to_string().starts_with("step 2, batch 2: the loss is inf"), "{error}");
    assert!(error.is_user_error() && resume_point(&folder).unwrap().is_none());
}
