//! A figure as SVG. Fields are coloured for white paper, and have classes by which a page colours them for a dark screen.

use std::fmt::Write;

use firelight_data::{Image, ImageShape};

use super::{ColourScale, Figure, HeatMap};
use crate::labels::{escaped, shown_words};
use crate::page::base64;
use crate::scale::{Paper, signed_colour};
use crate::svg::{document, hex, longest, text};

/// Steps of colour on either side of 0.
pub(super) const STEPS: i32 = 16;

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

pub(super) fn svg(figure: &Figure) -> String {
    drawing(figure, &[Paper::Light])
}

/// The figure; where fields are pixels, an image for each of the papers.
pub(super) fn drawing(figure: &Figure, papers: &[Paper]) -> String {
    let (mut body, mut top, mut width) = (String::new(), 0, 0);
    for map in &figure.maps {
        let [right, bottom] = place(&mut body, map, top, papers);
        (top, width) = (bottom + GAP, width.max(right));
    }
    for remark in &figure.remarks {
        top += LINE;
        width = width.max(2 * GAP + LETTER * remark.chars().count());
        text(&mut body, &format!("x=\"{GAP}\" y=\"{}\"", top - 4), &shown_words(remark));
    }
    document(width, top + GAP, &body)
}

/// A map with its title, names and legend, from `top` on; returns its right and lower end.
fn place(body: &mut String, map: &HeatMap, top: usize, papers: &[Paper]) -> [usize; 2] {
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
        false => papers.iter().for_each(|paper| image(body, map, [left, start], *paper)),
    }
    let bottom = start + n_rows * high;
    legend(body, map.scale, [left, bottom + GAP]);
    let right = (left + n_columns * wide).max(GAP + LETTER * title.chars().count()).max(left + 400);
    [right + GAP, bottom + GAP + LINE]
}

/// Width and height of a field.
fn field(map: &HeatMap) -> [usize; 2] {
    let longer = map.size().into_iter().max().unwrap_or(1).max(1);
    if map.is_numbered() { NUMBER } else { [(WHOLE / longer).clamp(2, FIELD); 2] }
}

/// A rectangle for each field, which tells its number under the pointer.
fn fields(body: &mut String, map: &HeatMap, [left, top]: [usize; 2]) {
    let [wide, high] = field(map);
    for (row, values) in map.values.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            let (depth, told) = (map.scale.depth(*value), escaped(&shown_words(&map.told(row, column))));
            let ([x, y], step) = ([left + column * wide, top + row * high], step(depth));
            // Writing into a string cannot fail.
            let _ = writeln!(
                body,
                "<rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{high}\" fill=\"{}\"><title>{told}</title></rect>",
                class(step),
                hex(step_colour(step, Paper::Light))
            );
            if map.is_numbered() {
                number(body, *value, step, [x + wide / 2, y + high / 2 + 4]);
            }
        }
    }
}

/// A number that can be read on its field: its class is for a dark screen, on which fields are lighter the deeper they are.
fn number(body: &mut String, value: f64, step: i32, [x, y]: [usize; 2]) {
    let class = if step.abs() >= STEPS / 2 { "on" } else { "off" };
    let ink = if step.abs() > STEPS / 2 { "#ffffff" } else { "#222222" };
    let value = if value.abs() < 99.5 { format!("{value:.2}") } else { format!("{value:.0e}") };
    text(
        body,
        &format!("class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"{ink}\" pointer-events=\"none\""),
        &value,
    );
}

/// A pixel for each field, enlarged without smoothing.
fn image(body: &mut String, map: &HeatMap, [x, y]: [usize; 2], paper: Paper) {
    let ([rows, columns], [wide, high]) = (map.size(), field(map));
    let (source, class) = (base64(&pixels(map, paper).to_png()), if paper == Paper::Light { "light" } else { "dark" });
    let _ = writeln!(
        body,
        "<image class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"none\" \
         style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{source}\"><title>{}</title></image>",
        columns * wide,
        rows * high,
        escaped(&shown_words(&map.title))
    );
}

/// A map as an image of a pixel for each number.
pub(super) fn pixels(map: &HeatMap, paper: Paper) -> Image {
    Image::from_fn(ImageShape::new(3, map.size()), |channel, row, column| {
        signed_colour(map.scale.depth(map.values[row][column]), paper)[channel]
    })
}

/// The colours of a scale, with the numbers at their ends.
fn legend(body: &mut String, scale: ColourScale, [left, top]: [usize; 2]) {
    let last = step(scale.depth(scale.strongest()));
    let first = if matches!(scale, ColourScale::Signed(_)) { -last } else { 0 };
    let [low, high] = scale.ends();
    let before = LETTER * low.chars().count();
    text(body, &format!("x=\"{left}\" y=\"{}\"", top + 11), &low);
    let x = |step: i32| left + before + GAP + 6 * (step - first) as usize;
    for step in first..=last {
        let (x, class, fill) = (x(step), class(step), hex(step_colour(step, Paper::Light)));
        let _ =
            writeln!(body, "<rect class=\"{class}\" x=\"{x}\" y=\"{top}\" width=\"6\" height=\"12\" fill=\"{fill}\"/>");
    }
    text(body, &format!("x=\"{}\" y=\"{}\"", x(last + 1) + GAP, top + 11), &high);
}

/// The step of a depth from -1 to 1.
fn step(depth: f32) -> i32 {
    (depth * STEPS as f32).round() as i32
}

/// The class of the fields of a step.
pub(super) fn class(step: i32) -> String {
    if step < 0 { format!("b{}", -step) } else { format!("a{step}") }
}

pub(super) fn step_colour(step: i32, paper: Paper) -> crate::scale::Colour {
    signed_colour(step as f32 / STEPS as f32, paper)
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
    use crate::scale::tests::luminance;

    #[test]
    fn a_figure_of_three_numbers_is_drawn_as_it_was() {
        let expected = include_str!("../../tests/fixtures/three_numbers.svg");
        assert_eq!(svg(&three()), expected.replace('\r', ""));
    }

    #[test]
    fn many_fields_are_an_image_for_each_paper() {
        let map = HeatMap::new("many", numbers(65), numbers(64), vec![vec![1.0; 64]; 65]);
        let figure = Figure::new("", vec![map]);
        let [light, both] = [&[Paper::Light][..], &[Paper::Light, Paper::Dark]].map(|papers| drawing(&figure, papers));
        assert_eq!([light.matches("<image").count(), both.matches("<image").count()], [1, 2]);
        // The paper and the legend.
        assert_eq!(light.matches("<rect").count(), 1 + 17);
    }

    /// WCAG 2.1 asks for a contrast of 4.5 to 1.
    #[test]
    fn numbers_can_be_read_on_every_field_of_a_dark_screen() {
        for step in -STEPS..=STEPS {
            let mut found = String::new();
            number(&mut found, 0.0, step, [0, 0]);
            let ink = if found.contains("class=\"on\"") { [0; 3] } else { [255; 3] };
            let [field, ink] = [step_colour(step, Paper::Dark), ink].map(luminance);
            assert!((field.max(ink) + 0.05) / (field.min(ink) + 0.05) > 4.5, "{step}");
        }
    }

    #[test]
    fn names_and_steps() {
        assert_eq!(["abc", "abcd"].map(|name| cut(name, 3)), ["abc", "ab\u{2026}"]);
        assert_eq!([-1.0, -0.04, 0.0, 0.5].map(|depth| class(step(depth))), ["b16", "b1", "a0", "a8"]);
    }
}
