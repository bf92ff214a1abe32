//! A figure as SVG.

use std::fmt::Write;

use firelight_data::{Image, ImageShape};
use firelight_storage::palette::{Theme, hex};

use super::{ColourScale, Figure, HeatMap};
use crate::labels::shown_words;
use crate::scale::{class, signed_colour, step, step_colour};
use crate::svg::{self, Drawing, images, longest, text};

/// The most fields that are drawn one by one; more are pixels of an image.
pub(super) const FIELDS: usize = 4096;

/// Pixels of a field with its number: width and height.
const NUMBER: [usize; 2] = [52, 26];

/// Pixels of other fields, and of all of them together.
const FIELD: usize = 16;
const WHOLE: usize = 1024;

/// Pixels around a map, of a line of text, and of a letter, about.
const GAP: usize = 8;
const LINE: usize = 20;
const LETTER: usize = 8;

/// The longest names of rows and of columns, in characters.
const BESIDE: usize = 48;
const ABOVE: usize = 16;

pub(super) fn drawing(figure: &Figure) -> Drawing {
    let (mut body, mut top, mut width) = (String::new(), 0, 0);
    for map in &figure.maps {
        let [right, bottom] = place(&mut body, map, top);
        (top, width) = (bottom + GAP, width.max(right));
    }
    for remark in &figure.remarks {
        top += LINE;
        width = width.max(2 * GAP + LETTER * remark.chars().count());
        text(&mut body, &format!("x=\"{GAP}\" y=\"{}\"", top - 4), &shown_words(remark));
    }
    Drawing { size: [width, top + GAP], body }
}

/// A map with its title, names and legend, from `top` on; returns its right and lower end.
fn place(body: &mut String, map: &HeatMap, top: usize) -> [usize; 2] {
    let [rows, columns] = [(&map.rows, BESIDE), (&map.columns, ABOVE)].map(|(names, most)| labels(names, most));
    let [n_rows, n_columns] = map.size();
    let [wide, high] = field(map);
    let title = shown_words(&map.title);
    let left = 2 * GAP + LETTER * longest(&rows);
    let start = top + LINE + GAP + LETTER * longest(&columns);
    text(body, &format!("x=\"{GAP}\" y=\"{}\"", top + LINE - 4), &title);
    for (row, name) in rows.iter().enumerate().step_by(FIELD.div_ceil(high)) {
        let y = start + row * high + high / 2 + 4;
        text(body, &format!("x=\"{}\" y=\"{y}\" text-anchor=\"end\"", left - 4), name);
    }
    for (column, name) in columns.iter().enumerate().step_by(FIELD.div_ceil(wide)) {
        let (x, y) = (left + column * wide + wide / 2 + 4, start - 4);
        text(body, &format!("transform=\"translate({x} {y}) rotate(-90)\""), name);
    }
    match n_rows * n_columns <= FIELDS {
        true => fields(body, map, [left, start]),
        false => images(body, [left, start], [n_columns * wide, n_rows * high], &title, |theme| pixels(map, theme)),
    }
    let bottom = start + n_rows * high;
    let legend_end = legend(body, map.scale, [left, bottom + GAP]);
    let right = (left + n_columns * wide).max(GAP + LETTER * title.chars().count()).max(left + 400).max(legend_end);
    [right + GAP, bottom + GAP + LINE]
}

/// Width and height of a field.
fn field(map: &HeatMap) -> [usize; 2] {
    let longer = map.size().into_iter().max().unwrap_or(1).max(1);
    if map.is_numbered() { NUMBER } else { [(WHOLE / longer).clamp(2, FIELD); 2] }
}

/// A rectangle for each field, with a tooltip.
fn fields(body: &mut String, map: &HeatMap, [left, top]: [usize; 2]) {
    let [wide, high] = field(map);
    for (row, values) in map.values.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            let ([x, y], step) = ([left + column * wide, top + row * high], step(map.scale.depth(*value)));
            svg::field(body, step, [x, y], [wide, high], &shown_words(&map.tooltip(row, column)));
            if map.is_numbered() {
                svg::number(body, step, [x + wide / 2, y + high / 2 + 4], &number(*value));
            }
        }
    }
}

/// A number of at most six characters.
fn number(value: f64) -> String {
    if value.abs() < 99.5 { format!("{value:.2}") } else { format!("{value:.0e}") }
}

