//! Several ranks, here threads, train what one process trains after the same groups of batches: every file is the same to the byte.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use burn::train::checkpoint::FileCheckpointer;
use burn_pack::Reader;
use firelight_storage::InputError;

use super::ended::left;
use super::*;
use crate::toy::Noted;
use crate::{
    AdafactorConfig, AdamConfig, Exchange, LionConfig, MetricsLog, MuonConfig, ParameterGroup, Shared, SharedEvaluator,
    Threads, ThreadsOptions, TrainingModule, UpdateRule,
};

const STEPS: usize = 7;

/// A training of groups of batches, the last one of which lacks `missing`: as it begins, or as it stands in the folder.
#[derive(Clone, Copy)]
struct Groups {
    steps: usize,
    group: usize,
    missing: usize,
    /// Whether each rank keeps the moments of its share alone.
    sharded: bool,
}

impl Groups {
    fn of(group: usize) -> Self {
        Self { steps: STEPS, group, missing: 0, sharded: false }
    }

    fn sharded(self) -> Self {
        Self { sharded: true, ..self }
    }

    fn input(self, folder: &ModelFolder) -> FitInput<Line> {
        let Self { steps, group, missing, sharded } = self;
        let start = resume_point(folder).unwrap().unwrap_or_default();
        let batches = group * start.step()..group * steps - missing;
        let mut input = input(steps, start, Some(folder));
        input.train_loader = Arc::new(PointLoader::of_steps(batches.start, batches.end));
        let training = TrainingConfig { checkpoint_every: 3, ema_decay: 0.5, ..input.training };
        input.training = TrainingConfig { gradient_accumulation_steps: group, shard_optimizer: sharded, ..training };
        input.in_common = vec![("data".into(), "points".into())];
        input
    }

