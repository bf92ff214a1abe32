//! The source of chance of everything that is generated here. Every choice takes numbers of a ChaCha8 stream, by arithmetic
//! that stands here, so that no release of another crate can change what a seed gives.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of choices.
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(&[seed])
    }

    /// The stream of up to four numbers. Those of different numbers have nothing in common.
    pub(crate) fn of(numbers: &[u64]) -> Self {
        let mut key = [0; 32];
        key.chunks_exact_mut(8).zip(numbers).for_each(|(part, number)| part.copy_from_slice(&number.to_le_bytes()));
        Self(ChaCha8Rng::from_seed(key))
    }

    /// One of the choices, each about as likely as the others.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = (u64::from(self.0.next_u32()) * choices.len() as u64) >> 32;
        choices[index as usize]
    }

    /// One of the choices that `fits`; there must be one.
    pub(crate) fn pick_where<T: Copy>(&mut self, choices: &[T], fits: impl Fn(T) -> bool) -> T {
        loop {
            let choice = self.pick(choices);
            if fits(choice) {
                return choice;
            }
        }
    }

    /// A number below `end`, each about as likely as the others.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.0.next_u64()) * end as u128) >> 64) as usize
    }

    /// A number of at least 0 and below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Brings items into an order, each order about as likely as the others (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).rev().for_each(|last| items.swap(last, self.below(last + 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_list_is_about_as_likely_as_another() {
        let mut dice = Dice::new(0);
        let mut counts = [[0; 5]; 2];
        (0..5_000).for_each(|_| counts[0][dice.pick(&[0, 1, 2, 3, 4])] += 1);
        (0..5_000).for_each(|_| counts[1][dice.below(5)] += 1);
        // 1,000 expected, standard deviation 28.
        assert!(counts.as_flattened().iter().all(|count| (830..1_170).contains(count)), "{counts:?}");
    }

    #[test]
    fn fractions_fill_their_range() {
        let mut dice = Dice::of(&[1, 2, 3, 4]);
        let fractions: Vec<f64> = (0..10_000).map(|_| dice.fraction()).collect();
        // Mean 0.5, standard deviation of the mean 0.0029.
        assert!((fractions.iter().sum::<f64>() / 10_000.0 - 0.5).abs() < 0.02);
        assert!(fractions.iter().all(|fraction| (0.0..1.0).contains(fraction)));
    }

    #[test]
    fn every_order_is_about_as_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..6_000 {
            let mut items = [0, 1, 2];
            Dice::of(&[seed, 1]).shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        // 1,000 expected, standard deviation 29.
        assert!(counts.len() == 6 && counts.values().all(|count| (830..1_170).contains(count)), "{counts:?}");
    }
}