/// A map as an image of a pixel for each number.
pub(super) fn pixels(map: &HeatMap, theme: Theme) -> Image {
    Image::from_fn(ImageShape::new(3, map.size()), |channel, row, column| {
        signed_colour(map.scale.depth(map.values[row][column]), theme)[channel]
    })
}

/// What the colours of a scale mean; returns its right end.
fn legend(body: &mut String, scale: ColourScale, [left, top]: [usize; 2]) -> usize {
    match scale.meanings() {
        Some(meanings) => meanings.iter().fold(left, |x, (value, meaning)| {
            patch(body, step(scale.depth(*value)), [x, top], FIELD);
            text(body, &format!("x=\"{}\" y=\"{}\"", x + FIELD + 4, top + 11), meaning);
            x + FIELD + 4 + LETTER * meaning.chars().count() + GAP
        }),
        None => ramp(body, scale, [left, top]),
    }
}

/// All colours of a scale, with the numbers at their ends.
fn ramp(body: &mut String, scale: ColourScale, [left, top]: [usize; 2]) -> usize {
    let last = step(scale.depth(scale.strongest()));
    let first = if matches!(scale, ColourScale::Signed(_)) { -last } else { 0 };
    let [low, high] = scale.ends();
    let before = LETTER * low.chars().count();
    text(body, &format!("x=\"{left}\" y=\"{}\"", top + 11), &low);
    let x = |step: i32| left + before + GAP + 6 * (step - first) as usize;
    (first..=last).for_each(|step| patch(body, step, [x(step), top], 6));
    text(body, &format!("x=\"{}\" y=\"{}\"", x(last + 1) + GAP, top + 11), &high);
    x(last + 1) + GAP + LETTER * high.chars().count()
}

/// The colour of a step in a legend.
fn patch(body: &mut String, step: i32, [x, y]: [usize; 2], width: usize) {
    let (class, fill) = (class(step), hex(step_colour(step, Theme::Light)));
    // Writing into a string cannot fail.
    let _ =
        writeln!(body, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"12\" fill=\"{fill}\"/>");
}

fn labels(names: &[String], most: usize) -> Vec<String> {
    names.iter().map(|name| cut(&shown_words(name), most)).collect()
}

fn cut(name: &str, most: usize) -> String {
    match name.chars().count() <= most {
        true => name.into(),
        false => name.chars().take(most - 1).chain(['\u{2026}']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::numbers;
    use crate::figure::tests::three;

    #[test]
    fn a_figure_of_three_numbers_is_drawn_as_it_was() {
        let expected = include_str!("../../tests/fixtures/three_numbers.svg");
        assert_eq!(three().to_svg(), expected.replace('\r', ""));
    }

    #[test]
    fn many_fields_are_an_image_for_each_ground() {
        let map = HeatMap::new("many", numbers(65), numbers(64), vec![vec![1.0; 64]; 65]);
        let found = Figure::new("", vec![map]).to_svg();
        assert_eq!(found.matches("<image").count(), 2);
        // The paper and the legend.
        assert_eq!(found.matches("<rect").count(), 1 + 17);
        let sources: Vec<&str> = found.split("base64,").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_ne!(sources[0], sources[1], "other colours");
    }

    #[test]
    fn steps_are_explained_each_by_its_colour() {
        let drawn = |steps: usize| {
            let map = HeatMap::new("", numbers(1), numbers(1), vec![vec![0.0]]);
            Figure::new("", vec![map.with_scale(ColourScale::Steps(steps))]).to_svg()
        };
        // Of four layers the first has the deepest colour, and each later one a quarter less; behind the field, which is never reached.
        let found = drawn(4);
        let legend: Vec<&str> =
            found.lines().skip_while(|line| !line.ends_with("height=\"12\" fill=\"#f7faff\"/>")).collect();
        for (place, (class, meaning)) in
            [("a0", "never"), ("a16", "after 1 layer"), ("a12", "2"), ("a8", "3"), ("a4", "4")].into_iter().enumerate()
        {
            let [colour, words] = [legend[2 * place], legend[2 * place + 1]];
            assert!(colour.contains(&format!("class=\"{class}\"")), "{colour}");
            assert!(words.ends_with(&format!(">{meaning}</text>")), "{words}");
        }
        assert!(drawn(1).contains(">hidden</text>") && drawn(1).contains(">seen</text>"));
        let many = drawn(40);
        assert!(many.contains(">after 1 layer; the fainter, the later, up to 40</text>"), "{many}");
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(["abc", "abcd"].map(|name| cut(name, 3)), ["abc", "ab\u{2026}"]);
    }
}
