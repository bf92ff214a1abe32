//! Whole runs of the smallest task on ranks that are threads: the folder that they leave is that of one process, to the byte.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use burn::train::Interrupter;
use burn_pack::Reader;
use firelight_storage::Existing;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::task::toy_task::{Toy, request};
use crate::toy::{alone, with_collectives};
use crate::{Observer, StepReport, Threads, ThreadsOptions};

const STEPS: &str = "5";

/// What happens to the first rank after a step.
#[derive(Clone, Copy)]
enum After {
    Nothing,
    Interruption(usize),
    Failure(usize),
}

struct Watch {
    after: After,
    interrupter: Interrupter,
}

impl Observer for Watch {
    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        match self.after {
            After::Interruption(step) if step == report.step => self.interrupter.stop(None),
            After::Failure(step) if step == report.step => return Err(InputError::new("the disk is full").into()),
            _ => {}
        }
        Ok(())
    }
}

/// A request of groups of four batches.
fn asked() -> (TempDir, RunRequest) {
    request(&[
        ("training.steps", STEPS),
        ("training.gradient_accumulation_steps", "4"),
        ("training.evaluate_every", "2"),
        ("training.checkpoint_every", "2"),
        ("training.ema_decay", "0.5"),
        ("optimizer.learning_rate", "0.1"),
    ])
}

/// What a rank returns: the steps done, and whether it was interrupted.
type End = Result<(usize, bool), String>;

fn ends(world: usize, steps: usize, interrupted: bool) -> Vec<End> {
    vec![Ok((steps, interrupted)); world]
}

/// What the ranks of a world return, in their order; `change` makes other requests of their own.
fn train(
    world: usize,
    request: &RunRequest,
    after: After,
    change: impl Fn(usize, RunRequest) -> RunRequest + Sync,
) -> Vec<End> {
    let options = ThreadsOptions { timeout: Duration::from_secs(60), ..ThreadsOptions::default() };
    train_on(Threads::ranks(world, options), request, after, change)
}

/// The same of ranks that are there.
fn train_on(
    ranks: Vec<Threads>,
    request: &RunRequest,
    after: After,
    change: impl Fn(usize, RunRequest) -> RunRequest + Sync,
) -> Vec<End> {
    thread::scope(|scope| {
        let change = &change;
        let rank = |(number, rank): (usize, Threads)| {
            let request = change(number, request.clone());
            scope.spawn(move || one(&request, Arc::new(rank), after).map_err(|error| error.to_string()))
        };
        let ranks: Vec<_> = ranks.into_iter().enumerate().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn one(
    request: &RunRequest,
    communicator: Arc<dyn Communicator>,
    after: After,
) -> Result<(usize, bool), Box<dyn std::error::Error>> {
    let run = Run::<Toy>::prepare_on(request, communicator)?;
    let interrupter = Interrupter::new();
    let watch = Watch { after, interrupter: interrupter.clone() };
    let trained = run.fit_with(vec![Box::new(watch)], interrupter, None)?;
    Ok((trained.steps, trained.interrupted))
}

fn on(world: usize, request: &RunRequest, after: After) -> Vec<End> {
    train(world, request, after, |_, request| request)
}

/// All files of a run, without what tells the time, and the drawn ids of the parameters replaced by their paths.
fn left(request: &RunRequest) -> BTreeMap<String, Vec<u8>> {
    let (mut found, root) = (BTreeMap::new(), request.out.clone().unwrap());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    found.insert(path.strip_prefix(&root).unwrap().display().to_string(), timeless(&path));
                }
            }
        }
    }
    found
}

fn timeless(path: &Path) -> Vec<u8> {
    let without = |text: &str, keys: &[&str]| {
        let mut value: Value = serde_json::from_str(text).unwrap();
        keys.iter().for_each(|key| drop(value.as_object_mut().unwrap().remove(*key)));
        value.to_string()
    };
    let text = || fs::read_to_string(path).unwrap();
    match path.file_name().unwrap().to_str().unwrap() {
        "metrics.jsonl" => text().lines().map(|line| without(line, &["tokens_per_second"])).collect::<String>().into(),
        "state.json" => without(&text(), &["parameters"]).into(),
        "sessions.json" => Vec::new(), // who trained it, and when
        "optimizer.bpk" => format!("{:?}", moments(path)).into(),
        _ => fs::read(path).unwrap(),
    }
}

