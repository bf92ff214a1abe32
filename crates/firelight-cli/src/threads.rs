//! The threads that compute.

use std::env;
use std::thread::available_parallelism;

use anyhow::Result;
use firelight_mpi::Launch;
use rayon::ThreadPoolBuilder;

/// Sets how many threads the CPU backends have, this one among them if it `computes`; 0 takes all, or as many as `RAYON_NUM_THREADS` says.
///
/// As one of the pool this thread runs every step itself and finds the memory that it freed in the last one. Else now this and
/// now that thread of the pool would run a step, and the allocator keeps for each of them what it once needed.
/// One that only waits for others must not be of the pool: what it is handed would wait with it.
pub(crate) fn join_pool(threads: usize, computes: bool) -> Result<()> {
    let threads = if threads > 0 { threads } else { usual() };
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    // Alone it could not work for another thread while it waits for that one.
    let pool = if threads > 1 && computes { pool.use_current_thread() } else { pool };
    Ok(pool.build_global()?)
}

/// As many as rayon takes by itself; ranks that a launcher started on the same machine share its cores.
fn usual() -> usize {
    let asked = env::var("RAYON_NUM_THREADS").ok().and_then(|count| count.parse().ok()).filter(|&count| count > 0);
    let launch = Launch::of_environment();
    let share = |cores: usize| launch.map_or(cores, |launch| launch.threads(cores));
    asked.or(available_parallelism().ok().map(|cores| share(cores.into()))).unwrap_or(1)
}
