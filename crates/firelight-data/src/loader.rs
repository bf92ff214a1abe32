//! Batches as a pure function of the training step: a Burn `DataLoader` over any Burn `Dataset` and `Batcher`. Trainers
//! use it shuffled, so that step `s` of a seed sees the same items in a new run and in a resumed one; evaluation uses it
//! in order. Which items a batch has is the business of its [`BatchPlan`].

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;

use crate::prefetch::Prefetch;
use crate::{BatchPlan, Batching, DataError, Order};

/// Batches that each worker thread may hold.
const BATCHES_AHEAD: usize = 2;

/// No machine reads faster with more threads.
const MAX_WORKERS: usize = 64;

/// What is wrong with `data.workers` of a recipe, the number of threads that read batches ahead; nothing up to 64.
pub fn check_workers(workers: usize) -> Option<String> {
    (workers > MAX_WORKERS).then(|| format!("data.workers = {workers} must be at most {MAX_WORKERS}"))
}

/// A loader whose batches depend on nothing but the step.
///
/// As made by [`new`](Self::new) it goes once through the dataset in order, the last batch holding what is left; with
/// [`shuffled`](Self::shuffled) it yields the batches of a range of training steps.
pub struct StepLoader<I, O> {
    source: Source<I>,
    batcher: Arc<dyn Batcher<I, O>>,
    /// Positions of the plan that are loaded: those of its one epoch, or those of the endless shuffled epochs.
    positions: Range<usize>,
    ahead: Option<Ahead>,
    device: Device,
}

/// Where the items of a batch come from: all that a worker thread needs.
struct Source<I> {
    dataset: Arc<dyn Dataset<I>>,
    plan: BatchPlan,
    order: Option<Order>,
    change: Option<Change<I>>,
}

/// What an item becomes in an epoch, by its number.
type Change<I> = Arc<dyn Fn(I, u64, usize) -> I + Send + Sync>;

/// How far worker threads read ahead.
#[derive(Clone, Copy)]
struct Ahead {
    workers: usize,
    depth: usize,
}

impl<I> Source<I> {
    fn items(&self, positions: Range<usize>) -> Result<Vec<I>, DatasetError> {
        let places = self.plan.items(positions, self.order);
        let items = self.dataset.get_many(places.iter().map(|(_, item)| *item).collect())?;
        let Some(change) = &self.change else { return Ok(items) };
        Ok(items.into_iter().zip(places).map(|(item, (epoch, number))| change(item, epoch, number)).collect())
    }
}

impl<I, O> StepLoader<I, O> {
    /// Goes through `dataset` in order, `batch_size` items at a time, with the batches on `device`.
    ///
    /// # Panics
    /// Panics if `batch_size` is 0.
    pub fn new(
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
        batch_size: usize,
        device: &Device,
    ) -> Self {
        let plan = BatchPlan::fixed(dataset.len(), batch_size);
        Self::planned(dataset, batcher, plan, device)
    }

    /// Goes through `dataset` batch by batch of `plan`, with the batches on `device`. A plan with buckets goes from the
    /// short items to the long ones.
    ///
    /// # Panics
    /// Panics if the plan is for another number of items.
    pub fn planned(
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
        plan: BatchPlan,
        device: &Device,
    ) -> Self {
        let (planned, len) = (plan.num_items(), dataset.len());
        assert!(planned == len, "a plan for {planned} items, but the dataset has {len}");
        let positions = 0..plan.num_positions();
        let source = Source { dataset: Arc::new(dataset), plan, order: None, change: None };
        Self { source, batcher: Arc::new(batcher), positions, ahead: None, device: device.clone() }
    }

    /// Goes once through items of these lengths in tokens, from the short to the long, in batches as large as can be read at once.
    ///
    /// # Errors
    /// As [`BatchPlan::new`].
    ///
    /// # Panics
    /// Panics if there is not a length for each item.
    pub fn to_read(
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, O> + 'static,
        lengths: &[usize],
        device: &Device,
    ) -> Result<Self, DataError> {
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let plan = BatchPlan::new(Batching::to_read(longest), 1, lengths.iter().copied())?;
        Ok(Self::planned(dataset, batcher, plan, device))
    }

