//! What launchers tell the processes that they start: variables of the environment.

use std::{env, fs, iter};

use crate::MpiError;

/// Where launchers write the rank of a process, and how many there are. The first pair that is there counts: `mpirun` within an allocation of
/// Slurm leaves the variables of Slurm's own step there, too.
const VARIABLES: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], // Open MPI
    ["PMI_RANK", "PMI_SIZE"],                         // MPICH, Intel MPI, and Slurm's PMI-2
    ["SLURM_PROCID", SRUN],
];

/// What `srun` sets.
const SRUN: &str = "SLURM_STEP_NUM_TASKS";

/// Where launchers write which of the processes on this machine this one is, and how many those are.
const LOCAL: [[&str; 2]; 2] =
    [["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"], ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"]];

/// What Open MPI sets where it has bound processes to cores, which several of them may share: to a whole socket it binds all its ranks.
const BOUND: &str = "OMPI_MCA_orte_bound_at_launch";

/// Where Linux lists the cores of the machine, as in `0-3,8`.
const ONLINE: &str = "/sys/devices/system/cpu/online";

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
    /// Which of the processes on this machine this is, from 0.
    pub local_rank: usize,
    /// How many are on this machine; 1 where the launcher does not tell.
    pub local_world: usize,
    /// The cores that those on this machine have together, where this one may use but some of them.
    pub cores: Option<usize>,
}

impl Launch {
    /// What the environment tells; none if no launcher did start this process, or one whose variables [say no place](Self::checked).
    pub fn of_environment() -> Option<Self> {
        Self::checked().ok().flatten()
    }

    /// What the environment tells; none if no launcher did start this process.
    ///
    /// # Errors
    /// If the rank or the number of ranks is no number, the number is 0, or the rank is not below it.
    pub fn checked() -> Result<Option<Self>, MpiError> {
        Self::of(|name| Some(env::var_os(name)?.to_string_lossy().into_owned()), of_machine)
    }

    /// How many threads this process should compute with if it may use `available` cores: its share of those that the processes on this
    /// machine have together, and no more than its own.
    ///
    /// ```
    /// use firelight_mpi::Launch;
    ///
    /// let threads = Launch::of_environment().map_or(8, |launch| launch.threads(8));
    /// assert_eq!(threads, 8, "a process by itself shares with nobody");
    /// ```
    pub fn threads(&self, available: usize) -> usize {
        let together = self.cores.unwrap_or(available);
        available.min(together / self.local_world.max(1)).max(1)
    }

    fn of(
        variable: impl Fn(&str) -> Option<String>,
        of_machine: impl Fn() -> Option<usize>,
    ) -> Result<Option<Self>, MpiError> {
        let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
        let of_srun = || Some([number("SLURM_LOCALID")?, tasks_here(&variable)?]);
        let local = LOCAL.iter().find_map(|&[rank, world]| Some([number(rank)?, number(world)?])).or_else(of_srun);
        let [local_rank, local_world] = local.filter(|[rank, world]| rank < world).unwrap_or([0, 1]);
        let with_cores = |(rank, world, variable): (usize, usize, &'static str)| {
            let is_of_srun = !variable.starts_with("OMPI") && number(SRUN).is_some();
            let cores = if is_of_srun { number("SLURM_CPUS_ON_NODE") } else { None };
            let is_bound = is_of_srun || number(BOUND) == Some(1);
            let cores = cores.or_else(|| is_bound.then(&of_machine).flatten());
            Self { rank, world, variable, local_rank, local_world, cores }
        };
        Ok(place(&variable)?.map(with_cores))
    }
}

/// The rank of this process, how many there are, and the variable that says so, by the first launcher whose two variables are there.
fn place(variable: impl Fn(&str) -> Option<String>) -> Result<Option<(usize, usize, &'static str)>, MpiError> {
    for [rank_variable, world_variable] in VARIABLES {
        let world = number_of(&variable, world_variable, ("a number of ranks, at least 1", |world| world > 0))?;
        let rank = number_of(&variable, rank_variable, ("the number of a rank, from 0", |_| true))?;
        let (Some(rank), Some(world)) = (rank, world) else { continue };
        if rank >= world {
            let expected = format!("a rank below {world_variable}={world}");
            return Err(MpiError::NoPlace { variable: rank_variable, value: rank.to_string(), expected });
        }
        return Ok(Some((rank, world, world_variable)));
    }
    Ok(None)
}

/// What a variable says, if it is there: a number that `fits`, or else an error that says what was `expected`.
fn number_of(
    variable: impl Fn(&str) -> Option<String>,
    name: &'static str,
    (expected, fits): (&str, fn(usize) -> bool),
) -> Result<Option<usize>, MpiError> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.trim().parse::<usize>().ok().filter(|&number| fits(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(MpiError::NoPlace { variable: name, value, expected: expected.into() }),
    }
}

/// How many tasks of a step of Slurm are on this node, by a list such as `2(x3),1`: two on each of three nodes, and one on the last.
fn tasks_here(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let list = variable("SLURM_STEP_TASKS_PER_NODE")?;
    let node = variable("SLURM_NODEID").and_then(|node| node.trim().parse().ok()).unwrap_or(0);
    let tasks = list.split(',').flat_map(|part| {
        let (tasks, nodes) = part.trim().split_once("(x").unwrap_or((part.trim(), "1"));
        iter::repeat_n(tasks.parse().ok(), nodes.trim_end_matches(')').parse().unwrap_or(1))
    });
    tasks.into_iter().nth(node)?
}

