//! RandAugment: a few operations drawn from a list, all of one strength.
//!
//! Source: Cubuk et al. 2020 (<https://arxiv.org/abs/1909.13719>); the strengths by magnitude are those of torchvision's
//! `RandAugment` with 31 bins. Left out of their list: equalize, color and sharpness. Turned and shifted pixels are bilinear
//! means, and black comes from outside.

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::images::{Image, ImageShape};

/// The largest magnitude.
const MOST: usize = 30;

/// One operation of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RandomOperation {
    /// Nothing.
    Identity,
    /// Turned around its centre, by up to 30 degrees to either side.
    Rotate,
    /// Rows moved against each other, by up to 0.3 of their distance from the centre.
    ShearX,
    /// Columns moved against each other.
    ShearY,
    /// Moved by up to 150/331 of the width.
    TranslateX,
    /// Moved by up to 150/331 of the height.
    TranslateY,
    /// All pixels times a factor from 0.1 to 1.9.
    Brightness,
    /// The distance from the mean grey times a factor from 0.1 to 1.9.
    Contrast,
    /// Only the highest bits of a pixel kept, 4 of 8 at the least.
    Posterize,
    /// Bright pixels inverted.
    Solarize,
    /// Every channel stretched from 0 to 255.
    AutoContrast,
}

use RandomOperation::{
    AutoContrast, Brightness, Contrast, Identity, Posterize, Rotate, ShearX, ShearY, Solarize, TranslateX, TranslateY,
};

const ALL: [RandomOperation; 11] =
    [Identity, Rotate, ShearX, ShearY, TranslateX, TranslateY, Brightness, Contrast, Posterize, Solarize, AutoContrast];

/// How many operations of which strength, from which list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandAugment {
    /// Operations of an image, at least 1. Default: 2.
    pub operations: usize,
    /// Their strength, from 0 to 30. Default: 9.
    pub magnitude: usize,
    /// What is drawn from. Default: all.
    pub from: Vec<RandomOperation>,
}

impl Default for RandAugment {
    fn default() -> Self {
        Self { operations: 2, magnitude: 9, from: ALL.to_vec() }
    }
}

impl RandAugment {
    pub(super) fn problems(&self) -> Vec<String> {
        let Self { operations, magnitude, from } = self;
        let checks = [
            (*operations > 0, format!("augmentation.rand_augment.operations = {operations} must be at least 1")),
            (*magnitude <= MOST, format!("augmentation.rand_augment.magnitude = {magnitude} must be at most {MOST}")),
            (!from.is_empty(), "augmentation.rand_augment.from = [] must name an operation".to_string()),
        ];
        checks.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect()
    }

    pub(super) fn apply(&self, image: Image, dice: &mut Dice) -> Image {
        let strength = self.magnitude as f64 / MOST as f64;
        (0..self.operations).fold(image, |image, _| {
            let (operation, sign) = (dice.pick(&self.from), dice.pick(&[-1.0, 1.0]));
            operation.apply(image, strength, sign)
        })
    }
}