/// The optimiser's state by the paths of the parameters.
fn moments(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let reader = Reader::from_file(path).unwrap();
    let by_path = |name: &str| {
        reader.metadata().iter().fold(name.to_string(), |name, (id, path)| name.replace(id.as_str(), path.as_str()))
    };
    reader.tensor_names().into_iter().map(|name| (by_path(name), reader.tensor_data(name).unwrap())).collect()
}

/// What one process leaves.
fn of_one() -> BTreeMap<String, Vec<u8>> {
    let (_home, request) = asked();
    Run::<Toy>::prepare(&request).unwrap().fit().unwrap();
    left(&request)
}

#[test]
fn ranks_leave_the_folder_of_one_process() {
    let _alone = alone();
    let expected = of_one();
    for name in ["recipe.toml", "metrics.jsonl", "sessions.json", "checkpoints/best/model.safetensors"] {
        assert!(expected.contains_key(name), "{name} is not among {:?}", expected.keys());
    }
    for world in [1, 2, 4] {
        let (_home, request) = asked();
        assert_eq!(on(world, &request, After::Nothing), ends(world, 5, false));
        assert!(left(&request) == expected, "{world} ranks");
    }
}

/// Of two numbers there is one sum, whoever adds them.
#[test]
fn two_ranks_whose_devices_sum_leave_the_folder_of_one_process() {
    let _alone = alone();
    let (_home, request) = asked();
    let told = train_on(with_collectives(2), &request, After::Nothing, |_, request| request);
    assert_eq!(told, ends(2, 5, false));
    assert!(left(&request) == of_one());
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let _alone = alone();
    let expected = of_one();
    let (_home, request) = asked();
    assert_eq!(on(4, &request, After::Interruption(2)), ends(4, 2, true));
    let request = request.with_existing(Existing::Resume);
    assert_eq!(on(2, &request, After::Interruption(4)), ends(2, 4, true));
    assert_eq!(on(4, &request, After::Nothing), ends(4, 5, false));
    assert!(left(&request) == expected);
    // And is finished, for any number of them.
    let sessions = fs::read(request.out.as_ref().unwrap().join("sessions.json")).unwrap();
    assert_eq!(on(2, &request, After::Nothing), ends(2, 5, false));
    assert!(left(&request) == expected && sessions == fs::read(request.out.unwrap().join("sessions.json")).unwrap());
}

#[test]
fn ranks_that_share_the_moments_leave_the_folder_of_one_process_too() {
    let _alone = alone();
    let sharded = || {
        let (home, request) = asked();
        (home, request.with_override("training.shard_optimizer", true))
    };
    let (_home, one) = sharded();
    Run::<Toy>::prepare(&one).unwrap().fit().unwrap();
    let (_home_of_ranks, request) = sharded();
    assert_eq!(on(4, &request, After::Interruption(2)), ends(4, 2, true));
    let request = request.with_existing(Existing::Resume);
    assert_eq!(on(2, &request, After::Nothing), ends(2, 5, false));
    assert!(left(&request) == left(&one));
}

#[test]
fn steps_that_a_command_adds_are_those_of_all_ranks() {
    let _alone = alone();
    let (_home, request) = asked();
    assert_eq!(on(2, &request, After::Nothing), ends(2, 5, false));
    let further = request.with_existing(Existing::Resume).with_override("training.steps", 7);
    assert_eq!(on(2, &further, After::Nothing), ends(2, 7, false));
}

#[test]
fn a_rank_that_fails_ends_all_and_the_run_goes_on() {
    let _alone = alone();
    let (_home, request) = asked();
    let failed = |text: &str| -> End { Err(text.to_string()) };
    let others = failed("rank 0 has failed: the disk is full");
    let expected = vec![failed("the disk is full"), others.clone(), others.clone(), others];
    assert_eq!(on(4, &request, After::Failure(3)), expected);
    let request = request.with_existing(Existing::Resume);
    assert_eq!(on(2, &request, After::Nothing), ends(2, 5, false));
    assert!(left(&request) == of_one());
}

#[test]
fn a_group_that_ranks_cannot_share_is_refused_before_a_folder_is_made() {
    let (_home, request) = asked();
    let request = request.with_override("training.gradient_accumulation_steps", 3);
    let reason =
        "training.gradient_accumulation_steps = 3 cannot be shared by 4 ranks; set it to a multiple of 4, such as 4";
    let told = on(4, &request, After::Nothing);
    assert_eq!(told[0], Err(reason.to_string()));
    assert!(told[1..].iter().all(|end| *end == Err(format!("rank 0 has failed: {reason}"))), "{told:?}");
    assert!(!request.out.unwrap().exists());
}

