//! Counts of the n-grams of a sequence, of words or of characters.

use std::collections::HashMap;
use std::hash::Hash;

/// How often each n-gram stands in a sequence.
pub(super) struct NGrams<'a, T>(HashMap<&'a [T], u64>);

impl<'a, T: Eq + Hash> NGrams<'a, T> {
    /// The runs of `n` (at least 1) tokens.
    pub(super) fn new(tokens: &'a [T], n: usize) -> Self {
        let mut counts = HashMap::new();
        for ngram in tokens.windows(n) {
            *counts.entry(ngram).or_insert(0) += 1;
        }
        Self(counts)
    }

    /// How many there are, repetitions counted.
    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// How many are in both, each at most as often as in the one that has fewer.
    pub(super) fn matches(&self, other: &Self) -> u64 {
        self.0.iter().map(|(ngram, &count)| count.min(other.0.get(ngram).copied().unwrap_or(0))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_clipped_to_the_other_side() {
        let (hypothesis, reference) = (["the"; 7], ["the", "cat", "the"]);
        let (one, two) = (NGrams::new(&hypothesis, 1), NGrams::new(&reference, 1));
        assert_eq!((one.total(), two.total()), (7, 3));
        assert_eq!(one.matches(&two), 2);
        assert_eq!(two.matches(&one), 2);
        assert_eq!(NGrams::new(&reference, 2).matches(&NGrams::new(&hypothesis, 2)), 0);
        assert_eq!(NGrams::new(&reference, 4).total(), 0);
    }
}
