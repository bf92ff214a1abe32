//! Which pairs are trained on: those whose sides are neither empty nor too long, nor so different in length that they can
//! hardly mean the same. For training alone: a model is judged on every pair.
//!
//! Source: `clean-corpus-n.perl` of Moses (Koehn et al. 2007), whose ratio this is.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::EncodedPair;
use firelight_storage::InputError;

use crate::DataError;

fn min_length() -> usize {
    1
}

/// The lengths that a pair may have, in tokens without special ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthFilter {
    /// Tokens of a source at most. Default: any number.
    #[serde(default)]
    pub max_source: Option<usize>,
    /// Tokens of a target at most. Default: any number.
    #[serde(default)]
    pub max_target: Option<usize>,
    /// How many times as long as the shorter side the longer may be, such as 9. Default: any number of times.
    #[serde(default)]
    pub max_ratio: Option<f64>,
    /// Tokens of each side at least. Default: 1.
    #[serde(default = "min_length")]
    pub min_length: usize,
}

impl Default for LengthFilter {
    /// Drops pairs with an empty side alone.
    fn default() -> Self {
        Self { max_source: None, max_target: None, max_ratio: None, min_length: min_length() }
    }
}

/// Why a pair is dropped; the first reason in this order counts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DropReason {
    /// A side has fewer tokens than this.
    Below(usize),
    /// The source has more tokens than this.
    SourceAbove(usize),
    /// The target has more tokens than this.
    TargetAbove(usize),
    /// The longer side is more than this many times as long as the shorter.
    RatioAbove(f64),
}

impl LengthFilter {
    /// # Errors
    /// Lists every number that is out of its range.
    pub fn validate(&self) -> Result<(), DataError> {
        let mut problems = Vec::new();
        for (key, max) in [("max_source", self.max_source), ("max_target", self.max_target)] {
            if let Some(max) = max.filter(|max| *max < self.min_length.max(1)) {
                problems.push(format!("filter.{key} = {max} must be at least 1 and min_length = {}", self.min_length));
            }
        }
        if let Some(ratio) = self.max_ratio.filter(|ratio| !(1.0..f64::INFINITY).contains(ratio)) {
            problems.push(format!("filter.max_ratio = {ratio} must be a number of at least 1"));
        }
        Ok(InputError::of_all(&problems)?)
    }

    /// Why a pair is dropped, if it is.
    pub fn reason(&self, pair: &EncodedPair) -> Option<DropReason> {
        let (source, target) = (pair.source.len(), pair.target.len());
        let (shorter, longer) = (source.min(target), source.max(target));
        let above = |length: usize, max: Option<usize>| max.filter(|max| length > *max);
        let ratio = self.max_ratio.filter(|ratio| longer as f64 > ratio * shorter as f64);
        (shorter < self.min_length)
            .then_some(DropReason::Below(self.min_length))
            .or(above(source, self.max_source).map(DropReason::SourceAbove))
            .or(above(target, self.max_target).map(DropReason::TargetAbove))
            .or(ratio.map(DropReason::RatioAbove))
    }

    /// The pairs that stay, in their order, and what was dropped.
    pub fn apply(&self, pairs: Vec<EncodedPair>) -> (Vec<EncodedPair>, Dropped) {
        let mut dropped = Dropped { pairs: pairs.len(), groups: Vec::new() };
        let kept = pairs.into_iter().enumerate().filter_map(|(index, pair)| match self.reason(&pair) {
            Some(reason) => {
                dropped.note(reason, index + 1);
                None
            }
            None => Some(pair),
        });
        (kept.collect(), dropped)
    }
}

/// What a [`LengthFilter`] dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dropped {
    /// All pairs, the dropped ones too.
    pub pairs: usize,
    groups: Vec<Group>,
}

/// The pairs dropped for one reason.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Group {
    reason: DropReason,
    count: usize,
    first: usize,
}

impl Dropped {
    fn note(&mut self, reason: DropReason, number: usize) {
        match self.groups.iter_mut().find(|group| group.reason == reason) {
            Some(group) => group.count += 1,
            None => self.groups.push(Group { reason, count: 1, first: number }),
        }
    }

