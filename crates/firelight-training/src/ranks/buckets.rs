//! Numbers that are summed over ranks a bucket at a time: while one bucket is summed on a thread of its own, the next is read from the device
//! and filled. In memory are a few buckets and the numbers of one parameter, rather than those of the whole model.
//!
//! Source: Li et al. 2020, PyTorch Distributed, section 3.2.2 (<https://arxiv.org/abs/2006.15704>). Unlike there, nothing of the
//! backward pass overlaps with the sums: during it Burn 0.22 gives a gradient that is complete to nobody but the all-reduce of its backend, and flex
//! and ndarray have none.

use std::mem;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::{CommunicatorError, TrainingError};

/// The numbers of a bucket: 16 MiB of them. Fewer would wait more often for the other ranks, more would take more memory.
pub const BUCKET: usize = 1 << 22;

/// Buckets that are handed over and not yet back: one is summed, and one waits, so that there is always one to go on with.
const UNDER_WAY: usize = 2;

type Summed = Result<Vec<f32>, CommunicatorError>;

/// What receives the sums, in the order of the numbers.
pub(super) trait Take {
    /// Takes the next sums.
    fn take(&mut self, sums: &[f32]);
}

/// The buckets of one exchange.
pub(super) struct Buckets {
    size: usize,
    filling: Vec<f32>,
    under_way: usize,
    to_sum: Sender<Vec<f32>>,
    summed: Receiver<Summed>,
    /// Memory of buckets that are back.
    spare: Vec<Vec<f32>>,
}

impl Buckets {
    /// Does `work` with buckets of so many numbers, each of which `sum` replaces by its sums over all ranks. Every rank must hand over
    /// the same count of numbers.
    pub(super) fn with<R>(
        size: usize,
        sum: impl Fn(&mut [f32]) -> Result<(), CommunicatorError> + Sync,
        work: impl FnOnce(Self) -> Result<R, TrainingError>,
    ) -> Result<R, TrainingError> {
        let ((to_sum, given), (tell, summed)) = (channel(), channel());
        thread::scope(|scope| {
            let sum = &sum;
            scope.spawn(move || sum_all(&given, &tell, sum));
            let (filling, spare) = (Vec::with_capacity(size), Vec::new());
            work(Self { size, filling, under_way: 0, to_sum, summed, spare })
        })
    }

    /// Adds numbers to the bucket that is filled, and hands every full one over; sums that are back go to `sums`.
    pub(super) fn push(&mut self, mut numbers: &[f32], sums: &mut impl Take) -> Result<(), CommunicatorError> {
        while !numbers.is_empty() {
            let (now, later) = numbers.split_at(numbers.len().min(self.size - self.filling.len()));
            self.filling.extend_from_slice(now);
            numbers = later;
            if self.filling.len() == self.size {
                self.hand_over(sums)?;
            }
        }
        Ok(())
    }

    /// Hands over what is left, and waits for all sums.
    pub(super) fn finish(mut self, sums: &mut impl Take) -> Result<(), CommunicatorError> {
        if !self.filling.is_empty() {
            self.hand_over(sums)?;
        }
        while self.under_way > 0 {
            self.receive(sums)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, sums: &mut impl Take) -> Result<(), CommunicatorError> {
        if self.under_way == UNDER_WAY {
            self.receive(sums)?;
        }
        let next = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(self.size));
        let _ = self.to_sum.send(mem::replace(&mut self.filling, next)); // whether it failed is told in the place of the sums
        self.under_way += 1;
        Ok(())
    }

    fn receive(&mut self, sums: &mut impl Take) -> Result<(), CommunicatorError> {
        let mut bucket = self.summed.recv().unwrap_or_else(|_| unreachable!("the thread tells why it ends"))?;
        self.under_way -= 1;
        sums.take(&bucket);
        bucket.clear();
        self.spare.push(bucket);
        Ok(())
    }
}

/// Sums one bucket after the other until there are no more, or one fails.
fn sum_all(
    given: &Receiver<Vec<f32>>,
    tell: &Sender<Summed>,
    sum: &(impl Fn(&mut [f32]) -> Result<(), CommunicatorError> + Sync),
) {
    for mut bucket in given {
        let result = sum(&mut bucket);
        let failed = result.is_err();
        if tell.send(result.map(|()| bucket)).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Taken(Vec<f32>);

    impl Take for Taken {
        fn take(&mut self, sums: &[f32]) {
            self.0.extend_from_slice(sums);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn numbers_come_back_in_order_whatever_the_buckets(
            pieces in prop::collection::vec(prop::collection::vec(-9.0_f32..9.0, 0..7), 0..9), size in 1_usize..9,
        ) {
            let lengths = Mutex::new(Vec::new());
            let double = |bucket: &mut [f32]| {
                lengths.lock().unwrap().push(bucket.len());
                bucket.iter_mut().for_each(|number| *number *= 2.0);
                Ok(())
            };
            let taken = Buckets::with(size, double, |mut buckets| {
                let mut taken = Taken::default();
                for piece in &pieces {
                    buckets.push(piece, &mut taken)?;
                }
                buckets.finish(&mut taken)?;
                Ok(taken.0)
            });
            let all = pieces.concat();
            prop_assert_eq!(taken.unwrap(), all.iter().map(|number| 2.0 * number).collect::<Vec<_>>());
            let expected: Vec<usize> = all.chunks(size).map(<[f32]>::len).collect();
            prop_assert_eq!(lengths.into_inner().unwrap(), expected, "each bucket is full but the last one");
        }
    }

    #[test]
    fn a_sum_that_fails_ends_the_exchange() {
        let failure = CommunicatorError::Failed { rank: 1, reason: "the disk is full".into() };
        let seen = Mutex::new(0);
        let sum = |_: &mut [f32]| {
            *seen.lock().unwrap() += 1;
            if *seen.lock().unwrap() == 3 { Err(failure.clone()) } else { Ok(()) }
        };
        let result = Buckets::with(1, sum, |mut buckets| {
            let mut taken = Taken::default();
            buckets.push(&[0.0; 100], &mut taken)?;
            Ok(buckets.finish(&mut taken)?)
        });
        assert_eq!(result.unwrap_err().to_string(), "rank 1 has failed: the disk is full");
        assert_eq!(seen.into_inner().unwrap(), 3);
    }
}
