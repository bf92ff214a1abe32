//! Threads that wait for the next operation awake.

use burn::tensor::Device;

/// Runs `work`, a training or decoding step, while the worker threads of the CPU backend spin instead of sleeping.
///
/// A step is a chain of some hundred short operations. Between two of them a thread of the pool would fall asleep, and waking
/// it takes as long as many an operation does; here they look for work until `work` returns. On other devices than flex, and
/// where a step already runs so, `work` just runs. Nothing but time depends on it.
///
/// `work` runs on a thread of rayon's pool. A program whose main thread is not one of them has each step run by now this and
/// now that thread, and its allocator may keep for each what a step once needed: build the global pool with
/// `use_current_thread`, as the `firelight` command does, and memory grows little with the number of threads.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::{awake, linear};
///
/// let device = Device::flex();
/// let (x, weight) = (Tensor::<2>::ones([3, 4], &device), Tensor::<2>::ones([4, 2], &device));
/// let output = awake(&device, || linear(x, weight, None));
/// assert_eq!(output.dims(), [3, 2]);
/// ```
pub fn awake<R: Send>(device: &Device, work: impl FnOnce() -> R + Send) -> R {
    #[cfg(feature = "flex")]
    if crate::path::is_flex(device) {
        let precision = crate::MatmulPrecision::current(); // That of the thread that asks, which is another one.
        return pool::awake(|| precision.within(work));
    }
    let _ = device;
    work()
}

#[cfg(feature = "flex")]
mod pool {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// A thread that finds nothing to do for so long is let go; waking it up again is little beside such a gap.
    ///
    /// There must be an end to it. A thread may come to wait here while it has begun a part of the step itself: that part
    /// waits for another thread, and whoever waits in the pool takes what is queued, this waiting too. The part goes on when
    /// the waiting ends, and the step ends when the part does.
    const PATIENCE: Duration = Duration::from_millis(1);

    /// Whether the threads are held awake. Once is enough, and several steps at a time need their threads for work.
    static HELD: AtomicBool = AtomicBool::new(false);

    pub(super) fn awake<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        match Watch::begin() {
            // Inside the pool, for a thread outside of it would itself sleep at every operation.
            Some(watch) => rayon::scope(|_| {
                watch.wake_others();
                work()
            }),
            None => work(),
        }
    }

    /// The threads of the pool are held awake while this lives.
    struct Watch {
        ended: Arc<AtomicBool>,
    }

    impl Watch {
        fn begin() -> Option<Self> {
            let is_free = rayon::current_num_threads() > 1 && !HELD.swap(true, Relaxed);
            is_free.then(|| Self { ended: Arc::new(AtomicBool::new(false)) })
        }

        fn wake_others(&self) {
            let (ended, own) = (self.ended.clone(), rayon::current_thread_index());
            rayon::spawn_broadcast(move |thread| {
                if Some(thread.index()) != own {
                    look_for_work(&ended);
                }
            });
        }
    }

    /// Does what there is to do until the step has ended, or until there was nothing for a while.
    fn look_for_work(ended: &AtomicBool) {
        let mut busy = Instant::now();
        while !ended.load(Relaxed) && busy.elapsed() < PATIENCE {
            match rayon::yield_now() {
                Some(rayon::Yield::Executed) => busy = Instant::now(),
                _ => (0..64).for_each(|_| std::hint::spin_loop()),
            }
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            self.ended.store(true, Relaxed);
            HELD.store(false, Relaxed);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn wait_for(flag: &AtomicBool) {
            while !flag.load(Relaxed) {
                std::hint::spin_loop();
            }
        }

        /// The second thread is in the midst of a part of the step, whose other half the first one has, when it is kept awake.
        #[test]
        fn a_thread_that_has_begun_a_part_of_the_step_ends_it() {
            let [begun, queued, halved, done] = [const { AtomicBool::new(false) }; 4];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            let half = || {
                halved.store(true, Relaxed);
                std::thread::sleep(Duration::from_millis(20)); // The other one is done, waits for this and looks for work.
            };
            let part = |_: &rayon::Scope| {
                begun.store(true, Relaxed);
                wait_for(&queued);
                rayon::join(|| wait_for(&halved), half);
                done.store(true, Relaxed);
            };
            pool.in_place_scope(|scope| {
                scope.spawn(part);
                let is_done = pool.install(|| {
                    wait_for(&begun);
                    let watch = Watch { ended: Arc::new(AtomicBool::new(false)) };
                    watch.wake_others();
                    queued.store(true, Relaxed);
                    let began = Instant::now();
                    while !done.load(Relaxed) && began.elapsed() < Duration::from_secs(10) {
                        rayon::yield_now();
                    }
                    done.load(Relaxed)
                });
                assert!(is_done, "the step waits for its part, and that for the end of the step");
            });
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn results_and_panics_come_back_and_steps_may_nest_and_meet() {
        let device = Device::flex();
        let sum = || (0..1000_u64).into_par_iter().sum::<u64>();
        let steps: Vec<u64> = (0..8).into_par_iter().map(|_| awake(&device, || awake(&device, sum))).collect();
        assert_eq!(steps, [499_500; 8]);
        let panic = std::panic::catch_unwind(|| awake(&device, || assert_eq!(sum(), 0)));
        assert!(panic.is_err());
        assert_eq!(awake(&device, sum), 499_500);
    }
}
