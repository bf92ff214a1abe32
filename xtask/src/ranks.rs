//! `cargo xtask ranks`: trainings on ranks that take longer than the checks have time for: ranks killed at many random moments, and ranks on
//! two machines with a cable between them that delays and is cut.

mod machines;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::command::{built, run};
use crate::mpi;
use machines::Machines;

/// A small model, whose steps are four exchanges of a few kilobytes.
const TRAINING: &str = "train stories --set data.stories=3000 --set model.d_model=16 --set model.n_heads=2 \
                        --set model.n_layers=1 --set model.d_ff=16 --set model.dropout=0.1 --set training.batch_size=4 \
                        --set training.gradient_accumulation_steps=4 --set training.evaluate_every=10 \
                        --set training.checkpoint_every=10 --steps 60 --resume";

/// Lines of the metrics that are there when the cable is cut.
const BEFORE_THE_CUT: usize = 25;

/// How long a training may take until then.
const LONGEST: Duration = Duration::from_secs(120);

/// The exit code of `mpirun` where it ended what hung.
const HANGS: i32 = 110;

#[derive(Args)]
pub(crate) struct Options {
    /// Random moments at which a rank is killed
    #[arg(long, value_name = "N", default_value_t = 10)]
    kills: usize,
    /// Milliseconds from one machine to the other
    #[arg(long, value_name = "MS", default_value_t = 10)]
    delay: u32,
}

pub(crate) fn prove(options: &Options) -> Result<()> {
    mpi::run_tests(|tests| {
        tests.env("FIRELIGHT_KILLS", options.kills.to_string());
    })?;
    on_two_machines(options.delay) // by the command that the tests have built
}

fn on_two_machines(delay: u32) -> Result<()> {
    let home = tempfile::tempdir()?;
    let [one, two, cut] = ["one", "two", "cut"].map(|name| home.path().join(name));
    run("one process", built("debug/firelight", TRAINING).arg("--out").arg(&one))?;
    let machines = Machines::connected(delay)?;
    run(&format!("two machines, {delay} ms apart"), &mut on(&machines, &two))?;
    is_same(&one, &two)?;
    is_cut(&machines, &cut)?;
    machines.connect()?;
    run("two machines, connected again", &mut on(&machines, &cut))?;
    is_same(&one, &cut)?;
    eprintln!("==> two machines: the bytes of one process, after the cut, too");
    Ok(())
}

/// The training on both machines, into a folder.
fn on(machines: &Machines, out: &Path) -> Command {
    let program = built("debug/firelight", TRAINING);
    let mut command = machines.mpirun();
    command.arg(program.get_program()).args(program.get_args()).arg("--out").arg(out);
    command
}

/// Cuts the cable in the midst of a training, which ends with what `mpirun` says of it.
fn is_cut(machines: &Machines, out: &Path) -> Result<()> {
    let mut job =
        on(machines, out).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot start `ip`")?;
    let begun = has_begun(&mut job, out);
    machines.cut()?;
    let began = Instant::now();
    let output = job.wait_with_output()?; // `mpirun` ends what hangs
    begun?;
    let said = String::from_utf8_lossy(&output.stderr);
    let is_told = said.contains("lost communication with a remote daemon");
    ensure!(is_told && output.status.code() != Some(HANGS), "after the cut: {}: {said}", output.status);
    eprintln!("==> the cable was cut: all ranks had ended after {} s", began.elapsed().as_secs());
    machines.are_idle()
}

fn has_begun(job: &mut Child, out: &Path) -> Result<()> {
    let (began, metrics) = (Instant::now(), out.join("metrics.jsonl"));
    while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < BEFORE_THE_CUT {
        ensure!(job.try_wait()?.is_none(), "the training ended before the cable was cut");
        ensure!(began.elapsed() < LONGEST, "the training does not come to step {BEFORE_THE_CUT}");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Weights, recipe, and metrics without what tells the time.
fn is_same(expected: &Path, found: &Path) -> Result<()> {
    for name in ["model.safetensors", "checkpoints/best/model.safetensors", "recipe.toml", "metrics.jsonl"] {
        let [expected, found] = [expected, found].map(|folder| timeless(&folder.join(name)));
        ensure!(expected? == found?, "{name} is not that of one process");
    }
    Ok(())
}

fn timeless(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    match path.extension().is_some_and(|extension| extension == "jsonl") {
        true => {
            let text = String::from_utf8_lossy(&bytes);
            let timeless = |line: &str| line.split(",\"tokens_per_second\"").next().unwrap_or(line).to_owned();
            Ok(text.lines().map(timeless).collect::<Vec<_>>().join("\n").into_bytes())
        }
        false => Ok(bytes),
    }
}
