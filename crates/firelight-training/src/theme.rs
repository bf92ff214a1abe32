//! The light and the dark theme of charts, their background and text: the colours of light paper in their attributes, and a style that changes
//! them on a dark screen. The colours of lines can be told apart on both.

use firelight_storage::palette::{Colour, Theme, hex, on_dark_screen};
use plotters::style::RGBColor;

/// What a chart stands on, its words, its axes and its grid, on light paper.
pub(crate) const PAPER: RGBColor = of(Theme::Light.palette().paper);
pub(crate) const INK: RGBColor = of(Theme::Light.palette().ink);
pub(crate) const SOFT: RGBColor = of(Theme::Light.palette().soft);
pub(crate) const LINE: RGBColor = of(Theme::Light.palette().line);

const fn of([red, green, blue]: Colour) -> RGBColor {
    RGBColor(red, green, blue)
}

/// A colour as plotters writes it, in capitals.
pub(crate) fn written(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// The rules that colour charts on a dark screen: what has a colour of light paper gets that of the dark one. White numbers on a field stay.
pub(crate) fn dark_style() -> String {
    let dark = Theme::Dark.palette();
    let rule = |element: &str, kind: &str, from: RGBColor, to: Colour| {
        format!("  {element}[{kind}=\"{}\"] {{ {kind}: {}; }}\n", written(from), hex(to))
    };
    let rules = [
        rule("rect", "fill", PAPER, dark.paper),
        rule("", "fill", INK, dark.ink),
        rule("", "stroke", SOFT, dark.soft),
        rule("", "stroke", LINE, dark.line),
    ];
    on_dark_screen(&rules.concat())
}

/// The style as an element of a picture.
fn element() -> String {
    format!("\n<style>\n{}</style>\n", dark_style())
}

/// A picture with the style, as a file of its own.
pub(crate) fn styled(svg: &str) -> String {
    match svg.split_once('>') {
        Some((tag, rest)) => format!("{tag}>{}{rest}", element()),
        None => svg.into(),
    }
}

/// A picture without it, as a part of a page that has the rules.
pub(crate) fn bare(svg: &str) -> String {
    svg.replace(&element(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_style_until_it_is_part_of_a_page() {
        let svg = "<svg width=\"1\">\n<rect/></svg>";
        let found = styled(svg);
        assert!(
            found.starts_with("<svg width=\"1\">\n<style>\n@media screen and (prefers-color-scheme: dark) {\n"),
            "{found}"
        );
        assert!(found.contains("rect[fill=\"#FFFFFF\"] { fill: #12161c; }"), "{found}");
        assert!(found.contains("[stroke=\"#D5DBE3\"] { stroke: #333c48; }"), "{found}");
        assert_eq!(bare(&found), svg);
    }
}
