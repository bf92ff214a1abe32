//! AdamW whose saved state waits in main memory until its parameter asks for it. Burn materialises loaded states on the
//! default device, which may be a graphics card that is compiled in but not there; here they go straight to the device
//! of their parameter. [`OptimizerConfig`](crate::OptimizerConfig) builds it.

use burn::optim::{LearningRate, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{Device, Tensor, TensorData};
use firelight_kernels::{AdamWStep, adamw};

/// AdamW with [`Moments`] as its state.
#[derive(Clone)]
pub(crate) struct HostedAdamW {
    /// Everything but the learning rate and the number of the step.
    pub(crate) rule: AdamWStep,
}

impl Optimizer for HostedAdamW {
    type State<const D: usize> = Moments<D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<Moments<D>>,
    ) -> (Tensor<D>, Option<Moments<D>>) {
        let (time, moments) = state.map(|state| state.into_device(&grad.device())).unzip();
        let rule = AdamWStep { learning_rate: lr, time: time.unwrap_or(0) + 1, ..self.rule };
        let (tensor, moments) = adamw(tensor, grad, moments, &rule);
        (tensor, Some(Moments::OnDevice { time: rule.time, moments: Box::new(moments) }))
    }

    fn to_device<const D: usize>(state: Moments<D>, device: &Device) -> Moments<D> {
        let (time, moments) = state.into_device(device);
        Moments::OnDevice { time, moments: Box::new(moments) }
    }
}

/// The running means of one parameter, on the device or as they were read from a file.
#[derive(Clone)]
pub(crate) enum Moments<const D: usize> {
    OnDevice { time: usize, moments: Box<[Tensor<D>; 2]> },
    OnHost(Box<HostMoments>),
}

/// The running means in main memory.
#[derive(Clone)]
pub(crate) struct HostMoments {
    time: usize,
    moment_1: TensorData,
    moment_2: TensorData,
}

impl<const D: usize> Moments<D> {
    fn into_device(self, device: &Device) -> (usize, [Tensor<D>; 2]) {
        match self {
            Self::OnDevice { time, moments } => (time, moments.map(|moment| moment.to_device(device))),
            Self::OnHost(host) => {
                (host.time, [host.moment_1, host.moment_2].map(|moment| Tensor::from_data(moment, device)))
            }
        }
    }

    fn into_host(self) -> HostMoments {
        match self {
            Self::OnDevice { time, moments } => {
                let [moment_1, moment_2] = moments.map(Tensor::into_data);
                HostMoments { time, moment_1, moment_2 }
            }
            Self::OnHost(host) => *host,
        }
    }
}

impl<const D: usize> RecordState for Moments<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        let host = self.clone().into_host();
        out.push_scalar(prefix, "time", host.time.into());
        out.push_tensor(prefix, "moment_1", host.moment_1);
        out.push_tensor(prefix, "moment_2", host.moment_2);
    }

    fn state_unflatten(prefix: &str, src: &mut StateSource, _device: &Device) -> Option<Self> {
        Some(Self::OnHost(Box::new(HostMoments {
            time: src.take_scalar(prefix, "time")?.try_into().ok()?,
            moment_1: src.take_tensor(prefix, "moment_1")?,
            moment_2: src.take_tensor(prefix, "moment_2")?,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OptimizerConfig;

    fn step(rule: &HostedAdamW, gradient: f32, state: Option<Moments<1>>) -> (Vec<f32>, Moments<1>) {
        let device = Device::default();
        let tensor = Tensor::from_floats([1.0], &device);
        let (tensor, state) = rule.step(0.1, tensor, Tensor::from_floats([gradient], &device), state);
        (tensor.try_into_vec_as().unwrap(), state.unwrap())
    }

    #[test]
    fn a_state_read_from_a_file_continues_to_the_bit() {
        let rule = OptimizerConfig::default().rule(0.1);
        let (_, state) = step(&rule, 0.3, None);

        let mut sink = StateSink::default();
        state.state_flatten("7", &mut sink);
        let mut source = StateSource::new(sink.scalars.into_iter().collect());
        sink.tensors.into_iter().for_each(|(name, data)| source.insert_tensor(name, data));
        let restored = Moments::state_unflatten("7", &mut source, &Device::default()).unwrap();

        assert!(matches!(restored, Moments::OnHost(_)));
        assert_eq!(step(&rule, -0.2, Some(state)).0, step(&rule, -0.2, Some(restored)).0);
        assert!(Moments::<1>::state_unflatten("8", &mut source, &Device::default()).is_none());
    }
}