    /// Yields the batches of the training steps `steps`, from 0, in the order of `seed`: every item once, then every item
    /// once in another order, and so on, without end. A batch of a fixed size may reach from one epoch into the next; with
    /// buckets none does.
    ///
    /// # Panics
    /// Panics if the dataset is empty.
    #[must_use]
    pub fn shuffled(mut self, seed: u64, steps: Range<usize>) -> Self {
        assert!(!self.source.dataset.is_empty(), "an empty dataset has no order");
        let stride = self.source.plan.stride();
        self.source.order = Some(Order::new(seed));
        self.positions = steps.start * stride..steps.end.saturating_mul(stride);
        self
    }

    /// Changes every item when it is read, by its epoch, from 0, and its number in the dataset: noise that is new in every epoch
    /// and the same in a resumed run. It may make an item shorter; the plan knows the lengths without it.
    #[must_use]
    pub fn with_change(mut self, change: impl Fn(I, u64, usize) -> I + Send + Sync + 'static) -> Self {
        self.source.change = Some(Arc::new(change));
        self
    }

    /// Reads the items of the next batches on `workers` threads; with 0 of them, as before, when a batch is asked for. The
    /// batches and their order are the same. At most `depth` of them, rounded up to a multiple of `workers`, are in memory
    /// ahead of the one asked for. Tensors are made by whoever asks, on the thread that computes: devices with queues of
    /// their own for every thread would otherwise have to wait for one another.
    ///
    /// A panic of the dataset is handed on with its batch. The threads end with the iterator that they read for.
    #[must_use]
    pub fn prefetch(mut self, workers: usize, depth: usize) -> Self {
        self.ahead = (workers > 0).then_some(Ahead { workers, depth });
        self
    }

    /// [`prefetch`](Self::prefetch) as recipes ask for it, by a number of threads alone.
    #[must_use]
    pub fn with_workers(self, workers: usize) -> Self {
        self.prefetch(workers, workers * BATCHES_AHEAD)
    }
}

// Derived, these would ask for `I: Clone` and `O: Clone`.
impl<I> Clone for Source<I> {
    fn clone(&self) -> Self {
        let Self { dataset, plan, order, change } = self;
        Self { dataset: dataset.clone(), plan: plan.clone(), order: *order, change: change.clone() }
    }
}

impl<I, O> Clone for StepLoader<I, O> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            batcher: self.batcher.clone(),
            positions: self.positions.clone(),
            ahead: self.ahead,
            device: self.device.clone(),
        }
    }
}

impl<I: Send + 'static, O: 'static> DataLoader<O> for StepLoader<I, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let spans = spans(self.positions.clone(), self.source.plan.stride());
        let items: Items<'a, I> = match self.ahead {
            Some(Ahead { workers, depth }) => {
                let source = self.source.clone();
                Box::new(Prefetch::new(workers, depth, spans, move |span| source.items(span)))
            }
            None => Box::new(spans.map(|span| self.source.items(span))),
        };
        Box::new(Batches { loader: self, items, next: self.positions.start })
    }

    fn num_items(&self) -> usize {
        self.positions.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(Self { device: device.clone(), ..self.clone() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let first = self.positions.start;
        Arc::new(Self { positions: first + start..first + end, ..self.clone() })
    }
}

/// The positions of each batch.
fn spans(positions: Range<usize>, stride: usize) -> impl Iterator<Item = Range<usize>> + Clone + Send + 'static {
    let end = positions.end;
    positions.step_by(stride).map(move |start| start..start.saturating_add(stride).min(end))
}

/// The items of each batch.
type Items<'a, I> = Box<dyn Iterator<Item = Result<Vec<I>, DatasetError>> + 'a>;

/// The batches of a loader, one after the other.
struct Batches<'a, I, O> {
    loader: &'a StepLoader<I, O>,
    items: Items<'a, I>,
    next: usize,
}

impl<I, O> Iterator for Batches<'_, I, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let items = self.next_items()?;
        let StepLoader { batcher, device, .. } = self.loader;
        Some(items.map(|items| batcher.batch(items, device)))
    }

    /// Makes no tensors of the batches that are left out.
    fn nth(&mut self, left_out: usize) -> Option<Self::Item> {
        for _ in 0..left_out {
            let _ = self.next_items()?;
        }
        self.next()
    }
}

impl<I, O> Batches<'_, I, O> {
    fn next_items(&mut self) -> Option<Result<Vec<I>, DatasetError>> {
        let StepLoader { source, positions, .. } = self.loader;
        let items = self.items.next()?;
        self.next = self.next.saturating_add(source.plan.stride()).min(positions.end);
        Some(items)
    }
}

