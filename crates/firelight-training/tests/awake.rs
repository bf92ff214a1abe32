//! Steps and evaluations run where the threads are kept awake. A test binary of its own with one test: while another step keeps them
//! awake, a step runs where it is called.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use firelight_kernels::awake;
use firelight_training::{LossOutput, OptimizerConfig, ScheduleConfig, Trainer, evaluate};

/// `slope x` squared is the loss. It notes on which threads it is computed, and cloned for an update.
#[derive(Module, Debug)]
struct Watched {
    slope: Param<Tensor<2>>,
    #[module(skip)]
    seen: Seen,
}

/// What happened to a model, on which thread.
#[derive(Debug, Default)]
struct Seen(Arc<Mutex<Vec<(&'static str, ThreadId)>>>);

impl Seen {
    fn note(&self, event: &'static str) {
        self.0.lock().unwrap().push((event, thread::current().id()));
    }
}

impl Clone for Seen {
    fn clone(&self) -> Self {
        self.note("clone");
        Self(self.0.clone())
    }
}

impl Watched {
    fn new(device: &Device) -> Self {
        Self { slope: Param::from_tensor(Tensor::ones([1, 1], device)), seen: Seen::default() }
    }

    fn loss(&self, x: Tensor<2>) -> LossOutput {
        self.seen.note("step");
        let count = Tensor::from_floats([x.dims()[0] as f32], &x.device());
        LossOutput::new(x.matmul(self.slope.val()).square().sum(), count)
    }

    /// The threads on which it happened. Everything that was noted so far is forgotten.
    fn take_threads(&self, event: &str) -> Vec<ThreadId> {
        let seen = std::mem::take(&mut *self.seen.0.lock().unwrap());
        seen.into_iter().filter(|(what, _)| *what == event).map(|(_, thread)| thread).collect()
    }
}

impl TrainStep for Watched {
    type Input = Tensor<2>;
    type Output = LossOutput;

    fn step(&self, x: Tensor<2>) -> TrainOutput<LossOutput> {
        let output = self.loss(x);
        TrainOutput::new(self, output.mean().backward(), output)
    }
}

impl InferenceStep for Watched {
    type Input = Tensor<2>;
    type Output = LossOutput;

    fn step(&self, x: Tensor<2>) -> LossOutput {
        self.loss(x)
    }
}

struct Column;

impl Batcher<f32, Tensor<2>> for Column {
    fn batch(&self, numbers: Vec<f32>, device: &Device) -> Tensor<2> {
        Tensor::<1>::from_floats(numbers.as_slice(), device).unsqueeze_dim(1)
    }
}

/// The threads that compute a step of a training.
fn training(event: &str) -> Vec<ThreadId> {
    let device = Device::flex().autodiff();
    let mut trainer = Trainer::new(Watched::new(&device), OptimizerConfig::default(), ScheduleConfig::default(), 1);
    trainer.model().take_threads(event);
    trainer.step(Tensor::ones([2, 1], &device)).unwrap();
    trainer.model().take_threads(event)
}

/// The threads that compute an evaluation.
fn evaluation() -> Vec<ThreadId> {
    let model = Watched::new(&Device::flex());
    let loader = DataLoaderBuilder::new(Column).batch_size(1).build(InMemDataset::new(vec![1.0, 2.0]));
    evaluate(&model, &*loader).unwrap();
    model.take_threads("step")
}

#[test]
fn gradients_updates_and_evaluations_are_computed_with_threads_awake() {
    let own = thread::current().id();
    if awake(&Device::flex(), || thread::current().id()) == own {
        return; // There is one thread alone, which nothing is moved to.
    }
    for (what, threads) in
        [("gradients", training("step")), ("updates", training("clone")), ("evaluations", evaluation())]
    {
        assert!(!threads.is_empty() && threads.iter().all(|&thread| thread != own), "{what}: the threads sleep");
    }
}
