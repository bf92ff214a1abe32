//! Which batches of a group one rank computes.

/// The part of a group of batches that one rank computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Batches of the ranks before it.
    pub(crate) before: usize,
    /// Its own.
    pub(crate) own: usize,
    /// Batches of all other ranks, which lie between two shares of its own.
    pub(crate) others: usize,
}

impl Share {
    /// This rank's batches of a group: the `first`, and from the `rest` of all batches those that follow it, as far as there are any.
    pub(crate) fn taken<B>(self, first: Option<B>, rest: impl Iterator<Item = B>) -> impl Iterator<Item = B> {
        let more = if first.is_some() { self.own - 1 } else { 0 };
        first.into_iter().chain(rest.take(more))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use crate::communicator::share_of;
    use crate::ranks::Ranks;
    use crate::{Threads, ThreadsOptions};

    /// The most ranks that are tried.
    const WORLDS: usize = 12;

    /// What all ranks of a world take of these batches in so many steps, as `TrainingLoop` does.
    fn taken(world: usize, group: usize, batches: &Range<usize>, steps: usize) -> Vec<usize> {
        let mut all = Vec::new();
        for rank in Threads::ranks(world, ThreadsOptions::default()) {
            let share = Ranks::new(Arc::new(rank)).share(group);
            let (mut batches, mut left_out) = (batches.clone(), share.before);
            for _ in 0..steps {
                let first = batches.nth(left_out);
                all.extend(share.taken(first, batches.by_ref()));
                left_out = share.others;
            }
        }
        all
    }

    /// One of the worlds that can share a group.
    fn world_for(group: usize, choice: Index) -> usize {
        let worlds: Vec<usize> = (1..=WORLDS).filter(|&world| share_of(group, world).is_some()).collect();
        *choice.get(&worlds)
    }

    proptest! {
        /// Steps of one world, and after them steps of another one, which resumes; the last batches may be missing.
        #[test]
        fn every_batch_is_taken_once_by_whatever_ranks(
            group in 1_usize..=24,
            worlds in (any::<Index>(), any::<Index>()),
            start in 0_usize..1000,
            steps in (0_usize..4, 0_usize..4),
            missing in 0_usize..=24,
        ) {
            let [begin, middle] = [start, start + steps.0].map(|step| step * group);
            let end = (middle + steps.1 * group).saturating_sub(missing).max(middle);
            let mut found = taken(world_for(group, worlds.0), group, &(begin..middle), steps.0);
            found.extend(taken(world_for(group, worlds.1), group, &(middle..end), steps.1));
            found.sort_unstable();
            prop_assert_eq!(found, (begin..end).collect::<Vec<_>>());
        }

        #[test]
        fn a_loader_that_goes_on_is_left_after_the_last_step(
            group in 1_usize..=24,
            world in any::<Index>(),
            steps in 0_usize..4,
        ) {
            let mut found = taken(world_for(group, world), group, &(0..10 * group), steps);
            found.sort_unstable();
            prop_assert_eq!(found, (0..steps * group).collect::<Vec<_>>());
        }
    }
}
