//! The order in which a seed visits the items of a dataset: a new permutation every epoch, computed item by item. Being a
//! pure function of seed, epoch and position it needs no memory and no state, so a resumed run continues exactly where it
//! stopped. The trainers' [`StepLoader`](crate::StepLoader) draws from it.
//!
//! The permutation is a Feistel network over the smallest even number of bits that can count the items, walked along its
//! cycle until it lands on an item. Sources: Luby and Rackoff 1988, How to construct pseudorandom permutations from
//! pseudorandom functions; Black and Rogaway 2002, Ciphers with arbitrary finite domains, section 3 (cycle walking).
//! Rounds mix with SplitMix64 (Steele, Lea and Flood 2014); this shuffles, it does not encrypt.

/// More rounds than Luby and Rackoff's four, because small domains mix slowly.
const ROUNDS: u64 = 6;

/// The shuffled order of a dataset, one permutation an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    seed: u64,
}

impl Order {
    /// The order of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// An order of its own for a part of the items.
    pub(crate) fn part(&self, number: u64) -> Self {
        Self { seed: mix(self.seed ^ mix(!number)) }
    }

    /// The item at a position of an endless sequence: all `len` items in one order, then all in another, and so on.
    ///
    /// # Panics
    /// Panics if `len` is 0.
    pub fn item(&self, position: usize, len: usize) -> usize {
        self.item_of_epoch((position / len) as u64, position % len, len)
    }

    /// The item at a position of one epoch. For fixed `epoch` and `len` this is a permutation of `0..len`.
    ///
    /// # Panics
    /// Panics if `position` is not below `len`.
    pub fn item_of_epoch(&self, epoch: u64, position: usize, len: usize) -> usize {
        assert!(position < len, "position {position} of an epoch of {len} items");
        let key = mix(self.seed ^ mix(epoch));
        let half_bits = (usize::BITS - (len - 1).leading_zeros()).div_ceil(2);
        let mut item = position as u64;
        loop {
            item = permute(item, key, half_bits);
            if item < len as u64 {
                return item as usize;
            }
        }
    }
}

/// One pass of the Feistel network: a permutation of the numbers of `2 * half_bits` bits.
fn permute(number: u64, key: u64, half_bits: u32) -> u64 {
    let mask = (1_u64 << half_bits) - 1;
    let (mut left, mut right) = (number >> half_bits, number & mask);
    for round in 0..ROUNDS {
        let mixed = mix(key.wrapping_add(round) ^ mix(right));
        (left, right) = (right, left ^ (mixed & mask));
    }
    left << half_bits | right
}

/// The output function of SplitMix64.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn epoch(seed: u64, epoch: u64, len: usize) -> Vec<usize> {
        (0..len).map(|position| Order::new(seed).item_of_epoch(epoch, position, len)).collect()
    }

    #[test]
    fn mix_is_splitmix64() {
        // The first output of the published generator for the state 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn seeds_and_epochs_give_different_orders_and_one_of_them_always_the_same() {
        assert_eq!(epoch(1, 0, 100), epoch(1, 0, 100));
        assert_ne!(epoch(1, 0, 100), epoch(2, 0, 100));
        assert_ne!(epoch(1, 0, 100), epoch(1, 1, 100));
        assert_eq!(epoch(9, 3, 1), [0]);
    }

    #[test]
    fn the_endless_sequence_goes_from_epoch_to_epoch() {
        let order = Order::new(5);
        let sequence: Vec<usize> = (0..30).map(|position| order.item(position, 10)).collect();
        assert_eq!(sequence, [epoch(5, 0, 10), epoch(5, 1, 10), epoch(5, 2, 10)].concat());
    }

    #[test]
    fn every_item_is_about_as_likely_at_the_first_position() {
        let mut counts = [0; 7];
        (0..7_000).for_each(|seed| counts[Order::new(seed).item(0, 7)] += 1);
        // 1,000 expected, standard deviation 29: six of them on either side.
        assert!(counts.iter().all(|count| (825..1175).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn an_epoch_is_a_permutation(seed: u64, number in 0_u64..1_000, len in 1_usize..600) {
            let mut items = epoch(seed, number, len);
            items.sort_unstable();
            prop_assert_eq!(items, (0..len).collect::<Vec<_>>());
        }
    }
}
