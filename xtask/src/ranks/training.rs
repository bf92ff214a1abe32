//! A training on two machines as the how-to says: with a delay, cut off and resumed, to the bytes of one process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::machines::{ADDRESSES, Machines};
use super::page::{Instructions, PAGE};
use crate::command::{run, target, workspace_root};

/// A small model, whose steps are a few exchanges of some kilobytes.
const RECIPE: &str = r#"
task = "language"

[data]
tokenizer = "char"
split.validation = 0.1

[model]
d_model = 16
n_heads = 2
n_layers = 1
d_ff = 16
max_seq_len = 32
dropout = 0.1

[training]
steps = 60
batch_size = 4
evaluate_every = 10
checkpoint_every = 10

[optimizer]
kind = "adamw"
learning_rate = 1e-3
"#;

/// Lines of the metrics that are there when the cable is cut.
const BEFORE_THE_CUT: usize = 25;

/// How long a training may take until then.
const LONGEST: Duration = Duration::from_secs(120);

/// The exit code of `mpirun` where it ended what hung.
const HANGS: i32 = 110;

/// The training of the page, in a folder with the files that it names.
struct Training {
    folder: TempDir,
    instructions: Instructions,
}

/// Trains by the command with MPI that was built last.
pub(super) fn on_two_machines(delay: u32) -> Result<()> {
    let training = Training::prepared()?;
    run("one process", &mut training.alone("one")?)?;
    let machines = Machines::connected(delay)?;
    run(&format!("two machines, {delay} ms apart"), &mut training.on(&machines, "two")?)?;
    training.is_same("two")?;
    training.is_cut(&machines, "cut")?;
    machines.connect()?;
    run("two machines, connected again", training.on(&machines, "cut")?.arg("--resume"))?;
    training.is_same("cut")?;
    eprintln!("==> two machines: the bytes of one process, after the cut, too");
    Ok(())
}

impl Training {
    fn prepared() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = target().join("debug/firelight");
        let mut instructions = Instructions::read()?.with("target/release/firelight", &program.to_string_lossy())?;
        for (name, address) in ["node1", "node2"].into_iter().zip(ADDRESSES) {
            instructions = instructions.with(name, address)?;
        }
        fs::write(folder.path().join("hosts"), &instructions.hosts)?;
        fs::write(folder.path().join("recipe.toml"), RECIPE)?;
        fs::copy(workspace_root().join(PAGE), folder.path().join("text"))?;
        Ok(Self { folder, instructions })
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn writing_to(&self, name: &str) -> Result<Instructions> {
        self.instructions.clone().with("/shared/runs/text", &self.out(name).to_string_lossy())
    }

    fn alone(&self, name: &str) -> Result<Command> {
        let instructions = self.writing_to(name)?;
        let [program, arguments @ ..] = instructions.of_one_rank() else { unreachable!("there is a program") };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder);
        Ok(command)
    }

    fn on(&self, machines: &Machines, name: &str) -> Result<Command> {
        let mut command = machines.command(&self.writing_to(name)?.command);
        command.current_dir(&self.folder);
        Ok(command)
    }

    /// Cuts the cable in the midst of a training, which ends with what `mpirun` says of it.
    fn is_cut(&self, machines: &Machines, name: &str) -> Result<()> {
        let mut job = self.on(machines, name)?;
        let mut job = job.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot start `ip`")?;
        let begun = has_begun(&mut job, &self.out(name));
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

    /// Weights, recipe, and metrics without what tells the time are those of one process.
    fn is_same(&self, name: &str) -> Result<()> {
        for file in ["model.safetensors", "checkpoints/best/model.safetensors", "recipe.toml", "metrics.jsonl"] {
            let [expected, found] = ["one", name].map(|name| timeless(&self.out(name).join(file)));
            ensure!(expected? == found?, "{file} is not that of one process");
        }
        Ok(())
    }
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
