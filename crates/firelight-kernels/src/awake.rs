//! Threads that wait for the next operation awake.

use burn::tensor::Device;

/// Runs `work`, a step of a training or of a decoder, while the threads of the CPU backend stay awake.
///
/// A step is a chain of some hundred short operations. Between two of them a thread of the pool would fall asleep, and waking
/// it takes as long as many an operation does; here they look for work until `work` returns. On other devices than flex, and
/// where a step already runs so, `work` just runs. Nothing but time depends on it.
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
        return pool::awake(work);
    }
    let _ = device;
    work()
}

#[cfg(feature = "flex")]
mod pool {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
                while Some(thread.index()) != own && !ended.load(Relaxed) {
                    if rayon::yield_now() != Some(rayon::Yield::Executed) {
                        (0..64).for_each(|_| std::hint::spin_loop());
                    }
                }
            });
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            self.ended.store(true, Relaxed);
            HELD.store(false, Relaxed);
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
