//! `cargo xtask check`: all that must hold before a change is taken, cheapest first. `.ci/run` runs this list, too.

use std::time::Instant;

use anyhow::Result;

use crate::command::{cargo, run, run_if_installed};
use crate::{agree, book, consumer, mpi, test};

/// Stops at the first step that fails.
pub(crate) fn run_all() -> Result<()> {
    let start = Instant::now();
    run("format", &mut cargo("fmt --all --check"))?;
    spelling()?;
    book::check_links()?;
    book::build()?;
    dependencies()?;
    consumer::check_locks()?;
    run("clippy", &mut cargo("clippy --workspace --all-targets --features ndarray -- -D warnings"))?;
    let mut rustdoc = cargo("doc --workspace --features ndarray --no-deps");
    run("rustdoc", rustdoc.env("RUSTDOCFLAGS", "-D warnings"))?;
    test::run_on("flex")?;
    test::run_without_kernels()?;
    test::run_on("ndarray")?;
    mpi::check()?;
    agree::compare_cpus()?;
    consumer::check()?;
    run("inference-only build", &mut cargo("check -p firelight --no-default-features --features flex"))?;
    let wgpu = "check -p firelight-cli -p firelight-kernels -p firelight-core --tests --features wgpu";
    run("wgpu build and tests for GPUs", &mut cargo(wgpu))?;
    // CubeCL fetches LLVM to generate code for CUDA. Checking types needs none: `DOCS_RS` makes the build skip it.
    run("cuda build", cargo("check -p firelight-cli --features cuda").env("DOCS_RS", "1"))?;
    eprintln!("\nAll checks passed in {} s.", start.elapsed().as_secs());
    Ok(())
}

fn spelling() -> Result<()> {
    run_if_installed("spelling", "typos", "", "pip install typos")
}

/// Licences, sources and duplicates of all dependencies. Advisories need a database from the network: `cargo deny check advisories`.
fn dependencies() -> Result<()> {
    run_if_installed(
        "dependencies",
        "cargo-deny",
        "--locked check bans licenses sources",
        "cargo install --locked cargo-deny",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::command::workspace_root;

    /// Clippy looks for what a library prints as far as its root asks for it: so the root of each must.
    #[test]
    fn no_library_may_print() {
        let folders = fs::read_dir(workspace_root().join("crates")).expect("the crates");
        let roots = folders.map(|folder| folder.expect("a crate").path().join("src/lib.rs"));
        let libraries: Vec<_> = roots.filter(|root| root.is_file()).collect();
        assert!(!libraries.is_empty());
        let is_asked = |text: &str| text.contains("warn(clippy::print_stdout, clippy::print_stderr)");
        for root in libraries {
            let text = fs::read_to_string(&root).expect("a text");
            assert!(is_asked(&text), "{} does not ask clippy what it prints", root.display());
        }
    }
}
