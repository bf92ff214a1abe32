//! The visible keys of a query as sorted ranges, without a flag for every pair.

use smallvec::SmallVec;
use std::ops::Range;

/// Keys in ascending order, as ranges that neither overlap nor touch.
///
/// ```
/// use firelight_kernels::KeyRanges;
///
/// let ranges: KeyRanges = [0..2, 2..3, 7..9].into_iter().collect();
/// assert_eq!(ranges.iter().collect::<Vec<_>>(), [0..3, 7..9]);
/// assert_eq!(ranges.count(), 5);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRanges(SmallVec<[Range<usize>; 4]>);

impl KeyRanges {
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
        keys.is_empty() || self.0.iter().any(|range| range.start <= keys.start && keys.end <= range.end)
    }

    /// Adds a range that begins no earlier than the last one; an empty one changes nothing.
    pub(super) fn push(&mut self, range: Range<usize>) {
        match self.0.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.0.push(range),
        }
    }

    /// The keys that are in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (mut common, mut next) = (Self::default(), 0);
        for range in &self.0 {
            while other.0.get(next).is_some_and(|other| other.end <= range.start) {
                next += 1;
            }
            let reaching = other.0[next..].iter().take_while(|other| other.start < range.end);
            reaching.for_each(|other| common.push(range.start.max(other.start)..range.end.min(other.end)));
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
                Some(range) => union.push(range.clone()),
                None => return union,
            }
        }
    }

    /// The same with gaps of at most `gap` keys closed.
    #[cfg(feature = "extension")]
    pub(crate) fn joined(&self, gap: usize) -> Self {
        let mut joined = Self::default();
        for range in &self.0 {
            match joined.0.last_mut() {
                Some(last) if range.start - last.end <= gap => last.end = range.end,
                _ => joined.0.push(range.clone()),
            }
        }
        joined
    }
}

/// Joins ranges that touch or overlap.
///
/// # Panics
/// If a range begins before the one that comes before it.
impl FromIterator<Range<usize>> for KeyRanges {
    fn from_iter<I: IntoIterator<Item = Range<usize>>>(ranges: I) -> Self {
        let (mut joined, mut start) = (Self::default(), 0);
        for range in ranges {
            assert!(range.start >= start, "key ranges: {range:?} comes after a range that begins at {start}");
            start = range.start;
            joined.push(range);
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(keys: &[bool]) -> KeyRanges {
        (0..keys.len()).filter(|&key| keys[key]).map(|key| key..key + 1).collect()
    }

    fn keys(ranges: &KeyRanges) -> Vec<usize> {
        ranges.iter().flatten().collect()
    }

    #[test]
    #[should_panic(expected = "key ranges: 1..2 comes after a range that begins at 4")]
    fn ranges_out_of_order_are_refused() {
        let _: KeyRanges = [4..5, 1..2].into_iter().collect();
    }

    #[test]
    fn hull_and_cover_by_hand() {
        let ranges: KeyRanges = [2..5, 8..9].into_iter().collect();
        assert_eq!((ranges.hull(), KeyRanges::default().hull()), (2..9, 0..0));
        assert_eq!([2..5, 3..4, 4..6, 8..9, 6..6].map(|keys| ranges.covers(&keys)), [true, true, false, true, true]);
    }

    proptest! {
        #[test]
        fn sets_of_keys_are_joined_and_intersected(a: [bool; 12], b: [bool; 12]) {
            let (left, right) = (ranges(&a), ranges(&b));
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
        let ranges: KeyRanges = [0..2, 4..5, 9..10].into_iter().collect();
        assert_eq!(ranges.joined(2).iter().collect::<Vec<_>>(), [0..5, 9..10]);
    }
}
