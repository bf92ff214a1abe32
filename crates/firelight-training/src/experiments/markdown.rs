//! Tables in Markdown, as they are or folded to the width of a terminal.

/// What a cell that is cut ends with.
const CUT: char = '…';

/// Characters of a row of two cells beside the cells: `| 1 | a |`.
const AROUND_TWO: usize = 7;

/// Those that each further cell adds: ` a |` has three.
const AROUND: usize = 3;

/// Lines of cells: the header, the rule, and the rows.
pub(super) fn table(lines: &[Vec<String>]) -> String {
    lines.iter().map(|cells| format!("| {} |\n", cells.join(" | "))).collect()
}

/// The same in lines of at most `width` characters. Columns that do not fit beside each other follow in tables below, of which each has the numbers
/// of the rows; a cell that is longer by itself is cut.
pub(super) fn folded(lines: &[Vec<String>], width: usize) -> String {
    let whole = table(lines);
    if whole.lines().all(|line| line.chars().count() <= width) {
        return whole;
    }
    let numbers = row_numbers(lines.len());
    let room = width.saturating_sub(longest(&numbers) + AROUND_TWO).max(1);
    let mut parts: Vec<(usize, Vec<Vec<String>>)> = Vec::new();
    for column in (0..lines[0].len()).map(|index| column(lines, index, room)) {
        let wide = longest(&column) + AROUND;
        match parts.last_mut() {
            Some((taken, columns)) if *taken + wide <= width => {
                *taken += wide;
                columns.push(column);
            }
            _ => parts.push((longest(&numbers) + AROUND + 1 + wide, vec![numbers.clone(), column])),
        }
    }
    parts.iter().map(|(_, columns)| table(&turned(columns))).collect::<Vec<_>>().join("\n")
}

/// What stands in front of the rows: the header, the rule and numbers from 1.
fn row_numbers(lines: usize) -> Vec<String> {
    let rows = (1..lines.saturating_sub(1)).map(|row| row.to_string());
    ["#", "---:"].map(String::from).into_iter().chain(rows).collect()
}

/// The cells of a column, cut to so many characters.
fn column(lines: &[Vec<String>], index: usize, room: usize) -> Vec<String> {
    let cut = |cell: &String| match cell.chars().count() <= room {
        true => cell.clone(),
        false => cell.chars().take(room - 1).chain([CUT]).collect(),
    };
    lines.iter().map(|cells| cut(&cells[index])).collect()
}

fn longest(cells: &[String]) -> usize {
    cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// Columns as rows.
fn turned(columns: &[Vec<String>]) -> Vec<Vec<String>> {
    (0..columns[0].len()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(cells: &[&[&str]]) -> Vec<Vec<String>> {
        cells.iter().map(|cells| cells.iter().map(ToString::to_string).collect()).collect()
    }

    #[test]
    fn a_table_that_fits_is_whole() {
        let table = lines(&[&["a", "b"], &["---", "---:"], &["1", "2"]]);
        assert_eq!(folded(&table, 14), "| a | b |\n| --- | ---: |\n| 1 | 2 |\n");
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_with_the_numbers_of_the_rows() {
        let rows: [&[&str]; 4] =
            [&["name", "long", "third_column"], &["---", "---:", "---:"], &["x", "12345", "3"], &["y", "6", "7"]];
        let table = lines(&rows);
        // The first two columns take `| ---: | name | 12345 |`, and the last one `| ---: | third_column |`: 23 characters each.
        let expected = "| # | name | long |\n| ---: | --- | ---: |\n| 1 | x | 12345 |\n| 2 | y | 6 |\n\n\
                        | # | third_column |\n| ---: | ---: |\n| 1 | 3 |\n| 2 | 7 |\n";
        assert_eq!(folded(&table, 23), expected);
        let narrow = folded(&table, 22);
        assert_eq!(narrow.matches("| # |").count(), 3, "{narrow}");
        assert!(narrow.contains("| # | long |\n") && narrow.contains("| third_colu… |\n"), "{narrow}");
    }

    #[test]
    fn a_cell_that_is_longer_than_a_line_is_cut() {
        let table = lines(&[&["a_name_without_end"], &["---"], &["[1, 2, 3, 4, 5, 6]"]]);
        let found = folded(&table, 16);
        assert_eq!(found, "| # | a_na… |\n| ---: | --- |\n| 1 | [1, … |\n");
        assert!(folded(&table, 1).contains('…'), "there is no narrower terminal than a character");
    }
}
