//! The confusion matrix as a picture: a square for each pair of true and predicted class, darker the larger its share of the
//! row. Drawn by plotters, as the curves of a report are.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::theme::{INK, PAPER, styled};

/// Room for the squares together in pixels, if there are enough of them.
const ROOM: usize = 480;

/// The least and the greatest width of a square in pixels.
const SQUARE: (usize, usize) = (12, 72);

/// Squares that are narrower than this have no counts in them.
const WIDE_ENOUGH: usize = 26;

/// Characters of a name that are shown.
const NAME: usize = 18;

/// About how wide a character is.
const CHARACTER: i32 = 7;

/// Room for the name of an axis.
const AXIS: i32 = 26;

/// From this share of a row on a square is so dark that white letters are read better than black ones. Squares and their counts are the same on
/// a dark screen, where the names around them change.
const DARK: f64 = 0.925;

/// The colour of a whole row in one square; that of the first curve of a chart.
const FULL: RGBColor = RGBColor(0, 114, 178);

/// Where everything lies, in pixels.
struct Layout {
    /// Width and height of a square.
    square: i32,
    /// Room for the longest name.
    names: i32,
    /// Number of classes.
    classes: i32,
}

/// Draws counts by target (row) and prediction (column) as an SVG element; `names` are those of the classes.
///
/// ```
/// let names = ["no".to_string(), "yes".to_string()];
/// let svg = firelight_training::metrics::classes::draw_confusion(&[vec![5, 1], vec![0, 7]], &names);
/// assert!(svg.starts_with("<svg") && svg.contains("yes"));
/// ```
///
/// # Panics
/// Panics if there are not as many names as rows, or as columns in every row.
pub fn draw_confusion(confusion: &[Vec<usize>], names: &[String]) -> String {
    let fits = confusion.len() == names.len() && confusion.iter().all(|row| row.len() == names.len());
    assert!(fits, "a row and a column for each of the {} names", names.len());
    let names: Vec<String> = names.iter().map(|name| shortened(name)).collect();
    let mut svg = String::new();
    // Drawing into a string fails only where a font is missing, and SVG leaves fonts to its reader.
    let _ = draw(confusion, &names, &mut svg);
    styled(&svg)
}

fn draw<'a>(
    confusion: &[Vec<usize>],
    names: &[String],
    svg: &'a mut String,
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
    let layout = Layout::of(names);
    let area = SVGBackend::with_string(svg, layout.size()).into_drawing_area();
    area.fill(&PAPER)?;
    for (target, row) in confusion.iter().enumerate() {
        let whole = row.iter().sum::<usize>().max(1) as f64;
        for (prediction, &count) in row.iter().enumerate() {
            let share = count as f64 / whole;
            area.draw(&Rectangle::new(layout.cell(target, prediction), shade(share).filled()))?;
            if layout.square >= WIDE_ENOUGH as i32 {
                let ink = if share > DARK { &WHITE } else { &BLACK };
                let style = text(if layout.square < 48 { 11 } else { 13 }, ink);
                area.draw(&Text::new(count.to_string(), layout.centre(target, prediction), style))?;
            }
        }
    }
    draw_names(&area, names, &layout)?;
    area.present()
}

fn draw_names<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    names: &[String],
    layout: &Layout,
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
    let (from, to) = (layout.from(), layout.from() + layout.square * layout.classes);
    let size = layout.square.clamp(9, 13);
    let beside = text(size, &INK).pos(Pos::new(HPos::Right, VPos::Center));
    let below = text(size, &INK).pos(Pos::new(HPos::Right, VPos::Center)).transform(FontTransform::Rotate270);
    for (class, name) in names.iter().enumerate() {
        let (_, middle) = layout.centre(class, 0);
        area.draw(&Text::new(name.clone(), (from - 6, middle), beside.clone()))?;
        let (middle, _) = layout.centre(0, class);
        match layout.names < layout.square {
            true => area.draw(&Text::new(name.clone(), (middle, layout.top() + to - from + 12), text(size, &INK)))?,
            false => area.draw(&Text::new(name.clone(), (middle, layout.top() + to - from + 6), below.clone()))?,
        }
    }
    let (_, height) = layout.size();
    area.draw(&Text::new("predicted", ((from + to) / 2, height as i32 - 12), text(14, &INK)))?;
    let turned = text(14, &INK).transform(FontTransform::Rotate270);
    area.draw(&Text::new("true", (12, layout.top() + (to - from) / 2), turned))
}

