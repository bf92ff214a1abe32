//! Random erasing: a rectangle becomes the mean of the training images, which is 0 after the normalisation.
//!
//! Source: Zhong et al. 2020, algorithm 1 (<https://arxiv.org/abs/1708.04896>), with their shares from 0.02 to 0.33 of the area;
//! proportions from 0.3 to 1/0.3, even in the logarithm, and ten attempts, as in torchvision. They fill with random values.

use crate::dice::Dice;
use crate::images::ImageShape;

const AREA: [f64; 2] = [0.02, 0.33];
const PROPORTION: f64 = 0.3;
const ATTEMPTS: usize = 10;

/// Erases a rectangle of `[C, H, W]`; nothing if none of the attempts fits into the image.
pub(super) fn erase(pixels: &mut [f32], shape: ImageShape, dice: &mut Dice) {
    let Some([top, left, height, width]) = (0..ATTEMPTS).find_map(|_| rectangle(shape, dice)) else { return };
    for plane in pixels.chunks_exact_mut(shape.plane()) {
        plane.chunks_exact_mut(shape.width).skip(top).take(height).for_each(|row| row[left..left + width].fill(0.0));
    }
}

/// Row, column, height and width of a rectangle, if the one that is drawn fits.
fn rectangle(shape: ImageShape, dice: &mut Dice) -> Option<[usize; 4]> {
    let area = shape.plane() as f64 * (AREA[0] + (AREA[1] - AREA[0]) * dice.fraction());
    let proportion = PROPORTION.powf(1.0 - 2.0 * dice.fraction());
    let [height, width] = [area * proportion, area / proportion].map(|square| square.sqrt().round() as usize);
    let fits = (1..shape.height).contains(&height) && (1..shape.width).contains(&width);
    fits.then(|| [dice.below(shape.height - height + 1), dice.below(shape.width - width + 1), height, width])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_of_every_channel_is_erased_and_nothing_else() {
        let shape = ImageShape::new(2, [20, 16]);
        let mut shares = Vec::new();
        for seed in 0..500 {
            let mut pixels = vec![1.0; shape.volume()];
            erase(&mut pixels, shape, &mut Dice::new(seed));
            let (first, second) = pixels.split_at(shape.plane());
            assert_eq!(first, second);
            let erased: Vec<(usize, usize)> =
                (0..shape.plane()).filter(|i| first[*i] == 0.0).map(|i| (i / 16, i % 16)).collect();
            let bounds = |of: fn(&(usize, usize)) -> usize| {
                let places = || erased.iter().map(of);
                places().max().unwrap_or(0) + 1 - places().min().unwrap_or(0)
            };
            assert_eq!(erased.len(), bounds(|place| place.0) * bounds(|place| place.1), "a full rectangle");
            shares.push(erased.len() as f64 / shape.plane() as f64);
        }
        let mean = shares.iter().sum::<f64>() / 500.0;
        // Even from 0.02 to 0.33, a mean of 0.175; large and long ones are refused.
        assert!((0.15..0.19).contains(&mean) && shares.iter().all(|share| (0.01..0.37).contains(share)), "{mean}");
    }

    #[test]
    fn an_image_that_is_too_small_stays() {
        let mut pixels = [1.0];
        erase(&mut pixels, ImageShape::new(1, [1, 1]), &mut Dice::new(1));
        assert_eq!(pixels, [1.0]);
    }
}
