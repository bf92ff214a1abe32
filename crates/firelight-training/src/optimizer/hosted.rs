//! An update rule as Burn's `Optimizer`, with a state that waits in main memory until its parameter asks for it. Burn
//! materialises loaded states on the default device, which may be a graphics card that is compiled in but not there; here
//! they go straight to the device of their parameter.
//!
//! The state of every rule is the number of the step and a few named tensors, so one type holds them all.

use std::marker::PhantomData;

use burn::module::ParamGroup;
use burn::optim::{LearningRate, ModuleOptimizer, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{Device, Tensor, TensorData};

/// How one parameter follows from its gradient.
pub(super) trait Rule: Clone + Send + Sync + 'static {
    /// The names of the tensors in the state of a parameter of this rank.
    fn state_names(rank: usize) -> &'static [&'static str];

    /// The parameter after a step, and the tensors of its state in the order of their names. Without `state` it is the
    /// parameter's first step.
    fn update<const D: usize>(
        &self,
        step: Step,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Vec<Tensor<D>>>,
    ) -> (Tensor<D>, Vec<Tensor<D>>);
}

/// The settings of a rule, and its decoupled decay.
#[derive(Clone, Copy)]
pub(super) struct Decayed<C> {
    pub(super) config: C,
    pub(super) weight_decay: f64,
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The learning rate of the parameter.
    pub(super) rate: f64,
    /// The number of this step among the parameter's own, from 1 on.
    pub(super) time: usize,
}

/// The tensors of a state, which are `N` by the names of their rule.
pub(super) fn tensors<const D: usize, const N: usize>(state: Option<Vec<Tensor<D>>>) -> Option<[Tensor<D>; N]> {
    state.and_then(|tensors| tensors.try_into().ok())
}

/// A rule with [`HostedState`], and the share of the learning rate that its parameters have.
#[derive(Clone)]
pub(super) struct Hosted<R> {
    pub(super) rule: R,
    pub(super) rate_factor: f64,
}

impl<R: Rule> Hosted<R> {
    /// Makes this the rule of a group, or of all parameters where there is no optimizer yet.
    pub(super) fn join(self, optimizer: Option<ModuleOptimizer>, group: ParamGroup) -> ModuleOptimizer {
        match optimizer {
            Some(optimizer) => optimizer.with_group(group, self, None),
            None => self.into(),
        }
    }
}

impl<R: Rule> Optimizer for Hosted<R> {
    type State<const D: usize> = HostedState<D, R>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<HostedState<D, R>>,
    ) -> (Tensor<D>, Option<HostedState<D, R>>) {
        let (time, tensors) = state.map(|state| state.into_device(&grad.device())).unzip();
        let step = Step { rate: lr * self.rate_factor, time: time.unwrap_or(0) + 1 };
        let (tensor, tensors) = self.rule.update(step, tensor, grad, tensors);
        (tensor, Some(HostedState::on_device(step.time, tensors)))
    }

    fn to_device<const D: usize>(state: HostedState<D, R>, device: &Device) -> HostedState<D, R> {
        let (time, tensors) = state.into_device(device);
        HostedState::on_device(time, tensors)
    }
}

/// The state of one parameter under the rule `R`.
#[derive(Clone)]
pub(super) struct HostedState<const D: usize, R> {
    /// Steps that the parameter has taken.
    time: usize,
    storage: Storage<D>,
    rule: PhantomData<R>,
}

/// The tensors of a state, on the device or as they were read from a file.
#[derive(Clone)]
enum Storage<const D: usize> {
    OnDevice(Vec<Tensor<D>>),
    OnHost(Vec<TensorData>),
}

impl<const D: usize, R> HostedState<D, R> {
    fn on_device(time: usize, tensors: Vec<Tensor<D>>) -> Self {
        Self { time, storage: Storage::OnDevice(tensors), rule: PhantomData }
    }

    fn into_device(self, device: &Device) -> (usize, Vec<Tensor<D>>) {
        let tensors = match self.storage {
            Storage::OnDevice(tensors) => tensors.into_iter().map(|tensor| tensor.to_device(device)).collect(),
            Storage::OnHost(data) => data.into_iter().map(|data| Tensor::from_data(data, device)).collect(),
        };
        (self.time, tensors)
    }

