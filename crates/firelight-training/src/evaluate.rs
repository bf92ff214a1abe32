//! The loss of a model over a whole dataset, every target weighing the same. The trainer calls it on the way, `evaluate`
//! commands call [`evaluate_run_on`](crate::evaluate_run_on) on a finished one.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, Progress};
use burn::module::Module;
use burn::tensor::Device;
use burn::train::InferenceStep;
use firelight_kernels::awake;

use firelight_storage::InputError;

use crate::ranks::{EXCHANGED, Exchanges, Found, Ranks, settings, weights};
use crate::{Alone, Communicator, Evaluator, StepOutput, TrainingError};

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
    measure_on(model, loader, evaluator, Arc::new(Alone))
}

/// Evaluates like [`evaluate`] on several ranks, which take the batches in turn: the same loss and scores as one process, to the bit on a
/// CPU. Each rank calls it with a model of its own and a loader of all batches, and gets the result of all. The ranks first compare weights
/// and number of items; what the items are they compare by [`agree_on_examples`](crate::agree_on_examples), if it is called before.
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
/// As [`evaluate`], and if ranks have other models or numbers of examples, or one of them has failed or does not come in time.
pub fn evaluate_on<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    communicator: Arc<dyn Communicator>,
) -> Result<Evaluation, TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    Ok(measure_on(model, loader, &mut (), communicator)?.0)
}

/// Evaluates like [`evaluate_on`], and has `evaluator` make its scores like [`measure`]. Ranks share the batches where the evaluator is
/// [`Shared`](crate::Shared); for another one that has scores or figures, each of them evaluates all batches.
///
/// ```
/// # fn of<M>(model: &M, loader: &dyn burn::data::dataloader::DataLoader<<M as burn::train::InferenceStep>::Input>)
/// #     -> Result<Vec<f64>, firelight_training::TrainingError>
/// # where M: burn::module::Module + burn::train::InferenceStep<Output: firelight_training::StepOutput> {
/// use std::sync::Arc;
/// use firelight_training::{Threads, ThreadsOptions, measure_on};
///
/// let rank = Threads::ranks(1, ThreadsOptions::default()).remove(0);
/// let (_loss, scores) = measure_on(model, loader, &mut (), Arc::new(rank))?;
/// # Ok(scores)
/// # }
/// ```
///
/// # Errors
/// As [`evaluate_on`], if the evaluator fails, and if ranks have other scores.
pub fn measure_on<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    evaluator: &mut dyn Evaluator<M>,
    communicator: Arc<dyn Communicator>,
) -> Result<(Evaluation, Vec<f64>), TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    let ranks = Ranks::new(communicator);
    ranks.tell(measure_together(&model.valid(), loader, evaluator, &ranks))
}

fn measure_together<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    evaluator: &mut dyn Evaluator<M>,
    ranks: &Ranks,
) -> Result<(Evaluation, Vec<f64>), TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    if !ranks.are_one() {
        let mut terms = settings("number of validation items", &loader.num_items());
        terms.extend(settings("list of scores", &names_of(evaluator)));
        terms.push(weights(model)?);
        ranks.compare(terms)?;
    }
    let ranks = ranks.evaluating(needs_all(evaluator))?;
    let evaluation = finite(evaluate_with(model, loader, &ranks, evaluator, |_, _| ())?)?;
    Ok((evaluation, finish(evaluator, model, &ranks)?))
}

/// The names of the scores.
pub(crate) fn names_of<M: InferenceStep>(evaluator: &dyn Evaluator<M>) -> Vec<&'static str> {
    evaluator.scores().iter().map(|score| score.name).collect()
}

/// Whether an evaluator has to see the outputs of all batches.
pub(crate) fn needs_all<M: InferenceStep>(evaluator: &mut dyn Evaluator<M>) -> bool {
    let says_nothing = evaluator.scores().is_empty() && evaluator.figures().is_none();
    !says_nothing && evaluator.shared().is_none()
}

/// The scores of an evaluation that is [done](evaluate_with) on these ranks.
pub(crate) fn finish<M: InferenceStep>(
    evaluator: &mut dyn Evaluator<M>,
    model: &M,
    ranks: &Ranks,
) -> Result<Vec<f64>, TrainingError> {
    if let Some(shared) = evaluator.shared() {
        return shared.finish(model, ranks.communicator().as_ref());
    }
    evaluator.finish(model)
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

/// Evaluates `model`, which has no gradients and no dropout, lets a loss pass that is no finite number, and hands every output to the
/// evaluator and, with the progress of the loader, to `each`. Several `ranks` take the batches in turn: `each` is given those of this rank,
/// and the sums, and what the evaluator takes up, are of all.
pub(crate) fn evaluate_with<M>(
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    ranks: &Ranks,
    evaluator: &mut dyn Evaluator<M>,
    each: impl FnMut(M::Output, Progress),
) -> Result<Evaluation, TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    evaluate_in(EXCHANGED, model, loader, ranks, evaluator, each)
}

