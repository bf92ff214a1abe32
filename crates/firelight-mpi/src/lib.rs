//! Ranks that are processes, on one machine or several: what `mpirun -n 4 PROGRAM`, or `srun`, starts becomes the
//! [`Communicator`](firelight_training::Communicator) of a training.
//!
//! [`join`] asks the environment whether a launcher started this process as one of several. If so, the ranks find each other by MPI, for which
//! the feature `mpi` must be built in; else the process is alone, and MPI is not touched. This crate alone names the crate `mpi`.
//!
//! ```
//! use firelight_mpi::{MpiOptions, join};
//!
//! let member = join(MpiOptions::default())?; // in every rank, before anything is written
//! assert!(member.rank() < member.world());
//! // train, with `FitInput::communicator` or `Run::prepare_on`
//! member.leave()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # At run time
//!
//! A program that was built with the feature is linked to `libmpi.so`, which the system loads before the program begins. Where it is missing
//! the program can say nothing, and the loader says `error while loading shared libraries: libmpi.so.40`, without the name of a package: on
//! Debian that is `openmpi-bin`, which has `mpirun` too. A program without the feature needs no MPI, and names the packages where a
//! launcher starts it beside others ([`MpiError::NotBuiltIn`]).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod error;
mod launch;
mod member;
#[cfg(feature = "mpi")]
mod mpi;

pub use error::MpiError;
pub use launch::Launch;
pub use member::{Member, MpiOptions, join};