impl RandomOperation {
    /// With a strength from 0 to 1, and a sign where a change has a direction.
    fn apply(self, image: Image, strength: f64, sign: f64) -> Image {
        let ImageShape { height, width, .. } = image.shape();
        let moved = |pixels: usize| (150.0 / 331.0 * pixels as f64 * strength).trunc() * sign;
        let factor = 1.0 + 0.9 * strength * sign;
        match self {
            Identity => image,
            Rotate => {
                let (sin, cos) = (30.0 * strength * sign).to_radians().sin_cos();
                warped(&image, [[cos, -sin], [sin, cos]], [0.0, 0.0])
            }
            ShearX => warped(&image, [[1.0, 0.3 * strength * sign], [0.0, 1.0]], [0.0, 0.0]),
            ShearY => warped(&image, [[1.0, 0.0], [0.3 * strength * sign, 1.0]], [0.0, 0.0]),
            TranslateX => warped(&image, [[1.0, 0.0], [0.0, 1.0]], [0.0, moved(width)]),
            TranslateY => warped(&image, [[1.0, 0.0], [0.0, 1.0]], [moved(height), 0.0]),
            Brightness => image.map(|pixel| to_pixel(f64::from(pixel) * factor)),
            Contrast => {
                let mean = mean_luma(&image).round();
                image.map(|pixel| to_pixel(mean + (f64::from(pixel) - mean) * factor))
            }
            Posterize => {
                let dropped = (4.0 * strength).round() as u32;
                image.map(|pixel| pixel >> dropped << dropped)
            }
            Solarize => {
                let threshold = 255.0 * (1.0 - strength);
                image.map(|pixel| if f64::from(pixel) >= threshold { 255 - pixel } else { pixel })
            }
            AutoContrast => stretched(&image),
        }
    }
}

fn to_pixel(value: f64) -> u8 {
    value.round().clamp(0.0, 255.0) as u8
}

fn mean_luma(image: &Image) -> f64 {
    let ImageShape { height, width, .. } = image.shape();
    let rows = (0..height).map(|y| (0..width).map(|x| f64::from(image.luma(y, x))).sum::<f64>());
    rows.sum::<f64>() / image.shape().plane() as f64
}

fn stretched(image: &Image) -> Image {
    let plane = image.shape().plane();
    let of_channel = |pixels: &[u8]| {
        let [low, high] = [pixels.iter().min(), pixels.iter().max()].map(|bound| f64::from(*bound.unwrap_or(&0)));
        let factor = if high > low { 255.0 / (high - low) } else { 0.0 };
        let stretch = |pixel: &u8| if factor > 0.0 { to_pixel((f64::from(*pixel) - low) * factor) } else { *pixel };
        pixels.iter().map(stretch).collect::<Vec<u8>>()
    };
    Image::new(image.shape(), image.pixels().chunks_exact(plane).flat_map(of_channel).collect())
}

/// The pixel at `(row, column)` from the centre is that of the old image at `matrix (row, column) - shift`.
fn warped(image: &Image, matrix: [[f64; 2]; 2], shift: [f64; 2]) -> Image {
    let ImageShape { height, width, .. } = image.shape();
    let centre = [height, width].map(|pixels| (pixels as f64 - 1.0) / 2.0);
    Image::from_fn(image.shape(), |c, y, x| {
        let (row, column) = (y as f64 - centre[0], x as f64 - centre[1]);
        let [row, column] = [0, 1].map(|i| {
            // Rows of the matrix are those of the source: (row, column) in, one coordinate out.
            matrix[0][i] * row + matrix[1][i] * column - shift[i] + centre[i]
        });
        bilinear(image, c, row, column)
    })
}