    /// What the ranks return, in order; `change` makes other inputs of their own.
    fn train(
        self,
        world: usize,
        folder: &ModelFolder,
        change: impl Fn(usize, &mut FitInput<Line>) + Sync,
    ) -> Vec<Result<Fitted<Line>, TrainingError>> {
        let options = ThreadsOptions { timeout: Duration::from_secs(60), ..ThreadsOptions::default() };
        thread::scope(|scope| {
            let change = &change;
            let rank = |(number, rank): (usize, Threads)| {
                let folder = folder.clone();
                scope.spawn(move || {
                    let mut input = self.input(&folder);
                    if number == 0 {
                        input.observers.push(Box::new(log(&folder, input.start.step())));
                    }
                    input.communicator = Arc::new(rank);
                    change(number, &mut input);
                    fit(line(), input)
                })
            };
            let ranks = Threads::ranks(world, options).into_iter().enumerate().map(rank).collect::<Vec<_>>();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    /// The files of a training on so many ranks.
    fn files(self, world: usize) -> (Vec<Vec<u8>>, BTreeMap<String, Vec<u8>>) {
        self.files_by(world, &OptimizerConfig { learning_rate: 0.1, ..OptimizerConfig::default() })
    }

    fn files_by(self, world: usize, optimizer: &OptimizerConfig) -> (Vec<Vec<u8>>, BTreeMap<String, Vec<u8>>) {
        let (_home, folder) = run_folder();
        let ranks = self.train(world, &folder, |_, input| input.optimizer = optimizer.clone());
        let fitted: Vec<_> = ranks.into_iter().map(Result::unwrap).collect();
        for rank in &fitted {
            assert_eq!((rank.steps, rank.interrupted), (self.steps, false));
            assert_eq!((rank.evaluation, rank.best), (fitted[0].evaluation, fitted[0].best));
            assert_eq!(rank.model.slope().to_bits(), fitted[0].model.slope().to_bits());
        }
        (left(&folder), moments(&folder))
    }
}

fn log(folder: &ModelFolder, done: usize) -> MetricsLog {
    let path = folder.metrics();
    if done == 0 { MetricsLog::create(path).unwrap() } else { MetricsLog::resume(path, done).unwrap() }
}

/// The optimiser's state in the newest checkpoint, by the paths of the parameters in the place of their ids, which are drawn.
fn moments(folder: &ModelFolder) -> BTreeMap<String, Vec<u8>> {
    let newest = folder.checkpoints().unwrap().into_iter().max().unwrap();
    let reader = Reader::from_file(folder.checkpoint_folder(&newest).optimizer()).unwrap();
    let by_path = |name: &str| {
        reader.metadata().iter().fold(name.to_string(), |name, (id, path)| name.replace(id.as_str(), path.as_str()))
    };
    reader.tensor_names().into_iter().map(|name| (by_path(name), reader.tensor_data(name).unwrap())).collect()
}

fn texts(results: Vec<Result<Fitted<Line>, TrainingError>>) -> Vec<String> {
    results.into_iter().map(|result| result.unwrap_err().to_string()).collect()
}

#[test]
fn ranks_train_what_one_process_trains_to_the_byte() {
    let _alone = alone();
    for (group, worlds) in [(8, &[2, 4, 8][..]), (6, &[2, 6][..]), (3, &[3][..])] {
        let one = Groups::of(group).files(1);
        assert!(!one.1.is_empty() && one.1.keys().any(|name| name.contains("slope")), "{:?}", one.1.keys());
        for &world in worlds {
            assert!(Groups::of(group).files(world) == one, "{group} batches on {world} ranks");
        }
    }
}

#[test]
fn a_last_group_may_end_before_the_share_of_a_rank() {
    let _alone = alone();
    for missing in [3, 7] {
        let groups = Groups { missing, ..Groups::of(8) };
        let one = groups.files(1);
        for world in [2, 4, 8] {
            assert!(groups.files(world) == one, "{missing} batches missing on {world} ranks");
        }
    }
}

#[test]
fn the_ranks_of_a_world_train_on_in_another() {
    let _alone = alone();
    let one = Groups::of(8).files(1);
    let (_home, folder) = run_folder();
    for (world, until) in [(4, 3), (2, 5), (8, 6)] {
        let interrupted = Groups::of(8).train(world, &folder, |rank, input| {
            // Whoever is interrupted, all of them are.
            if rank == 0 {
                let stop = Some((until, input.interrupter.clone()));
                input.observers.push(Box::new(Listener { stop, ..Listener::default() }));
            }
        });
        for rank in interrupted {
            let rank = rank.unwrap();
            assert_eq!((rank.steps, rank.interrupted), (until, true));
        }
        assert_eq!(resume_point(&folder).unwrap().unwrap().step(), until);
    }
    Groups::of(8).train(1, &folder, |_, _| ()).pop().unwrap().unwrap();
    assert!((left(&folder), moments(&folder)) == one);
}

#[test]
fn shares_of_the_moments_change_no_byte() {
    let _alone = alone();
    for (group, worlds) in [(8, &[1, 2, 4, 8][..]), (3, &[3][..])] {
        let one = Groups::of(group).files(1);
        for &world in worlds {
            assert!(Groups::of(group).sharded().files(world) == one, "{group} batches on {world} ranks");
        }
    }
    let early = Groups { missing: 7, ..Groups::of(8) };
    assert!(early.sharded().files(4) == early.files(1));
}

#[test]
fn every_optimizer_can_be_shared() {
    let _alone = alone();
    let slope = ParameterGroup { parameters: "slope".into(), muon: Some(true), ..ParameterGroup::default() };
    let muon = OptimizerConfig { groups: vec![slope], ..UpdateRule::Muon(MuonConfig::default()).into() };
    let clipped = OptimizerConfig { clip_norm: 0.01, ..UpdateRule::Adam(AdamConfig::vaswani()).into() };
    let lion = UpdateRule::Lion(LionConfig::default()).into();
    for optimizer in [muon, clipped, lion, UpdateRule::Adafactor(AdafactorConfig::default()).into()] {
        let one = Groups::of(2).files_by(1, &optimizer);
        assert!(Groups::of(2).sharded().files_by(2, &optimizer) == one, "{:?}", optimizer.kind());
    }
}

#[test]
fn shares_of_the_moments_go_on_in_another_world() {
    let _alone = alone();
    let one = Groups::of(8).files(1);
    let (_home, folder) = run_folder();
    // A rank takes its share of what was shared otherwise, or of what one rank had whole; the last one has all of it.
    for (world, until, sharded) in [(4, 2, true), (2, 3, true), (8, 5, false), (2, 6, true)] {
        let groups = Groups { sharded, ..Groups::of(8) };
        for rank in groups.train(world, &folder, |rank, input| {
            if rank == 0 {
                let stop = Some((until, input.interrupter.clone()));
                input.observers.push(Box::new(Listener { stop, ..Listener::default() }));
            }
        }) {
            assert_eq!(rank.unwrap().steps, until);
        }
    }
    Groups::of(8).sharded().train(1, &folder, |_, _| ()).pop().unwrap().unwrap();
    assert!((left(&folder), moments(&folder)) == one);
}

#[test]
fn shares_need_no_folder() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let ranks = Groups::of(2).sharded().train(2, &folder, |_, input| input.folder = None);
    assert!(ranks.into_iter().all(|rank| rank.unwrap().steps == STEPS));
    assert!(folder.checkpoints().unwrap().is_empty());
}

#[test]
fn a_checkpointer_of_burns_would_keep_a_part_of_the_moments() {
    let _alone = alone();
    let (home, folder) = run_folder();
    let errors = texts(Groups::of(2).sharded().train(2, &folder, |rank, input| {
        let place = home.path().join(rank.to_string());
        let [model, optimizer, schedule] =
            ["model", "optim", "scheduler"].map(|name| FileCheckpointer::new(&place, name));
        let extend: Extension<Line> =
            Box::new(|training| training.with_custom_checkpointers(model, optimizer, schedule));
        input.extension = Some(extend);
    }));
    let expected = "a checkpointer of Burn's and training.shard_optimizer = true do not go together";
    assert!(errors.iter().all(|error| error.contains(expected)), "{errors:?}");
}

#[test]
fn gradients_in_half_the_bytes_train_nearly_the_same() {
    let _alone = alone();
    let slopes = |world: usize, exchange: Exchange| {
        let (_home, folder) = run_folder();
        let ranks = Groups::of(4).train(world, &folder, |_, input| input.training.exchange = exchange);
        ranks.into_iter().map(|rank| rank.unwrap().model.slope()).collect::<Vec<_>>()
    };
    let (one, rounded) = (slopes(1, Exchange::Bf16)[0], slopes(4, Exchange::Bf16));
    assert_eq!(slopes(1, Exchange::F32), [one], "one rank rounds nothing");
    assert!(rounded.iter().all(|slope| slope.to_bits() == rounded[0].to_bits()), "{rounded:?}");
    assert!(rounded[0] != one && (rounded[0] - one).abs() < 0.1, "{} is not near {one}", rounded[0]);
}

#[test]
fn scores_and_patience_agree_on_all_ranks() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let results = Groups { steps: 40, ..Groups::of(2) }.train(2, &folder, |_, input| {
        input.training.monitor = "accuracy".into();
        input.training.patience = 2;
        input.evaluator = Box::new(Worse(1.0));
    });
    for rank in results {
        let rank = rank.unwrap();
        assert_eq!((rank.best.unwrap().step, rank.steps, rank.interrupted), (4, 12, false));
    }
}

/// The largest loss of a batch, and how many batches this rank has evaluated.
struct Largest {
    loss: f64,
    evaluated: Arc<AtomicUsize>,
}

impl SharedEvaluator<Line> for Largest {
    fn scores(&self) -> Vec<Score> {
        vec![Score::lower("largest")]
    }

