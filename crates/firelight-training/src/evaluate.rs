//! The loss of a model over a whole dataset, every target weighing the same. The trainer calls it on the way, `evaluate`
//! commands call [`evaluate`] on a finished model.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, Progress};
use burn::module::Module;
use burn::tensor::Device;
use burn::train::InferenceStep;
use firelight_kernels::awake;

use firelight_storage::InputError;

use crate::ranks::{Ranks, settings, weights};
use crate::{Communicator, Evaluator, StepOutput, TrainingError};

/// The mean loss over all targets of a dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss in nats per target.
    pub loss: f64,
    /// How many targets were counted: tokens, for a language model.
    pub tokens: u64,
}

impl Evaluation {
    /// `exp(loss)`: among how many equally likely targets the model hesitates.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }

    /// The loss in bits per target.
    pub fn bits_per_token(&self) -> f64 {
        self.loss / std::f64::consts::LN_2
    }
}

/// Evaluates `model` without dropout and without gradients on every batch of `loader`.
///
/// Sums are taken in double precision, so the result does not depend on the batch size beyond rounding.
///
/// # Errors
/// Fails if a batch cannot be loaded, the device cannot compute, no target is counted, or the loss is no finite number.
pub fn evaluate<M>(model: &M, loader: &dyn DataLoader<<M as InferenceStep>::Input>) -> Result<Evaluation, TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    Ok(measure(model, loader, &mut ())?.0)
}

/// Evaluates like [`evaluate`], and has `evaluator` make its scores of the same pass: their values, in their order.
///
/// # Errors
/// As [`evaluate`], and if the evaluator fails.
pub fn measure<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    evaluator: &mut dyn Evaluator<M>,
) -> Result<(Evaluation, Vec<f64>), TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    let model = model.valid();
    let evaluation = evaluate_with(&model, loader, &Ranks::alone(), |output, _| evaluator.observe(&output))?;
    Ok((finite(evaluation)?, evaluator.finish(&model)?))
}

/// Evaluates like [`evaluate`] on several ranks, which take the batches in turn: the same bytes as one process on a CPU. Each rank calls it with
/// a model of its own and a loader of all batches, and gets the result of all. The ranks first compare weights and number of items.
///
/// ```no_run
/// # fn of<M>(model: &M, loader: &dyn burn::data::dataloader::DataLoader<<M as burn::train::InferenceStep>::Input>) -> f64
/// # where M: burn::module::Module + burn::train::InferenceStep<Output: firelight_training::StepOutput> {
/// use std::sync::Arc;
/// use firelight_training::{Threads, ThreadsOptions, evaluate_on};
///
/// let rank = Threads::ranks(1, ThreadsOptions::default()).remove(0);
/// evaluate_on(model, loader, Arc::new(rank)).unwrap().loss
/// # }
/// ```
///
/// # Errors
/// As [`evaluate`], and if ranks have other models or data, or one of them has failed or does not come in time.
pub fn evaluate_on<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    communicator: Arc<dyn Communicator>,
) -> Result<Evaluation, TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    let ranks = Ranks::new(communicator);
    ranks.tell(evaluate_together(&model.valid(), loader, &ranks))
}

fn evaluate_together<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    ranks: &Ranks,
) -> Result<Evaluation, TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    if !ranks.are_one() {
        let items = settings("number of validation items", &loader.num_items());
        ranks.compare(items.into_iter().chain([weights(model)?]).collect())?;
    }
    finite(evaluate_with(model, loader, ranks, |_, _| Ok(()))?)
}

/// Refuses a loss that is no finite number.
fn finite(evaluation: Evaluation) -> Result<Evaluation, TrainingError> {
    match evaluation.loss.is_finite() {
        true => Ok(evaluation),
        false => Err(InputError::new(format!(
            "the loss is {}: the weights are damaged or their training has diverged; take another checkpoint, or train again \
             with a lower `optimizer.learning_rate`",
            evaluation.loss
        ))
        .into()),
    }
}

