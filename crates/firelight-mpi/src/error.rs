//! Why a process cannot join those that were started with it.

/// Why a process cannot join those that were started with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// The feature `mpi` is not built in.
    #[error(
        "this process was started as one of {world} ({variable}={world}), but MPI is not built in: build it with `cargo build \
         --release -p firelight-cli --features mpi`, for which Debian has libopenmpi-dev, openmpi-bin and libclang-dev; or start \
         one process"
    )]
    NotBuiltIn {
        /// The variable that tells it.
        variable: &'static str,
        /// How many processes were started.
        world: usize,
    },
    /// A variable of a launcher is there, and says no place in a world.
    #[error(
        "{variable}=`{value}`, by which a launcher tells the place of this process, is not {expected}: start the ranks by mpirun or srun, or \
         unset the variable to start one process"
    )]
    NoPlace {
        /// The variable.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What it should say.
        expected: String,
    },
    /// The launcher is not one of the MPI that is built in: each process would believe itself alone.
    #[error(
        "{variable}={world} and this is rank {rank} of them, but MPI finds {found_world} and this as rank {found_rank}: start the ranks \
         by the mpirun of the MPI that the program was built with, on Debian that of openmpi-bin; under Slurm by mpirun within the \
         allocation, or by srun --mpi=pmix"
    )]
    OtherLauncher {
        /// The variable of the launcher.
        variable: &'static str,
        /// Which of its processes this is.
        rank: usize,
        /// How many it started.
        world: usize,
        /// Which rank this is for MPI.
        found_rank: usize,
        /// How many MPI finds.
        found_world: usize,
    },
    /// MPI cannot be used.
    #[error("MPI cannot be used: {reason}")]
    Unusable {
        /// Why.
        reason: String,
    },
}