    fn batch_statistics(&self, output: &LossOutput) -> Result<Vec<Vec<f64>>, TrainingError> {
        self.evaluated.fetch_add(1, Ordering::Relaxed);
        Ok(vec![vec![output.read().map_err(TrainingError::device("loss"))?.0]])
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        let larger = |most: f64, loss: f64| if most.is_nan() || loss <= most { most } else { loss };
        self.loss = statistics.into_iter().flatten().fold(self.loss, larger); // No loss is larger than NaN.
        Ok(())
    }

    fn finish(&mut self, _model: &Line, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        Ok(vec![std::mem::take(&mut self.loss)])
    }
}

#[test]
fn ranks_share_scores_and_each_evaluates_its_own_batches() {
    let _alone = alone();
    let trained = |world: usize| {
        let (_home, folder) = run_folder();
        let evaluated: Vec<Arc<AtomicUsize>> = (0..world).map(|_| Arc::default()).collect();
        let ranks = Groups::of(2).train(world, &folder, |rank, input| {
            input.training.monitor = "largest".into();
            input.evaluator = Box::new(Shared(Largest { loss: 0.0, evaluated: evaluated[rank].clone() }));
        });
        assert!(ranks.iter().all(Result::is_ok));
        (left(&folder), evaluated.iter().map(|batches| batches.load(Ordering::Relaxed)).collect::<Vec<_>>())
    };
    let ((one, all), (two, shares)) = (trained(1), trained(2));
    assert!(one == two);
    assert!(shares[0] > shares[1] && shares[1] > 0 && shares[0] + shares[1] == all[0], "{shares:?} of {all:?}");
}

#[test]
fn the_first_rank_alone_reports() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let listeners = [Listener::default(), Listener::default()];
    let ranks = Groups { steps: 2, ..Groups::of(2) }.train(2, &folder, |rank, input| {
        input.observers.push(Box::new(listeners[rank].clone()));
    });
    assert!(ranks.iter().all(Result::is_ok));
    let heard = listeners.map(|listener| listener.heard.lock().unwrap().join(", "));
    assert_eq!(heard, ["started 0/2, step 1, step 2, evaluation 2, finished", ""]);
}

