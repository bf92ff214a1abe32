//! What an evaluator that ranks share has to prove.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::train::InferenceStep;

use crate::evaluate::needs_all;
use crate::{Evaluation, Evaluator, StepOutput, Threads, ThreadsOptions, measure_on};

/// A model, all batches, and what makes scores of them.
type Needed<M> = (M, Arc<dyn DataLoader<<M as InferenceStep>::Input>>, Box<dyn Evaluator<M>>);

/// A loss, and the scores beside it.
type Measured = (Evaluation, Vec<f64>);

/// Checks, in the tests of a [`SharedEvaluator`](crate::SharedEvaluator), that two and three ranks find the loss and the scores of one process
/// to the bit, and returns these. `needed` makes what a rank needs: a model, a loader of several batches, and an
/// evaluator that is [`Shared`](crate::Shared). The ranks are [`Threads`].
///
/// ```
/// # fn of<M>(model: &M, loader: &std::sync::Arc<dyn burn::data::dataloader::DataLoader<<M as burn::train::InferenceStep>::Input>>)
/// # where M: burn::module::Module + burn::train::InferenceStep<Output: firelight_training::StepOutput> + 'static {
/// use firelight_training::assert_shared;
///
/// let (_loss, scores) = assert_shared::<M>(|| (model.clone(), loader.clone(), Box::new(())));
/// assert!(scores.is_empty());
/// # }
/// ```
///
/// # Panics
/// If a rank finds something else, or fails, and if nothing would be shared: of one batch, or by an evaluator that sees all batches on every
/// rank.
pub fn assert_shared<M>(needed: impl Fn() -> Needed<M>) -> Measured
where
    M: Module + InferenceStep<Output: StepOutput> + 'static,
{
    let (_, loader, mut evaluator) = needed();
    assert!(loader.iter().take(2).count() == 2, "one batch cannot be shared");
    assert!(!needs_all(evaluator.as_mut()), "the evaluator is not Shared: every rank evaluates all batches");
    let expected = on_threads(1, &needed).remove(0);
    for world in [2, 3] {
        for (rank, found) in on_threads(world, &needed).into_iter().enumerate() {
            assert!(
                bits(&found) == bits(&expected),
                "rank {rank} of {world} finds {found:?}, and one process {expected:?}"
            );
        }
    }
    expected
}

fn bits((found, scores): &Measured) -> Vec<u64> {
    [found.loss, found.tokens as f64].iter().chain(scores).map(|value| value.to_bits()).collect()
}

fn on_threads<M>(world: usize, needed: &impl Fn() -> Needed<M>) -> Vec<Measured>
where
    M: Module + InferenceStep<Output: StepOutput> + 'static,
{
    thread::scope(|scope| {
        let start = |rank: Threads| {
            let (model, loader, mut evaluator) = needed();
            scope.spawn(move || measure_on(&model, loader.as_ref(), evaluator.as_mut(), Arc::new(rank)))
        };
        let ranks: Vec<_> = Threads::ranks(world, ThreadsOptions::default()).into_iter().map(start).collect();
        let found = ranks.into_iter().map(|rank| match rank.join() {
            Ok(found) => found.unwrap_or_else(|error| panic!("a rank of {world} fails: {error}")),
            Err(panic) => resume_unwind(panic),
        });
        found.collect()
    })
}
