//! Batches as a pure function of the training step: a Burn `DataLoader` over any Burn `Dataset` and `Batcher`. Trainers
//! use it shuffled, so that step `s` of a seed sees the same items in a new run and in a resumed one; evaluation uses it
//! in order.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;

use crate::Order;

/// A loader whose batches depend on nothing but the step.
///
/// As made by [`new`](Self::new) it goes once through the dataset in order, the last batch holding what is left; with
/// [`shuffled`](Self::shuffled) it yields the batches of a range of training steps.
pub struct StepLoader<I, O> {
    dataset: Arc<dyn Dataset<I>>,
    batcher: Arc<dyn Batcher<I, O>>,
    batch_size: usize,
    order: Option<Order>,
    /// Positions of the sequence of items that are loaded: those of the dataset, or those of the endless shuffled order.
    positions: Range<usize>,
    device: Device,
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
        assert!(batch_size > 0, "a batch needs at least one item");
        let positions = 0..dataset.len();
        let (dataset, batcher) = (Arc::new(dataset), Arc::new(batcher));
        Self { dataset, batcher, batch_size, order: None, positions, device: device.clone() }
    }

    /// Yields the batches of the training steps `steps`, from 0, in the order of `seed`: every item once, then every item
    /// once in another order, and so on, without end. A batch may reach from one epoch into the next.
    ///
    /// # Panics
    /// Panics if the dataset is empty.
    #[must_use]
    pub fn shuffled(mut self, seed: u64, steps: Range<usize>) -> Self {
        assert!(!self.dataset.is_empty(), "an empty dataset has no order");
        self.order = Some(Order::new(seed));
        self.positions = steps.start * self.batch_size..steps.end.saturating_mul(self.batch_size);
        self
    }

    /// The batch of the items at these positions.
    fn batch(&self, positions: Range<usize>) -> Result<O, DatasetError> {
        let len = self.dataset.len();
        let items = positions.map(|position| self.order.map_or(position, |order| order.item(position, len))).collect();
        Ok(self.batcher.batch(self.dataset.get_many(items)?, &self.device))
    }
}

// Derived, it would ask for `I: Clone` and `O: Clone`.
impl<I, O> Clone for StepLoader<I, O> {
    fn clone(&self) -> Self {
        Self {
            dataset: self.dataset.clone(),
            batcher: self.batcher.clone(),
            batch_size: self.batch_size,
            order: self.order,
            positions: self.positions.clone(),
            device: self.device.clone(),
        }
    }
}

impl<I: 'static, O: 'static> DataLoader<O> for StepLoader<I, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(Batches { loader: self, next: self.positions.start })
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

/// The batches of a loader, one after the other.
struct Batches<'a, I, O> {
    loader: &'a StepLoader<I, O>,
    next: usize,
}

impl<I, O> Iterator for Batches<'_, I, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.next;
        let end = start.saturating_add(self.loader.batch_size).min(self.loader.positions.end);
        self.next = end;
        (start < end).then(|| self.loader.batch(start..end))
    }
}

impl<I, O> DataLoaderIterator<O> for Batches<'_, I, O> {
    fn progress(&self) -> Progress {
        let positions = &self.loader.positions;
        Progress::new(self.next - positions.start, positions.len(), Some("items".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::data::dataset::InMemDataset;

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
    fn a_slice_is_a_part_of_the_items() {
        assert_eq!(batches(loader(9, 2).slice(3, 6).as_ref()), [vec![3, 4], vec![5]]);
        let shuffled = loader(9, 2).shuffled(1, 2..6);
        assert_eq!(batches(shuffled.slice(2, 8).as_ref()), batches(&shuffled)[1..]);
        assert_eq!(batches(shuffled.to_device(&Device::default()).as_ref()), batches(&shuffled));
    }
}
