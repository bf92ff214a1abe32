//! What was read, in a line.

use std::fmt;

use super::Pair;

/// Counts of a [`ParallelText`](super::ParallelText). Empty is what has nothing but white space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairReport {
    /// All pairs.
    pub pairs: usize,
    /// Pairs whose source is empty.
    pub empty_sources: usize,
    /// Pairs whose target is empty.
    pub empty_targets: usize,
    /// Number of the first pair with an empty side, from 1.
    pub first_empty: Option<usize>,
}

impl PairReport {
    pub(super) fn of(pairs: &[Pair]) -> Self {
        let is_empty = |text: &str| text.trim().is_empty();
        let either = pairs.iter().position(|pair| is_empty(&pair.source) || is_empty(&pair.target));
        Self {
            pairs: pairs.len(),
            empty_sources: pairs.iter().filter(|pair| is_empty(&pair.source)).count(),
            empty_targets: pairs.iter().filter(|pair| is_empty(&pair.target)).count(),
            first_empty: either.map(|index| index + 1),
        }
    }
}

impl fmt::Display for PairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pairs", self.pairs)?;
        match self.first_empty {
            None => Ok(()),
            Some(first) => {
                let (sources, targets) = (self.empty_sources, self.empty_targets);
                write!(
                    f,
                    ", of them {sources} with an empty source and {targets} with an empty target (the first: {first})"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_an_empty_side_are_counted() {
        let pairs = [("a", "b"), ("", "b"), (" \t", ""), ("a", "\u{a0}")].map(|(left, right)| Pair::new(left, right));
        let report = PairReport::of(&pairs);
        assert_eq!(report, PairReport { pairs: 4, empty_sources: 2, empty_targets: 2, first_empty: Some(2) });
        assert_eq!(
            report.to_string(),
            "4 pairs, of them 2 with an empty source and 2 with an empty target (the first: 2)"
        );
        assert_eq!(PairReport::of(&pairs[..1]).to_string(), "1 pairs");
    }
}