    /// Number of pairs that were dropped.
    pub fn count(&self) -> usize {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// The reasons, in the order in which they first occurred: each with its number of pairs, and the number of the first
    /// of them from 1, which is its line in a file without a header.
    pub fn reasons(&self) -> impl Iterator<Item = (DropReason, usize, usize)> {
        self.groups.iter().map(|group| (group.reason, group.count, group.first))
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dropped {} of {} pairs", self.count(), self.pairs)?;
        for (number, (reason, count, first)) in self.reasons().enumerate() {
            let separator = if number == 0 { ": " } else { ", " };
            write!(f, "{separator}{count} {reason} (the first: {first})")?;
        }
        Ok(())
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(1) => f.write_str("with an empty side"),
            Self::Below(min) => write!(f, "with a side below {min} tokens"),
            Self::SourceAbove(max) => write!(f, "with a source above {max} tokens"),
            Self::TargetAbove(max) => write!(f, "with a target above {max} tokens"),
            Self::RatioAbove(ratio) => write!(f, "with one side above {ratio} times the other"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(source: usize, target: usize) -> EncodedPair {
        EncodedPair { source: vec![1; source], target: vec![2; target] }
    }

    #[test]
    fn what_is_dropped_is_counted_by_reason() {
        let filter = LengthFilter { max_source: Some(6), max_target: Some(8), max_ratio: Some(2.0), min_length: 1 };
        let lengths = [(3, 6), (7, 8), (3, 0), (6, 9), (3, 7), (9, 9), (0, 0), (2, 4)];
        let (kept, dropped) = filter.apply(lengths.map(|(source, target)| pair(source, target)).to_vec());
        assert_eq!(kept, [pair(3, 6), pair(2, 4)]);
        assert_eq!(
            dropped.to_string(),
            "dropped 6 of 8 pairs: 2 with a source above 6 tokens (the first: 2), 2 with an empty side (the first: 3), \
             1 with a target above 8 tokens (the first: 4), 1 with one side above 2 times the other (the first: 5)"
        );
    }

    #[test]
    fn the_default_drops_empty_sides_alone() {
        let filter: LengthFilter = serde_json::from_str("{}").unwrap();
        assert_eq!(filter, LengthFilter::default());
        let (kept, dropped) = filter.apply(vec![pair(1, 900), pair(1, 0)]);
        assert_eq!((kept.len(), dropped.count()), (1, 1));
        assert_eq!(filter.apply(vec![pair(1, 1)]).1.to_string(), "dropped 0 of 1 pairs");
    }

    #[test]
    fn numbers_out_of_range_are_all_listed() {
        let filter = LengthFilter { max_source: Some(2), max_target: Some(0), max_ratio: Some(0.5), min_length: 3 };
        assert_eq!(
            filter.validate().unwrap_err().to_string(),
            "filter.max_source = 2 must be at least 1 and min_length = 3; filter.max_target = 0 must be at least 1 and \
             min_length = 3; filter.max_ratio = 0.5 must be a number of at least 1"
        );
        assert!(LengthFilter { max_ratio: Some(f64::NAN), ..LengthFilter::default() }.validate().is_err());
        assert!(LengthFilter { max_source: Some(1), ..LengthFilter::default() }.validate().is_ok());
    }

    proptest! {
        #[test]
        fn every_pair_is_kept_or_counted(
            lengths in prop::collection::vec((0_usize..12, 0_usize..12), 0..40), max in 1_usize..12, ratio in 1.0_f64..4.0,
        ) {
            let filter = LengthFilter { max_source: Some(max), max_target: None, max_ratio: Some(ratio), min_length: 1 };
            let (kept, dropped) = filter.apply(lengths.iter().map(|&(left, right)| pair(left, right)).collect());
            prop_assert_eq!(kept.len() + dropped.count(), lengths.len());
            let fits = |&&(left, right): &&(usize, usize)| {
                let (left_f, right_f) = (left as f64, right as f64);
                left.min(right) > 0 && left <= max && left_f <= ratio * right_f && right_f <= ratio * left_f
            };
            prop_assert_eq!(kept.len(), lengths.iter().filter(fits).count());
        }
    }
}
