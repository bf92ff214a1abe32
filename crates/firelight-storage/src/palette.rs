//! The colours of all pages and pictures: one palette for light paper and one for a dark screen.
//!
//! A page takes its colours from the custom properties of [`page_style`], and a picture by itself begins in the colours of light paper and
//! changes them by rules in [`on_dark_screen`]. On paper both are light, whatever the screen is.
//!
//! Text has a contrast of at least 4.5 to 1 with what it stands on (WCAG 2.2, 1.4.3, level AA), which [`contrast`] measures.

use std::fmt::Write;

/// A colour in sRGB.
pub type Colour = [u8; 3];

/// The media query of a dark screen. Print is no screen.
pub const DARK_SCREEN: &str = "screen and (prefers-color-scheme: dark)";

/// The colour scheme of a page or a picture.
#[doc(alias = "color scheme")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Of paper, and of a light screen.
    Light,
    /// Of a dark screen.
    Dark,
}

/// The colours of everything that is no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Palette {
    /// What all stands on.
    pub paper: Colour,
    /// Text.
    pub ink: Colour,
    /// Text that explains other text.
    pub soft: Colour,
    /// Lines between parts, and those of a grid.
    pub line: Colour,
    /// What stands behind text that is quoted.
    pub block: Colour,
    /// What is chosen.
    pub mark: Colour,
}

const LIGHT: Palette = Palette {
    paper: [255, 255, 255],
    ink: [28, 36, 48],
    soft: [91, 102, 117],
    line: [213, 219, 227],
    block: [244, 246, 249],
    mark: [176, 58, 0],
};

const DARK: Palette = Palette {
    paper: [18, 22, 28],
    ink: [230, 235, 242],
    soft: [154, 166, 181],
    line: [51, 60, 72],
    block: [28, 34, 42],
    mark: [255, 179, 122],
};

impl Theme {
    /// Its colours.
    ///
    /// ```
    /// use firelight_storage::palette::{Theme, contrast};
    ///
    /// let palette = Theme::Dark.palette();
    /// assert!(contrast(palette.ink, palette.paper) > 7.0);
    /// ```
    pub const fn palette(self) -> Palette {
        match self {
            Self::Light => LIGHT,
            Self::Dark => DARK,
        }
    }

    /// The value of `color-scheme`, by which a browser colours scroll bars and controls.
    fn scheme(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

impl Palette {
    /// The colours with the names of their custom properties.
    fn named(&self) -> [(&'static str, Colour); 6] {
        [
            ("paper", self.paper),
            ("ink", self.ink),
            ("soft", self.soft),
            ("line", self.line),
            ("block", self.block),
            ("mark", self.mark),
        ]
    }
}

/// A colour as CSS and SVG have it.
///
/// ```
/// assert_eq!(firelight_storage::palette::hex([255, 160, 0]), "#ffa000");
/// ```
pub fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The contrast of two colours, from 1 to 21 (WCAG 2.2, "contrast ratio").
///
/// ```
/// use firelight_storage::palette::contrast;
///
/// assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
/// ```
pub fn contrast(one: Colour, other: Colour) -> f64 {
    let [one, other] = [one, other].map(|colour| luminance(colour) + 0.05);
    one.max(other) / one.min(other)
}

/// The relative luminance of a colour, from 0 to 1 (WCAG 2.2), which grows with lightness.
///
/// ```
/// assert_eq!(firelight_storage::palette::luminance([0; 3]), 0.0);
/// ```
pub fn luminance([red, green, blue]: Colour) -> f64 {
    let linear = |channel: u8| match f64::from(channel) / 255.0 {
        value if value <= 0.04045 => value / 12.92,
        value => ((value + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

/// The custom properties `--paper`, `--ink`, `--soft`, `--line`, `--block` and `--mark` of a page, and `more` with a colour on light paper and
/// one on a dark screen each. A page has them once.
///
/// ```
/// let style = firelight_storage::palette::page_style(&[("t0", [[207, 232, 250], [29, 79, 115]])]);
/// assert!(style.contains("--t0: #cfe8fa;") && style.contains("--t0: #1d4f73;"));
/// ```
pub fn page_style(more: &[(&str, [Colour; 2])]) -> String {
    let light = properties(Theme::Light, more);
    format!("{light}{}", on_dark_screen(&properties(Theme::Dark, more)))
}

/// The rule that sets the properties for one theme.
fn properties(theme: Theme, more: &[(&str, [Colour; 2])]) -> String {
    let mut rule = format!(":root {{ color-scheme: {};", theme.scheme());
    let more = more.iter().map(|(name, colours)| (*name, colours[theme as usize]));
    for (name, colour) in theme.palette().named().into_iter().chain(more) {
        let _ = write!(rule, " --{name}: {};", hex(colour)); // Writing into a string cannot fail.
    }
    rule + " }\n"
}

/// Rules of CSS for a dark screen alone.
///
/// ```
/// let rules = firelight_storage::palette::on_dark_screen("text { fill: #ffffff; }\n");
/// assert!(rules.starts_with("@media screen and (prefers-color-scheme: dark) {\n"));
/// ```
pub fn on_dark_screen(rules: &str) -> String {
    format!("@media {DARK_SCREEN} {{\n{rules}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrasts_are_those_of_the_guidelines() {
        assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9 && contrast([9; 3], [9; 3]) == 1.0);
        // The well-known lightest grey that can be read on white, and the first that cannot.
        assert!(contrast([118; 3], [255; 3]) > 4.5 && contrast([119; 3], [255; 3]) < 4.5);
    }

    /// Ratios with the paper, to a tenth: text needs 4.5, and what is chosen is also a line around it, which needs 3.
    #[test]
    fn text_can_be_read_on_both_grounds() {
        let ratios = |theme: Theme| {
            let palette = theme.palette();
            let of = |colour: Colour| (10.0 * contrast(colour, palette.paper)).round() / 10.0;
            [palette.ink, palette.soft, palette.mark].map(of)
        };
        assert_eq!(ratios(Theme::Light), [15.6, 5.8, 6.1]);
        assert_eq!(ratios(Theme::Dark), [15.1, 7.3, 10.4]);
        for palette in [LIGHT, DARK] {
            for text in [palette.ink, palette.soft, palette.mark] {
                assert!(contrast(text, palette.paper) >= 4.5 && contrast(text, palette.block) >= 4.5, "{text:?}");
            }
        }
    }

    #[test]
    fn a_page_has_each_property_once_for_each_ground() {
        let style = page_style(&[("own", [[1; 3], [2; 3]])]);
        for name in LIGHT.named().map(|(name, _)| name).into_iter().chain(["own"]) {
            assert_eq!(style.matches(&format!(" --{name}: #")).count(), 2, "{name}");
        }
        let (light, dark) = style.split_once("@media screen").unwrap();
        assert!(light.contains("color-scheme: light;") && light.contains("--own: #010101;"), "{style}");
        assert!(dark.contains("color-scheme: dark;") && dark.contains("--own: #020202;"), "{style}");
    }
}
