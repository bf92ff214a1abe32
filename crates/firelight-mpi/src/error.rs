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
    /// The launcher is not one of the MPI that is built in: each process would believe itself alone.
    #[error(
        "{variable}={launched}, but MPI finds {found}: start the ranks by the mpirun of the MPI that the program was built with, \
         on Debian that of openmpi-bin; under Slurm by mpirun within the allocation, or by srun --mpi=pmix"
    )]
    OtherLauncher {
        /// The variable of the launcher.
        variable: &'static str,
        /// How many processes it started.
        launched: usize,
        /// How many MPI finds.
        found: usize,
    },
    /// MPI cannot be used.
    #[error("MPI cannot be used: {reason}")]
    Unusable {
        /// Why.
        reason: String,
    },
}
