//! Sums of two numbers. Each has its number of digits chosen first, so that small ones are not rare.

use crate::Pair;
use crate::dice::Dice;

pub(super) fn digits() -> usize {
    3
}

pub(super) fn problems(digits: usize) -> Vec<String> {
    match digits {
        1..=18 => vec![],
        _ => vec![format!("toy.digits = {digits} must be from 1 to 18")],
    }
}

pub(super) fn pair(dice: &mut Dice, digits: usize, reversed: bool) -> Pair {
    let (left, right) = (number(dice, digits), number(dice, digits));
    let sum = (left + right).to_string();
    let sum = if reversed { sum.chars().rev().collect() } else { sum };
    Pair::new(format!("{left}+{right}"), sum)
}

/// A number below the power of ten that its digits give.
fn number(dice: &mut Dice, digits: usize) -> u64 {
    let digits = 1 + dice.below(digits) as u32;
    dice.below(10_usize.pow(digits)) as u64
}

pub(super) fn sources(digits: usize) -> u128 {
    100_u128.pow(digits as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_target_is_the_sum(seed: u64, digits in 1_usize..=18, reversed: bool) {
            let pair = pair(&mut Dice::new(seed), digits, reversed);
            let (left, right) = pair.source.split_once('+').unwrap();
            prop_assert!(left.len() <= digits && right.len() <= digits);
            let sum = left.parse::<u64>().unwrap() + right.parse::<u64>().unwrap();
            let expected = if reversed { sum.to_string().chars().rev().collect() } else { sum.to_string() };
            prop_assert_eq!(pair.target, expected);
        }
    }
}
