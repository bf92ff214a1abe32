//! `cargo xtask coverage`: the share of lines that the tests on flex run, crate by crate. Tests themselves are not counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::command::{is_installed, program, run, workspace_root};

/// What is left out: there no file may grow, and so the program cannot write down what it ran.
const LEFT_OUT: &str = "--skip a_disk_that_is_full --skip a_full_disk";

#[derive(Args)]
pub(crate) struct Options {
    /// Also list the lines that no test runs, of the crates whose names hold this text
    #[arg(long, value_name = "TEXT")]
    missing: Option<String>,
}

/// Lines of one file that can be run, and those of them that never were.
#[derive(Debug, Default, PartialEq)]
struct Lines {
    all: usize,
    missing: Vec<usize>,
}

pub(crate) fn measure(options: &Options) -> Result<()> {
    ensure!(is_installed("cargo-llvm-cov"), "`cargo install --locked cargo-llvm-cov` brings the program");
    let report = workspace_root().join("target/coverage.lcov");
    fs::create_dir_all(workspace_root().join("target"))?;
    let line = "llvm-cov --locked --workspace --features ndarray --failure-mode all --lcov --output-path";
    let mut measured = program("cargo", line);
    measured.arg(&report).arg("--").args(LEFT_OUT.split(' ')).env_remove("BURN_DEVICE");
    run("coverage", &mut measured)?;
    let files = read_report(&fs::read_to_string(&report).with_context(|| report.display().to_string())?)?;
    print_shares(&files);
    if let Some(text) = &options.missing {
        print_missing(&files, text);
    }
    Ok(())
}

/// What an lcov report says of the sources of `crates/`, by their paths.
fn read_report(report: &str) -> Result<BTreeMap<PathBuf, Lines>> {
    let mut files = BTreeMap::<PathBuf, Lines>::new();
    let mut source = None;
    for line in report.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            source = counted_source(Path::new(path))?;
        } else if let (Some((path, end)), Some(counts)) = (&source, line.strip_prefix("DA:")) {
            let mut counts = counts.split(',');
            let mut count = || counts.next().and_then(|count| count.parse::<usize>().ok()).context("a DA line of lcov");
            let (line, runs) = (count()?, count()?);
            if line < *end {
                let lines = files.entry(path.clone()).or_default();
                lines.all += 1;
                lines.missing.extend((runs == 0).then_some(line));
            }
        }
    }
    ensure!(!files.is_empty(), "the report names no source of this workspace");
    Ok(files)
}

/// The path below `crates/` and the line at which the tests of the file begin; none for what is a test as a whole.
fn counted_source(path: &Path) -> Result<Option<(PathBuf, usize)>> {
    let Ok(below) = path.strip_prefix(workspace_root().join("crates")) else { return Ok(None) };
    let is_test = |part: &std::ffi::OsStr| part.to_string_lossy().trim_end_matches(".rs").ends_with("tests");
    if below.iter().any(is_test) {
        return Ok(None);
    }
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(Some((below.to_owned(), tests_begin(&text))))
}

/// Inline tests are the end of a file, so what follows the first test module is not counted.
fn tests_begin(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let module = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with("tests {"));
    module.map_or(usize::MAX, |index| index + 1)
}

fn print_shares(files: &BTreeMap<PathBuf, Lines>) {
    let mut crates = BTreeMap::<String, (usize, usize)>::new();
    for (path, lines) in files {
        let (all, missing) = crates.entry(crate_of(path)).or_default();
        *all += lines.all;
        *missing += lines.missing.len();
    }
    println!("{:<26} {:>7} {:>8} {:>6}", "crate", "lines", "not run", "run");
    for (name, (all, missing)) in crates {
        println!("{name:<26} {all:>7} {missing:>8} {:>5.1}%", 100.0 * (all - missing) as f64 / all as f64);
    }
}

fn print_missing(files: &BTreeMap<PathBuf, Lines>, text: &str) {
    let chosen = files.iter().filter(|(path, lines)| crate_of(path).contains(text) && !lines.missing.is_empty());
    for (path, lines) in chosen {
        println!("{}: {}", path.display(), ranges(&lines.missing));
    }
}

fn crate_of(path: &Path) -> String {
    path.iter().next().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// `3-5, 9` for 3, 4, 5, 9.
fn ranges(lines: &[usize]) -> String {
    let runs = lines.chunk_by(|a, b| a + 1 == *b);
    let shown = runs.map(|run| match run {
        [only] => only.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_source_are_counted_up_to_its_tests() -> Result<()> {
        let source = workspace_root().join("crates/firelight-core/src/norm.rs");
        let text = fs::read_to_string(&source)?;
        let end = tests_begin(&text);
        assert!((2..text.lines().count()).contains(&end), "{end}");
        let report = format!("SF:{}\nDA:1,4\nDA:{},0\nDA:{end},0\nend_of_record\n", source.display(), end - 1);
        let expected = Lines { all: 2, missing: vec![end - 1] };
        assert_eq!(read_report(&report)?, BTreeMap::from([("firelight-core/src/norm.rs".into(), expected)]));
        Ok(())
    }

    #[test]
    fn tests_and_other_projects_are_not_counted() {
        let test = workspace_root().join("crates/firelight-cli/tests/flow.rs");
        let report = format!("SF:{}\nDA:1,4\nSF:elsewhere/lib.rs\nDA:1,1\n", test.display());
        assert!(read_report(&report).is_err_and(|error| error.to_string().contains("no source of this workspace")));
    }

    #[test]
    fn neighbouring_lines_are_one_range() {
        assert_eq!(ranges(&[3, 4, 5, 9]), "3-5, 9");
    }
}
