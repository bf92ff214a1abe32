//! A figure as text of at most 80 columns.

use super::{ColourScale, Figure, HeatMap};
use crate::labels::shown_words;
use crate::terminal::{ABOVE, SHADES, WIDTH, above, columns_of, fitted, padded, push_line, wide};

/// Columns of a number.
const NUMBER: usize = 7;

/// The most columns of the names of rows: beside numbers, and beside shades.
const BESIDE_NUMBERS: usize = 30;
const BESIDE_SHADES: usize = 12;

pub(super) fn text(figure: &Figure) -> String {
    let mut remarks = String::new();
    figure.remarks.iter().for_each(|remark| push_words(&mut remarks, &shown_words(remark)));
    let maps = figure.maps.iter().map(of_map);
    maps.chain(Some(remarks).filter(|remarks| !remarks.is_empty())).collect::<Vec<_>>().join("\n")
}

/// A map: those of its columns that do not fit beside each other follow below.
fn of_map(map: &HeatMap) -> String {
    let mut found = String::new();
    push_words(&mut found, &shown_words(&map.title));
    let cell = cell(map);
    let most = if cell == NUMBER { BESIDE_NUMBERS } else { BESIDE_SHADES };
    let rows: Vec<Vec<char>> = map.rows.iter().map(|name| fitted(&shown_words(name), most)).collect();
    let columns: Vec<Vec<char>> = map.columns.iter().map(|name| narrow(&shown_words(name), cell)).collect();
    let beside = rows.iter().map(|name| wide(name)).max().unwrap_or(0);
    let together = ((WIDTH - beside - 1) / cell).max(1);
    for (panel, names) in columns.chunks(together).enumerate() {
        push_names(&mut found, names, [beside, cell]);
        for (row, name) in rows.iter().enumerate() {
            let values = &map.values[row][panel * together..][..names.len()];
            let fields: String = values.iter().map(|value| field(map.scale, *value, cell)).collect();
            push_line(&mut found, &format!("{} {fields}", padded(name, beside)));
        }
    }
    found + &legend(map, cell)
}

/// The name of a column, without characters that are wider than its fields.
fn narrow(name: &str, cell: usize) -> Vec<char> {
    let fits = |character: char| if columns_of(character) > cell { '\u{b7}' } else { character };
    fitted(&name.chars().map(fits).collect::<String>(), ABOVE)
}

/// Columns of a field: a number, a shade of two where all fit beside each other, or a sign.
fn cell(map: &HeatMap) -> usize {
    let fits = map.columns.len() * 2 + BESIDE_SHADES < WIDTH;
    match map.scale {
        _ if map.is_numbered() => NUMBER,
        ColourScale::Steps(_) => 1,
        _ if fits => 2,
        _ => 1,
    }
}

/// The names of columns: above numbers in one line, above shades letter below letter.
fn push_names(found: &mut String, names: &[Vec<char>], [beside, cell]: [usize; 2]) {
    if cell < NUMBER {
        return above(found, names, [beside, cell]);
    }
    let right = |name: &Vec<char>| {
        let name = fitted(&name.iter().collect::<String>(), cell - 1);
        " ".repeat(cell - wide(&name)) + &name.into_iter().collect::<String>()
    };
    push_line(found, &format!("{} {}", " ".repeat(beside), names.iter().map(right).collect::<String>()));
}

/// What stands for a number.
fn field(scale: ColourScale, value: f64, cell: usize) -> String {
    match scale {
        ColourScale::Steps(steps) => sign(value as usize, steps).into(),
        _ if cell == NUMBER => number(value),
        _ => SHADES[shade(scale, value)].chars().take(cell).collect(),
    }
}

/// A number at the right end of its columns.
fn number(value: f64) -> String {
    match value.abs() < 99.5 {
        true => format!("{value:>NUMBER$.2}"),
        false => format!("{value:>NUMBER$.0e}"),
    }
}

