//! Items of similar length, gathered once, from which [`BatchPlan`](crate::BatchPlan) takes batches that pad little.
//!
//! The number of batches of a bucket never changes; an epoch shuffles the items within each bucket and the batches among
//! each other. So a batch is computed from its number alone, without the epochs before it. Buckets whose batch size follows
//! from a number of tokens are those of Tensor2Tensor (`data_reader.py`, `batching_scheme`). There the bounds grow by a
//! factor; here they are those that pad the fewest tokens.

use std::ops::Range;

use crate::Order;

/// Bounds that are tried at most: beyond it, nearby lengths count as one.
const MAX_BOUNDS: usize = 256;

/// All items of a dataset, by length.
#[derive(Debug)]
pub(crate) struct Buckets {
    buckets: Vec<Bucket>,
    items: usize,
}

#[derive(Debug)]
struct Bucket {
    /// The items, the shorter ones first.
    items: Vec<usize>,
    /// The numbers of its batches.
    batches: Range<usize>,
}

impl Buckets {
    /// At most `count` buckets; `batch_size` tells how many items of a bucket make a batch, by the length of its longest.
    pub(crate) fn new(lengths: Vec<usize>, count: usize, batch_size: impl Fn(usize) -> usize) -> Self {
        let mut items: Vec<usize> = (0..lengths.len()).collect();
        items.sort_by_key(|&item| lengths[item]);
        let sorted: Vec<usize> = items.iter().map(|&item| lengths[item]).collect();
        let (mut buckets, mut start, mut batches) = (Vec::new(), 0, 0);
        for end in bounds(&sorted, count) {
            let size = batch_size(sorted[end - 1]);
            assert!(size > 0, "a batch needs at least one item");
            let end_batch = batches + (end - start).div_ceil(size);
            buckets.push(Bucket { items: items[start..end].to_vec(), batches: batches..end_batch });
            (start, batches) = (end, end_batch);
        }
        Self { buckets, items: items.len() }
    }

    pub(crate) fn num_items(&self) -> usize {
        self.items
    }

    /// Batches of an epoch.
    pub(crate) fn num_batches(&self) -> usize {
        self.buckets.last().map_or(0, |bucket| bucket.batches.end)
    }

    /// The items of a batch: of the one epoch in order, or of the endless epochs of a shuffled order.
    pub(crate) fn batch(&self, number: usize, order: Option<Order>) -> Vec<usize> {
        let batches = self.num_batches();
        let epoch = (number / batches) as u64;
        let batch = order.map_or(number, |order| order.item(number, batches));
        let index = self.buckets.partition_point(|bucket| bucket.batches.end <= batch);
        let bucket = &self.buckets[index];
        let inner = order.map(|order| order.part(index as u64));
        let item = |position| inner.map_or(position, |order| order.item_of_epoch(epoch, position, bucket.items.len()));
        bucket.share(batch).map(|position| bucket.items[item(position)]).collect()
    }
}

impl Bucket {
    /// The positions of the items of a batch. Those of two batches differ by at most one in number.
    fn share(&self, batch: usize) -> Range<usize> {
        let (items, count) = (self.items.len(), self.batches.len());
        let start = |batch: usize| (batch - self.batches.start) * items / count;
        start(batch)..start(batch + 1)
    }
}

/// Where to cut rising `lengths` into at most `count` runs, padded to their longest, so that they take the fewest tokens:
/// the ends of the runs. Dynamic programming over the number of runs.
fn bounds(lengths: &[usize], count: usize) -> Vec<usize> {
    let ends = ends(lengths);
    let padded = |start: usize, end: usize| (end - start) * lengths[end - 1];
    // For the items before each end: the fewest tokens of the runs so far, and where those runs end.
    let mut best: Vec<(usize, Vec<usize>)> = ends.iter().map(|&end| (padded(0, end), vec![end])).collect();
    for _ in 1..count.min(ends.len()) {
        for last in (1..ends.len()).rev() {
            let with = |before: usize| best[before].0 + padded(ends[before], ends[last]);
            let Some(before) = (0..last).min_by_key(|&before| with(before)) else { continue };
            if with(before) < best[last].0 {
                best[last] = (with(before), [best[before].1.as_slice(), &[ends[last]]].concat());
            }
        }
    }
    best.pop().map(|(_, bounds)| bounds).unwrap_or_default()
}

/// Where the length changes, thinned out to [`MAX_BOUNDS`]; the end of all is among them.
fn ends(lengths: &[usize]) -> Vec<usize> {
    let all: Vec<usize> = (1..=lengths.len()).filter(|&end| lengths.get(end) != Some(&lengths[end - 1])).collect();
    let step = all.len().div_ceil(MAX_BOUNDS).max(1);
    let mut ends: Vec<usize> = all.into_iter().rev().step_by(step).collect();
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_pad_the_fewest_tokens() {
        let lengths = [1, 1, 2, 9, 10];
        assert_eq!(bounds(&lengths, 1), [5]); // 50 tokens
        assert_eq!(bounds(&lengths, 2), [3, 5]); // 3 * 2 + 2 * 10 = 26 tokens
        assert_eq!(bounds(&lengths, 3), [2, 3, 5]); // 2 + 2 + 20 = 24, as [3, 4, 5] with 6 + 9 + 10 = 25 is not
        assert_eq!(bounds(&lengths, 9), [2, 3, 4, 5]); // nothing padded
        assert!(bounds(&[], 3).is_empty());
    }

    #[test]
    fn many_lengths_are_thinned_out_to_the_longest() {
        let lengths: Vec<usize> = (0..1_000).collect();
        let ends = ends(&lengths);
        assert!(ends.len() <= MAX_BOUNDS && ends.last() == Some(&1_000));
    }

    #[test]
    fn an_epoch_mixes_the_items_of_a_bucket_and_the_batches() {
        let buckets = Buckets::new([vec![1; 50], vec![9; 50]].concat(), 2, |_| 5);
        let epoch = |number: usize| -> Vec<Vec<usize>> {
            (0..20).map(|batch| buckets.batch(20 * number + batch, Some(Order::new(3)))).collect()
        };
        let [first, second] = [epoch(0), epoch(1)];
        assert_ne!(first, second);
        assert!(first.iter().any(|batch| !second.contains(batch)), "batches are of other items in another epoch");
        let is_long = |batch: &Vec<usize>| batch[0] >= 50;
        assert!(first[..10].iter().any(is_long) && first[10..].iter().any(is_long));
        assert!(first.iter().all(|batch| batch.iter().all(|&item| (item >= 50) == is_long(batch))));
    }

    proptest! {
        #[test]
        fn no_other_cut_pads_less(mut lengths in prop::collection::vec(1_usize..12, 1..12), cuts: Vec<prop::sample::Index>) {
            lengths.sort_unstable();
            let tokens = |ends: &[usize]| -> usize {
                let starts = std::iter::once(&0).chain(ends);
                starts.zip(ends).map(|(start, end)| (end - start) * lengths[end - 1]).sum()
            };
            let mut other: Vec<usize> = cuts.iter().map(|cut| cut.index(lengths.len()) + 1).collect();
            other.push(lengths.len());
            other.sort_unstable();
            other.dedup();
            prop_assert!(tokens(&bounds(&lengths, other.len())) <= tokens(&other));
        }
    }
}