#[test]
fn ranks_that_cannot_share_a_group_are_refused() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let errors = texts(Groups::of(6).train(4, &folder, |_, _| ()));
    let expected =
        "training.gradient_accumulation_steps = 6 cannot be shared by 4 ranks; set it to a multiple of 4, such as 8";
    assert_eq!(errors, [expected; 4]);
    assert!(folder.checkpoints().unwrap().is_empty());
}

#[test]
fn ranks_that_did_not_begin_alike_are_told_before_the_first_step() {
    let _alone = alone();
    let refused = |change: fn(&mut FitInput<Line>)| {
        let (_home, folder) = run_folder();
        let errors = texts(Groups::of(4).train(4, &folder, |rank, input| {
            if rank == 2 {
                change(input);
            }
        }));
        assert!(errors.iter().all(|error| *error == errors[0]) && folder.checkpoints().unwrap().is_empty());
        let told = errors[0].strip_prefix("rank 2 does not train what rank 0 does: its ").unwrap();
        told.split(';').next().unwrap().to_string()
    };
    assert_eq!(refused(|input| input.seed = 8), "seed is `8`, and that of rank 0 `7`");
    let steps = refused(|input| input.training.steps = 8);
    assert_eq!(steps, "training.steps is `8`, and that of rank 0 `7`");
    let rate = refused(|input| input.optimizer.learning_rate = 0.5);
    assert!(rate.starts_with("optimizer.learning_rate is `0.5`"), "{rate}");
    let items = refused(|input| input.train_loader = Arc::new(PointLoader::of_steps(0, 27)));
    assert_eq!(items, "number of training and validation items is `[108,12]`, and that of rank 0 `[112,12]`");
    let data = refused(|input| input.in_common[0].1 = "other".into());
    assert_eq!(data, "data is `other`, and that of rank 0 `points`");
}

