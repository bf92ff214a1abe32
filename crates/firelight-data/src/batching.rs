//! Which items make up a batch: so many of them, or as many of similar length as a number of tokens allows. A [`BatchPlan`]
//! is made once from the lengths of the items; every batch of every epoch follows from it, a seed and the step, so that a
//! resumed run has nothing to replay. The [`StepLoader`](crate::StepLoader) draws its batches from it, for every task.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use firelight_storage::InputError;

use crate::buckets::Buckets;
use crate::{DataError, Order};

/// Buckets where a recipe names no number.
const BUCKETS: usize = 16;

/// No batch has more tokens: beyond it a number is a slip of the keyboard, and its first batch would fill any memory.
const MAX_BUDGET: usize = 1 << 24;

/// A batch that is read once is small up to one in so many of the tokens that fit.
const SMALL_BATCH: usize = 8;

fn buckets() -> usize {
    BUCKETS
}

/// How a recipe asks for batches: `"fixed"`, `"buckets"`, or `{ kind = "tokens", max_tokens = 4096 }`.
///
/// Buckets hold items of similar length, so that little is padded; a batch takes its items from one of them. Their bounds
/// are chosen so that the fewest tokens pad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Batching {
    /// The batch size of the training in every batch, whatever the lengths.
    #[default]
    Fixed,
    /// At most the batch size of the training in every batch, of similar lengths.
    Buckets {
        /// Number of buckets, at least 1. Default: 16.
        #[serde(default = "buckets")]
        buckets: usize,
    },
    /// As many items of similar length as fit into a number of tokens, which takes the place of the batch size.
    Tokens {
        /// Tokens of a batch at most, padding included: its rows times the length of the longest. At most 16,777,216.
        max_tokens: usize,
        /// Number of buckets, at least 1. Default: 16.
        #[serde(default = "buckets")]
        buckets: usize,
    },
}

impl Batching {
    /// Tokens of a batch where nothing is trained, padding included: enough to keep the cores busy, few enough for small
    /// memories.
    pub const TOKENS_TO_READ: usize = 4096;

    /// Batches in which items are read once, to validate on them, for example; the longest has so many tokens.
    pub fn to_read(longest: usize) -> Self {
        Self::Tokens { max_tokens: Self::TOKENS_TO_READ.max(longest), buckets: BUCKETS }
    }

    /// The most tokens that a batch can have, padding included, where no item is longer than `longest`.
    pub fn max_batch_tokens(&self, batch_size: usize, longest: usize) -> usize {
        match *self {
            Self::Tokens { max_tokens, .. } => max_tokens,
            Self::Fixed | Self::Buckets { .. } => batch_size * longest,
        }
    }

    /// # Errors
    /// Lists every number that is out of its range.
    pub fn validate(&self) -> Result<(), DataError> {
        let numbers = match *self {
            Self::Fixed => vec![],
            Self::Buckets { buckets } => vec![("buckets", buckets)],
            Self::Tokens { max_tokens, buckets } => vec![("max_tokens", max_tokens), ("buckets", buckets)],
        };
        let zeros = numbers.into_iter().filter(|(_, number)| *number == 0);
        let mut problems: Vec<_> = zeros.map(|(key, _)| format!("batching.{key} = 0 must be at least 1")).collect();
        if let Self::Tokens { max_tokens, .. } = *self
            && max_tokens > MAX_BUDGET
        {
            problems.push(format!("batching.max_tokens = {max_tokens} must be at most {MAX_BUDGET}"));
        }
        Ok(InputError::of_all(&problems)?)
    }
}

/// The batches of a dataset, epoch by epoch. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    layout: Layout,
}

/// A plan counts in positions: those of the items where batches of one size follow each other through the epochs, and
/// those of the batches where every epoch has its own.
#[derive(Clone, Debug)]
enum Layout {
    Even { items: usize, batch_size: usize },
    Buckets(Arc<Buckets>),
}

impl BatchPlan {
    /// `batch_size` of `items` items in every batch.
    ///
    /// # Panics
    /// Panics if `batch_size` is 0.
    pub fn fixed(items: usize, batch_size: usize) -> Self {
        assert!(batch_size > 0, "a batch needs at least one item");
        Self { layout: Layout::Even { items, batch_size } }
    }

