//! Ranks that `mpirun` starts, or the devices of one process are: they leave the folder of one process and write its answers, and whatever
//! stops one of them ends all with a clear line. `mpirun` needs the feature `mpi`; without it, what is said then.

#[cfg(feature = "mpi")]
mod answers;
mod devices;
#[cfg(feature = "mpi")]
mod job;
#[cfg(feature = "mpi")]
mod refused;
#[cfg(all(feature = "mpi", target_os = "linux"))]
mod stopped;
#[cfg(feature = "mpi")]
mod tasks;
#[cfg(not(feature = "mpi"))]
mod without;

use crate::USER;
use crate::support::{Model, command, finish, text};

#[test]
fn a_world_of_no_ranks_is_no_single_process() {
    let home = Model::scratch();
    let out = home.path().join("run");
    for (rank, world, told) in [
        ("0", "0", ["PMI_SIZE=`0`", "is not a number of ranks, at least 1"]),
        ("2", "2", ["PMI_RANK=`2`", "is not a rank below PMI_SIZE=2"]),
    ] {
        let mut training = command(["train", "stories", "--out", &text(&out)]);
        training.env("PMI_RANK", rank).env("PMI_SIZE", world);
        finish(training).fails(USER, &told);
        assert!(!out.exists());
    }
}

#[test]
fn a_command_of_one_process_is_refused_among_several() {
    let mut devices = command(["devices"]);
    devices.env("OMPI_COMM_WORLD_RANK", "0").env("OMPI_COMM_WORLD_SIZE", "4");
    finish(devices).fails(USER, &["this process is one of 4 (OMPI_COMM_WORLD_SIZE=4)", "start it by itself"]);
}
