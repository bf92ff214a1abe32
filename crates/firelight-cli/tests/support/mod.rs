//! Runs the command as a user would, and one tiny trained model that all tests share.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

/// What a command left behind.
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A trained model, the text it learned, and its recipe.
pub(crate) struct Model {
    pub(crate) dir: PathBuf,
    pub(crate) text: PathBuf,
    pub(crate) recipe: PathBuf,
}

/// The command, ready to be changed by a test.
pub(crate) fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firelight"));
    // As a developer's shell has it: messages must stay one line even then.
    command.args(args).env("RUST_BACKTRACE", "1").env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub(crate) fn firelight<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    finish(command(args))
}

pub(crate) fn finish(mut command: Command) -> Finished {
    let output = command.output().unwrap();
    Finished {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What the command writes to a terminal of 80 by 24 characters; none where nothing can play one.
pub(crate) fn in_a_terminal(args: Vec<String>) -> Option<String> {
    let words = args.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let line = format!("stty cols 80 rows 24; '{}' {words}", env!("CARGO_BIN_EXE_firelight"));
    let mut script = Command::new("script");
    let output = output_if_installed(script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()))?;
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{screen}");
    Some(screen)
}

/// Runs a program that a machine may lack; none where it does, which is a failure where `CI=true`, for CI installs it.
pub(crate) fn output_if_installed(program: &mut Command) -> Option<Output> {
    match program.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let name = program.get_program().to_string_lossy();
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI=true, but `{name}` is not installed");
            eprintln!("skipped: `{name}` is not installed");
            None
        }
        output => Some(output.unwrap()),
    }
}

impl Finished {
    /// The command did what was asked.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }

    /// The command ended with this code and a clear line for each problem; together they hold all of these texts.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{}", self.stderr);
        let (problems, remarks): (Vec<&str>, Vec<&str>) =
            self.stderr.lines().partition(|line| line.starts_with("error: "));
        assert!(self.stderr.lines().last().is_some_and(|line| line.starts_with("error: ")), "{}", self.stderr);
        let own = remarks.iter().filter(|line| !line.starts_with("beside: ")); // of a second model
        assert!(own.count() <= 1, "more than one remark: {}", self.stderr);
        let message = problems.join("\n");
        for text in texts {
            assert!(message.contains(text), "`{text}` is not in: {message}");
        }
    }
}

impl Model {
    /// A folder of its own for a test, removed with it.
    pub(crate) fn scratch() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    /// A copy of the run folder that a test may damage.
    pub(crate) fn copy(&self) -> TempDir {
        let copy = Self::scratch();
        copy_folder(&self.dir, copy.path());
        copy
    }
}

/// The shared model: 20 steps on a page of text, in about a second.
pub(crate) fn model() -> &'static Model {
    static MODEL: LazyLock<Model> = LazyLock::new(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
        let _ = fs::remove_dir_all(&home); // of an earlier run of the tests
        fs::create_dir_all(&home).unwrap();
        let [dir, text, recipe] = ["run", "text.txt", "tiny.toml"].map(|name| home.join(name));
        fs::write(&text, "A fox met a hen by the pond.\nThe hen ran, and the fox sat down.\n".repeat(30)).unwrap();
        fs::write(&recipe, RECIPE).unwrap();
        let model = Model { dir, text, recipe };
        firelight(train(&model, &model.dir)).succeeds();
        model
    });
    &MODEL
}

/// The arguments that train the tiny model into a folder.
pub(crate) fn train(model: &Model, out: &Path) -> Vec<String> {
    let [recipe, text, out] = [&model.recipe, &model.text, out].map(|path| path.display().to_string());
    ["train", &recipe, "--data", &text, "--out", &out].map(str::to_string).to_vec()
}

/// Trains with one more argument into a fresh folder.
pub(crate) fn train_with(more: &[&str]) -> Finished {
    let scratch = Model::scratch();
    let args = train(model(), &scratch.path().join("run"));
    firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string())))
}

/// The arguments that continue a prompt by a model.
pub(crate) fn generate(dir: &Path, more: &[&str]) -> Vec<String> {
    let common = ["generate", &text(dir), "--prompt", "The fox", "--max-new-tokens", "30"].map(str::to_string);
    common.into_iter().chain(more.iter().map(|arg| arg.to_string())).collect()
}

/// The arguments that measure a model on a text.
pub(crate) fn evaluate(dir: &Path, data: &Path) -> Vec<String> {
    ["evaluate", &text(dir), "--data", &text(data), "--json"].map(str::to_string).to_vec()
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The lines of `metrics.jsonl` without what tells the time.
pub(crate) fn timeless(metrics: &str) -> String {
    let timeless = |line: &str| line.split(",\"tokens_per_second\"").next().unwrap_or(line).to_string();
    metrics.lines().map(timeless).collect::<Vec<_>>().join("\n")
}

/// All files of a folder with their bytes.
pub(crate) fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = entries(folder)
        .into_iter()
        .flat_map(|path| if path.is_dir() { contents(&path) } else { vec![(path.clone(), fs::read(path).unwrap())] })
        .collect();
    files.sort();
    files
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in entries(from) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

const RECIPE: &str = r#"
task = "language"
seed = 1

[data]
tokenizer = "char"
split.validation = 0.1

[model]
d_model = 16
n_heads = 2
n_layers = 1
d_ff = 32
max_seq_len = 8
dropout = 0.1
position = "learned"
norm = "layer"
tied = true

[training]
steps = 20
batch_size = 4
evaluate_every = 10
checkpoint_every = 10

[optimizer]
learning_rate = 0.01

[schedule]
kind = "cosine"
warmup_steps = 2
steps = 20
"#;
