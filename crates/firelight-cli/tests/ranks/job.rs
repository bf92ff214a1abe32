//! Small trainings as jobs of `mpirun`, and what they leave.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Finished, contents, text, timeless};

pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_firelight");

/// A job that takes longer hangs, in seconds: `mpirun` ends it then.
const LONGEST: &str = "120";

/// A model of a few thousand weights with dropout and a moving average, whose steps have four batches.
const SMALL: [&str; 10] = [
    "model.d_model=16",
    "model.n_heads=2",
    "model.n_layers=1",
    "model.d_ff=16",
    "model.dropout=0.1",
    "training.batch_size=4",
    "training.gradient_accumulation_steps=4",
    "training.evaluate_every=2",
    "training.checkpoint_every=2",
    "training.ema_decay=0.9",
];

/// What differs from run to run: when it was, where it was stopped, and in checkpoints the drawn ids of the parameters.
const OWN: [&str; 3] = ["report.html", "sessions.json", "step-"];

/// The language model that most tests train.
pub(super) const STORIES: [&str; 3] = ["stories", "--set", "data.stories=3000"];

/// The arguments of a small training by an embedded recipe, given with what it takes its data from.
pub(super) fn train(recipe: &[&str], out: &Path, more: &[&str]) -> Vec<String> {
    let out = text(out);
    let small = SMALL.iter().flat_map(|setting| ["--set", setting]);
    let all = ["train"].into_iter().chain(recipe.iter().copied()).chain(["--out", &out]).chain(small);
    all.chain(more.iter().copied()).map(str::to_string).collect()
}

/// `mpirun`, which starts more ranks than there are cores, as root too, and ends them all in time.
pub(super) fn mpirun(flags: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--allow-run-as-root", "--timeout", LONGEST]).args(flags);
    command.env("RUST_BACKTRACE", "1").env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    command
}

/// So many ranks with the same arguments.
pub(super) fn on_ranks(world: usize, arguments: &[String]) -> Command {
    let mut command = mpirun(&["-q", "-n", &world.to_string(), PROGRAM]);
    command.args(arguments);
    command
}

/// A rank for each list of arguments.
pub(super) fn on_ranks_of_their_own(arguments: &[Vec<String>]) -> Command {
    of_programs(arguments.iter().map(|arguments| (Path::new(PROGRAM), arguments.as_slice())))
}

/// A rank for each program and its arguments.
pub(super) fn of_programs<'a>(ranks: impl IntoIterator<Item = (&'a Path, &'a [String])>) -> Command {
    let mut command = mpirun(&["-q"]);
    for (rank, (program, arguments)) in ranks.into_iter().enumerate() {
        command.args(if rank > 0 { &[":"][..] } else { &[] }).args(["-n", "1"]).arg(program).args(arguments);
    }
    command
}

/// The files of a run, without what differs from run to run.
pub(super) fn remains(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let name = |path: &Path| text(path.strip_prefix(out).unwrap());
    let all = contents(out).into_iter().map(|(path, bytes)| (name(&path), bytes));
    let mut files: BTreeMap<_, _> = all.filter(|(name, _)| is_common(name)).collect();
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    files.insert("metrics.jsonl".into(), timeless(&metrics).into_bytes());
    files
}

fn is_common(name: &str) -> bool {
    let is_hidden = name.split('/').any(|part| part.starts_with('.'));
    !is_hidden && !OWN.iter().any(|own| name.contains(own))
}

/// The run in `out` is the expected one.
#[track_caller]
pub(super) fn assert_same(out: &Path, expected: &BTreeMap<String, Vec<u8>>, how: &str) {
    let found = remains(out);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{how}");
    for (name, bytes) in &found {
        assert!(bytes == &expected[name], "{name} differs: {how}");
    }
}

/// All ranks ended with this code, and one line of all of them says why.
#[track_caller]
pub(super) fn fails_once(finished: &Finished, code: i32, texts: &[&str]) {
    let said = &finished.stderr;
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(finished.code == code && errors.len() == 1, "exit code {}: {said}", finished.code);
    for text in texts {
        assert!(errors[0].contains(text), "`{text}` is not in: {said}");
    }
}
