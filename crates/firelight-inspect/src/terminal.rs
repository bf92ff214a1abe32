//! A map of each kind as text of at most 80 columns: shades instead of colours, so that it can be piped and kept.

use std::fmt::Write;

use crate::labels::shown;
use crate::maps::{AttentionMaps, Map};

/// Columns of a terminal.
pub(crate) const WIDTH: usize = 80;

/// The longest label beside a row, and letters of a label above a column.
const BESIDE: usize = 12;
pub(crate) const ABOVE: usize = 8;

/// Columns of a weight.
const CELL: usize = 2;

/// From no weight to the whole of it.
pub(crate) const SHADES: [&str; 5] =
    ["  ", "\u{2591}\u{2591}", "\u{2592}\u{2592}", "\u{2593}\u{2593}", "\u{2588}\u{2588}"];

/// The last layer of each kind, in the mean of its heads, as shaded blocks: a row for each token that reads, a column for each that is
/// read. Keys that do not fit beside each other follow below.
///
/// ```
/// use firelight_inspect::{AttentionKind, AttentionMaps, Map, text};
///
/// let tokens = || vec!["a".to_string(), "b".to_string()];
/// let map = Map::new(0, 0, [2, 2], vec![1.0, 0.0, 0.5, 0.5]);
/// let maps = AttentionMaps::new(AttentionKind::SelfAttention, tokens(), tokens(), vec![vec![map]]);
/// let expected = "self-attention, layer 0, head 0\n  a b\na ██\nb ▒▒▒▒\n  light to dark: 0 to 1.000\n";
/// assert_eq!(text(&[maps]), expected);
/// ```
pub fn text(maps: &[AttentionMaps]) -> String {
    maps.iter().filter_map(of_kind).collect::<Vec<_>>().join("\n")
}

/// None of a kind without maps.
fn of_kind(maps: &AttentionMaps) -> Option<String> {
    let (heads, mean) = maps.summary()?;
    let which = match heads {
        [head] => format!("head {}", head.head),
        heads => format!("mean of {} heads", heads.len()),
    };
    let mut found = format!("{}, layer {}, {which}\n", maps.kind.title(), mean.layer);
    let [rows, columns] =
        [&maps.queries, &maps.keys].map(|tokens| tokens.iter().map(|token| shown(token)).collect::<Vec<_>>());
    let rows: Vec<Vec<char>> = rows.iter().map(|label| fitted(label, BESIDE)).collect();
    let columns: Vec<Vec<char>> = columns.iter().map(|label| fitted(label, ABOVE)).collect();
    let beside = rows.iter().map(|label| wide(label)).max().unwrap_or(0);
    let together = (WIDTH - beside - 1) / CELL;
    for (panel, keys) in columns.chunks(together).enumerate() {
        above(&mut found, keys, [beside, CELL]);
        block(&mut found, &rows, (&mean, panel * together, keys.len()), beside);
    }
    // Writing into a string cannot fail.
    let _ = writeln!(found, "  light to dark: 0 to {:.3}", mean.largest());
    Some(found)
}

/// The labels of keys, letter below letter, ending above their columns: `beside` columns of labels of rows, and `cell` for each key.
pub(crate) fn above(found: &mut String, keys: &[Vec<char>], [beside, cell]: [usize; 2]) {
    let height = keys.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let letter = |label: &Vec<char>| match (line + label.len()).checked_sub(height) {
            Some(place) => padded(&label[place..=place], cell),
            None => " ".repeat(cell),
        };
        push_line(found, &format!("{} {}", " ".repeat(beside), keys.iter().map(letter).collect::<String>()));
    }
}

/// The rows of some keys, each behind its label.
fn block(found: &mut String, rows: &[Vec<char>], (map, from, count): (&Map, usize, usize), beside: usize) {
    let largest = map.largest();
    for (row, label) in rows.iter().enumerate() {
        let shades: String = map.row(row)[from..][..count].iter().map(|weight| shade(*weight, largest)).collect();
        push_line(found, &format!("{} {shades}", padded(label, beside)));
    }
}

/// What stands for a weight.
fn shade(weight: f32, largest: f32) -> &'static str {
    let share = if largest > 0.0 { (weight / largest).clamp(0.0, 1.0) } else { 0.0 };
    SHADES[(share * (SHADES.len() - 1) as f32).round() as usize]
}

pub(crate) fn push_line(found: &mut String, line: &str) {
    found.push_str(line.trim_end());
    found.push('\n');
}

/// A label in at most so many columns.
pub(crate) fn fitted(label: &str, columns: usize) -> Vec<char> {
    let mut left = columns;
    let fits = |character: &char| {
        let fits = columns_of(*character) <= left;
        left = left.saturating_sub(columns_of(*character));
        fits
    };
    label.chars().take_while(fits).collect()
}

pub(crate) fn padded(label: &[char], columns: usize) -> String {
    label.iter().copied().chain(std::iter::repeat_n(' ', columns.saturating_sub(wide(label)))).collect()
}

pub(crate) fn wide(label: &[char]) -> usize {
    label.iter().map(|character| columns_of(*character)).sum()
}

/// Columns of a character in a terminal, and rather more than less: from the Hangul letters on it may be two.
pub(crate) fn columns_of(character: char) -> usize {
    let is_narrow = matches!(character, '\0'..='\u{10ff}' | '\u{1e00}'..='\u{22ff}' | '\u{2400}'..='\u{25fc}' | '\u{27e8}' | '\u{27e9}');
    if is_narrow { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::AttentionKind;

    /// A map in which every token reads itself.
    fn diagonal(tokens: &[&str], heads: usize) -> AttentionMaps {
        let count = tokens.len();
        let weights: Vec<f32> = (0..count * count).map(|place| f32::from(place / count == place % count)).collect();
        let maps = (0..heads).map(|head| Map::new(3, head, [count, count], weights.clone())).collect();
        let labels: Vec<String> = tokens.iter().map(|token| token.to_string()).collect();
        AttentionMaps::new(AttentionKind::SelfAttention, labels.clone(), labels, vec![maps])
    }

    #[test]
    fn labels_stand_beside_their_rows_and_end_above_their_columns() {
        let found = text(&[diagonal(&["a", "bc"], 2)]);
        let expected = [
            "self-attention, layer 3, mean of 2 heads",
            "     b",
            "   a c",
            "a  \u{2588}\u{2588}",
            "bc   \u{2588}\u{2588}",
            "  light to dark: 0 to 1.000",
        ];
        assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_line_has_more_than_80_columns_whatever_the_tokens_are() {
        let long = "a token that is much longer than its place";
        let tokens: Vec<&str> = [long, "\u{4e2d}\u{6587}\u{6587}\u{5b57}", "\u{1f642}", "\n", "</s>"].repeat(26);
        let found = text(&[diagonal(&tokens, 1)]);
        for line in found.lines() {
            let columns: usize = line.chars().map(columns_of).sum();
            assert!(columns <= WIDTH, "{columns}: {line}");
        }
        let dark = found.lines().filter(|line| line.contains('\u{2588}')).count();
        assert_eq!(dark, 130, "each token is found in one of the blocks");
        assert!(!found.contains('\u{1b}'));
    }

    #[test]
    fn shades_go_up_to_the_largest_weight() {
        assert_eq!([0.0, 0.1, 0.25, 0.5].map(|weight| shade(weight, 0.5)), ["  ", SHADES[1], SHADES[2], SHADES[4]]);
        assert_eq!(shade(0.0, 0.0), "  ");
    }
}
