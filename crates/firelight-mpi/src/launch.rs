//! What launchers tell the processes that they start: variables of the environment.

use std::env;

/// Where launchers write the rank of a process, and how many there are. The first pair that is there counts: `mpirun` within an allocation of
/// Slurm leaves the variables of Slurm's own step there, too.
const VARIABLES: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], // Open MPI
    ["PMI_RANK", "PMI_SIZE"],                         // MPICH, Intel MPI, and Slurm's PMI-2
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],         // srun
];

/// Where launchers write how many of the processes are on this machine.
const NEIGHBOURS: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// What Open MPI sets where it has bound each process to cores of its own.
const BOUND: &str = "OMPI_MCA_orte_bound_at_launch";

/// How a launcher started this process.
///
/// ```
/// use firelight_mpi::Launch;
///
/// let rank = Launch::of_environment().map_or(0, |launch| launch.rank);
/// assert_eq!(rank, 0, "a test is a process by itself");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Which of the processes this is, from 0.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    /// The variable that says how many.
    pub variable: &'static str,
    /// How many of them share the cores that this one may use, itself included.
    pub sharing: usize,
}

impl Launch {
    /// What the environment tells; none if no launcher did start this process.
    pub fn of_environment() -> Option<Self> {
        Self::of(|name| env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| variable(name)?.trim().parse::<usize>().ok();
        let neighbours = NEIGHBOURS.iter().find_map(|&name| number(name)).filter(|_| number(BOUND) != Some(1));
        let sharing = neighbours.unwrap_or(1).max(1);
        VARIABLES.iter().find_map(|&[rank, world]| {
            let launch = Self { rank: number(rank)?, world: number(world)?, variable: world, sharing };
            (launch.rank < launch.world).then_some(launch)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Option<Launch> {
        Launch::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        let pairs = VARIABLES.map(|[rank, world]| launch(&[(rank, "2"), (world, "4")]).unwrap());
        let expected = VARIABLES.map(|[_, variable]| Launch { rank: 2, world: 4, variable, sharing: 1 });
        assert_eq!(pairs, expected);
        assert_eq!(launch(&[]), None);
    }

    #[test]
    fn the_ranks_of_mpirun_count_before_those_of_the_step_that_carries_it() {
        let step = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")];
        let mpirun = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")];
        let found = launch(&[step, mpirun].concat()).unwrap();
        assert_eq!((found.rank, found.world), (3, 8));
    }

    #[test]
    fn ranks_share_cores_unless_each_has_its_own() {
        let rank = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
        assert_eq!(launch(&rank).unwrap().sharing, 4);
        assert_eq!(launch(&[&rank[..], &[(BOUND, "1")]].concat()).unwrap().sharing, 1);
        assert_eq!(launch(&rank[..2]).unwrap().sharing, 1);
    }

    #[test]
    fn what_is_no_place_in_a_world_is_no_launch() {
        for (rank, world) in [("4", "4"), ("0", "0"), ("-1", "4"), ("0", "many")] {
            assert_eq!(launch(&[("PMI_RANK", rank), ("PMI_SIZE", world)]), None, "{rank} of {world}");
        }
        assert_eq!(launch(&[("PMI_SIZE", "4")]), None);
    }
}
