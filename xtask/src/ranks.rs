//! `cargo xtask ranks`: ranks of MPI that are killed, at more random moments than the checks have time for, and a training on two machines with
//! a cable between them that delays and is cut.

mod machines;
mod page;
mod training;

use anyhow::{Result, ensure};
use clap::Args;

use crate::mpi;

/// Milliseconds from one machine to the other, as between distant cities.
const DELAY: u32 = 10;

#[derive(Args)]
pub(crate) struct Options {
    /// Random moments at which a rank is killed
    #[arg(long, value_name = "N", default_value_t = 40)]
    kills: usize,
    /// Milliseconds from one machine to the other
    #[arg(long, value_name = "MS", default_value_t = DELAY)]
    delay: u32,
}

pub(crate) fn prove(options: &Options) -> Result<()> {
    let obstacle = machines::obstacle()?;
    ensure!(obstacle.is_none(), "two machines in one: {}", obstacle.unwrap_or_default());
    mpi::run_tests(|tests| {
        tests.env("FIRELIGHT_KILLS", options.kills.to_string());
    })?;
    training::on_two_machines(options.delay) // by the command that the tests have built
}
