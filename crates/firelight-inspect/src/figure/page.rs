//! A figure as a page: its drawing, coloured anew where the screen is dark.

use std::fmt::Write;

use maud::{PreEscaped, html};

use super::svg::{FIELDS, STEPS, class, drawing, step_colour};
use super::{ColourScale, Figure, HeatMap};
use crate::page::frame;
use crate::scale::Paper;
use crate::svg::hex;

/// The colours of pages instead of those of paper; of two images one is shown.
const STYLE: &str = "\
.figure { overflow: auto; }
.figure svg { fill: var(--ink); }
.figure svg > rect:first-child { fill: var(--paper); }
.figure .dark { display: none; }
";

const POINT: &str = "Point at a field to read its number.";
const COLOURS: &str = "Blue is above 0, orange below.";

pub(super) fn page(figure: &Figure) -> String {
    let drawn = drawing(figure, &[Paper::Light, Paper::Dark]);
    let body = html! {
        @if let Some(hint) = hint(figure) { p.hint { (hint) } }
        div.figure { (PreEscaped(drawn)) }
    };
    frame(&figure.title, &style(), &body)
}

/// What a reader is told: pixels of an image have no numbers to point at.
fn hint(figure: &Figure) -> Option<String> {
    let has = |is_so: fn(&HeatMap) -> bool| figure.maps.iter().any(is_so);
    let fields = has(|map| map.size().iter().product::<usize>() <= FIELDS).then_some(POINT);
    let colours = has(|map| matches!(map.scale, ColourScale::Signed(_))).then_some(COLOURS);
    let hints: Vec<&str> = fields.into_iter().chain(colours).collect();
    (!hints.is_empty()).then(|| hints.join(" "))
}

/// What is common to all figures, and the colours of a dark screen.
fn style() -> String {
    let mut dark = String::new();
    for step in -STEPS..=STEPS {
        // Writing into a string cannot fail.
        let _ = writeln!(dark, "  .figure .{} {{ fill: {}; }}", class(step), hex(step_colour(step, Paper::Dark)));
    }
    let others = "  .figure .on { fill: #000000; }\n  .figure .off { fill: #ffffff; }\n  \
                  .figure .light { display: none; }\n  .figure .dark { display: inline; }\n";
    format!("{STYLE}@media (prefers-color-scheme: dark) {{\n{dark}{others}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::numbers;
    use crate::figure::tests::three;

    #[test]
    fn only_fields_are_to_be_pointed_at() {
        let map = |rows: usize, value: f64| HeatMap::new("", numbers(rows), numbers(64), vec![vec![value; 64]; rows]);
        let hinted = |maps: Vec<HeatMap>| hint(&Figure::new("", maps)).unwrap_or_default();
        assert_eq!(hinted(vec![map(64, 1.0)]), POINT);
        assert_eq!(hinted(vec![map(65, 1.0)]), "");
        assert_eq!(hinted(vec![map(65, -1.0)]), COLOURS);
        assert_eq!(hinted(vec![map(65, -1.0), map(1, 1.0)]), format!("{POINT} {COLOURS}"));
    }

    #[test]
    fn the_page_loads_nothing_and_keeps_its_markup_whatever_the_names_are() {
        let page = page(&three());
        assert!(
            page.contains("<title>&lt;three&gt;</title>") && page.contains("a &amp; b") && page.contains("&lt;r&gt;")
        );
        for text in ["<script", "src=\"", "href=", "https://", "@import", "url(", "<img"] {
            assert!(!page.contains(text), "{text} is in the page");
        }
        assert!(page.contains("orange below") && page.contains(".figure .b16 { fill: #fcefe6; }"));
        assert!(page.chars().all(|character| !character.is_control() || character == '\n'));
    }
}
