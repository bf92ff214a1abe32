//! Matrices with names of their rows and columns, drawn as colours: what positions, masks and embeddings are shown by.

mod page;
mod raster;
mod svg;
mod terminal;

use firelight_data::Image;
use firelight_storage::InputError;

/// The most rows or columns of a map: more would not fit into memory as a drawing.
pub(crate) const LONGEST: usize = 1024;

/// The deepest colour of a scale of two hues.
const DEEPEST_SIGNED: f32 = 0.75;

/// Scales of at most so many steps have each of them explained.
const EXPLAINED: usize = 12;

/// Up to so many columns the numbers themselves are written into the fields.
const NUMBERED: usize = 10;

/// How numbers become colours.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ColourScale {
    /// From 0 to this number, in one hue.
    Amount(f64),
    /// From this number below 0, in orange, to the same above it, in blue.
    Signed(f64),
    /// Whole numbers from 1 to this one, of which 1 stands out most; 0 is nothing.
    Steps(usize),
}

impl ColourScale {
    /// The share of the end of the scale, from -1 to 1.
    fn share(self, value: f64) -> f32 {
        let share = match self {
            Self::Amount(largest) | Self::Signed(largest) if largest > 0.0 => value / largest,
            Self::Steps(steps) if value > 0.0 => (steps as f64 + 1.0 - value) / steps as f64,
            _ => 0.0,
        };
        let least = if matches!(self, Self::Signed(_)) { -1.0 } else { 0.0 };
        share.clamp(least, 1.0) as f32
    }

    /// How deep the colour is, from -1 to 1: two hues end before both are nearly black.
    fn depth(self, value: f64) -> f32 {
        let deepest = if matches!(self, Self::Signed(_)) { DEEPEST_SIGNED } else { 1.0 };
        deepest * self.share(value)
    }

    /// Formats a number for a tooltip.
    fn formatted(self, value: f64) -> String {
        match self {
            Self::Amount(_) | Self::Signed(_) => format!("{value:.3}"),
            Self::Steps(_) if value > 0.0 => format!("{value:.0}"),
            Self::Steps(_) => "never".into(),
        }
    }

    /// The number that has the strongest colour.
    fn strongest(self) -> f64 {
        match self {
            Self::Amount(largest) | Self::Signed(largest) => largest,
            Self::Steps(_) => 1.0,
        }
    }

    /// The ends of the scale: what stands for no colour, and what for the strongest.
    fn ends(self) -> [String; 2] {
        match self {
            Self::Amount(largest) => ["0".into(), format!("{largest:.3}")],
            Self::Signed(largest) => [format!("{:.3}", -largest), format!("{largest:.3}")],
            Self::Steps(steps) => ["never".into(), format!("after 1 layer; the fainter, the later, up to {steps}")],
        }
    }

    /// Each number of a scale of few steps, with what it means.
    fn meanings(self) -> Option<Vec<(f64, String)>> {
        let later = |step: usize| (step as f64, step.to_string());
        match self {
            Self::Steps(1) => Some(vec![(0.0, "hidden".into()), (1.0, "seen".into())]),
            Self::Steps(steps) if steps <= EXPLAINED => {
                let first = [(0.0, "never".into()), (1.0, "after 1 layer".into())];
                Some(first.into_iter().chain((2..=steps).map(later)).collect())
            }
            _ => None,
        }
    }
}

/// A number for every pair of a row and a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeatMap {
    /// What it shows.
    pub title: String,
    /// What the `R` rows are called.
    pub rows: Vec<String>,
    /// What the `C` columns are called.
    pub columns: Vec<String>,
    /// The numbers, `[R, C]`.
    pub values: Vec<Vec<f64>>,
    /// How they become colours.
    pub scale: ColourScale,
}

impl HeatMap {
    /// A map whose colours go up to its largest number, in two hues where there are numbers below 0.
    ///
    /// # Panics
    /// If there is not a number for every row and column.
    ///
    /// ```
    /// use firelight_inspect::{ColourScale, HeatMap};
    ///
    /// let names = || vec!["a".to_string(), "b".to_string()];
    /// let map = HeatMap::new("differences", names(), names(), vec![vec![0.0, -2.0], vec![1.0, 0.0]]);
    /// assert_eq!(map.scale, ColourScale::Signed(2.0));
    /// ```
    pub fn new(title: impl Into<String>, rows: Vec<String>, columns: Vec<String>, values: Vec<Vec<f64>>) -> Self {
        let fits = values.len() == rows.len() && values.iter().all(|row| row.len() == columns.len());
        assert!(fits, "a number for each of {} rows and {} columns", rows.len(), columns.len());
        // A zero below 0, such as a slope times no distance, is shown as 0.
        let unsigned = |row: Vec<f64>| row.into_iter().map(|value| if value == 0.0 { 0.0 } else { value }).collect();
        let values: Vec<Vec<f64>> = values.into_iter().map(unsigned).collect();
        let all = || values.iter().flatten().copied();
        let largest = all().fold(0.0, |most: f64, value| most.max(value.abs()));
        let has_negative = all().any(|value| value < 0.0);
        let scale = if has_negative { ColourScale::Signed(largest) } else { ColourScale::Amount(largest) };
        Self { title: title.into(), rows, columns, values, scale }
    }

    /// Sets how numbers become colours.
    #[must_use]
    pub fn with_scale(self, scale: ColourScale) -> Self {
        Self { scale, ..self }
    }

    /// Number of rows and of columns.
    fn size(&self) -> [usize; 2] {
        [self.rows.len(), self.columns.len()]
    }

