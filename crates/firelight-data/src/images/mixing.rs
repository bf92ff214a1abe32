//! The images of a batch mixed in pairs, with targets mixed alike.
//!
//! Sources: mixup, Zhang et al. 2018, §2 (<https://arxiv.org/abs/1710.09412>): `λ x_i + (1 - λ) x_j` with `λ ~ Beta(α, α)`;
//! CutMix, Yun et al. 2019, §3.1 (<https://arxiv.org/abs/1905.04899>): a rectangle with `1 - λ` of the area is that of the other
//! image. One λ a batch, and `j` counts from its end, as timm has it; with both, a batch has one or the other, each half the time.

use super::augmentation::Chance;
use super::{Draw, ImageShape};
use crate::dice::Dice;

/// The largest α: the share of the draws that the method below throws away grows with it.
const MOST: f64 = 2.0;

/// How the images of a batch are mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mixing {
    /// The α of mixup; 0 for none.
    pub mixup: f64,
    /// The α of CutMix; 0 for none.
    pub cutmix: f64,
}

impl Mixing {
    pub(super) fn problems(&self) -> Vec<String> {
        let bad = |alpha: f64| alpha != 0.0 && !(0.05..=MOST).contains(&alpha);
        let both = [("mixup", self.mixup), ("cutmix", self.cutmix)].into_iter().filter(|(_, alpha)| bad(*alpha));
        both.map(|(key, alpha)| format!("augmentation.{key} = {alpha} must be 0 or from 0.05 to {MOST}")).collect()
    }

    /// Mixes every image `i` of a batch, `[C, H, W]` each, with image `B - 1 - i`, and returns the share that it keeps of
    /// itself; 1 where nothing is mixed.
    pub fn mix(&self, images: &mut [&mut [f32]], shape: ImageShape, seed: u64, step: u64) -> f64 {
        let mut dice = Draw { seed, step, index: u64::MAX }.dice(Chance::Mix);
        let cuts = match (self.mixup > 0.0, self.cutmix > 0.0) {
            (false, false) => return 1.0,
            (true, true) => dice.fraction() < 0.5,
            (_, cuts) => cuts,
        };
        let share = beta(if cuts { self.cutmix } else { self.mixup }, &mut dice);
        let area = if cuts { rectangle(shape, share, &mut dice) } else { [0, shape.height, 0, shape.width] };
        let share = if cuts {
            1.0 - (area[1] - area[0]) as f64 * (area[3] - area[2]) as f64 / shape.plane() as f64
        } else {
            share
        };
        let own = if cuts { 0.0 } else { share as f32 };
        let (first, second) = images.split_at_mut(images.len() / 2);
        // With an odd number the image in the middle would be mixed with itself.
        first.iter_mut().zip(second.iter_mut().rev()).for_each(|(a, b)| exchange(a, b, shape, area, own));
        share
    }
}

/// Within the rows and columns of `area`, each keeps `own` of itself and takes the rest of the other.
fn exchange(a: &mut [f32], b: &mut [f32], shape: ImageShape, [top, bottom, left, right]: [usize; 4], own: f32) {
    for row in (0..shape.channels).flat_map(|c| (top..bottom).map(move |y| c * shape.height + y)) {
        let span = row * shape.width + left..row * shape.width + right;
        for (a, b) in a[span.clone()].iter_mut().zip(&mut b[span]) {
            (*a, *b) = (own * *a + (1.0 - own) * *b, own * *b + (1.0 - own) * *a);
        }
    }
}

/// Rows and columns of a rectangle with `1 - share` of the area around a place of the image, cut off at its sides.
fn rectangle(shape: ImageShape, share: f64, dice: &mut Dice) -> [usize; 4] {
    let side = (1.0 - share).sqrt();
    let [[top, bottom], [left, right]] = shape.size().map(|length| {
        let (centre, half) = (dice.below(length), (length as f64 * side) as usize / 2);
        [centre.saturating_sub(half), (centre + half).min(length)]
    });
    [top, bottom, left, right]
}

