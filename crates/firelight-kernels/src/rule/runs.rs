//! Keys as ranges in order: what a rule shows of a row of scores, without a flag for every pair.

use smallvec::SmallVec;
use std::ops::Range;

/// Keys in ascending order, as ranges that neither overlap nor touch.
///
/// ```
/// use firelight_kernels::Runs;
///
/// let runs: Runs = [0..2, 2..3, 7..9].into_iter().collect();
/// assert_eq!(runs.iter().collect::<Vec<_>>(), [0..3, 7..9]);
/// assert_eq!(runs.count(), 5);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs(SmallVec<[Range<usize>; 4]>);

impl Runs {
    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.0.iter().cloned()
    }

    /// Number of keys.
    pub fn count(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From the first key to the last; `0..0` where there are none.
    pub fn hull(&self) -> Range<usize> {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }

    /// Whether every key of `keys` is among these.
    pub fn covers(&self, keys: &Range<usize>) -> bool {
        keys.is_empty() || self.0.iter().any(|run| run.start <= keys.start && keys.end <= run.end)
    }

    /// Adds a range that begins no earlier than the last one; an empty one changes nothing.
    pub(super) fn push(&mut self, run: Range<usize>) {
        match self.0.last_mut() {
            _ if run.is_empty() => {}
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => self.0.push(run),
        }
    }

    /// The keys that are in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (mut common, mut next) = (Self::default(), 0);
        for run in &self.0 {
            while other.0.get(next).is_some_and(|other| other.end <= run.start) {
                next += 1;
            }
            let reaching = other.0[next..].iter().take_while(|other| other.start < run.end);
            reaching.for_each(|other| common.push(run.start.max(other.start)..run.end.min(other.end)));
        }
        common
    }

    /// The keys that are in one or both.
    pub(crate) fn or(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut union = Self::default();
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.start <= b.start => left.next(),
                (_, Some(_)) => right.next(),
                _ => left.next(),
            };
            match next {
                Some(run) => union.push(run.clone()),
                None => return union,
            }
        }
    }

    /// The same with gaps of at most `gap` keys closed.
    #[cfg(feature = "extension")]
    pub(crate) fn joined(&self, gap: usize) -> Self {
        let mut joined = Self::default();
        for run in &self.0 {
            match joined.0.last_mut() {
                Some(last) if run.start - last.end <= gap => last.end = run.end,
                _ => joined.0.push(run.clone()),
            }
        }
        joined
    }
}

/// Joins ranges that touch or overlap.
///
/// # Panics
/// If a range begins before the one that comes before it.
impl FromIterator<Range<usize>> for Runs {
    fn from_iter<I: IntoIterator<Item = Range<usize>>>(ranges: I) -> Self {
        let (mut runs, mut start) = (Self::default(), 0);
        for range in ranges {
            assert!(range.start >= start, "runs: {range:?} comes after a range that begins at {start}");
            start = range.start;
            runs.push(range);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(keys: &[bool]) -> Runs {
        (0..keys.len()).filter(|&key| keys[key]).map(|key| key..key + 1).collect()
    }

    fn keys(runs: &Runs) -> Vec<usize> {
        runs.iter().flatten().collect()
    }

    #[test]
    #[should_panic(expected = "runs: 1..2 comes after a range that begins at 4")]
    fn ranges_out_of_order_are_refused() {
        let _: Runs = [4..5, 1..2].into_iter().collect();
    }

    #[test]
    fn hull_and_cover_by_hand() {
        let runs: Runs = [2..5, 8..9].into_iter().collect();
        assert_eq!((runs.hull(), Runs::default().hull()), (2..9, 0..0));
        assert_eq!([2..5, 3..4, 4..6, 8..9, 6..6].map(|keys| runs.covers(&keys)), [true, true, false, true, true]);
    }

    proptest! {
        #[test]
        fn sets_of_keys_are_joined_and_intersected(a: [bool; 12], b: [bool; 12]) {
            let (left, right) = (runs(&a), runs(&b));
            let either: Vec<usize> = (0..12).filter(|&key| a[key] || b[key]).collect();
            let both: Vec<usize> = (0..12).filter(|&key| a[key] && b[key]).collect();
            prop_assert_eq!(keys(&left.or(&right)), either);
            prop_assert_eq!(keys(&left.and(&right)), both);
            prop_assert_eq!(left.count(), a.iter().filter(|&&key| key).count());
        }
    }

    #[test]
    #[cfg(feature = "extension")]
    fn short_gaps_are_closed() {
        let runs: Runs = [0..2, 4..5, 9..10].into_iter().collect();
        assert_eq!(runs.joined(2).iter().collect::<Vec<_>>(), [0..5, 9..10]);
    }
}