    /// What `batching` asks for, of items with these lengths in tokens. A budget of tokens has no use for `batch_size`.
    ///
    /// # Errors
    /// Fails if a number is out of its range or an item alone is above `max_tokens`. Nothing is left out in silence: a task
    /// whose data has such items cuts them or leaves them out of its dataset.
    ///
    /// # Panics
    /// Panics if `batch_size` is 0.
    pub fn new(
        batching: Batching,
        batch_size: usize,
        lengths: impl IntoIterator<Item = usize>,
    ) -> Result<Self, DataError> {
        batching.validate()?;
        let lengths = lengths.into_iter();
        let layout = match batching {
            Batching::Fixed => return Ok(Self::fixed(lengths.count(), batch_size)),
            Batching::Buckets { buckets } => Buckets::new(lengths.collect(), buckets, |_| batch_size),
            Batching::Tokens { max_tokens, buckets } => {
                let lengths: Vec<usize> = lengths.collect();
                check_lengths(&lengths, max_tokens)?;
                Buckets::new(lengths, buckets, |longest| max_tokens / longest.max(1))
            }
        };
        Ok(Self { layout: Layout::Buckets(Arc::new(layout)) })
    }

    /// What `batching` asks for, of items that are all `length` tokens long. No list of them is made, so that there may be
    /// as many as the windows of a large text.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// Panics if `batch_size` is 0.
    pub fn uniform(batching: Batching, batch_size: usize, items: usize, length: usize) -> Result<Self, DataError> {
        batching.validate()?;
        match batching {
            Batching::Tokens { max_tokens, .. } => {
                check_lengths(&[length], max_tokens)?;
                Ok(Self::fixed(items, max_tokens / length.max(1)))
            }
            _ => Ok(Self::fixed(items, batch_size)),
        }
    }

    /// Number of items.
    pub fn num_items(&self) -> usize {
        match &self.layout {
            Layout::Even { items, .. } => *items,
            Layout::Buckets(buckets) => buckets.num_items(),
        }
    }

    /// Number of batches in which every item is seen once.
    pub fn num_batches(&self) -> usize {
        self.num_positions().div_ceil(self.stride())
    }

    /// What the positions count, for the user.
    pub(crate) fn unit(&self) -> &'static str {
        match &self.layout {
            Layout::Even { .. } => "items",
            Layout::Buckets(_) => "batches",
        }
    }

    /// Positions of one epoch.
    pub(crate) fn num_positions(&self) -> usize {
        match &self.layout {
            Layout::Even { items, .. } => *items,
            Layout::Buckets(buckets) => buckets.num_batches(),
        }
    }

    /// Positions from one batch to the next.
    pub(crate) fn stride(&self) -> usize {
        match &self.layout {
            Layout::Even { batch_size, .. } => *batch_size,
            Layout::Buckets(_) => 1,
        }
    }

    /// The items at positions of the one epoch in order, or of the endless epochs of a shuffled order, each with its epoch.
    pub(crate) fn items(&self, positions: Range<usize>, order: Option<Order>) -> Vec<(u64, usize)> {
        let epoch = |position: usize| (position / self.num_positions()) as u64;
        match &self.layout {
            Layout::Even { items, .. } => {
                let item = |position| order.map_or(position, |order| order.item(position, *items));
                positions.map(|position| (epoch(position), item(position))).collect()
            }
            Layout::Buckets(buckets) => {
                let of = |batch: usize| buckets.batch(batch, order).into_iter().map(move |item| (epoch(batch), item));
                positions.flat_map(of).collect()
            }
        }
    }
}

/// Every item must fit into a batch of its own.
fn check_lengths(lengths: &[usize], max_tokens: usize) -> Result<(), DataError> {
    let too_long = lengths.iter().filter(|length| **length > max_tokens).count();
    match lengths.iter().max() {
        Some(&longest) if longest > max_tokens => {
            let problem = format!(
                "a batch of {max_tokens} tokens cannot hold every item: {too_long} above it, the longest of {longest}"
            );
            let advice = format!("give batching.max_tokens = {longest} or more, or cut these items or leave them out");
            Err(InputError::new(problem).advise(advice).into())
        }
        _ => Ok(()),
    }
}

