//! What needs the feature `mpi`: an MPI and libclang to build it, `mpirun` to test it.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::command::{cargo, is_ci, is_installed, run};

/// The features of the other checks and MPI. Asked for in the whole workspace, as theirs, they change the features of no other package, so
/// that Burn is not built anew.
const FEATURES: &str = "ndarray,firelight-cli/mpi,firelight-mpi/mpi";

const PROGRAMS: [&str; 2] = ["mpicc", "mpirun"];
const ADVICE: &str = "apt-get install libopenmpi-dev openmpi-bin libclang-dev";

/// The tests that start ranks.
const TESTS: [(&str, &str); 3] =
    [("ranks", "--test mpirun"), ("answers of ranks", "--test dealing"), ("trainings on ranks", "--test main ranks::")];

/// Lints what the feature changes, and runs its tests, most of which start ranks. Without MPI they are left out, but fail where `CI` is `true`.
pub(crate) fn check() -> Result<()> {
    if let Some(missing) = PROGRAMS.iter().find(|name| !is_installed(name)) {
        ensure!(!is_ci(), "tests on ranks: `{missing}` is not installed, `{ADVICE}` brings it");
        eprintln!("\n==> tests on ranks: left out, `{ADVICE}` brings `{missing}`");
        return Ok(());
    }
    run("clippy with MPI", &mut cargo(&clippy()))?;
    // Picked by a filter and not by their package, which would change the features of others.
    run("units with MPI", &mut cargo(&tests_of("--lib mpi::")))?;
    run_tests(|_| {})
}

/// Runs the tests that start ranks, in the environment that `changed` makes.
pub(crate) fn run_tests(changed: impl Fn(&mut Command)) -> Result<()> {
    for (title, target) in TESTS {
        let mut tests = cargo(&tests_of(target));
        tests.env_remove("BURN_DEVICE");
        changed(&mut tests);
        run(title, &mut tests)?;
    }
    Ok(())
}

fn tests_of(target: &str) -> String {
    format!("test --workspace --features {FEATURES} {target}")
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
        assert!(tests_of("--lib").starts_with("test --workspace --features ndarray,"), "{}", tests_of("--lib"));
        assert!(clippy().starts_with("clippy --workspace --all-targets --features ndarray,"), "{}", clippy());
    }
}
