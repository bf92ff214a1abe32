//! An explanation as text of at most 80 columns, without colours.

use std::fmt::Write;

use super::{Explanation, Step, Table, TableKind};
use crate::terminal::{WIDTH, columns_of, fitted, padded, push_line, wide};

/// Columns in front of a table, of the longest label beside a row, and of a number.
const INDENT: usize = 2;
const BESIDE: usize = 12;
const CELL: usize = 9;

pub(super) fn text(explanation: &Explanation) -> String {
    let mut found = String::new();
    wrapped(&mut found, &explanation.title, "");
    for (place, step) in explanation.steps.iter().enumerate() {
        push_line(&mut found, "");
        of_step(&mut found, place + 1, step);
    }
    found
}

fn of_step(found: &mut String, number: usize, step: &Step) {
    wrapped(found, &format!("{number}. {}", step.title), "");
    wrapped(found, &step.remark, "   ");
    for table in &step.tables {
        let sizes: Vec<String> = table.shape.iter().map(ToString::to_string).collect();
        push_line(found, &format!("{}{}  [{}]", " ".repeat(INDENT), table.name, sizes.join(", ")));
        of_table(found, table);
    }
}

/// The numbers of a table: of vectors as many as fit, of pairs all, those that do not fit below.
fn of_table(found: &mut String, table: &Table) {
    let labels: Vec<Vec<char>> = table.rows.iter().map(|label| fitted(label, BESIDE)).collect();
    let beside = labels.iter().map(|label| wide(label)).max().unwrap_or(0);
    // Two columns are kept for the dots.
    let together = (WIDTH - INDENT - beside - 2) / CELL;
    let total = table.columns.len();
    let panels = if table.kind == TableKind::Vectors { total.min(1) } else { total.div_ceil(together) };
    for panel in 0..panels {
        let from = panel * together;
        let to = (from + together).min(total);
        let dots = if table.kind == TableKind::Vectors && to < total { " \u{2026}" } else { "" };
        let heads: String = table.columns[from..to].iter().map(|label| right(label)).collect();
        push_line(found, &format!("{}{heads}{dots}", " ".repeat(INDENT + beside)));
        for (label, values) in labels.iter().zip(&table.values) {
            let numbers: String = values[from..to].iter().map(|value| format!("{:>CELL$}", number(*value))).collect();
            push_line(found, &format!("{}{}{numbers}{dots}", " ".repeat(INDENT), padded(label, beside)));
        }
    }
}

/// A label at the right end of its column.
fn right(label: &str) -> String {
    let label = fitted(label, CELL - 1);
    " ".repeat(CELL - wide(&label)) + &label.into_iter().collect::<String>()
}

/// A number in at most eight characters.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value == f64::NEG_INFINITY => "-inf".into(),
        0.0 => "0".into(), // Also where it is -0.
        size if value.fract() == 0.0 && size < 1e6 => format!("{value:.0}"),
        size if !(5e-4..999.5).contains(&size) => format!("{value:.1e}"),
        _ => format!("{value:.3}"),
    }
}

/// Words in lines.
fn wrapped(found: &mut String, text: &str, indent: &str) {
    let columns = |word: &str| word.chars().map(columns_of).sum::<usize>();
    let (mut line, mut used) = (indent.to_string(), indent.len());
    for word in text.split_whitespace() {
        // A word that is longer than a line is cut.
        let word: String = fitted(word, WIDTH - indent.len()).into_iter().collect();
        if used > indent.len() && used + 1 + columns(&word) > WIDTH {
            push_line(found, &line);
            (line, used) = (indent.to_string(), indent.len());
        }
        let space = if used > indent.len() { " " } else { "" };
        // Writing into a string cannot fail.
        let _ = write!(line, "{space}{word}");
        used += space.len() + columns(&word);
    }
    push_line(found, &line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|place| format!("a long token {place}")).collect()
    }

    #[test]
    fn numbers_have_at_most_eight_characters() {
        let cases = [
            (f64::NEG_INFINITY, "-inf"),
            (0.0, "0"),
            (50_256.0, "50256"),
            (0.123_456, "0.123"),
            (-2.8e-10, "-2.8e-10"),
            (12_345.6, "1.2e4"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn vectors_are_cut_and_pairs_go_on_below_within_80_columns() {
        let rows = names(3);
        let vectors = Table::vectors("Q", &rows, vec![vec![-1234.567; 64]; 3]);
        let wide = names(20);
        let pairs = Table::pairs("weights", [&rows, &wide], vec![vec![0.125; 20]; 3]);
        let steps = vec![Step::new("x ".repeat(60), "word ".repeat(40), vec![vectors, pairs])];
        let found = text(&Explanation { title: "a".repeat(200), steps });
        assert!(found.lines().all(|line| line.chars().map(columns_of).sum::<usize>() <= WIDTH), "{found}");
        assert_eq!((found.matches("0.125").count(), found.matches('\u{2026}').count()), (60, 4));
        assert!(found.contains("  Q  [3, 64]\n") && !found.contains('\u{1b}'));
    }

    #[test]
    fn a_table_of_two_tokens_is_set_as_by_hand() {
        let rows = ["a".to_string(), "bc".to_string()];
        let table = Table::pairs("weights", [&rows, &rows], vec![vec![1.0, 0.0], vec![0.25, 0.75]]);
        let mut found = String::new();
        of_table(&mut found, &table);
        assert_eq!(found, "            a       bc\n  a         1        0\n  bc    0.250    0.750\n");
    }
}
