//! The place of a process among those that train together.

use std::sync::Arc;
use std::time::Duration;

use firelight_training::{Alone, Communicator, CommunicatorError};

use crate::{Launch, MpiError};

/// How ranks work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiOptions {
    /// How long a rank waits for the others. Default: 10 minutes.
    pub timeout: Duration,
}

impl Default for MpiOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(600) }
    }
}

/// A process among those that train together, or one by itself.
pub struct Member {
    communicator: Arc<dyn Communicator>,
    #[cfg(feature = "mpi")]
    mpi: Option<Arc<crate::mpi::Mpi>>,
}

/// Joins the processes that a launcher started with this one. Call it once, in every rank, before anything is written.
///
/// # Errors
/// If the launcher started several and MPI is not built in, is another one than that of the launcher, or cannot be used; and if a variable
/// of a launcher says no place in a world, such as one of 0 ranks. Without a launcher there is nothing that can fail.
pub fn join(options: MpiOptions) -> Result<Member, MpiError> {
    match Launch::checked()?.filter(|launch| launch.world > 1) {
        Some(launch) => Member::of(launch, options),
        None => Ok(Member::alone()),
    }
}

impl Member {
    /// A process by itself, whoever started it.
    pub fn alone() -> Self {
        Self {
            communicator: Arc::new(Alone),
            #[cfg(feature = "mpi")]
            mpi: None,
        }
    }

    #[cfg(feature = "mpi")]
    fn of(launch: Launch, options: MpiOptions) -> Result<Self, MpiError> {
        let mpi = Arc::new(crate::mpi::Mpi::join(launch, options)?);
        Ok(Self { communicator: mpi.clone(), mpi: Some(mpi) })
    }

    #[cfg(not(feature = "mpi"))]
    fn of(launch: Launch, _options: MpiOptions) -> Result<Self, MpiError> {
        Err(MpiError::NotBuiltIn { variable: launch.variable, world: launch.world })
    }

    /// Which of the ranks this is, from 0.
    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.communicator.world()
    }

    /// The ways to the other ranks.
    pub fn communicator(&self) -> Arc<dyn Communicator> {
        self.communicator.clone()
    }

    /// Parts from the other ranks when all of them have come so far. What each does from now on is its own; the first one can write a
    /// report while the others end.
    ///
    /// # Errors
    /// If another rank has failed, or does not come in time.
    pub fn leave(&self) -> Result<(), CommunicatorError> {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return mpi.leave();
        }
        Ok(())
    }

    /// Ends all ranks, whatever they do, with the exit code `code`. Returns where there is nobody else, or all have parted.
    pub fn abort(&self, code: u8) {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            mpi.abort(code);
        }
        let _ = code; // one process ends by itself
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_nobody_launched_is_alone() {
        let member = join(MpiOptions::default()).unwrap();
        assert_eq!((member.rank(), member.world()), (0, 1));
        member.communicator().barrier().unwrap();
        member.leave().unwrap();
        member.abort(1);
    }

    #[cfg(not(feature = "mpi"))]
    #[test]
    fn one_of_several_is_told_what_to_build() {
        let variable = "OMPI_COMM_WORLD_SIZE";
        let launch = Launch { rank: 1, world: 4, variable, local_rank: 1, local_world: 4, cores: None };
        let error = Member::of(launch, MpiOptions::default()).err().unwrap().to_string();
        for part in ["one of 4 (OMPI_COMM_WORLD_SIZE=4)", "--features mpi", "libopenmpi-dev", "or start one process"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
