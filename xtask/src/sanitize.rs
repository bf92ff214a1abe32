//! `cargo xtask sanitize`: the tests of `unsafe` code on a nightly compiler, under AddressSanitizer and under Miri. Everything is
//! built anew, in a folder of its own.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::command::{program, run, workspace_root};

/// The packages that have `unsafe` code in a library: kernels on views of matrices, and files that are mapped into memory; and
/// `firelight-pretrained`, which reads such files more than any other.
const PACKAGES: &str = "-p firelight-kernels -p firelight-storage -p firelight-data -p firelight-pretrained";

/// Their library tests, and those of `firelight-pretrained` that read the numbers of mapped files.
const TESTS: &str = "--lib --test folders";

/// What Miri, which is some thousand times slower than the program itself, can do in minutes: views of matrices and of tensors,
/// their products, buffers that are not cleared, and attention forward and backward on one tile.
const SMALL_TESTS: &str = "flex::product::tests::a_ flex::tests::sums linear::tests::constants_need_no_gradient \
                           attention::fused_tests::documents_and_chunks_by_hand attention::tests::a_fully_hidden_query";

const FEWER_PASSES: &str = r#"profile.dev.package."*".opt-level=1"#;

#[derive(Args)]
pub(crate) struct Options {
    /// One of the two; both if not given
    checker: Option<Checker>,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Checker {
    /// The tests of the packages with `unsafe` code, under AddressSanitizer
    Address,
    /// Some small tests of the kernels, under Miri
    Miri,
}

pub(crate) fn run_selected(options: &Options) -> Result<()> {
    if options.checker != Some(Checker::Miri) {
        run("AddressSanitizer", &mut under_address_sanitizer(&host()?))?;
    }
    if options.checker != Some(Checker::Address) {
        run("Miri", &mut under_miri())?;
    }
    Ok(())
}

/// The explicit target keeps the flags away from build scripts and macros. Dependencies are optimised only a little: they are built
/// for one run of minutes. Leaks are not looked for, because threads and tables live until the process ends.
fn under_address_sanitizer(host: &str) -> Command {
    let line = format!("cargo test --locked --target {host} {PACKAGES} {TESTS} --config {FEWER_PASSES}");
    let mut command = nightly(&line, "address");
    command.env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", "detect_leaks=0");
    command
}

/// Tree borrows are the aliasing rules of Miri that `rayon` keeps. Miri has no vector units, so the kernels take their scalar loops.
fn under_miri() -> Command {
    let mut command = nightly(&format!("cargo miri test --locked -p firelight-kernels --lib -- {SMALL_TESTS}"), "miri");
    let flags = "-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-tree-borrows";
    command.env("MIRIFLAGS", flags).env("RAYON_NUM_THREADS", "2");
    command
}

/// A command on the nightly toolchain, with build products in a folder of its own.
fn nightly(line: &str, folder: &str) -> Command {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), PathBuf::from);
    let mut command = program("rustup", &format!("run nightly {line}"));
    command.env("CARGO_TARGET_DIR", target.join("sanitize").join(folder)).env_remove("BURN_DEVICE");
    command
}

/// The target that the compiler itself runs on.
fn host() -> Result<String> {
    let output = program("rustup", "run nightly rustc -vV").output().context("cannot start rustup")?;
    ensure!(output.status.success(), "no nightly compiler: run `rustup toolchain install nightly`");
    let text = String::from_utf8(output.stdout).context("the version of rustc")?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Packages whose `unsafe` code no test of a library reaches: the command, which sets an option of its allocator, and ranks of
    /// MPI, which only a build with the feature `mpi` has.
    const OUT_OF_REACH: [&str; 2] = ["firelight-cli", "firelight-mpi"];

    /// The package among the checked ones that has no `unsafe` code of its own.
    const SAFE: &str = "firelight-pretrained";

    /// Whether a source below `path` has a block, a function or an implementation that is `unsafe`.
    fn is_unsafe(path: &Path) -> bool {
        if path.is_dir() {
            let mut entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            return entries.any(|entry| is_unsafe(&entry.expect("an entry of a folder").path()));
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            return false;
        }
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let begins = ["{", "fn ", "impl ", "extern "].map(|word| format!("unsafe {word}"));
        let mut code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
        code.any(|line| begins.iter().any(|begin| line.contains(begin.as_str())))
    }

    #[test]
    fn every_package_with_unsafe_code_is_checked() {
        let crates = fs::read_dir(workspace_root().join("crates")).expect("the folder of the crates");
        let found: BTreeSet<String> = crates
            .map(|entry| entry.expect("a crate"))
            .filter(|entry| is_unsafe(&entry.path().join("src")))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        let checked = PACKAGES.split_whitespace().filter(|word| !["-p", SAFE].contains(word));
        let known: BTreeSet<String> = checked.chain(OUT_OF_REACH).map(str::to_string).collect();
        assert_eq!(found, known);
    }

    fn words(command: &Command) -> String {
        command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_tests_under_miri_are_those_of_the_kernels() {
        let files = ["flex/product.rs", "flex/mod.rs", "linear/mod.rs", "attention/fused_tests.rs", "attention/mod.rs"];
        assert_eq!(SMALL_TESTS.split_whitespace().count(), files.len());
        let folder = workspace_root().join("crates/firelight-kernels/src");
        for (filter, file) in SMALL_TESTS.split_whitespace().zip(files) {
            let name = filter.rsplit("::").next().unwrap_or(filter);
            let text = std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.contains(&format!("fn {name}")), "no test `{filter}` in {file}");
        }
    }

    #[test]
    fn the_sanitizer_is_for_the_target_alone() {
        assert!(workspace_root().join("crates/firelight-pretrained/tests/folders/main.rs").is_file(), "{TESTS}");
        let command = under_address_sanitizer("x86_64-unknown-linux-gnu");
        let words = words(&command);
        assert!(words.starts_with("run nightly cargo test --locked --target x86_64-unknown-linux-gnu"), "{words}");
        assert!(
            command.get_envs().any(|(name, value)| {
                name == "RUSTFLAGS" && value.is_some_and(|value| value == "-Zsanitizer=address")
            })
        );
    }

    #[test]
    fn every_checker_builds_in_a_folder_of_its_own() {
        let folder = |command: Command| {
            let folder = command.get_envs().find(|(name, _)| *name == "CARGO_TARGET_DIR");
            folder.and_then(|(_, value)| value.map(PathBuf::from)).expect("a folder")
        };
        assert!(folder(under_miri()).ends_with("sanitize/miri"));
        assert!(folder(under_address_sanitizer("any")).ends_with("sanitize/address"));
    }
}
