//! `cargo xtask fuzz`: looks for inputs that break a reader, with `cargo fuzz` on a nightly toolchain. What it finds lies in
//! `tests/inputs/found`, where the tests try it again from then on.

use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::command::{cargo, is_installed, program, run, workspace_root};

/// The folder of the corpora, of which each begins with valid inputs.
const CORPUS: &str = "target/fuzz-corpus";

#[derive(Args)]
pub(crate) struct Options {
    /// Only the readers whose names hold this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// How long each is tried
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    seconds: u32,
}

pub(crate) fn search(options: &Options) -> Result<()> {
    ensure!(is_installed("cargo-fuzz"), "`cargo install --locked cargo-fuzz` brings the program");
    run("corpus", &mut cargo(&format!("run --quiet -p firelight-tests --example inputs -- {CORPUS}")))?;
    let mut broken = Vec::new();
    for reader in readers(&options.only)? {
        if try_reader(&reader, options.seconds).is_err() {
            broken.push(reader);
        }
    }
    ensure!(broken.is_empty(), "inputs that break a reader lie in tests/inputs/found: {}", broken.join(", "));
    Ok(())
}

/// The readers that have a corpus, by name.
fn readers(text: &str) -> Result<Vec<String>> {
    let folder = workspace_root().join(CORPUS);
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.contains(text));
    names.sort_unstable();
    Ok(names)
}

/// Without AddressSanitizer, which costs time: apart from mapped files the readers are safe Rust.
fn try_reader(reader: &str, seconds: u32) -> Result<()> {
    let found = workspace_root().join("tests/inputs/found").join(reader);
    fs::create_dir_all(&found)?;
    let limits = format!("-max_total_time={seconds} -timeout=20 -rss_limit_mb=4096 -max_len=65536");
    let line = format!("+nightly fuzz run --sanitizer none reader {CORPUS}/{reader} -- {limits}");
    let mut fuzz = program("cargo", &line);
    fuzz.arg(format!("-artifact_prefix={}/", found.display())).env("FIRELIGHT_READER", reader);
    let done = run(reader, &mut fuzz);
    drop(fs::remove_dir(&found)); // stays if something was found
    done
}