    fn into_host(self) -> Vec<TensorData> {
        match self.storage {
            Storage::OnDevice(tensors) => tensors.into_iter().map(Tensor::into_data).collect(),
            Storage::OnHost(data) => data,
        }
    }
}

impl<const D: usize, R: Rule> RecordState for HostedState<D, R> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        out.push_scalar(prefix, "time", self.time.into());
        for (name, data) in R::state_names(D).iter().zip(self.clone().into_host()) {
            out.push_tensor(prefix, name, data);
        }
    }

    fn state_unflatten(prefix: &str, src: &mut StateSource, _device: &Device) -> Option<Self> {
        let time = src.take_scalar(prefix, "time")?.try_into().ok()?;
        let data: Option<Vec<_>> = R::state_names(D).iter().map(|name| src.take_tensor(prefix, name)).collect();
        Some(Self { time, storage: Storage::OnHost(data?), rule: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::adafactor::{AdafactorConfig, AdafactorRule};
    use crate::optimizer::adam::{AdamConfig, AdamRule};
    use crate::optimizer::lion::{LionConfig, LionRule};
    use crate::optimizer::muon::{MuonConfig, MuonRule};

    fn step<R: Rule>(
        rule: &Hosted<R>,
        gradient: f32,
        state: Option<HostedState<2, R>>,
    ) -> (Vec<f32>, HostedState<2, R>) {
        let device = Device::default();
        let tensor = Tensor::from_floats([[1.0, 2.0], [-1.0, 0.5]], &device);
        let gradient = Tensor::<2>::from_floats([[0.3, -0.1], [0.2, 0.7]], &device) * gradient;
        let (tensor, state) = rule.step(0.1, tensor, gradient, state);
        (tensor.try_into_vec_as().unwrap(), state.unwrap())
    }

    /// The state as a file holds it.
    fn written<R: Rule>(state: &HostedState<2, R>) -> StateSource {
        let mut sink = StateSink::default();
        state.state_flatten("7", &mut sink);
        let mut source = StateSource::new(sink.scalars.into_iter().collect());
        sink.tensors.into_iter().for_each(|(name, data)| source.insert_tensor(name, data));
        source
    }

    fn continues_to_the_bit<R: Rule>(rule: R) {
        let rule = Hosted { rule, rate_factor: 1.0 };
        let (_, state) = step(&rule, 0.3, None);
        let mut source = written(&state);
        let restored = HostedState::<2, R>::state_unflatten("7", &mut source, &Device::default()).unwrap();
        assert!(matches!(restored.storage, Storage::OnHost(_)));
        let continued = step(&rule, -0.02, Some(restored)).0;
        assert_eq!(step(&rule, -0.02, Some(state)).0, continued);
        assert_ne!(step(&rule, -0.02, None).0, continued, "the state makes a difference");
        assert!(HostedState::<2, R>::state_unflatten("8", &mut source, &Device::default()).is_none());
    }

    #[test]
    fn a_state_read_from_a_file_continues_to_the_bit() {
        continues_to_the_bit(AdamRule { config: AdamConfig::adamw(), weight_decay: 0.1 });
        continues_to_the_bit(LionRule { config: LionConfig::default(), weight_decay: 0.1 });
        continues_to_the_bit(AdafactorRule { config: AdafactorConfig::default(), weight_decay: 0.1 });
        continues_to_the_bit(MuonRule { config: MuonConfig::default(), weight_decay: 0.1 });
    }

    #[test]
    fn the_state_of_another_rule_is_none() {
        let rule = Hosted { rule: LionRule { config: LionConfig::default(), weight_decay: 0.0 }, rate_factor: 1.0 };
        let (_, state) = step(&rule, 0.3, None);
        let restored = HostedState::<2, AdamRule>::state_unflatten("7", &mut written(&state), &Device::default());
        assert!(restored.is_none());
    }

    #[test]
    fn the_factor_scales_the_rate() {
        let rule = LionRule { config: LionConfig::default(), weight_decay: 0.0 };
        let moved = |rate_factor| step(&Hosted { rule, rate_factor }, 1.0, None).0[0] - 1.0;
        assert!((moved(1.0) + 0.1).abs() < 1e-6 && (moved(0.5) + 0.05).abs() < 1e-6);
        assert_eq!(moved(0.0), 0.0);
    }
}
