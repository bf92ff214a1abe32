//! Rows of letters, to be copied or reversed. The length is chosen first, each as likely as the others, then the letters.

use std::ops::RangeInclusive;

use crate::Pair;
use crate::dice::Dice;

/// Longer sources are no toys.
const MAX_LENGTH: usize = 10_000;

const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

pub(super) fn min_length() -> usize {
    1
}

pub(super) fn max_length() -> usize {
    16
}

pub(super) fn alphabet() -> usize {
    LETTERS.len()
}

pub(super) fn problems(min_length: usize, max_length: usize, alphabet: usize) -> Vec<String> {
    let mut problems = Vec::new();
    if min_length == 0 {
        problems.push("toy.min_length = 0 must be at least 1".into());
    }
    if !(min_length..=MAX_LENGTH).contains(&max_length) {
        problems.push(format!("toy.max_length = {max_length} must be from min_length = {min_length} to {MAX_LENGTH}"));
    }
    if !(1..=LETTERS.len()).contains(&alphabet) {
        problems.push(format!("toy.alphabet = {alphabet} must be from 1 to {}", LETTERS.len()));
    }
    problems
}

pub(super) fn copy(dice: &mut Dice, lengths: RangeInclusive<usize>, alphabet: usize) -> Pair {
    let source = letters(dice, lengths, alphabet);
    Pair { target: source.clone(), source }
}

pub(super) fn reverse(dice: &mut Dice, lengths: RangeInclusive<usize>, alphabet: usize) -> Pair {
    let source = letters(dice, lengths, alphabet);
    Pair { target: source.chars().rev().collect(), source }
}

fn letters(dice: &mut Dice, lengths: RangeInclusive<usize>, alphabet: usize) -> String {
    let length = lengths.start() + dice.below(lengths.end() - lengths.start() + 1);
    (0..length).map(|_| char::from(dice.pick(&LETTERS[..alphabet]))).collect()
}

/// The sum of the powers of `alphabet`, or as much of it as fits.
pub(super) fn sources(lengths: RangeInclusive<usize>, alphabet: usize) -> u128 {
    let power = |length: usize| (alphabet as u128).saturating_pow(length.min(128) as u32);
    // One letter to the power of anything is 1, and two to the power of 128 is more than anyone asks for.
    let (first, last) = (*lengths.start(), *lengths.end());
    match alphabet {
        1 => (last - first + 1) as u128,
        _ => (first..=last.min(first + 128)).fold(0, |sum, length| power(length).saturating_add(sum)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sources_are_counted() {
        assert_eq!([sources(1..=3, 2), sources(2..=2, 26), sources(3..=9, 1)], [14, 676, 7]);
        assert_eq!(sources(1..=10_000, 26), u128::MAX);
    }

    proptest! {
        #[test]
        fn letters_are_copied_and_reversed(seed: u64, min in 1_usize..9, more in 0_usize..9, alphabet in 1_usize..=26) {
            let lengths = min..=min + more;
            let copied = copy(&mut Dice::new(seed), lengths.clone(), alphabet);
            let reversed = reverse(&mut Dice::new(seed), lengths.clone(), alphabet);
            prop_assert_eq!(&copied.source, &copied.target);
            prop_assert_eq!(&copied.source, &reversed.source);
            prop_assert!(reversed.source.bytes().eq(reversed.target.bytes().rev()));
            prop_assert!(lengths.contains(&copied.source.len()));
            prop_assert!(copied.source.bytes().all(|letter| LETTERS[..alphabet].contains(&letter)));
        }
    }
}
