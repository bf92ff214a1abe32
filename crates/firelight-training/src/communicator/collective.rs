//! Sums that devices form among themselves, in the place of those over the host.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use burn::tensor::distributed::{CollectiveTensor, ReduceOperation, all_reduce};
use burn::tensor::{Device, Tensor};

use super::CommunicatorError;
use crate::words::lasting;

/// Sums over the devices of all ranks that never come to the host, for [`Threads::with_collective`](super::Threads::with_collective). The
/// order of a sum is that of the devices: with three ranks or more the result need not be that of one process.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_training::{Collective, Communicator, CommunicatorError, Threads, ThreadsOptions};
/// use std::sync::Arc;
///
/// /// What one rank has by itself.
/// struct Own;
///
/// impl Collective for Own {
///     fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
///         Ok(tensors)
///     }
/// }
///
/// let rank = Threads::ranks(1, ThreadsOptions::default()).remove(0).with_collective(Arc::new(Own));
/// let ones = Tensor::ones([2], &Device::default());
/// assert_eq!(rank.collective().unwrap().sum(vec![ones]).unwrap()[0].dims(), [2]);
/// ```
pub trait Collective: Send + Sync {
    /// The sum of each of `tensors`, `[N]` without gradients, over all ranks, on the device of this rank. All ranks hand over tensors of the same
    /// lengths in the same order.
    ///
    /// # Errors
    /// If ranks cannot go on together.
    fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError>;
}

/// Burn's all-reduce, which CUDA has through NCCL. Burn panics or fails at the next read where a device has none. A device that breaks
/// down in a sum leaves the others waiting, and NCCL knows no timeout here: nothing but the end of the process ends that wait.
///
/// It has never run on more than one GPU.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_training::{Communicator, DeviceCollective, Threads, ThreadsOptions};
/// use std::{process, sync::Arc};
///
/// let devices = vec![Device::default()]; // of all ranks, in any order
/// let options = ThreadsOptions::default();
/// let end = |reason: &str| {
///     eprintln!("{reason}");
///     process::exit(1);
/// };
/// let collective = Arc::new(DeviceCollective::new(devices, options.timeout, end));
/// let rank = Threads::ranks(1, options).remove(0).with_collective(collective);
/// assert!(rank.collective().is_some());
/// ```
pub struct DeviceCollective(Watched<Devices>);

impl DeviceCollective {
    /// The sums over these devices, one for each rank. `end` is called with the reason, on another thread, if a sum does not end within
    /// `timeout`, and should end the process; every rank that waits calls it.
    pub fn new(devices: Vec<Device>, timeout: Duration, end: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let devices = Devices(devices.into_iter().map(Device::inner).collect());
        Self(Watched { collective: devices, timeout, end: Arc::new(end) })
    }
}

impl Collective for DeviceCollective {
    fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
        self.0.sum(tensors)
    }
}

/// Devices that sum among themselves, however long it takes.
struct Devices(Vec<Device>);

impl Collective for Devices {
    fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
        let sum = |tensor| all_reduce(tensor, ReduceOperation::Sum, self.0.clone());
        // All are under way before the first is resolved, which orders the device to wait for it, and returns.
        let under_way: Vec<CollectiveTensor<1>> = tensors.into_iter().map(sum).collect();
        let sums: Vec<Tensor<1>> = under_way.into_iter().map(CollectiveTensor::resolve).collect();
        if let Some(sum) = sums.first() {
            let _ = sum.device().sync(); // waits here, where it is watched; what fails is told at the next read
        }
        Ok(sums)
    }
}

/// Sums under a watchdog: `end` is called if one does not end in time, since whoever waits in it cannot return.
struct Watched<C> {
    collective: C,
    timeout: Duration,
    end: Arc<dyn Fn(&str) + Send + Sync>,
}

impl<C: Collective> Collective for Watched<C> {
    fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
        let (done, summed) = channel::<()>();
        let (timeout, end) = (self.timeout, self.end.clone());
        thread::spawn(move || {
            if summed.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                end(&endless(timeout));
            }
        });
        let sums = self.collective.sum(tensors);
        drop(done);
        sums
    }
}

fn endless(timeout: Duration) -> String {
    let waited = lasting(timeout);
    format!("the devices have not summed the gradients within {waited}: one of them has broken down, or hangs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;

    const LONG: Duration = Duration::from_secs(60);

    /// Sums that do not end before somebody ends them.
    struct Endless(Mutex<Receiver<()>>);

    impl Collective for Endless {
        fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
            self.0.lock().unwrap().recv_timeout(LONG).expect("nobody has ended the sum");
            Ok(tensors)
        }
    }

    /// Sums of one rank.
    struct Own;

    impl Collective for Own {
        fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
            Ok(tensors)
        }
    }

    #[test]
    fn a_sum_that_does_not_end_is_ended_with_a_reason() {
        let ((told, reasons), (ends, ended)) = (channel(), channel());
        let end = move |reason: &str| {
            told.send(reason.to_string()).unwrap();
            ends.send(()).unwrap();
        };
        let timeout = Duration::from_millis(5);
        let watched = Watched { collective: Endless(Mutex::new(ended)), timeout, end: Arc::new(end) };
        watched.sum(Vec::new()).unwrap();
        let reason = reasons.recv_timeout(LONG).unwrap();
        assert!(reason.starts_with("the devices have not summed the gradients within 0.0 s: one"), "{reason}");
    }

    #[test]
    fn a_sum_that_ends_is_watched_no_longer() {
        let (told, reasons) = channel();
        let end = move |reason: &str| told.send(reason.to_string()).unwrap();
        let watched = Watched { collective: Own, timeout: LONG, end: Arc::new(end) };
        watched.sum(Vec::new()).unwrap();
        drop(watched);
        assert!(reasons.recv().is_err(), "the watchdog has told of it");
    }
}
