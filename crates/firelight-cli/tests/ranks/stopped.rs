//! Trainings on ranks that are stopped: killed, interrupted, or by a full disk. All ranks end, and the run goes on with any number of
//! them to the bytes of one that was left in peace.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::MACHINE;
use crate::crash::{SEED, moments, seed};
use crate::support::{Model, finish};

use super::job::{PROGRAM, STORIES, assert_same, fails_once, mpirun, on_ranks, remains, train};

const WORLD: usize = 4;
const STEPS: usize = 20;

/// Random moments at which a rank is killed, where the variable does not ask for more.
const KILLS: usize = 2;
const MORE_KILLS: &str = "FIRELIGHT_KILLS";

/// The exit code of `mpirun` for a job that it had to end after all the time it had.
const HANGS: i32 = 110;

/// The exit code of a run that was interrupted, as shells expect it.
const INTERRUPTED: i32 = 130;

/// How long is waited before the ranks are looked at again.
const PAUSE: Duration = Duration::from_millis(10);

/// How long ranks that were ended may need to be gone; much more than they do on a machine that is busy.
const GONE: Duration = Duration::from_secs(60);

/// Dropout on, a moving average, and something to write after almost every step.
fn busy(out: &Path, steps: usize) -> Vec<String> {
    train(&STORIES, out, &["--resume", "--steps", &steps.to_string()])
}

/// A process, told from a later one of the same number by when it began.
#[derive(Debug)]
struct Process {
    number: u32,
    name: String,
    parent: u32,
    began: u64,
}

impl Process {
    /// The process of this number; none if it is gone, or has ended and nobody has asked how. Source: proc(5), the fields `comm`, `state`,
    /// `ppid` and `starttime` of /proc/PID/stat, which are the second, third, fourth and 22nd.
    fn of(number: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?; // the name may hold blanks
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let (parent, began) = (fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
        (fields[0] != "Z").then(|| Self { number, name: name.into(), parent, began })
    }

    fn is_there(&self) -> bool {
        Self::of(self.number).is_some_and(|found| found.began == self.began)
    }

    fn send(&self, signal: &str) {
        let number = self.number.to_string();
        let _ = Command::new("kill").args([signal, &number]).stderr(Stdio::null()).status(); // it may have ended
    }
}

/// The ranks that a job has started so far, in their order.
fn ranks_of(job: u32) -> Vec<Process> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let processes = all.filter_map(|entry| Process::of(entry.file_name().to_str()?.parse().ok()?));
    // Between fork and exec a rank has the name of its job.
    let mut ranks: Vec<Process> =
        processes.filter(|process| process.parent == job && PROGRAM.ends_with(&process.name)).collect();
    ranks.sort_by_key(|rank| rank.number);
    ranks
}

/// Starts ranks, waits until it `is_time`, sends a signal to one of them, and returns how all of them ended.
fn signalled(arguments: &[String], signal: &str, rank: usize, is_time: impl Fn() -> bool) -> Output {
    let mut command = mpirun(&["-n", &WORLD.to_string(), PROGRAM]);
    let mut job = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ranks = ranks_at(&mut job, is_time);
    if let Some(rank) = ranks.get(rank) {
        rank.send(signal);
    }
    let output = end_of(job, &ranks);
    assert_ne!(output.status.code(), Some(HANGS), "the ranks did not end: {}", said(&output));
    let began = Instant::now();
    while let Some(rank) = ranks.iter().find(|rank| rank.is_there()) {
        assert!(began.elapsed() < GONE, "{rank:?} is still there: {}", said(&output));
        sleep(PAUSE);
    }
    output
}

/// How a job ended. Open MPI 4.1 may lock itself out at its own end, when all ranks have ended: then it is killed.
fn end_of(mut job: Child, ranks: &[Process]) -> Output {
    let mut gone = None;
    while job.try_wait().unwrap().is_none() {
        if !ranks.is_empty()
            && !ranks.iter().any(Process::is_there)
            && gone.get_or_insert_with(Instant::now).elapsed() >= GONE
        {
            job.kill().unwrap();
            break;
        }
        sleep(PAUSE);
    }
    job.wait_with_output().unwrap()
}