/// A number of the distribution Beta(α, α).
///
/// Source: Jöhnk 1964, Erzeugung von betaverteilten und gammaverteilten Zufallszahlen: `U^(1/α) / (U^(1/α) + V^(1/α))` of those even
/// draws whose sum is at most 1.
fn beta(alpha: f64, dice: &mut Dice) -> f64 {
    loop {
        let [x, y] = [(); 2].map(|()| dice.fraction().powf(1.0 / alpha));
        if x + y <= 1.0 && x + y > 0.0 {
            return x / (x + y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> ImageShape {
        ImageShape::new(2, [4, 6])
    }

    /// Images of 0, 1, 2, ... everywhere, after the mixing of a step, and the share.
    fn mixed(mixing: Mixing, images: usize, step: u64) -> (Vec<Vec<f32>>, f64) {
        let mut batch: Vec<Vec<f32>> = (0..images).map(|i| vec![i as f32; shape().volume()]).collect();
        let mut rows: Vec<&mut [f32]> = batch.iter_mut().map(Vec::as_mut_slice).collect();
        let share = mixing.mix(&mut rows, shape(), 3, step);
        (batch, share)
    }

    #[test]
    fn mixup_is_the_weighted_sum_of_both() {
        let (batch, share) = mixed(Mixing { mixup: 0.8, cutmix: 0.0 }, 5, 1);
        assert!(share > 0.0 && share < 1.0);
        for (i, image) in batch.iter().enumerate() {
            let expected = share as f32 * i as f32 + (1.0 - share as f32) * (4 - i) as f32;
            assert!(image.iter().all(|pixel| (pixel - expected).abs() < 1e-5), "{i}: {expected} and {}", image[0]);
        }
    }

    #[test]
    fn cutmix_takes_a_rectangle_of_the_other_and_its_share_is_exact() {
        for step in 0..50 {
            let (batch, share) = mixed(Mixing { mixup: 0.0, cutmix: 1.0 }, 4, step);
            for (i, image) in batch.iter().enumerate() {
                let own = image.iter().filter(|pixel| **pixel == i as f32).count();
                let other = image.iter().filter(|pixel| **pixel == (3 - i) as f32).count();
                assert_eq!(own + other, shape().volume());
                assert!((own as f64 / shape().volume() as f64 - share).abs() < 1e-12, "{step}: {own} and {share}");
                assert_eq!(image[..24], image[24..], "channels alike");
            }
        }
    }

    #[test]
    fn with_both_a_batch_has_one_of_them_and_without_none() {
        let both = Mixing { mixup: 1.0, cutmix: 1.0 };
        let is_mixup = |step: &u64| mixed(both, 2, *step).0[0].iter().any(|pixel| *pixel != 0.0 && *pixel != 1.0);
        let count = (0..400).filter(is_mixup).count();
        // 200 expected, standard deviation 10.
        assert!((140..260).contains(&count), "{count}");
        let (batch, share) = mixed(Mixing::default(), 3, 0);
        assert!(share == 1.0 && batch[2] == vec![2.0; 48]);
        assert_eq!(mixed(both, 4, 9), mixed(both, 4, 9));
    }

    #[test]
    fn beta_has_its_mean_and_its_spread() {
        for alpha in [0.2, 0.8, 1.0, 2.0] {
            let mut dice = Dice::new(1);
            let draws: Vec<f64> = (0..20_000).map(|_| beta(alpha, &mut dice)).collect();
            let mean = draws.iter().sum::<f64>() / 20_000.0;
            let spread = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 20_000.0;
            // Mean 1/2, variance 1 / (4 (2 α + 1)).
            let expected = 0.25 / (2.0 * alpha + 1.0);
            assert!((mean - 0.5).abs() < 0.015 && (spread - expected).abs() < 0.01, "{alpha}: {mean}, {spread}");
        }
    }
}
