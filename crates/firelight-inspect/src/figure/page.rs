//! A figure as a page.

use maud::{PreEscaped, html};

use super::svg::{FIELDS, drawing};
use super::{ColourScale, Figure, HeatMap};
use crate::page::frame;

const STYLE: &str = ".figure { overflow: auto; }\n";

const POINT: &str = "Point at a field to read its number.";
const COLOURS: &str = "Blue is above 0, orange below.";

pub(super) fn page(figure: &Figure) -> String {
    let drawn = drawing(figure).to_element();
    let body = html! {
        @if let Some(hint) = hint(figure) { p.hint { (hint) } }
        div.figure { (PreEscaped(drawn)) }
    };
    frame(&figure.title, STYLE, &body)
}

/// The note beside a map: pixels of an image have no tooltips.
fn hint(figure: &Figure) -> Option<String> {
    let has = |is_so: fn(&HeatMap) -> bool| figure.maps.iter().any(is_so);
    let fields = has(|map| map.size().iter().product::<usize>() <= FIELDS).then_some(POINT);
    let colours = has(|map| matches!(map.scale, ColourScale::Signed(_))).then_some(COLOURS);
    let hints: Vec<&str> = fields.into_iter().chain(colours).collect();
    (!hints.is_empty()).then(|| hints.join(" "))
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
        assert!(page.contains("orange below") && page.contains(".drawing .b16 { fill: #fcefe6; }"));
        assert!(page.chars().all(|character| !character.is_control() || character == '\n'));
    }
}
