//! Loaders of examples: by the plan of a recipe and in the order of its seed to train on, from the short to the long to validate on.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use firelight_data::{BatchPlan, Batching, DataError, StepLoader};

/// A loader of batches.
pub(crate) type Loader<O> = Arc<dyn DataLoader<O>>;

/// Examples to train on.
pub(crate) struct Shuffled<'a, I> {
    pub(crate) examples: &'a [I],
    pub(crate) plan: BatchPlan,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
}

impl<I: Clone + Send + Sync + std::fmt::Debug + 'static> Shuffled<'_, I> {
    /// The batches of these numbers, counted over the whole run.
    pub(crate) fn loader<O: Send + 'static>(
        self,
        batcher: impl Batcher<I, O> + 'static,
        batches: Range<usize>,
        device: &Device,
    ) -> Loader<O> {
        let dataset = InMemDataset::new(self.examples.to_vec());
        let loader = StepLoader::planned(dataset, batcher, self.plan, device).shuffled(self.seed, batches);
        Arc::new(loader.with_workers(self.workers))
    }
}

/// Examples of which `length` is the number of tokens, each once, from the short to the long.
pub(crate) fn in_order<I: Clone + Send + Sync + std::fmt::Debug + 'static, O: Send + 'static>(
    examples: &[I],
    length: impl Fn(&I) -> usize,
    batcher: impl Batcher<I, O> + 'static,
    device: &Device,
) -> Result<Loader<O>, DataError> {
    let lengths = examples.iter().map(&length);
    let longest = lengths.clone().max().unwrap_or(1);
    let plan = BatchPlan::new(Batching::to_read(longest), 1, lengths)?;
    Ok(Arc::new(StepLoader::planned(InMemDataset::new(examples.to_vec()), batcher, plan, device)))
}