    /// Whether there is room for the numbers themselves.
    fn is_numbered(&self) -> bool {
        self.columns.len() <= NUMBERED
            && self.rows.len() <= 4 * NUMBERED
            && !matches!(self.scale, ColourScale::Steps(_))
    }

    /// The tooltip of a field: its row, its column and its number.
    fn tooltip(&self, row: usize, column: usize) -> String {
        let value = self.scale.formatted(self.values[row][column]);
        format!("{}, {}: {value}", self.rows[row], self.columns[column])
    }
}

/// Some maps with what is to be said of them, as text, a picture or a page.
///
/// ```
/// use firelight_inspect::{Figure, HeatMap};
///
/// let names = || vec!["a".to_string(), "b".to_string()];
/// let map = HeatMap::new("a half", names(), names(), vec![vec![1.0, 0.5], vec![0.0, 1.0]]);
/// let figure = Figure::new("two tokens", vec![map]).with_remark("One of them sees the other.");
/// assert!(figure.to_text().contains("a    1.00   0.50"));
/// assert_eq!(figure.to_svg().matches("<title>").count(), 4);
/// assert!(figure.to_page().starts_with("<!DOCTYPE html>"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// What is shown.
    pub title: String,
    /// Sentences about it.
    pub remarks: Vec<String>,
    /// The maps, from top to bottom.
    pub maps: Vec<HeatMap>,
}

impl Figure {
    /// Maps under a title.
    pub fn new(title: impl Into<String>, maps: Vec<HeatMap>) -> Self {
        Self { title: title.into(), remarks: Vec::new(), maps }
    }

    /// Adds a sentence.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Self {
        self.remarks.push(remark.into());
        self
    }

    /// The maps and sentences of several figures under one title, one below the other.
    ///
    /// ```
    /// use firelight_inspect::{Figure, HeatMap};
    ///
    /// let figure = |name: &str| {
    ///     let map = HeatMap::new(name, vec!["a".into()], vec!["b".into()], vec![vec![1.0]]);
    ///     Figure::new(name, vec![map]).with_remark(name)
    /// };
    /// let both = Figure::joined("both", vec![figure("encoder"), figure("decoder")]);
    /// assert_eq!((both.maps.len(), both.remarks), (2, vec!["encoder".to_string(), "decoder".to_string()]));
    /// ```
    pub fn joined(title: impl Into<String>, figures: Vec<Self>) -> Self {
        let mut all = Self::new(title, Vec::new());
        for figure in figures {
            all.maps.extend(figure.maps);
            all.remarks.extend(figure.remarks);
        }
        all
    }

    /// As text of at most 80 columns without colours: numbers where they fit, else shades.
    pub fn to_text(&self) -> String {
        terminal::text(self)
    }

    /// As a picture, light or dark as the screen is. A map of at most 4,096 numbers shows each of them under the pointer.
    pub fn to_svg(&self) -> String {
        svg::drawing(self).to_file()
    }

    /// As one file of HTML that loads nothing, light or dark as the browser is set.
    pub fn to_page(&self) -> String {
        page::page(self)
    }

    /// As pixels, without words.
    ///
    /// # Panics
    /// If there is no map.
    pub fn to_image(&self) -> Image {
        raster::image(self)
    }
}

/// Names of the first places: their numbers from 0.
pub(crate) fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|place| place.to_string()).collect()
}

/// Refuses what is too large to be drawn: `what` has `count` rows or columns.
pub(crate) fn check_size(what: &str, count: usize) -> Result<(), InputError> {
    match count {
        0 => Err(InputError::new(format!("{what} = 0 leaves nothing to draw")).advise("give at least 1")),
        _ if count <= LONGEST => Ok(()),
        _ => Err(InputError::new(format!("{what} = {count} is more than the {LONGEST} that are drawn at most"))
            .advise("give a smaller number")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A number below 0, nothing, and the largest one.
    pub(crate) fn three() -> Figure {
        let map = HeatMap::new("a & b", vec!["<r>".into()], numbers(3), vec![vec![-0.5, 0.0, 1.0]]);
        Figure::new("<three>", vec![map]).with_remark("Three \u{202e}numbers.")
    }

    #[test]
    fn shares_go_up_to_the_ends_of_the_scale() {
        let shares = |scale: ColourScale, values: [f64; 3]| values.map(|value| scale.share(value));
        assert_eq!(shares(ColourScale::Amount(2.0), [1.0, 3.0, -1.0]), [0.5, 1.0, 0.0]);
        assert_eq!(shares(ColourScale::Signed(2.0), [1.0, -1.0, -4.0]), [0.5, -0.5, -1.0]);
        // The first of four layers stands out most; what is never reached has no colour.
        assert_eq!(shares(ColourScale::Steps(4), [1.0, 4.0, 0.0]), [1.0, 0.25, 0.0]);
        assert_eq!(shares(ColourScale::Amount(0.0), [0.0, 1.0, 2.0]), [0.0; 3]);
        assert_eq!([ColourScale::Amount(2.0), ColourScale::Signed(2.0)].map(|scale| scale.depth(2.0)), [1.0, 0.75]);
    }

    #[test]
    fn what_is_too_large_to_be_drawn_is_refused() {
        assert!(check_size("--length", 1).is_ok() && check_size("--length", LONGEST).is_ok());
        let [none, many] = [0, 1025].map(|count| check_size("--length", count).unwrap_err().to_string());
        assert!(
            none.contains("--length = 0") && many.contains("--length = 1025 is more than the 1024"),
            "{none} {many}"
        );
    }
}