/// The same, with about so many bytes of all ranks in an exchange.
fn evaluate_in<M>(
    bound: usize,
    model: &M,
    loader: &dyn DataLoader<<M as InferenceStep>::Input>,
    ranks: &Ranks,
    evaluator: &mut dyn Evaluator<M>,
    mut each: impl FnMut(M::Output, Progress),
) -> Result<Evaluation, TrainingError>
where
    M: Module + InferenceStep<Output: StepOutput>,
{
    let device = device_of(model).inner();
    let loader = loader.to_device(&device);
    let mut batches = loader.iter();
    let (mut left_out, between) = ranks.turns();
    let mut exchanges = Exchanges::new(ranks, bound);
    let (mut total, mut count) = (0.0, 0.0);
    loop {
        let mut found = Vec::new();
        while found.len() < exchanges.batches() {
            let Some(batch) = batches.nth(left_out) else { break };
            let batch = batch.map_err(TrainingError::data("validation"))?;
            let model = model.clone(); // A module may not be shared between threads.
            let output = awake(&device, move || model.step(batch));
            let (total, count) = output.losses().read().map_err(TrainingError::device("validation loss"))?;
            found.push(Found { sums: [total, count], statistics: observe(evaluator, &output, ranks)? });
            each(output, batches.progress());
            left_out = between;
        }
        let (found, is_last) = exchanges.exchange(found)?;
        for Found { sums: [more, targets], statistics } in found {
            (total, count) = (total + more, count + targets);
            update(evaluator, statistics, ranks)?;
        }
        if is_last {
            return mean(total, count);
        }
    }
}

/// The mean loss.
fn mean(total: f64, count: f64) -> Result<Evaluation, TrainingError> {
    if count == 0.0 {
        let problem = "the validation data holds no target: expected at least one, found 0";
        return Err(InputError::new(problem).advise("is the validation split empty?").into());
    }
    Ok(Evaluation { loss: total / count, tokens: count as u64 })
}

/// Shows the evaluator an output, or, on several ranks, takes from it the statistics with which all of them [update] theirs.
fn observe<M: InferenceStep>(
    evaluator: &mut dyn Evaluator<M>,
    output: &M::Output,
    ranks: &Ranks,
) -> Result<Vec<Vec<f64>>, TrainingError> {
    if let (false, Some(shared)) = (ranks.are_one(), evaluator.shared()) {
        return shared.batch_statistics(output);
    }
    evaluator.observe(output)?;
    Ok(Vec::new())
}

