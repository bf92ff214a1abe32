//! The order in which a run goes through its items.

use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataset::transform::SelectionDataset;
use burn::data::dataset::{Dataset, DatasetError};

use crate::trainer::mix;

/// Every item once in one order, then every item once in another, and so on: what stands at a position follows from it and the seed.
pub(super) struct Shuffled<I> {
    items: Arc<dyn Dataset<I>>,
    seed: u64,
    positions: usize,
    /// The order of the epoch that was asked for last.
    order: Mutex<Order>,
}

#[derive(Clone, Default)]
struct Order {
    epoch: usize,
    items: Arc<[usize]>,
}

impl<I: Clone + Send + Sync> Shuffled<I> {
    pub(super) fn new(items: Arc<dyn Dataset<I>>, seed: u64, positions: usize) -> Self {
        Self { items, seed, positions, order: Mutex::default() }
    }

    fn item(&self, position: usize) -> usize {
        let (epoch, place) = (position / self.items.len(), position % self.items.len());
        self.of_epoch(epoch)[place]
    }

    fn of_epoch(&self, epoch: usize) -> Arc<[usize]> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.items.is_empty() || order.epoch != epoch {
            // The seeds of steps are those of `mix(seed, _)`: this is another stream.
            let seed = mix(!self.seed, epoch as u64);
            let shuffled = SelectionDataset::<Arc<dyn Dataset<I>>, I>::new_shuffled(self.items.clone(), seed);
            *order = Order { epoch, items: shuffled.indices.into() };
        }
        order.items.clone()
    }
}

impl<I: Clone + Send + Sync> Dataset<I> for Shuffled<I> {
    fn get(&self, position: usize) -> Result<I, DatasetError> {
        self.items.get(self.item(position))
    }

    fn get_many(&self, positions: Vec<usize>) -> Result<Vec<I>, DatasetError> {
        self.items.get_many(positions.into_iter().map(|position| self.item(position)).collect())
    }

    fn len(&self) -> usize {
        self.positions
    }
}

#[cfg(test)]
mod tests {
    use burn::data::dataset::InMemDataset;

    use super::*;

    fn order(seed: u64, items: usize, positions: usize) -> Shuffled<usize> {
        Shuffled::new(Arc::new(InMemDataset::new((0..items).collect())), seed, positions)
    }

    #[test]
    fn an_epoch_has_every_item_once_in_an_order_of_its_own() {
        let found: Vec<usize> = order(3, 20, 60).iter().map(Result::unwrap).collect();
        let epochs: Vec<&[usize]> = found.chunks(20).collect();
        for epoch in &epochs {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        }
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2], "{epochs:?}");
        assert_ne!(found, order(4, 20, 60).iter().map(Result::unwrap).collect::<Vec<_>>());
    }

    #[test]
    fn a_position_has_its_item_whatever_was_asked_before() {
        let (once, again) = (order(3, 7, 30), order(3, 7, 30));
        let there: Vec<_> = (0..30).map(|position| once.get(position).unwrap()).collect();
        let back: Vec<_> = (0..30).rev().map(|position| again.get(position).unwrap()).collect();
        assert_eq!(there, back.into_iter().rev().collect::<Vec<_>>());
        assert_eq!(once.get_many(vec![5, 8, 29]).unwrap(), [there[5], there[8], there[29]]);
    }
}
