//! Development tasks, run as `cargo xtask <task>` from anywhere in the workspace: one file per task.

mod agree;
mod bench;
mod book;
mod check;
mod command;
mod consumer;
mod course;
mod coverage;
#[cfg(test)]
mod duplicates;
mod fixtures;
mod fuzz;
mod losses;
mod mpi;
mod ranks;
mod sanitize;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development tasks of Firelight")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check that a change must pass, cheapest first
    Check,
    /// Run the tests on one device
    Test(test::Options),
    /// Measure Firelight beside PyTorch and llama.cpp, two programs in turn
    Bench(bench::Options),
    /// Train the recipe for a CPU here and in PyTorch and compare the losses
    Losses(losses::Options),
    /// Train a few steps in several ways and compare them
    Agree(agree::Options),
    /// Look for inputs that break a reader
    Fuzz(fuzz::Options),
    /// Measure which lines the tests run, crate by crate
    Coverage(coverage::Options),
    /// Build the book of docs/ with mdBook, its links checked and its pictures made on demand
    Book(book::Options),
    /// Kill ranks of MPI at many moments, and train on two machines that are namespaces of this one
    Ranks(ranks::Options),
    /// Compute the golden tensors anew with PyTorch
    Fixtures,
    /// Run the tests of `unsafe` code under AddressSanitizer and Miri, on a nightly compiler
    Sanitize(sanitize::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Check => check::run_all(),
        Task::Test(options) => test::run_selected(&options),
        Task::Bench(options) => bench::compare(&options),
        Task::Losses(options) => losses::compare(&options),
        Task::Agree(options) => agree::compare(&options),
        Task::Fuzz(options) => fuzz::search(&options),
        Task::Coverage(options) => coverage::measure(&options),
        Task::Book(options) => book::make(&options),
        Task::Ranks(options) => ranks::prove(&options),
        Task::Fixtures => fixtures::regenerate(),
        Task::Sanitize(options) => sanitize::run_selected(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
