//! What needs the feature `mpi`: an MPI and libclang to build it, `mpirun` to test it.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::command::{cargo, is_ci, is_installed, run};

/// The features of the other checks and MPI. Asked for in the whole workspace, as theirs, they change the features of no other package, so
/// that Burn is not built anew.
pub(crate) const FEATURES: &str = "ndarray,firelight-cli/mpi,firelight-mpi/mpi";

const PROGRAMS: [&str; 2] = ["mpicc", "mpirun"];
const ADVICE: &str = "apt-get install libopenmpi-dev openmpi-bin libclang-dev";

/// Lints what the feature changes, and runs the tests that start ranks. Without MPI they are left out, but fail where `CI` is `true`.
pub(crate) fn check() -> Result<()> {
    if let Some(missing) = PROGRAMS.iter().find(|name| !is_installed(name)) {
        ensure!(!is_ci(), "tests on ranks: `{missing}` is not installed, `{ADVICE}` brings it");
        eprintln!("\n==> tests on ranks: left out, `{ADVICE}` brings `{missing}`");
        return Ok(());
    }
    run("clippy with MPI", &mut cargo(&clippy()))?;
    run_tests(|_| {})
}

/// Runs the tests that start ranks, in the environment that `changed` makes.
pub(crate) fn run_tests(changed: impl Fn(&mut Command)) -> Result<()> {
    for (title, target) in [("ranks", "--test mpirun"), ("trainings on ranks", "--test main ranks::")] {
        let mut tests = cargo(&format!("test --workspace --features {FEATURES} {target}"));
        tests.env_remove("BURN_DEVICE");
        changed(&mut tests);
        run(title, &mut tests)?;
    }
    Ok(())
}

fn clippy() -> String {
    format!("clippy --workspace --all-targets --features {FEATURES} -- -D warnings")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_of_the_other_checks_is_shared() {
        assert!(FEATURES.starts_with("ndarray,"));
        assert!(clippy().starts_with("clippy --workspace --all-targets --features ndarray,"), "{}", clippy());
    }
}