#[test]
fn ranks_that_are_asked_for_different_runs_are_told_before_a_folder_is_made() {
    let (_home, request) = asked();
    let told = train(2, &request, After::Nothing, |rank, request| match rank {
        1 => request.with_override("seed", 8),
        _ => request,
    });
    for end in told {
        let error = end.unwrap_err();
        assert!(error.starts_with("rank 1 does not train what rank 0 does: its override of seed is `"), "{error}");
    }
    assert!(!request.out.unwrap().exists());
}

#[test]
fn ranks_of_other_programs_are_told_before_a_folder_is_made() {
    let (_home, request) = asked();
    let told =
        train(2, &request, After::Nothing, |rank, request| request.with_version(["0.1.0 (a)", "0.1.0 (b)"][rank]));
    for end in told {
        let error = end.unwrap_err();
        let expected =
            "rank 1 does not train what rank 0 does: its version is `0.1.0 (b)`, and that of rank 0 `0.1.0 (a)`";
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(!request.out.unwrap().exists());
}

/// As two copies of large data may.
#[test]
fn folders_whose_files_differ_at_their_end_are_told_apart() {
    let home = tempfile::tempdir().unwrap();
    let folder = |name: &str, last: u8| {
        let path = home.path().join(name);
        filled(&path, "seed = 1");
        fs::write(path.join("metrics.jsonl"), [&vec![7; (1 << 20) + 1][..], &[last]].concat()).unwrap();
        contents(&ModelFolder::open(&path).unwrap()).unwrap()
    };
    assert_eq!(folder("a", 1), folder("b", 1));
    assert_ne!(folder("a", 1), folder("c", 2));
}

#[test]
fn a_rank_that_sees_another_folder_is_told() {
    let home = tempfile::tempdir().unwrap();
    let folder = |name: &str, text: &str| {
        let path = home.path().join(name);
        filled(&path, text);
        contents(&ModelFolder::open(&path).unwrap()).unwrap()
    };
    let expected = folder("a", "seed = 1");
    assert_eq!(expected, folder("b", "seed = 1"));
    assert_ne!(expected, folder("b", "seed = 2"));
    assert!(expected.lines().any(|line| line.starts_with("recipe.toml: 8 bytes with the checksum ")), "{expected}");
    // Where nothing else comes, it is compared with what the first rank has, or said not to be there.
    let (other, found) = seen(&home.path().join("b"), &expected, Duration::ZERO).unwrap();
    assert_eq!((other.path(), found), (&*home.path().join("b"), folder("b", "seed = 2")));
    let error = seen(&home.path().join("none"), &expected, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("there is no folder") && error.ends_with("name one by --out that all machines share"));
}

/// A run folder with what no run writes beside its recipe.
fn filled(path: &Path, recipe: &str) {
    fs::create_dir_all(path.join("checkpoints")).unwrap();
    for (name, text) in [("recipe.toml", recipe), (".lock", recipe), ("config.json", "{}")] {
        fs::write(path.join(name), text).unwrap();
    }
    fs::write(path.join("output.log"), path.display().to_string()).unwrap();
}

#[test]
fn a_folder_that_comes_late_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let [first, late] = ["first", "late"].map(|name| home.path().join(name));
    filled(&first, "seed = 1");
    let expected = contents(&ModelFolder::open(&first).unwrap()).unwrap();
    thread::scope(|scope| {
        let rank = scope.spawn(|| seen(&late, &expected, PATIENCE));
        thread::sleep(PAUSE / 2);
        filled(&late, "seed = 0");
        filled(&late, "seed = 1");
        assert_eq!(rank.join().unwrap().unwrap().1, expected);
    });
}

/// Ctrl-C on any rank, here the last one.
#[test]
fn an_interruption_of_any_rank_stops_all() {
    let _alone = alone();
    let (_home, request) = asked();
    let steps = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (number, rank) in Threads::ranks(2, ThreadsOptions::default()).into_iter().enumerate() {
            let (request, steps) = (request.clone(), &steps);
            scope.spawn(move || {
                let (run, interrupter) =
                    (Run::<Toy>::prepare_on(&request, Arc::new(rank)).unwrap(), Interrupter::new());
                if number == 1 {
                    interrupter.stop(None);
                }
                let trained = run.fit_with(Vec::new(), interrupter, None).unwrap();
                steps.lock().unwrap().push((trained.steps, trained.interrupted));
            });
        }
    });
    assert_eq!(steps.into_inner().unwrap(), [(1, true); 2]);
}
