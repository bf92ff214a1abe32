//! The smallest model that can be trained, and data for it: a line through points, with dropout so that the seed of a
//! step matters. The tests of this crate share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, GradientCheckpointingStrategy, Tensor};
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use serde::{Deserialize, Serialize};

use firelight_kernels::MatmulPrecision;

use crate::{
    Collective, Communicator, CommunicatorError, LossOutput, Objective, Switches, Threads, ThreadsOptions, TrainLoss,
    ValidOutput,
};

/// Keeps other trainings out: the random numbers of a device are one stream for the whole process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TRAINING: Mutex<()> = Mutex::new(());
    TRAINING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ranks whose gradients are summed as by devices: not in halves, but from the first rank to the last.
pub(crate) fn with_collectives(world: usize) -> Vec<Threads> {
    let ranks = || Threads::ranks(world, ThreadsOptions::default()).into_iter();
    ranks().zip(ranks()).map(|(rank, by)| rank.with_collective(Arc::new(Plain(by)))).collect()
}

/// A collective that has no devices.
struct Plain(Threads);

impl Plain {
    fn sum_of(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CommunicatorError> {
        let device = tensor.device();
        let own: Vec<f32> = tensor.try_into_vec_as().unwrap();
        let all = self.0.gather("devices", own.into_iter().flat_map(f32::to_le_bytes).collect())?;
        let numbers = |bytes: &Vec<u8>| -> Vec<f32> {
            bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        };
        let plus = |one: Vec<f32>, other: Vec<f32>| -> Vec<f32> {
            one.iter().zip(&other).map(|(one, other)| one + other).collect()
        };
        let sum: Vec<f32> = all.iter().map(numbers).reduce(plus).unwrap();
        Ok(Tensor::from_floats(sum.as_slice(), &device))
    }
}

impl Collective for Plain {
    fn sum(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CommunicatorError> {
        tensors.into_iter().map(|tensor| self.sum_of(tensor)).collect()
    }
}

/// `y = slope x + offset`, with the squared error as its loss. The slope is a matrix, the offset a vector.
#[derive(Module, Debug)]
pub(crate) struct Line {
    slope: Param<Tensor<2>>,
    offset: Param<Tensor<1>>,
    dropout: Dropout,
}

impl Line {
    pub(crate) fn new(slope: f32, offset: f32, device: &Device) -> Self {
        Self {
            slope: Param::from_tensor(Tensor::from_floats([[slope]], device)),
            offset: Param::from_tensor(Tensor::from_floats([offset], device)),
            dropout: DropoutConfig::new(0.0).init(),
        }
    }

    /// Drops inputs in training with this probability.
    pub(crate) fn with_dropout(mut self, probability: f64) -> Self {
        self.dropout = DropoutConfig::new(probability).init();
        self
    }

    pub(crate) fn slope(&self) -> f32 {
        self.slope.val().try_into_vec_as().unwrap()[0]
    }

    pub(crate) fn offset(&self) -> f32 {
        self.offset.val().try_into_vec_as().unwrap()[0]
    }

    fn losses(&self, points: Points) -> LossOutput {
        let count = Tensor::from_floats([points.x.dims()[0] as f32], &points.x.device());
        let answers = self.dropout.forward(points.x).matmul(self.slope.val()) + self.offset.val().unsqueeze();
        LossOutput::new((answers - points.y).square().sum(), count)
    }
}

/// A batch of points: `x` and `y` are `[N, 1]`.
#[derive(Clone, Debug)]
pub(crate) struct Points {
    x: Tensor<2>,
    y: Tensor<2>,
}

impl Points {
    pub(crate) fn new(points: Vec<(f32, f32)>, device: &Device) -> Self {
        let (x, y): (Vec<f32>, Vec<f32>) = points.into_iter().unzip();
        let column = |values: Vec<f32>| Tensor::<1>::from_floats(values.as_slice(), device).unsqueeze_dim(1);
        Self { x: column(x), y: column(y) }
    }
}

impl TrainStep for Line {
    type Input = Points;
    type Output = LossOutput;