/// Gives the evaluator the statistics of a batch that a rank has computed. One process has done so when it computed the batch.
fn update<M: InferenceStep>(
    evaluator: &mut dyn Evaluator<M>,
    statistics: Vec<Vec<f64>>,
    ranks: &Ranks,
) -> Result<(), TrainingError> {
    match (ranks.are_one(), evaluator.shared()) {
        (false, Some(shared)) => shared.update(statistics),
        _ => Ok(()),
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
    use crate::{LossOutput, Score, Shared, SharedEvaluator, Threads, ThreadsOptions, assert_shared};
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

    /// A sum of the losses of the batches that tells in which order they came, and their number.
    struct InOrder {
        losses: Vec<f64>,
    }

    impl SharedEvaluator<Line> for InOrder {
        fn scores(&self) -> Vec<Score> {
            vec![Score::lower("weighted"), Score::lower("batches")]
        }

        fn batch_statistics(&self, output: &LossOutput) -> Result<Vec<Vec<f64>>, TrainingError> {
            let (total, _) = output.read().map_err(TrainingError::device("losses"))?;
            Ok(vec![Vec::new(), vec![total]])
        }

        fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
            self.losses.extend(statistics.into_iter().flatten());
            Ok(())
        }

        fn finish(&mut self, _model: &Line, ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
            ranks.barrier()?; // Every rank is here.
            let losses = std::mem::take(&mut self.losses);
            let weighted = losses.iter().fold(0.0, |sum, loss| 0.7 * sum + loss);
            Ok(vec![weighted, losses.len() as f64])
        }
    }

    /// The number of outputs, from an evaluator that is not shared.
    struct Seen(f64);

    impl Evaluator<Line> for Seen {
        fn scores(&self) -> Vec<Score> {
            vec![Score::higher("seen")]
        }

        fn observe(&mut self, _output: &LossOutput) -> Result<(), TrainingError> {
            self.0 += 1.0;
            Ok(())
        }

        fn finish(&mut self, _model: &Line) -> Result<Vec<f64>, TrainingError> {
            Ok(vec![std::mem::take(&mut self.0)])
        }
    }

    #[test]
    fn ranks_make_the_scores_of_one_process() {
        let points: Vec<(f32, f32)> = (0..9).map(|x| (x as f32, 0.3 * x as f32 - 1.0)).collect();
        let (found, scores) = assert_shared::<Line>(|| {
            let (model, loader) = (line(), Arc::new(PointLoader::new(points.clone(), 2)));
            (model, loader, Box::new(Shared(InOrder { losses: Vec::new() })))
        });
        assert_eq!((found.tokens, scores.last()), (9, Some(&5.0)), "nine points in five batches");
    }

    #[test]
    fn scores_do_not_depend_on_how_much_is_exchanged_at_once() {
        let points: Vec<(f32, f32)> = (0..23).map(|x| (x as f32, 0.3 * x as f32 - 1.0)).collect();
        let found = |bound: usize, ranks: &Ranks| {
            let (loader, mut evaluator) = (PointLoader::new(points.clone(), 2), Shared(InOrder { losses: Vec::new() }));
            let found = evaluate_in(bound, &line(), &loader, ranks, &mut evaluator, |_, _| ()).unwrap();
            let scores = finish::<Line>(&mut evaluator, &line(), ranks).unwrap();
            [found.loss, found.tokens as f64, scores[0], scores[1]].map(f64::to_bits)
        };
        let expected = found(EXCHANGED, &Ranks::alone());
        assert_eq!(expected[3], 12_f64.to_bits(), "twelve batches");
        for world in [2, 3, 5] {
            for bound in [0, 300, EXCHANGED] {
                thread::scope(|scope| {
                    for rank in Threads::ranks(world, ThreadsOptions::default()) {
                        let found = &found;
                        scope.spawn(move || {
                            assert_eq!(found(bound, &Ranks::new(Arc::new(rank))), expected, "{world} ranks, {bound}");
                        });
                    }
                });
            }
        }
    }

    fn line() -> Line {
        Line::new(0.7, 0.1, &Device::default())
    }

    #[test]
    fn every_rank_has_all_batches_seen_by_an_evaluator_that_is_not_shared() {
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let loader = PointLoader::new(vec![(0.0, 1.0); 9], 2);
                    let (found, scores) = measure_on(&line(), &loader, &mut Seen(0.0), Arc::new(rank)).unwrap();
                    assert_eq!((found.tokens, scores), (9, vec![5.0]));
                });
            }
        });
    }

    /// Draws the number of outputs, and has no score.
    struct Drawn(usize);

    impl Evaluator<Line> for Drawn {
        fn scores(&self) -> Vec<Score> {
            Vec::new()
        }

        fn observe(&mut self, _output: &LossOutput) -> Result<(), TrainingError> {
            self.0 += 1;
            Ok(())
        }

        fn finish(&mut self, _model: &Line) -> Result<Vec<f64>, TrainingError> {
            Ok(Vec::new())
        }

        fn figures(&self) -> Option<Vec<(String, String)>> {
            Some(vec![("outputs".into(), self.0.to_string())])
        }
    }

    #[test]
    fn every_rank_has_all_batches_drawn() {
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let (loader, mut drawn) = (PointLoader::new(vec![(0.0, 1.0); 9], 2), Drawn(0));
                    measure_on(&line(), &loader, &mut drawn, Arc::new(rank)).unwrap();
                    assert_eq!(drawn.figures(), Some(vec![("outputs".to_string(), "5".to_string())]));
                });
            }
        });
    }

    #[test]
    #[should_panic(expected = "the evaluator is not Shared")]
    fn what_is_not_shared_does_not_pass_as_shared() {
        assert_shared::<Line>(|| (line(), Arc::new(PointLoader::new(vec![(0.0, 1.0); 9], 2)), Box::new(Seen(0.0))));
    }

    #[test]
    #[should_panic(expected = "one batch cannot be shared")]
    fn one_batch_does_not_pass_as_shared() {
        assert_shared::<Line>(|| (line(), Arc::new(PointLoader::new(vec![(0.0, 1.0)], 2)), Box::new(())));
    }

    #[test]
    fn ranks_with_other_scores_are_told() {
        thread::scope(|scope| {
            for (number, rank) in Threads::ranks(2, ThreadsOptions::default()).into_iter().enumerate() {
                scope.spawn(move || {
                    let (model, loader) =
                        (Line::new(0.0, 0.0, &Device::default()), PointLoader::new(vec![(1.0, 1.0)], 1));
                    let mut evaluator: Box<dyn Evaluator<Line>> = match number {
                        0 => Box::new(Seen(0.0)),
                        _ => Box::new(()),
                    };
                    let error = measure_on(&model, &loader, evaluator.as_mut(), Arc::new(rank)).unwrap_err();
                    assert!(
                        error.to_string().contains("its list of scores is `[]`, and that of rank 0 `[\"seen\"]`"),
                        "{error}"
                    );
                });
            }
        });
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
