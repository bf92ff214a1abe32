//! One step of a task: a program run in the workspace root, announced before and timed after.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// The tasks of cargo that look for dependencies.
const LOCKED: [&str; 7] = ["build", "check", "clippy", "doc", "run", "test", "tree"];

/// `cargo` with the arguments of `line`, which are separated by blanks. What resolves dependencies takes those of the lock file.
pub(crate) fn cargo(line: &str) -> Command {
    let (task, arguments) = line.split_once(' ').unwrap_or((line, ""));
    let locked = if LOCKED.contains(&task) { "--locked" } else { "" };
    program("cargo", &format!("{task} {locked} {arguments}"))
}

/// `name` with the arguments of `line`, to be run in the workspace root.
pub(crate) fn program(name: &str, line: &str) -> Command {
    let mut command = Command::new(name);
    command.args(line.split_whitespace()).current_dir(workspace_root());
    command
}

/// A program that was built, `release/firelight`, with the arguments of `line`, to be run in the workspace root.
pub(crate) fn built(name: &str, line: &str) -> Command {
    program(&target().join(name).to_string_lossy(), line)
}

/// The folder of what cargo builds.
pub(crate) fn target() -> PathBuf {
    workspace_root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Runs `command`; an error tells which step failed.
pub(crate) fn run(title: &str, command: &mut Command) -> Result<()> {
    let start = Instant::now();
    eprintln!("\n==> {title}: {}", display(command));
    let status = command.status().with_context(|| format!("{title}: cannot start {}", display(command)))?;
    ensure!(status.success(), "{title} failed ({status}) after {} s", start.elapsed().as_secs());
    eprintln!("==> {title}: passed in {} s", start.elapsed().as_secs());
    Ok(())
}

/// Whether this is the run that decides on a change, where nothing may be left out.
pub(crate) fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

/// Runs a check by `name`, a program that not everybody has. Without it the check is left out, but fails where `CI` is `true`.
pub(crate) fn run_if_installed(title: &str, name: &str, line: &str, advice: &str) -> Result<()> {
    if needs(title, name, advice)? { run(title, &mut program(name, line)) } else { Ok(()) }
}

/// Whether `name`, which a check needs, is here. Where it is not, the check is said to be left out, and fails where `CI` is `true`.
pub(crate) fn needs(title: &str, name: &str, advice: &str) -> Result<bool> {
    let here = is_installed(name);
    ensure!(here || !is_ci(), "{title}: `{name}` is not installed, `{advice}` brings it");
    if !here {
        eprintln!("\n==> {title}: left out, `{advice}` brings `{name}`");
    }
    Ok(here)
}

/// Whether the program can be started at all.
pub(crate) fn is_installed(name: &str) -> bool {
    let probe = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// As one would type it, with the environment that was added.
fn display(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={:?}", name.to_string_lossy(), value.to_string_lossy()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    variables.chain(words.map(|word| word.to_string_lossy().into_owned())).collect::<Vec<_>>().join(" ")
}

/// The folder of the workspace manifest.
pub(crate) fn workspace_root() -> &'static Path {
    // Cargo tells of the clone that it runs in. This program may have been built in another one, which is gone, with the same target folder.
    static PACKAGE: LazyLock<PathBuf> = LazyLock::new(|| {
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
    });
    PACKAGE.parent().unwrap_or(&PACKAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_as_one_would_type_it() {
        let mut command = cargo("test  --workspace");
        command.env("BURN_DEVICE", "ndarray");
        assert_eq!(display(&command), "BURN_DEVICE=\"ndarray\" cargo test --locked --workspace");
        assert_eq!(display(&cargo("fmt --all")), "cargo fmt --all");
    }

    #[test]
    fn a_failed_step_is_named() {
        let error = run("version", &mut cargo("--no-such-option")).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.starts_with("version failed")));
    }

    #[test]
    fn a_missing_program_is_recognised() {
        assert!(is_installed("cargo"));
        assert!(!is_installed("no-such-program-anywhere"));
    }

    #[test]
    fn the_root_holds_the_workspace_manifest() {
        assert!(workspace_root().join("xtask/Cargo.toml").is_file());
    }
}