/// Batches in which items of these lengths are read once, by their place and the longest first: each holds at most `most` items and,
/// unless one item alone has more, `max_tokens` tokens, padding included. An item without tokens is in none.
///
/// At most the share `most_padding` of a batch is padding, 1 for as much as there is. A batch of at most an eighth of `max_tokens`, padding included,
/// may have more: another one would cost more than its padding, for so few tokens keep no device busy. Such batches are few, however many items
/// there are: the longest item of each is shorter than that of the one before it by at least that share.
///
/// ```
/// use firelight_data::longest_first;
///
/// assert_eq!(longest_first([2, 0, 5, 2, 1], 5, 9, 1.0), [vec![2], vec![0, 3], vec![4]]);
/// assert_eq!(longest_first([9, 8, 5], 27, 9, 1.0), [[0, 1, 2]]);
/// assert_eq!(longest_first([9, 8, 5], 27, 9, 0.1), [vec![0, 1], vec![2]]);
/// ```
pub fn longest_first(
    lengths: impl IntoIterator<Item = usize>,
    max_tokens: usize,
    most: usize,
    most_padding: f64,
) -> Vec<Vec<usize>> {
    let lengths: Vec<usize> = lengths.into_iter().collect();
    let mut order: Vec<usize> = (0..lengths.len()).filter(|&item| lengths[item] > 0).collect();
    order.sort_by_key(|&item| std::cmp::Reverse(lengths[item]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for item in order {
        let joins = |batch: &Vec<usize>| {
            let whole = (batch.len() + 1) * lengths[batch[0]];
            let is_small = whole <= max_tokens / SMALL_BATCH;
            let is_filled = is_small || padding_of(tokens + lengths[item], whole) <= most_padding;
            batch.len() < most && whole <= max_tokens && is_filled
        };
        match batches.last_mut().filter(|batch| joins(batch)) {
            Some(batch) => batch.push(item),
            None => {
                batches.push(vec![item]);
                tokens = 0;
            }
        }
        tokens += lengths[item];
    }
    batches
}

/// The share of padding in a batch of the size `whole` that holds so many tokens.
fn padding_of(tokens: usize, whole: usize) -> f64 {
    1.0 - tokens as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(plan: &BatchPlan, positions: Range<usize>, order: Option<Order>) -> Vec<usize> {
        plan.items(positions, order).into_iter().map(|(_, item)| item).collect()
    }

    fn epoch(plan: &BatchPlan, order: Option<Order>, number: usize) -> Vec<Vec<usize>> {
        let batches = plan.num_batches();
        (number * batches..(number + 1) * batches).map(|batch| items(plan, batch..batch + 1, order)).collect()
    }

    fn tokens(max_tokens: usize, buckets: usize, lengths: &[usize]) -> Result<BatchPlan, DataError> {
        BatchPlan::new(Batching::Tokens { max_tokens, buckets }, 1, lengths.iter().copied())
    }

    #[test]
    fn a_budget_holds_many_short_items_or_few_long_ones() {
        // Two buckets: lengths 1 and 2 pad one token, 5 and 6 another; 12 / 2 rows, then 12 / 6.
        let plan = tokens(12, 2, &[5, 1, 6, 2, 6]).unwrap();
        assert_eq!(epoch(&plan, None, 0), [vec![1, 3], vec![0], vec![2, 4]]);
        assert_eq!((plan.num_items(), plan.num_batches()), (5, 3));
    }

    #[test]
    fn batches_of_a_bucket_are_about_equally_large() {
        let plan = BatchPlan::new(Batching::Buckets { buckets: 1 }, 4, [3; 9]).unwrap();
        assert_eq!(epoch(&plan, None, 0), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8]]);
    }

    #[test]
    fn buckets_keep_short_items_from_long_ones() {
        // One bucket would fill up the batch of the two short ones with a long one.
        let plan = BatchPlan::new(Batching::Buckets { buckets: 2 }, 4, [9, 1, 9, 9, 1, 9, 9]).unwrap();
        assert_eq!(epoch(&plan, None, 0), [vec![1, 4], vec![0, 2], vec![3, 5, 6]]);
    }

    #[test]
    fn equal_lengths_need_no_list() {
        let plan = BatchPlan::uniform(Batching::Tokens { max_tokens: 100, buckets: 4 }, 1, 7, 30).unwrap();
        assert_eq!(items(&plan, 3..6, None), [3, 4, 5]);
        assert_eq!((plan.stride(), plan.num_batches()), (3, 3));
        let plan = BatchPlan::uniform(Batching::Buckets { buckets: 4 }, 2, 7, 30).unwrap();
        assert_eq!(plan.stride(), 2);
    }

    #[test]
    fn the_most_tokens_of_a_batch_are_known() {
        assert_eq!(Batching::to_read(10).max_batch_tokens(1, 10), Batching::TOKENS_TO_READ);
        assert_eq!(Batching::to_read(5_000).max_batch_tokens(1, 5_000), 5_000);
        for batching in [Batching::Fixed, Batching::Buckets { buckets: 2 }] {
            assert_eq!(batching.max_batch_tokens(8, 30), 240);
        }
    }

    #[test]
    fn batches_that_are_read_once_hold_all_items_and_stay_in_their_budget() {
        let lengths = [3, 0, 9, 2, 2, 5];
        assert_eq!(longest_first(lengths, 6, 9, 1.0), [vec![2], vec![5], vec![0, 3], vec![4]]);
        assert_eq!(longest_first(lengths, 6, 9, 0.1), [vec![2], vec![5], vec![0], vec![3, 4]]);
        assert_eq!(longest_first(lengths, 999, 2, 0.0), [vec![2, 5], vec![0, 3], vec![4]]);
    }

    proptest! {
        /// Small batches may have more padding, where lengths fall fast. So each begins with a shorter item than the one before it, and they
        /// are few.
        #[test]
        fn little_of_what_is_read_once_is_padding(lengths in prop::collection::vec(0_usize..300, 1..400)) {
            let batches = longest_first(lengths.iter().copied(), 4096, usize::MAX, 0.08);
            let mut found: Vec<usize> = batches.concat();
            found.sort_unstable();
            prop_assert_eq!(found, (0..lengths.len()).filter(|&item| lengths[item] > 0).collect::<Vec<_>>());
            let mut shortest = f64::INFINITY;
            for batch in batches {
                let (longest, tokens) = (lengths[batch[0]], batch.iter().map(|&item| lengths[item]).sum::<usize>());
                let whole = batch.len() * longest;
                prop_assert!(whole <= 4096, "{batch:?}");
                if padding_of(tokens, whole) > 0.08 {
                    prop_assert!(whole <= 4096 / SMALL_BATCH && (longest as f64) < shortest, "{batch:?}");
                    shortest = 0.92 * longest as f64 + 1e-9;
                }
            }
        }
    }

    #[test]
    fn items_above_the_budget_are_counted() {
        let error = tokens(4, 2, &[5, 4, 9]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a batch of 4 tokens cannot hold every item: 2 above it, the longest of 9; give batching.max_tokens = 9 or more, or \
             cut these items or leave them out"
        );
        let uniform = BatchPlan::uniform(Batching::Tokens { max_tokens: 4, buckets: 1 }, 1, 7, 5);
        assert!(error.is_user_error() && uniform.is_err());
    }

    #[test]
    fn numbers_out_of_range_are_all_listed() {
        let error = tokens(0, 0, &[1]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "batching.max_tokens = 0 must be at least 1; batching.buckets = 0 must be at least 1"
        );
        assert!(BatchPlan::new(Batching::Buckets { buckets: 0 }, 1, [1]).is_err());
        let error = tokens(1_000_000_000_000, 1, &[1]).unwrap_err();
        assert!(error.is_user_error());
        assert_eq!(error.to_string(), "batching.max_tokens = 1000000000000 must be at most 16777216");
        assert!(tokens(MAX_BUDGET, 1, &[1]).is_ok());
    }

    proptest! {
        #[test]
        fn an_epoch_has_every_item_once_within_the_budget(
            lengths in prop::collection::vec(0_usize..40, 1..200),
            max_tokens in 40_usize..400,
            buckets in 1_usize..20,
            seed: u64,
            number in 0_usize..1_000,
        ) {
            let plan = tokens(max_tokens, buckets, &lengths).unwrap();
            for order in [None, Some(Order::new(seed))] {
                let batches = epoch(&plan, order, if order.is_some() { number } else { 0 });
                for batch in &batches {
                    let longest = batch.iter().map(|&item| lengths[item]).max().unwrap();
                    prop_assert!(longest * batch.len() <= max_tokens);
                }
                let mut items = batches.concat();
                items.sort_unstable();
                prop_assert_eq!(items, (0..lengths.len()).collect::<Vec<_>>());
            }
        }

        #[test]
        fn buckets_hold_the_batch_size(
            lengths in prop::collection::vec(0_usize..40, 1..200), batch_size in 1_usize..20, buckets in 1_usize..20,
        ) {
            let plan = BatchPlan::new(Batching::Buckets { buckets }, batch_size, lengths.iter().copied()).unwrap();
            let batches = epoch(&plan, Some(Order::new(1)), 3);
            prop_assert!(batches.iter().all(|batch| !batch.is_empty() && batch.len() <= batch_size));
            prop_assert_eq!(batches.concat().len(), lengths.len());
        }
    }
}