#[test]
fn other_weights_are_told_too() {
    let _alone = alone();
    let ranks = Threads::ranks(2, ThreadsOptions::default());
    let errors = thread::scope(|scope| {
        let rank = |(number, rank): (usize, Threads)| {
            scope.spawn(move || {
                let (_home, folder) = run_folder();
                let input = FitInput { communicator: Arc::new(rank), ..Groups::of(2).input(&folder) };
                fit(Line::new(number as f32, 0.0, &Device::default()), input).unwrap_err().to_string()
            })
        };
        let ranks: Vec<_> = ranks.into_iter().enumerate().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(errors[0].contains("its model is `2 weights with the checksum ") && errors[0] == errors[1], "{errors:?}");
}

#[test]
fn a_number_that_is_none_is_told_by_all_with_its_batch() {
    let _alone = alone();
    for world in [1, 4] {
        let (_home, folder) = run_folder();
        let errors = texts(Groups::of(8).train(world, &folder, |_, input| {
            input.train_loader = Arc::new(PointLoader::of_steps(0, 56).spoilt(14).spoilt(16));
        }));
        for error in errors {
            assert!(error.starts_with("step 2, batch 14: the loss is NaN"), "{error}");
        }
    }
}

/// Where the scale of the loss stands after a training in `f16` that begins with one too large, and the last weights.
fn half(world: usize, sharded: bool) -> (String, Vec<u8>) {
    let (_home, folder) = run_folder();
    let scales = thread::scope(|scope| {
        let rank = |rank: Threads| {
            let folder = folder.clone();
            scope.spawn(move || {
                let model = Line::new(0.0, 0.0, &Device::flex().autodiff()).with_dropout(0.3);
                let task = TrainingModule::new(model, Noted::default()).with_precision(Precision::F16);
                let scale = task.loss_scale().unwrap();
                scale.begin_at(1e38);
                let training = Arc::new(PointLoader::of_steps(0, 4 * STEPS));
                let validation = Arc::new(PointLoader::of_steps(0, 3));
                let mut input = FitInput::<TrainingModule<Line>>::new(training, validation);
                input.training.steps = STEPS;
                input.training.gradient_accumulation_steps = 4;
                input.training.precision = Precision::F16;
                input.training.shard_optimizer = sharded;
                input.loss_scale = Some(scale.clone());
                input.folder = Some(folder);
                input.communicator = Arc::new(rank);
                fit(task, input).unwrap();
                format!("{:?}", scale.state())
            })
        };
        let ranks: Vec<_> = Threads::ranks(world, ThreadsOptions::default()).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(scales.iter().all(|scale| *scale == scales[0]), "{scales:?}");
    (scales[0].clone(), bytes(&folder, Checkpoint::Last))
}

#[test]
fn the_scale_of_the_loss_is_the_same_on_all_ranks() {
    let _alone = alone();
    let one = half(1, false);
    assert!(half(2, false) == one && half(4, false) == one && half(2, true) == one);
    let unchanged = crate::LossScale::default();
    unchanged.begin_at(1e38);
    (0..STEPS).for_each(|_| unchanged.keep());
    assert_ne!(one.0, format!("{:?}", unchanged.state()), "a step overflowed");
}

/// Fails at the first evaluation.
struct Broken;

impl Evaluator<Line> for Broken {
    fn scores(&self) -> Vec<Score> {
        Vec::new()
    }

    fn observe(&mut self, _output: &LossOutput) -> Result<(), TrainingError> {
        Err(InputError::new("the evaluator is broken").into())
    }

    fn finish(&mut self, _model: &Line) -> Result<Vec<f64>, TrainingError> {
        Ok(Vec::new())
    }
}

/// Fails after the first step.
struct FullDisk;

impl Observer for FullDisk {
    fn step(&mut self, _report: &StepReport) -> Result<(), TrainingError> {
        Err(InputError::new("the disk is full").into())
    }
}

#[test]
fn a_rank_that_fails_ends_all_with_its_reason() {
    let _alone = alone();
    for (failing, reason) in [(0, "the disk is full"), (2, "the evaluator is broken")] {
        let (_home, folder) = run_folder();
        let errors = texts(Groups::of(4).train(4, &folder, |rank, input| match (failing, rank) {
            (0, 0) => input.observers.push(Box::new(FullDisk)),
            (2, 2) => input.evaluator = Box::new(Broken),
            _ => {}
        }));
        for (rank, error) in errors.into_iter().enumerate() {
            let told = format!("rank {failing} has failed: {reason}");
            assert_eq!(error, if rank == failing { reason.to_string() } else { told });
        }
    }
}