/// The cores of this machine, whether this process may use them or not; none where the system does not list them.
fn of_machine() -> Option<usize> {
    counted(&fs::read_to_string(ONLINE).ok()?)
}

/// How many numbers are in a list such as `0-3,8`.
fn counted(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|number| number.parse::<usize>().ok());
        Some(count + 1 + last?.checked_sub(first?)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process takes from these variables, on a machine of 32 cores.
    fn launch(variables: &[(&str, &str)]) -> Option<Launch> {
        checked(variables).unwrap()
    }

    fn checked(variables: &[(&str, &str)]) -> Result<Option<Launch>, MpiError> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        Launch::of(variable, || Some(32))
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        for [rank, variable] in VARIABLES {
            let found = launch(&[(rank, "2"), (variable, "4")]).unwrap();
            let cores = (variable == SRUN).then_some(32);
            assert_eq!(found, Launch { rank: 2, world: 4, variable, local_rank: 0, local_world: 1, cores });
        }
        assert_eq!(launch(&[]), None);
    }

    #[test]
    fn the_ranks_of_mpirun_count_before_those_of_the_step_that_carries_it() {
        let step = [("SLURM_PROCID", "0"), (SRUN, "2"), ("SLURM_LOCALID", "0"), ("SLURM_STEP_TASKS_PER_NODE", "1(x2)")];
        let mpirun = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")];
        let local = [("OMPI_COMM_WORLD_LOCAL_RANK", "3"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
        let found = launch(&[&step[..], &mpirun, &local].concat()).unwrap();
        assert_eq!((found.rank, found.world, found.local_rank, found.local_world), (3, 8, 3, 4));
    }

    #[test]
    fn ranks_share_the_cores_of_their_machine_whatever_they_are_bound_to() {
        let rank = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "8")];
        let local = [("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
        let free = launch(&[rank, local].concat()).unwrap();
        assert_eq!([32, 6, 2].map(|available| free.threads(available)), [8, 1, 1]);
        let bound = launch(&[&rank[..], &local, &[(BOUND, "1")]].concat()).unwrap();
        // To all cores, to one of two sockets, to four cores, to one.
        assert_eq!([32, 16, 4, 1].map(|available| bound.threads(available)), [8, 8, 4, 1]);
        assert_eq!(launch(&rank).unwrap().threads(32), 32);
    }

    #[test]
    fn tasks_of_srun_share_what_their_step_has_of_a_node() {
        let on_node = |node, tasks| {
            let step = [("SLURM_PROCID", "1"), (SRUN, "7"), ("SLURM_LOCALID", "0"), ("SLURM_CPUS_ON_NODE", "16")];
            launch(&[&step[..], &[("SLURM_NODEID", node), ("SLURM_STEP_TASKS_PER_NODE", tasks)]].concat()).unwrap()
        };
        let found = ["0", "2", "3", "4"].map(|node| on_node(node, "2(x3),1").local_world);
        assert_eq!(found, [2, 2, 1, 1]);
        assert_eq!(on_node("1", "4,8").local_world, 8);
        assert_eq!(on_node("0", "many").local_world, 1);
        assert_eq!([16, 4].map(|available| on_node("0", "2(x3),1").threads(available)), [8, 4]);
        let by_pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "7"), (SRUN, "7"), ("SLURM_CPUS_ON_NODE", "16")];
        assert_eq!(launch(&by_pmi).unwrap().cores, Some(16));
    }

    #[test]
    fn cores_are_counted_as_linux_lists_them() {
        assert_eq!(["0-3\n", "0", "0-1,4,6-7\n"].map(counted), [Some(4), Some(1), Some(5)]);
        assert_eq!(["", "3-1", "all"].map(counted), [None; 3]);
    }

    #[test]
    fn what_is_no_place_in_a_world_is_an_error() {
        for (rank, ranks, variable, expected) in [
            ("4", "4", "PMI_RANK=`4`", "a rank below PMI_SIZE=4"),
            ("-1", "4", "PMI_RANK=`-1`", "the number of a rank, from 0"),
            ("0", "0", "PMI_SIZE=`0`", "a number of ranks, at least 1"),
            ("0", "many", "PMI_SIZE=`many`", "a number of ranks, at least 1"),
        ] {
            let error = checked(&[("PMI_RANK", rank), ("PMI_SIZE", ranks)]).unwrap_err().to_string();
            assert!(error.starts_with(variable) && error.contains(&format!("is not {expected}: start")), "{error}");
        }
        assert!(checked(&[("PMI_SIZE", "0")]).is_err());
    }

    #[test]
    fn one_variable_alone_is_no_launch() {
        assert_eq!(launch(&[("PMI_SIZE", "4")]), None);
        assert_eq!(launch(&[("SLURM_PROCID", "0")]), None, "as in a script of sbatch");
    }

    #[test]
    fn the_launcher_that_counts_is_not_spoilt_by_another_one() {
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(launch(&[&mpirun[..], &[("PMI_SIZE", "0")]].concat()).unwrap().world, 2);
    }
}
