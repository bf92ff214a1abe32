//! A figure as a page: its drawing, coloured anew where the screen is dark.

use std::fmt::Write;

use maud::{PreEscaped, html};

use super::svg::{STEPS, class, drawing, step_colour};
use super::{ColourScale, Figure};
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

pub(super) fn page(figure: &Figure) -> String {
    let drawn = drawing(figure, &[Paper::Light, Paper::Dark]);
    let body = html! {
        p.hint { (hint(figure)) }
        div.figure { (PreEscaped(drawn)) }
    };
    frame(&figure.title, &style(), &body)
}

fn hint(figure: &Figure) -> &'static str {
    match figure.maps.iter().any(|map| matches!(map.scale, ColourScale::Signed(_))) {
        true => "Point at a field to read its number. Blue is above 0, orange below.",
        false => "Point at a field to read its number.",
    }
}

/// What is common to all figures, and the colours of a dark screen.
fn style() -> String {
    let mut dark = String::new();
    for step in -STEPS..=STEPS {
        // Writing into a string cannot fail.
        let _ = writeln!(dark, "  .figure .{} {{ fill: {}; }}", class(step), hex(step_colour(step, Paper::Dark)));
    }
    let others = "  .figure .on { fill: #10151c; }\n  .figure .off { fill: #e6ebf2; }\n  \
                  .figure .light { display: none; }\n  .figure .dark { display: inline; }\n";
    format!("{STYLE}@media (prefers-color-scheme: dark) {{\n{dark}{others}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::tests::three;

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
