//! A figure as pixels: its maps from top to bottom, on white.

use firelight_data::{Image, ImageShape};
use firelight_storage::palette::Theme;

use super::svg::pixels;
use super::{Figure, HeatMap};

/// About how many pixels the longer side of a map has.
const SIDE: usize = 512;

/// How many pixels a map has at least from top to bottom: the few rows of a long map can be told apart.
const LEAST: usize = 64;

/// Pixels around a map.
const GAP: usize = 6;

pub(super) fn image(figure: &Figure) -> Image {
    let maps: Vec<Image> = figure.maps.iter().map(large).collect();
    let width = maps.iter().map(|map| map.shape().width).max().unwrap_or(0);
    let height: usize = maps.iter().map(|map| map.shape().height + GAP).sum();
    let shape = ImageShape::new(3, [height + GAP, width + 2 * GAP]);
    Image::from_fn(shape, |channel, row, column| pixel(&maps, channel, row, column).unwrap_or(255))
}

/// The pixel of the map that is there.
fn pixel(maps: &[Image], channel: usize, row: usize, column: usize) -> Option<u8> {
    let (mut row, column) = (row.checked_sub(GAP)?, column.checked_sub(GAP)?);
    for map in maps {
        let shape = map.shape();
        if row < shape.height {
            return (column < shape.width).then(|| map.at(channel, row, column));
        }
        row = row.checked_sub(shape.height + GAP)?;
    }
    None
}

/// A map enlarged by whole numbers, by more from top to bottom where it has few rows.
fn large(map: &HeatMap) -> Image {
    let (pixels, [rows, columns]) = (pixels(map, Theme::Light), map.size());
    let scale = (SIDE / rows.max(columns).max(1)).max(1);
    let high = scale.max(LEAST.div_ceil(rows.max(1)));
    let shape = ImageShape::new(3, [rows * high, columns * scale]);
    Image::from_fn(shape, |channel, row, column| pixels.at(channel, row / high, column / scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::numbers;
    use crate::scale::LIGHT;

    #[test]
    fn maps_stand_below_each_other() {
        let map = |rows: usize| HeatMap::new("", numbers(rows), numbers(2), vec![vec![0.0, 1.0]; rows]);
        let found = image(&Figure::new("", vec![map(1), map(2)]));
        assert_eq!(found.shape().size(), [6 + 256 + 6 + 512 + 6, 6 + 512 + 6]);
        let at = |row, column| [0, 1, 2].map(|channel| found.at(channel, row, column));
        assert_eq!([at(6, 6), at(6, 517), at(268, 517), at(779, 6)], [LIGHT[0], LIGHT[8], LIGHT[8], LIGHT[0]]);
        // One row of 600 columns, of a pixel each.
        let long = HeatMap::new("", numbers(1), numbers(600), vec![vec![1.0; 600]]);
        assert_eq!(large(&long).shape().size(), [64, 600]);
        assert_eq!([at(5, 6), at(262, 6), at(267, 6), at(780, 6), at(6, 518)], [[255; 3]; 5]);
    }
}
