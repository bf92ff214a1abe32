//! Results of a slow function, computed ahead on worker threads and handed out in order. Worker `w` of `W` computes the
//! results `w, w + W, w + 2W, ...` and keeps them in a queue of its own; whoever takes results goes round the queues. So the
//! order is that of the jobs whatever the threads do, and nothing has to be sorted.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// An iterator over results that are computed ahead. Its threads end with it.
pub(crate) struct Prefetch<T> {
    workers: Vec<Worker<T>>,
    next: usize,
}

struct Worker<T> {
    /// None once the iterator ends, which ends the thread at its next result.
    results: Option<Receiver<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Begins to compute `work` of each of `jobs`. At most `depth` results, rounded up to a multiple of `workers`, are held
    /// at a time, those in the making included.
    pub(crate) fn new<J, W>(workers: usize, depth: usize, jobs: J, work: W) -> Self
    where
        J: Iterator + Clone + Send + 'static,
        W: Fn(J::Item) -> T + Clone + Send + 'static,
    {
        // A worker holds one result beside its queue.
        let queued = depth.div_ceil(workers).saturating_sub(1);
        let workers = (0..workers).map(|worker| {
            let (jobs, work) = (jobs.clone().skip(worker).step_by(workers), work.clone());
            Worker::new(queued, move || jobs.map(work))
        });
        Self { workers: workers.collect(), next: 0 }
    }
}

impl<T: Send + 'static> Worker<T> {
    fn new<I: Iterator<Item = T>>(queued: usize, results: impl FnOnce() -> I + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(queued);
        // An error means that nobody waits for results any more.
        let thread = thread::spawn(move || results().try_for_each(|result| sender.send(result)).unwrap_or_default());
        Self { results: Some(receiver), thread: Some(thread) }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    /// # Panics
    /// Panics as the work did.
    fn next(&mut self) -> Option<T> {
        let turn = self.next % self.workers.len();
        let worker = &mut self.workers[turn];
        self.next += 1;
        let result = worker.results.as_ref()?.recv().ok();
        if result.is_none() {
            worker.thread.take()?.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        result
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.results = None);
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            let _: thread::Result<()> = thread.join(); // What a result that nobody wants panicked with, nobody wants either.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    /// Work of very different durations.
    fn slow_square(number: usize) -> usize {
        thread::sleep(Duration::from_micros([900, 0, 300, 0, 0][number % 5]));
        number * number
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        for (workers, depth) in [(1, 1), (2, 5), (3, 3), (7, 2)] {
            for jobs in [0, 1, 40] {
                let results: Vec<usize> = Prefetch::new(workers, depth, 0..jobs, slow_square).collect();
                assert_eq!(results, (0..jobs).map(|number| number * number).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn no_more_is_computed_than_may_be_held() {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = begun.clone();
        let mut results = Prefetch::new(2, 4, 0..usize::MAX, move |_| count.fetch_add(1, SeqCst));
        results.next();
        let waiting = Instant::now();
        while begun.load(SeqCst) < 5 {
            let begun = begun.load(SeqCst);
            assert!(waiting.elapsed() < Duration::from_secs(60), "only {begun} of 5 jobs have begun");
            thread::yield_now(); // however slow the machine is
        }
        thread::sleep(Duration::from_millis(50));
        assert_eq!(begun.load(SeqCst), 5); // one taken, four held
    }

    #[test]
    fn threads_end_with_the_iterator() {
        let alive = Arc::new(());
        let shared = alive.clone();
        let mut results = Prefetch::new(3, 6, 0..usize::MAX, move |_| Arc::strong_count(&shared));
        assert!(results.by_ref().take(5).all(|owners| owners > 1));
        drop(results);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn a_panic_arrives_at_its_place() {
        let work = |number: usize| if number == 4 { panic!("four") } else { number };
        let mut results = Prefetch::new(2, 4, 0..9, work);
        assert_eq!(results.by_ref().take(4).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| results.next())).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"four"));
    }
}
