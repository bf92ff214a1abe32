//! Sums that devices form among themselves, in the place of those over the host.

use burn::tensor::distributed::{CollectiveTensor, ReduceOperation, all_reduce};
use burn::tensor::{Device, Tensor};

use super::CommunicatorError;

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
/// down in a sum may leave the others waiting: NCCL knows no timeout here.
///
/// It has never run on more than one GPU.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_training::{Communicator, DeviceCollective, Threads, ThreadsOptions};
/// use std::sync::Arc;
///
/// let devices = vec![Device::default()]; // of all ranks, in any order
/// let rank = Threads::ranks(1, ThreadsOptions::default()).remove(0);
/// let rank = rank.with_collective(Arc::new(DeviceCollective::new(devices)));
/// assert!(rank.collective().is_some());
/// ```
#[derive(Clone, Debug)]
pub struct DeviceCollective {
    devices: Vec<Device>,
}

impl DeviceCollective {
    /// The sums over these devices, one for each rank.
    pub fn new(devices: Vec<Device>) -> Self {
        Self { devices: devices.into_iter().map(Device::inner).collect() }
    }
}

impl Collective for DeviceCollective {
    fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
        let sum = |tensor| all_reduce(tensor, ReduceOperation::Sum, self.devices.clone());
        // All are under way before the first is waited for.
        let under_way: Vec<CollectiveTensor<1>> = tensors.into_iter().map(sum).collect();
        Ok(under_way.into_iter().map(CollectiveTensor::resolve).collect())
    }
}
