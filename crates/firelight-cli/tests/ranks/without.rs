//! A program without MPI that is started by `mpirun` all the same.

use std::process::Command;

use crate::USER;
use crate::support::{Model, command, finish, model, output_if_installed, train};

#[test]
fn one_of_several_ranks_says_how_to_build_it() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let mut rank = command(train(model(), &out));
    rank.env("OMPI_COMM_WORLD_RANK", "0").env("OMPI_COMM_WORLD_SIZE", "2");
    finish(rank).fails(USER, &["one of 2 (OMPI_COMM_WORLD_SIZE=2)", "MPI is not built in", "--features mpi"]);
    assert!(!out.exists());
}

#[test]
fn mpirun_ends_with_one_line_of_all_ranks() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["-q", "--oversubscribe", "--allow-run-as-root", "--timeout", "60", "-n", "2"]);
    mpirun.arg(env!("CARGO_BIN_EXE_firelight")).args(train(model(), &out));
    let Some(output) = output_if_installed(&mut mpirun) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(output.status.code() == Some(USER) && errors.len() == 1, "{}: {said}", output.status);
    assert!(errors[0].contains("MPI is not built in") && !out.exists(), "{said}");
}