/// Evaluates `model`, which has no gradients and no dropout, lets a loss pass that is no finite number, and hands every output, with the
/// progress of the loader, to `each`. Several `ranks` take the batches in turn: `each` is given those of this rank, and the sums are of all.
pub(crate) fn evaluate_with<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    ranks: &Ranks,
    mut each: impl FnMut(M::Output, Progress) -> Result<(), TrainingError>,
) -> Result<Evaluation, TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    let device = device_of(model).inner();
    let loader = loader.to_device(&device);
    let mut batches = loader.iter();
    let (mut left_out, between) = ranks.turns();
    let mut sums = Vec::new();
    while let Some(batch) = batches.nth(left_out) {
        let batch = batch.map_err(TrainingError::data("validation"))?;
        let model = model.clone(); // A module may not be shared between threads.
        let output = awake(&device, move || model.step(batch));
        let (total, count) = output.losses().read().map_err(TrainingError::device("validation loss"))?;
        sums.push([total, count]);
        each(output, batches.progress())?;
        left_out = between;
    }
    let sums = ranks.in_turns(sums)?.into_iter();
    let (total, count) = sums.fold((0.0, 0.0), |(total, count), [more, targets]| (total + more, count + targets));
    if count == 0.0 {
        let problem = "the validation data holds no target: expected at least one, found 0";
        Err(InputError::new(problem).advise("is the validation split empty?").into())
    } else {
        Ok(Evaluation { loss: total / count, tokens: count as u64 })
    }
}

/// The device of the first parameter; Burn's default for a model without any.
pub(crate) fn device_of<M: Module>(model: &M) -> Device {
    model.devices().into_iter().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, PointLoader};
    use crate::{Threads, ThreadsOptions};
    use std::thread;

    #[test]
    fn every_point_weighs_the_same_whatever_the_batches() {
        // The model answers 2 x; the points are (0, 1), (1, 1), (2, 1): squared errors 1, 1 and 9.
        let model = Line::new(2.0, 0.0, &Device::default().autodiff());
        for batch_size in [1, 2, 3] {
            let loader = PointLoader::new(vec![(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)], batch_size);
            let evaluation = evaluate(&model, &loader).unwrap();
            assert_eq!(evaluation.tokens, 3);
            assert!((evaluation.loss - 11.0 / 3.0).abs() < 1e-6, "{}", evaluation.loss);
        }
    }

    #[test]
    fn ranks_find_what_one_process_finds() {
        let points: Vec<(f32, f32)> = (0..7).map(|x| (x as f32, 0.3 * x as f32 - 1.0)).collect();
        let of = |slope| Line::new(slope, 0.1, &Device::default());
        let expected = evaluate(&of(0.7), &PointLoader::new(points.clone(), 2)).unwrap();
        for world in [2, 3, 5] {
            thread::scope(|scope| {
                for rank in Threads::ranks(world, ThreadsOptions::default()) {
                    let points = points.clone();
                    scope.spawn(move || {
                        let found = evaluate_on(&of(0.7), &PointLoader::new(points, 2), Arc::new(rank)).unwrap();
                        assert_eq!((found.loss.to_bits(), found.tokens), (expected.loss.to_bits(), 7), "{world} ranks");
                    });
                }
            });
        }
    }

    #[test]
    fn ranks_with_other_weights_are_told() {
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let model = Line::new(rank.rank() as f32, 0.0, &Device::default());
                    let error =
                        evaluate_on(&model, &PointLoader::new(vec![(1.0, 1.0)], 1), Arc::new(rank)).unwrap_err();
                    assert!(error.is_user_error(), "{error}");
                    assert!(
                        error.to_string().starts_with("rank 1 does not do what rank 0 does: its model is"),
                        "{error}"
                    );
                });
            }
        });
    }

    #[test]
    fn perplexity_and_bits_follow_from_the_loss() {
        let evaluation = Evaluation { loss: 8_f64.ln(), tokens: 1 };
        assert!((evaluation.perplexity() - 8.0).abs() < 1e-12);
        assert!((evaluation.bits_per_token() - 3.0).abs() < 1e-12);
    }

    #[test]
    fn weights_that_are_no_numbers_are_refused() {
        for (slope, found) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let model = Line::new(slope, 0.0, &Device::default());
            let error = evaluate(&model, &PointLoader::new(vec![(1.0, 1.0)], 1)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("the loss is {found}: the weights are damaged")), "{error}");
            assert!(error.is_user_error());
        }
    }

    #[test]
    fn no_data_is_an_error() {
        let model = Line::new(1.0, 0.0, &Device::default());
        let error = evaluate(&model, &PointLoader::new(vec![], 2)).unwrap_err();
        assert!(error.to_string().contains("holds no target"), "{error}");
        assert!(error.is_user_error());
    }
}