impl Layout {
    fn of(names: &[String]) -> Self {
        let classes = names.len();
        let square = (ROOM / classes.max(1)).clamp(SQUARE.0, SQUARE.1) as i32;
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        Self { square, names: longest as i32 * CHARACTER + 8, classes: classes as i32 }
    }

    /// Width and height of the picture.
    fn size(&self) -> (u32, u32) {
        let side = self.square * self.classes;
        let below = if self.names < self.square { AXIS } else { self.names };
        ((self.from() + side + 12) as u32, (self.top() + side + below + AXIS) as u32)
    }

    /// The left edge of the squares.
    fn from(&self) -> i32 {
        AXIS + self.names
    }

    /// The upper edge of the squares.
    fn top(&self) -> i32 {
        12
    }

    /// The corners of a square, with a line of white around it.
    fn cell(&self, target: usize, prediction: usize) -> [(i32, i32); 2] {
        let (x, y) = (self.from() + prediction as i32 * self.square, self.top() + target as i32 * self.square);
        [(x, y), (x + self.square - 1, y + self.square - 1)]
    }

    fn centre(&self, target: usize, prediction: usize) -> (i32, i32) {
        let [(x, y), _] = self.cell(target, prediction);
        (x + self.square / 2, y + self.square / 2)
    }
}

/// Text around its middle.
fn text(size: i32, colour: &'static RGBColor) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(colour).pos(Pos::new(HPos::Center, VPos::Center))
}

/// From almost white to the full colour.
fn shade(share: f64) -> RGBColor {
    let mix = |full: u8| (244.0 + (f64::from(full) - 244.0) * share).round() as u8;
    RGBColor(mix(FULL.0), mix(FULL.1), mix(FULL.2))
}

/// A name with an ellipsis in place of what is too long.
fn shortened(name: &str) -> String {
    match name.chars().count() > NAME {
        true => name.chars().take(NAME - 1).chain(['\u{2026}']).collect(),
        false => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|class| format!("class <{class}>")).collect()
    }

    #[test]
    fn names_counts_and_axes_are_written() {
        let svg = draw_confusion(&[vec![5, 12], vec![0, 7]], &names(2));
        for text in ["class &lt;0&gt;", "class &lt;1&gt;", "predicted", "true", "\n12\n"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<rect").count(), 5, "the ground and four squares");
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_square_is_darker_the_larger_its_share() {
        assert_eq!((shade(0.0), shade(1.0)), (RGBColor(244, 244, 244), FULL));
        assert!(shade(0.3).0 > shade(0.6).0);
        assert!(draw_confusion(&[vec![0, 0], vec![0, 9]], &names(2)).contains("#0072B2"));
    }

    fn contrast(one: RGBColor, other: RGBColor) -> f64 {
        let [one, other] = [one, other].map(|RGBColor(r, g, b)| [r, g, b]);
        firelight_storage::palette::contrast(one, other)
    }

    #[test]
    fn counts_are_written_in_the_ink_that_is_read_better() {
        let [below, above] = [DARK - 0.02, DARK + 0.02].map(shade);
        assert!(contrast(BLACK, below) > contrast(WHITE, below), "{below:?}");
        assert!(contrast(WHITE, above) > contrast(BLACK, above), "{above:?}");
        // WCAG 2.2 asks for 4.5 to 1, which holds for every share.
        for percent in 0..=100 {
            let share = f64::from(percent) / 100.0;
            let ink = if share > DARK { WHITE } else { BLACK };
            assert!(contrast(ink, shade(share)) > 4.5, "{percent}");
        }
        let svg = draw_confusion(&[vec![6, 4], vec![0, 9]], &names(2));
        let white = |line: &&str| line.starts_with("<text") && line.contains("fill=\"#FFFFFF\"");
        assert_eq!(svg.lines().filter(white).count(), 1, "the nine alone: {svg}");
    }

    #[test]
    fn many_classes_have_no_counts_and_long_names_are_cut() {
        let svg = draw_confusion(&vec![vec![123; 40]; 40], &names(40));
        assert!(!svg.contains("\n123\n") && svg.contains("class &lt;39&gt;"));
        assert_eq!(shortened("a name that is much too long"), "a name that is mu\u{2026}");
        assert!(draw_confusion(&[], &[]).starts_with("<svg"));
    }

    #[test]
    #[should_panic(expected = "a row and a column for each of the 2 names")]
    fn a_matrix_without_its_names_is_refused() {
        draw_confusion(&[vec![1]], &names(2));
    }
}
