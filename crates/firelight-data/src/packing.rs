//! Which documents share a row, so that few rows have gaps: best-fit-decreasing bin packing, from the longest document to
//! the shortest, each into the fullest row that has room for it. [`PackedDataset`](crate::PackedDataset) packs with it.
//!
//! Source: Ding et al. 2024, Fewer truncations improve language modeling, Best-fit Packing (<https://arxiv.org/abs/2404.10830>);
//! in the limit at most 11/9 of the fewest rows (Johnson et al. 1974).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::Order;

/// Packs items of these lengths into rows of at most `row_len`: the items of each row. Among items of one length the seed
/// decides.
///
/// # Panics
/// Panics if an item is longer than a row.
pub fn pack(lengths: &[usize], row_len: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    let mut open: BTreeMap<usize, Vec<usize>> = BTreeMap::new(); // the rows that have this much room
    for item in longest_first(lengths, seed) {
        let length = lengths[item];
        assert!(length <= row_len, "item {item} of {length} tokens is longer than a row of {row_len}");
        let (room, row) = take_fullest(&mut open, length).unwrap_or((row_len, rows.len()));
        if row == rows.len() {
            rows.push(Vec::new());
        }
        rows[row].push(item);
        open.entry(room - length).or_default().push(row);
    }
    rows
}

fn longest_first(lengths: &[usize], seed: u64) -> Vec<usize> {
    let order = Order::new(seed);
    let mut items: Vec<usize> = (0..lengths.len()).map(|position| order.item(position, lengths.len())).collect();
    items.sort_by_key(|&item| Reverse(lengths[item]));
    items
}

/// Takes the row with the least room for `length` tokens: its room and its number.
fn take_fullest(open: &mut BTreeMap<usize, Vec<usize>>, length: usize) -> Option<(usize, usize)> {
    let (&room, rows) = open.range_mut(length..).next()?;
    let row = rows.pop()?;
    if rows.is_empty() {
        open.remove(&room);
    }
    Some((room, row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_come_first_and_each_into_the_fullest_row() {
        // 7, 6 and 6 open a row each; 4 fills one with a 6, 3 that with the 7, and 2 joins the other 6.
        let rows = pack(&[2, 6, 3, 7, 6, 4], 10, 0);
        let mut lengths: Vec<Vec<usize>> =
            rows.iter().map(|row| row.iter().map(|&item| [2, 6, 3, 7, 6, 4][item]).collect()).collect();
        lengths.sort();
        assert_eq!(lengths, [vec![6, 2], vec![6, 4], vec![7, 3]]);
    }

    #[test]
    fn the_seed_mixes_items_of_one_length() {
        let lengths = [5; 40];
        assert_eq!(pack(&lengths, 10, 1), pack(&lengths, 10, 1));
        assert_ne!(pack(&lengths, 10, 1), pack(&lengths, 10, 2));
        assert!(pack(&[], 10, 1).is_empty());
    }

    #[test]
    #[should_panic(expected = "item 1 of 4 tokens is longer than a row of 3")]
    fn an_item_longer_than_a_row_panics() {
        pack(&[1, 4], 3, 0);
    }

    proptest! {
        #[test]
        fn every_item_lies_in_one_row_and_rows_are_full(
            lengths in prop::collection::vec(1_usize..=20, 0..120), seed: u64,
        ) {
            let rows = pack(&lengths, 20, seed);
            let length = |row: &Vec<usize>| row.iter().map(|&item| lengths[item]).sum::<usize>();
            prop_assert!(rows.iter().all(|row| length(row) <= 20));
            // No two rows would fit into one.
            let mut filled: Vec<usize> = rows.iter().map(length).collect();
            filled.sort_unstable();
            prop_assert!(filled.len() < 2 || filled[0] + filled[1] > 20);
            let mut items = rows.concat();
            items.sort_unstable();
            prop_assert_eq!(items, (0..lengths.len()).collect::<Vec<_>>());
        }
    }
}
