//! Short programs that show Firelight as a library; run one with `cargo run --release -p firelight-examples --example quickstart`.

use std::process::ExitCode;

/// Runs a program and prints its error as the command does: one line that says what to do, and an exit code that is not 0. A
/// `main` that returns a `Result` would print the error's fields instead.
pub fn report(program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