/// The processes of all ranks when it is time; none if the job ended before.
fn ranks_at(job: &mut Child, is_time: impl Fn() -> bool) -> Vec<Process> {
    let mut ranks = Vec::new();
    while job.try_wait().unwrap().is_none() {
        if ranks.len() < WORLD {
            ranks = ranks_of(job.id());
        }
        if ranks.len() == WORLD && is_time() {
            return ranks;
        }
        sleep(PAUSE);
    }
    Vec::new()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Kills a rank after so long, and returns whether that ended the training. One that had ended before must have done so well.
fn killed_after(delay: Duration, rank: usize, out: &Path) -> bool {
    let began = Instant::now();
    let output = signalled(&busy(out, STEPS), "-KILL", rank, || began.elapsed() >= delay);
    let said = said(&output);
    if output.status.success() {
        return false;
    }
    assert!(said.contains("signal 9 (Killed)"), "exit code {:?}: {said}", output.status.code());
    true
}

#[test]
fn a_rank_killed_at_any_moment_ends_all_and_fewer_ranks_go_on_to_the_same_bytes() {
    let home = Model::scratch();
    let [peaceful, out] = ["peaceful", "killed"].map(|name| home.path().join(name));
    let began = Instant::now();
    finish(on_ranks(WORLD, &busy(&peaceful, STEPS))).succeeds();
    let mut duration = began.elapsed();
    let expected = remains(&peaceful);

    let kills = env::var(MORE_KILLS).map_or(KILLS, |kills| kills.parse().unwrap());
    let (seed, mut cut_short) = (seed(), 0);
    eprintln!("the moments of the kills: {SEED}={seed}");
    let mut random = moments(seed);
    let mut next = || random.next().unwrap_or_default();
    for _ in 0..5 * kills {
        let (moment, rank) = (next(), (next() * WORLD as f64) as usize);
        let began = Instant::now();
        match killed_after(duration.mul_f64(moment), rank, &out) {
            true => cut_short += 1,
            false => duration = duration.min(began.elapsed()), // The machine is less busy than it was.
        }
        finish(on_ranks(2, &busy(&out, STEPS))).succeeds();
        assert_same(&out, &expected, &format!("rank {rank} killed after {moment:.3} of the time ({SEED}={seed})"));
        fs::remove_dir_all(&out).unwrap();
        if cut_short == kills {
            return;
        }
    }
    panic!("only {cut_short} trainings were still going when a rank was killed");
}

#[test]
fn an_interrupted_rank_stops_all_and_they_go_on_to_the_same_bytes() {
    let home = Model::scratch();
    let [peaceful, out] = ["peaceful", "interrupted"].map(|name| home.path().join(name));
    let metrics = || fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    let steps = || metrics().lines().filter(|line| line.contains("gradient_norm")).count();
    let output = signalled(&busy(&out, 100_000), "-INT", 2, || steps() > 2);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(INTERRUPTED), "{said}");
    let done = steps();
    for text in [format!("interrupted after {done} steps"), "resume with: firelight train --resume".into()] {
        assert!(said.contains(&text), "`{text}` is not in: {said}");
    }
    finish(on_ranks(2, &busy(&out, done + 5))).succeeds();
    finish(on_ranks(2, &busy(&peaceful, done + 5))).succeeds();
    assert_same(&out, &remains(&peaceful), "interrupted");
}

/// Two ranks, the first of which cannot write files of more than 8 KiB: a full disk, in the middle of a write.
fn on_a_full_disk(arguments: &[String]) -> Command {
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$@\""; // blocks of 512 bytes; the signal would kill
    // Without memory that ranks share, which would be a file.
    let mut command = mpirun(&["-q", "--mca", "btl", "tcp,self", "-n", "1", "sh", "-c", script, "sh", PROGRAM]);
    command.args(arguments).args([":", "-n", "1", PROGRAM]).args(arguments);
    command
}

#[test]
fn a_full_disk_of_the_first_rank_ends_all_with_its_reason() {
    let home = Model::scratch();
    let [peaceful, out] = ["peaceful", "full"].map(|name| home.path().join(name));
    finish(on_ranks(2, &busy(&peaceful, STEPS))).succeeds();
    fails_once(&finish(on_a_full_disk(&busy(&out, STEPS))), MACHINE, &["cannot write ", "checkpoints/"]);
    finish(on_ranks(4, &busy(&out, STEPS))).succeeds();
    assert_same(&out, &remains(&peaceful), "after a full disk");
}