fn bilinear(image: &Image, channel: usize, row: f64, column: f64) -> u8 {
    let (top, left) = (row.floor(), column.floor());
    let corner = |down: f64, right: f64| {
        let [share_down, share_right] =
            [(row - top, down), (column - left, right)].map(|(part, far)| if far > 0.0 { part } else { 1.0 - part });
        let pixel = image.at_or_black(channel, (top + down) as isize, (left + right) as isize);
        share_down * share_right * f64::from(pixel)
    };
    to_pixel(corner(0.0, 0.0) + corner(0.0, 1.0) + corner(1.0, 0.0) + corner(1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(size: [usize; 2], pixels: &[u8]) -> Image {
        Image::new(ImageShape::new(1, size), pixels.to_vec())
    }

    fn apply(operation: RandomOperation, strength: f64, sign: f64, image: &Image) -> Vec<u8> {
        operation.apply(image.clone(), strength, sign).pixels().to_vec()
    }

    #[test]
    fn curves_of_a_pixel_by_hand() {
        let shades = image([1, 4], &[0, 100, 200, 255]);
        assert_eq!(apply(Brightness, 1.0 / 3.0, 1.0, &shades), [0, 130, 255, 255]); // times 1.3
        assert_eq!(apply(Brightness, 1.0 / 3.0, -1.0, &shades), [0, 70, 140, 179]); // times 0.7: 178.5
        assert_eq!(apply(Solarize, 0.5, 1.0, &shades), [0, 100, 55, 0]); // from 127.5 on
        assert_eq!(apply(Posterize, 1.0, 1.0, &shades), [0, 96, 192, 240]); // four bits
        assert_eq!(apply(Identity, 1.0, 1.0, &shades), shades.pixels());
        // The mean of 0, 100, 200 and 255 is 138.75, taken as 139; half of the distances.
        assert_eq!(apply(Contrast, 5.0 / 9.0, -1.0, &shades), [70, 120, 170, 197]);
    }

    #[test]
    fn every_channel_is_stretched_by_itself() {
        let two = Image::new(ImageShape::new(2, [1, 3]), vec![50, 100, 152, 7, 7, 7]);
        assert_eq!(AutoContrast.apply(two, 1.0, 1.0).pixels(), [0, 125, 255, 7, 7, 7]);
    }

    #[test]
    fn moved_pixels_by_hand() {
        let row = image([1, 5], &[1, 2, 3, 4, 5]);
        // 150/331 of 5 pixels are 2.27: two whole ones.
        assert_eq!(apply(TranslateX, 1.0, 1.0, &row), [0, 0, 1, 2, 3]);
        assert_eq!(apply(TranslateX, 1.0, -1.0, &row), [3, 4, 5, 0, 0]);
        let column = image([5, 1], &[1, 2, 3, 4, 5]);
        assert_eq!(apply(TranslateY, 1.0, 1.0, &column), [0, 0, 1, 2, 3]);
        // A shear by 0.3 of rows that are 10 apart: the first comes from 3 to the one side, the last from 3 to the other.
        let mark = Image::from_fn(ImageShape::new(1, [21, 21]), |_, _, x| if x == 10 { 200 } else { 0 });
        let sheared = |operation: RandomOperation| operation.apply(mark.clone(), 1.0, 1.0);
        let at = |row: usize| (0..21).find(|x| sheared(ShearX).at(0, row, *x) == 200);
        assert_eq!([at(0), at(10), at(20)], [Some(13), Some(10), Some(7)]);
        assert_eq!(sheared(ShearY), mark, "a column alone has nothing to move against");
    }

    #[test]
    fn a_turn_by_thirty_degrees_and_back() {
        let mark = Image::from_fn(ImageShape::new(1, [41, 41]), |_, y, x| if y == 20 && x >= 20 { 240 } else { 0 });
        let turned = Rotate.apply(mark, 1.0, 1.0);
        // By hand: 15 pixels to the right of the centre turn to 13.0 to the right and 7.5 up or down.
        let bright = |y: usize, x: usize| u32::from(turned.at(0, y, x)) + u32::from(turned.at(0, y + 1, x));
        assert!(bright(12, 33).max(bright(27, 33)) > 180, "{} {}", bright(12, 33), bright(27, 33));
        assert!(bright(12, 33).min(bright(27, 33)) == 0);
        let back = Rotate.apply(turned, 1.0, -1.0);
        assert!(back.at(0, 20, 35) > 60 && back.at(0, 20, 5) == 0);
    }

    #[test]
    fn as_many_operations_are_drawn_as_asked_for_from_the_list() {
        let twice = RandAugment { operations: 2, magnitude: 30, from: vec![Solarize] };
        let shades = image([1, 3], &[10, 20, 250]);
        assert_eq!(twice.apply(shades.clone(), &mut Dice::new(0)), shades); // inverted twice
        let bad = RandAugment { operations: 0, magnitude: 99, from: vec![] };
        assert_eq!(bad.problems().len(), 3);
    }
}