/// The place in the shades: from the lowest number of a scale to the highest.
fn shade(scale: ColourScale, value: f64) -> usize {
    let share = match scale {
        ColourScale::Signed(_) => (scale.share(value) + 1.0) / 2.0,
        _ => scale.share(value),
    };
    (share * (SHADES.len() - 1) as f32).round() as usize
}

/// A sign for a step: its number, then letters, then `+`.
fn sign(step: usize, steps: usize) -> char {
    match step {
        0 => '.',
        _ if steps == 1 => '#',
        1..=9 => char::from(b'0' + step as u8),
        10..=35 => char::from(b'a' + (step - 10) as u8),
        _ => '+',
    }
}

/// A line that says what shades and signs mean; none below numbers.
fn legend(map: &HeatMap, cell: usize) -> String {
    let [low, high] = map.scale.ends();
    match map.scale {
        ColourScale::Steps(1) => "  #: seen, .: hidden\n".into(),
        ColourScale::Steps(..=9) => "  number: after so many layers, .: never\n".into(),
        ColourScale::Steps(_) => "  after so many layers: 1 to 9, then a to z for 10 to 35, +: more; .: never\n".into(),
        _ if cell == NUMBER => String::new(),
        _ => format!("  light to dark: {low} to {high}\n"),
    }
}

/// Words in lines of at most 80 columns.
fn push_words(found: &mut String, words: &str) {
    let mut line = String::new();
    for word in words.split(' ') {
        let columns = wide(&line.chars().collect::<Vec<_>>()) + 1 + wide(&word.chars().collect::<Vec<_>>());
        if columns > WIDTH && !line.is_empty() {
            push_line(found, &std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(fitted(word, WIDTH));
    }
    push_line(found, &line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::numbers;
    use crate::figure::tests::three;

    #[test]
    fn few_numbers_are_written() {
        let remark = "Three \u{27e8}202e\u{27e9}numbers.";
        let expected = ["a & b", "          0      1      2", "<r>   -0.50   0.00   1.00", "", remark];
        assert_eq!(text(&three()).lines().collect::<Vec<_>>(), expected);
        assert_eq!([0.126, -99.4, 1234.5].map(number), ["   0.13", " -99.40", "    1e3"]);
    }

    #[test]
    fn many_numbers_are_shades_and_no_line_is_too_long() {
        for columns in [30, 38, 200] {
            let values = vec![(0..columns).map(|column| column as f64 - 5.0).collect::<Vec<_>>(); 3];
            let names = vec!["\u{4e2d}\u{6587}".repeat(9), "a b".into(), "\n".into()];
            let title = "words ".repeat(40);
            let map = HeatMap::new(title.trim_end(), names, numbers(columns), values);
            let found = text(&Figure::new("", vec![map]));
            let widest: Option<usize> = found.lines().map(|line| line.chars().map(columns_of).sum()).max();
            assert!(widest <= Some(WIDTH), "{found}");
            let lowest = -(columns as f64 - 6.0);
            assert!(found.contains(&format!("light to dark: {lowest:.3} to")), "{found}");
        }
    }

    #[test]
    fn wide_characters_stand_above_wide_fields_alone() {
        assert_eq!([1, 2].map(|cell| narrow("a\u{4e2d}", cell)), [vec!['a', '\u{b7}'], vec!['a', '\u{4e2d}']]);
    }

    #[test]
    fn steps_are_signs() {
        assert_eq!([0, 1, 9, 10, 35, 36].map(|step| sign(step, 40)), ['.', '1', '9', 'a', 'z', '+']);
        assert_eq!([sign(0, 1), sign(1, 1)], ['.', '#']);
        let legend_of = |steps: usize| {
            let map = HeatMap::new("", numbers(1), numbers(1), vec![vec![1.0]]);
            legend(&map.with_scale(ColourScale::Steps(steps)), 1)
        };
        assert!(legend_of(9).contains("number: after") && legend_of(10).contains("a to z for 10 to 35, +: more"));
        assert!(legend_of(10).chars().count() <= WIDTH);
    }
}
