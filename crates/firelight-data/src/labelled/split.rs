//! Cuts off a validation split with as large a share of each class as the whole has.

use std::cmp::Reverse;

use crate::dice::Dice;

/// The items to train on and those to validate on, in ascending order: `validation` items, at most all, drawn by the seed.
///
/// Each class gives its share, rounded so that the sum is right: by largest remainder, where a class of which nothing would be
/// left comes last. So no class is off by more than an item.
/// The split is a pure function of its arguments.
pub fn stratified_split(labels: &[usize], validation: usize, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let mut classes = vec![Vec::new(); labels.iter().max().map_or(0, |last| last + 1)];
    labels.iter().enumerate().for_each(|(item, &label)| classes[label].push(item));
    let sizes: Vec<usize> = classes.iter().map(Vec::len).collect();
    let shares = shares(&sizes, validation.min(labels.len()));
    let (mut training, mut validation) = (Vec::new(), Vec::new());
    for (class, (mut items, share)) in classes.into_iter().zip(shares).enumerate() {
        Dice::of(&[seed, class as u64]).shuffle(&mut items);
        training.extend_from_slice(&items[share..]);
        validation.extend_from_slice(&items[..share]);
    }
    training.sort_unstable();
    validation.sort_unstable();
    (training, validation)
}

/// How many items each class gives: the whole part of its share, and one more for those with the largest remainders; a class
/// that would have nothing left comes last.
fn shares(sizes: &[usize], wanted: usize) -> Vec<usize> {
    let total = sizes.iter().sum::<usize>().max(1) as u128;
    let exact = |size: usize| size as u128 * wanted as u128;
    let mut shares: Vec<usize> = sizes.iter().map(|&size| (exact(size) / total) as usize).collect();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let is_emptied = |class: usize| shares[class] + 1 >= sizes[class];
    order.sort_by_key(|&class| (is_emptied(class), Reverse(exact(sizes[class]) % total)));
    let missing = wanted - shares.iter().sum::<usize>();
    order.into_iter().take(missing).for_each(|class| shares[class] += 1);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_are_rounded_by_largest_remainder() {
        // Exactly 3.5, 1.05 and 0.45.
        assert_eq!(shares(&[70, 21, 9], 5), [4, 1, 0]);
        assert_eq!(shares(&[1, 1, 1], 1), [1, 0, 0]);
        // Exactly 0.5 and 4.5: the single item of the first class stays.
        assert_eq!(shares(&[1, 9], 5), [0, 5]);
        assert_eq!(shares(&[0, 4], 3), [0, 3]);
        assert_eq!(shares(&[], 0), [0; 0]);
    }

    #[test]
    fn seeds_give_different_splits_and_one_of_them_always_the_same() {
        let labels: Vec<usize> = (0..100).map(|item| item % 3).collect();
        assert_eq!(stratified_split(&labels, 10, 1), stratified_split(&labels, 10, 1));
        assert_ne!(stratified_split(&labels, 10, 1), stratified_split(&labels, 10, 2));
        assert_eq!(stratified_split(&[0, 1], 9, 0), (vec![], vec![0, 1]));
    }

    proptest! {
        #[test]
        fn every_item_is_in_one_part_and_every_class_gives_its_share(
            labels in prop::collection::vec(0_usize..5, 1..200), fraction in 0.0..1.0_f64, seed: u64,
        ) {
            let wanted = (labels.len() as f64 * fraction) as usize;
            let (training, validation) = stratified_split(&labels, wanted, seed);
            prop_assert_eq!(validation.len(), wanted);
            let mut all = [training, validation.clone()].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len()).collect::<Vec<_>>());
            for class in 0..5 {
                let size = labels.iter().filter(|&&label| label == class).count() as f64;
                let found = validation.iter().filter(|&&item| labels[item] == class).count() as f64;
                prop_assert!((found - size * wanted as f64 / labels.len() as f64).abs() <= 1.0);
            }
        }
    }
}