impl<I, O> DataLoaderIterator<O> for Batches<'_, I, O> {
    fn progress(&self) -> Progress {
        let StepLoader { source, positions, .. } = self.loader;
        Progress::new(self.next - positions.start, positions.len(), Some(source.plan.unit().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batching;
    use burn::data::dataset::InMemDataset;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread::{self, ThreadId, sleep};
    use std::time::Duration;

    /// Batches the items as they are.
    struct Collect;

    impl Batcher<usize, Vec<usize>> for Collect {
        fn batch(&self, items: Vec<usize>, _device: &Device) -> Vec<usize> {
            items
        }
    }

    fn loader(items: usize, batch_size: usize) -> StepLoader<usize, Vec<usize>> {
        StepLoader::new(InMemDataset::new((0..items).collect()), Collect, batch_size, &Device::default())
    }

    fn batches(loader: &dyn DataLoader<Vec<usize>>) -> Vec<Vec<usize>> {
        loader.iter().map(Result::unwrap).collect()
    }

    #[test]
    fn in_order_the_last_batch_holds_what_is_left() {
        assert_eq!(batches(&loader(5, 2)), [vec![0, 1], vec![2, 3], vec![4]]);
        assert!(batches(&loader(0, 2)).is_empty());
    }

    #[test]
    fn shuffled_a_step_is_the_same_wherever_the_run_began() {
        let whole = batches(&loader(10, 4).shuffled(3, 0..12));
        assert_eq!(whole.len(), 12);
        assert!(whole.iter().all(|batch| batch.len() == 4));
        assert_eq!(batches(&loader(10, 4).shuffled(3, 7..12)), whole[7..]);
        assert_ne!(batches(&loader(10, 4).shuffled(4, 0..12)), whole);

        let mut first_epochs = whole[..5].concat();
        first_epochs.sort_unstable();
        assert_eq!(first_epochs, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]);
    }

    #[test]
    fn progress_ends_at_the_number_of_items() {
        for loader in [loader(5, 2), loader(5, 2).shuffled(0, 3..9)] {
            let mut iterator = loader.iter();
            assert_eq!(iterator.progress().items_processed, 0);
            while iterator.next().is_some() {}
            assert!(iterator.progress().is_completed());
            assert_eq!(iterator.progress().items_total, loader.num_items());
        }
    }

    #[test]
    fn batches_that_are_left_out_count() {
        let loader = loader(9, 2).shuffled(1, 0..6);
        let mut iterator = loader.iter();
        let found: Vec<_> = std::iter::from_fn(|| iterator.nth(1)).map(Result::unwrap).collect();
        assert_eq!(found, batches(&loader).into_iter().skip(1).step_by(2).collect::<Vec<_>>());
        assert!(found.len() == 3 && iterator.progress().is_completed());
    }

    #[test]
    fn a_slice_is_a_part_of_the_items() {
        assert_eq!(batches(loader(9, 2).slice(3, 6).as_ref()), [vec![3, 4], vec![5]]);
        let shuffled = loader(9, 2).shuffled(1, 2..6);
        assert_eq!(batches(shuffled.slice(2, 8).as_ref()), batches(&shuffled)[1..]);
        assert_eq!(batches(shuffled.to_device(&Device::default()).as_ref()), batches(&shuffled));
    }

    /// Numbers that take their time, and of which every seventh cannot be had.
    struct Slow(usize);

    impl Dataset<usize> for Slow {
        fn get(&self, index: usize) -> Result<usize, DatasetError> {
            sleep(Duration::from_micros((index * 7919 % 5 * 200) as u64));
            match index % 7 {
                6 => Err(DatasetError::new(std::io::Error::other(format!("no item {index}")))),
                _ => Ok(index),
            }
        }

        fn len(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn prefetched_batches_and_errors_are_those_of_the_plain_loader() {
        let plain = StepLoader::new(Slow(20), Collect, 3, &Device::default()).shuffled(5, 2..30);
        let all = |loader: &dyn DataLoader<Vec<usize>>| -> Vec<_> {
            loader.iter().map(|batch| batch.map_err(|error| error.to_string())).collect()
        };
        let expected = all(&plain);
        assert!(expected.iter().any(Result::is_err) && expected.iter().any(Result::is_ok));
        for (workers, depth) in [(1, 1), (2, 4), (3, 5), (8, 8)] {
            let ahead = plain.clone().prefetch(workers, depth);
            assert_eq!(all(&ahead), expected, "{workers} workers");
            assert_eq!(all(ahead.slice(3, 30).as_ref()), all(plain.slice(3, 30).as_ref()));
        }
        assert_eq!(all(&plain.clone().prefetch(0, 4)), expected);
    }

    /// Numbers that remember which threads read them.
    #[derive(Clone, Default)]
    struct Noting(Arc<Mutex<HashSet<ThreadId>>>);

    impl Dataset<usize> for Noting {
        fn get(&self, index: usize) -> Result<usize, DatasetError> {
            self.0.lock().unwrap().insert(thread::current().id());
            Ok(index)
        }

        fn len(&self) -> usize {
            20
        }
    }

    #[test]
    fn every_worker_reads_beside_the_thread_that_takes_the_batches() {
        for workers in [0, 1, 3] {
            let dataset = Noting::default();
            batches(&StepLoader::new(dataset.clone(), Collect, 2, &Device::default()).with_workers(workers));
            let readers = dataset.0.lock().unwrap();
            assert_eq!(readers.len(), workers.max(1));
            assert_eq!(readers.contains(&thread::current().id()), workers == 0);
        }
    }

    #[test]
    fn a_change_knows_epoch_and_number_of_every_item() {
        for batching in [Batching::Fixed, Batching::Buckets { buckets: 2 }] {
            let plan = BatchPlan::new(batching, 4, [3, 1, 1, 3, 2, 2, 1, 3, 1, 2]).unwrap();
            let epoch_len = plan.num_batches();
            let data = InMemDataset::new((0..10).collect());
            let loader = StepLoader::planned(data, Collect, plan, &Device::default());
            let plain = batches(&loader.clone().shuffled(1, 0..2 * epoch_len)).concat();
            let loader = loader.with_change(|item, epoch, number| 100 * epoch as usize + 10 * number + item);
            let changed = batches(&loader.clone().shuffled(1, 0..2 * epoch_len)).concat();
            // 11 times the item, and a hundred more from the eleventh on.
            let expected = plain.iter().enumerate().map(|(place, item)| 100 * (place / 10) + 11 * item);
            assert_eq!(changed, expected.collect::<Vec<_>>());
            let resumed = loader.clone().shuffled(1, 1..2 * epoch_len).prefetch(2, 4);
            assert_eq!(batches(&resumed).concat(), changed[changed.len() - batches(&resumed).concat().len()..]);
            assert!(batches(&loader).concat().iter().all(|item| item % 11 == 0), "in order there is the epoch 0");
        }
    }

    #[test]
    fn a_recipe_may_ask_for_64_workers() {
        assert_eq!(check_workers(64), None);
        assert_eq!(check_workers(65).as_deref(), Some("data.workers = 65 must be at most 64"));
    }

    #[test]
    fn progress_follows_the_batches_that_were_taken() {
        let loader = loader(9, 2).prefetch(3, 6);
        let mut iterator = loader.iter();
        iterator.next();
        assert_eq!(iterator.progress().items_processed, 2);
        assert_eq!(iterator.by_ref().count(), 4);
        assert!(iterator.progress().is_completed());
    }

    #[test]
    #[should_panic(expected = "a plan for 4 items, but the dataset has 5")]
    fn a_plan_for_another_dataset_is_refused() {
        let data = InMemDataset::new((0..5).collect());
        let _ = StepLoader::planned(data, Collect, BatchPlan::fixed(4, 2), &Device::default());
    }

    proptest! {
        #[test]
        fn a_run_resumed_at_any_step_sees_the_same_batches(
            lengths in prop::collection::vec(1_usize..30, 1..60), seed: u64, start in 0_usize..100, kind in 0_usize..3,
        ) {
            let batching = [Batching::Fixed, Batching::Buckets { buckets: 3 }, Batching::Tokens { max_tokens: 64, buckets: 4 }];
            let plan = BatchPlan::new(batching[kind], 4, lengths.iter().copied()).unwrap();
            let data = InMemDataset::new((0..lengths.len()).collect());
            let loader = StepLoader::planned(data, Collect, plan, &Device::default());
            let whole = batches(&loader.clone().shuffled(seed, 0..120));
            prop_assert_eq!(whole.len(), 120);
            prop_assert_eq!(&batches(&loader.clone().shuffled(seed, start..120)), &whole[start..]);
            prop_assert_eq!(&batches(&loader.shuffled(seed, start..120).prefetch(2, 4)), &whole[start..]);
        }
    }
}