    fn step(&self, points: Points) -> TrainOutput<LossOutput> {
        let output = self.losses(points);
        TrainOutput::new(self, output.mean().backward(), output)
    }
}

impl InferenceStep for Line {
    type Input = Points;
    type Output = LossOutput;

    fn step(&self, points: Points) -> LossOutput {
        self.losses(points)
    }
}

/// How a pass is computed, and Burn's strategy for its graph.
pub(crate) type ToyPass = (Switches, Option<GradientCheckpointingStrategy>);

/// The settings of a loss that has none: it notes how each training pass is computed, with Burn's strategy for its graph.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Noted {
    #[serde(skip)]
    passes: Arc<Mutex<Vec<ToyPass>>>,
    #[serde(skip)]
    precisions: Arc<Mutex<Vec<MatmulPrecision>>>,
}

impl Noted {
    pub(crate) fn passes(&self) -> Vec<ToyPass> {
        self.passes.lock().unwrap().clone()
    }

    /// What linear maps of each training pass are asked for.
    pub(crate) fn precisions(&self) -> Vec<MatmulPrecision> {
        self.precisions.lock().unwrap().clone()
    }
}

impl PartialEq for Noted {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Objective for Line {
    type Batch = Points;
    type Loss = Noted;
    type Answers = ();

    fn train_loss(&self, points: Points, noted: &Noted, switches: Switches) -> TrainLoss {
        let strategy = self.slope.val().gradient_checkpointing_strategy();
        noted.passes.lock().unwrap().push((switches, strategy));
        noted.precisions.lock().unwrap().push(MatmulPrecision::current());
        let reported = self.losses(points);
        TrainLoss { minimised: reported.mean(), reported }
    }

    fn valid_step(&self, points: Points, _switches: Switches) -> ValidOutput<()> {
        self.losses(points).into()
    }
}

/// Hands out points in order, in batches.
#[derive(Clone)]
pub(crate) struct PointLoader {
    points: Vec<(f32, f32)>,
    batch_size: usize,
    device: Device,
}

impl PointLoader {
    pub(crate) fn new(points: Vec<(f32, f32)>, batch_size: usize) -> Self {
        Self { points, batch_size, device: Device::default() }
    }

    /// The batches of the steps from `from` to below `to`: points of `y = 3 x - 1` that depend on the step alone.
    pub(crate) fn of_steps(from: usize, to: usize) -> Self {
        let point = |i: usize| {
            let x = (i * 7 % 11) as f32 / 11.0;
            (x, 3.0 * x - 1.0)
        };
        Self::new((4 * from..4 * to).map(point).collect(), 4)
    }

    /// The same with a point in the batch of the step `step`, counted from 1, that has no value.
    pub(crate) fn spoilt(mut self, step: usize) -> Self {
        self.points[4 * (step - 1)].1 = f32::NAN;
        self
    }
}

impl DataLoader<Points> for PointLoader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Points> + 'a> {
        Box::new(PointIterator { loader: self, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.points.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<Points>> {
        Arc::new(Self { device: device.clone(), ..self.clone() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<Points>> {
        Arc::new(Self { points: self.points[start..end].to_vec(), ..self.clone() })
    }
}

struct PointIterator<'a> {
    loader: &'a PointLoader,
    done: usize,
}

impl Iterator for PointIterator<'_> {
    type Item = Result<Points, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = (self.done + self.loader.batch_size).min(self.loader.points.len());
        let points = self.loader.points[self.done..end].to_vec();
        self.done = end;
        (!points.is_empty()).then(|| Ok(Points::new(points, &self.loader.device)))
    }
}

impl DataLoaderIterator<Points> for PointIterator<'_> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.loader.points.len(), Some("points".into()))
    }
}
