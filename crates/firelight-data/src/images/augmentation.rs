//! Changes of the images that are trained on, so that no image is seen twice alike. What happens to an image is a pure function
//! of its [`Draw`]; every kind of change draws from a stream of its own, so that to turn one on changes no other.
//!
//! Sources: He et al. 2016, §4.2 (<https://arxiv.org/abs/1512.03385>), for the crop after padding and the flip; `rand.rs` and
//! `erasing.rs` name theirs.

mod erasing;
mod rand;

use firelight_storage::InputError;
use serde::{Deserialize, Serialize};

pub use rand::{RandAugment, RandomOperation};

use super::{Draw, Image, ImageError, ImageShape, Mixing};
use crate::dice::Dice;

/// The kinds of change, each with a stream of its own.
#[derive(Clone, Copy)]
pub(super) enum Chance {
    Crop = 1,
    Flip,
    Rand,
    Erase,
    Mix,
}

/// What happens to the images of a training, in this order. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Black pixels around an image, out of which a part of its old size is cut: shifts by as many pixels at most. Default: 0.
    pub crop_padding: usize,
    /// How often an image is mirrored, left to right, in `[0, 1]`. Default: 0.
    pub flip: f64,
    /// Random operations, one after the other. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rand_augment: Option<RandAugment>,
    /// How often a rectangle of an image is erased, in `[0, 1]`. Default: 0.
    pub erasing: f64,
    /// The α of mixup, from 0.05 to 2, or 0, the default, for none.
    pub mixup: f64,
    /// The α of CutMix, from 0.05 to 2, or 0, the default, for none.
    pub cutmix: f64,
}

impl Augmentation {
    /// # Errors
    /// Lists every setting that is out of its range.
    pub fn validate(&self) -> Result<(), ImageError> {
        let rates = [("flip", self.flip), ("erasing", self.erasing)];
        let bad = rates.into_iter().filter(|(_, rate)| !(0.0..=1.0).contains(rate));
        let mut problems: Vec<String> =
            bad.map(|(key, rate)| format!("augmentation.{key} = {rate} must be from 0 to 1")).collect();
        problems.extend(self.rand_augment.iter().flat_map(RandAugment::problems));
        problems.extend(self.mixing().problems());
        Ok(InputError::of_all(&problems)?)
    }

    /// How the images of a batch are mixed.
    pub fn mixing(&self) -> Mixing {
        Mixing { mixup: self.mixup, cutmix: self.cutmix }
    }

    /// The image as it is trained on, of the same shape; what is erased comes after the normalisation.
    pub fn apply(&self, image: Image, draw: Draw) -> Image {
        let image = if self.crop_padding > 0 { shifted(&image, self.crop_padding, draw) } else { image };
        let image = if draw.dice(Chance::Flip).fraction() < self.flip { mirrored(&image) } else { image };
        match &self.rand_augment {
            Some(operations) => operations.apply(image, &mut draw.dice(Chance::Rand)),
            None => image,
        }
    }

    /// Erases a rectangle of a normalised image, `[C, H, W]`, or not.
    pub fn erase(&self, pixels: &mut [f32], shape: ImageShape, draw: Draw) {
        let mut dice = draw.dice(Chance::Erase);
        if dice.fraction() < self.erasing {
            erasing::erase(pixels, shape, &mut dice);
        }
    }
}

impl Draw {
    pub(super) fn dice(self, chance: Chance) -> Dice {
        Dice::of(&[self.seed, self.step, self.index, chance as u64])
    }
}

/// Cut out of the image with `padding` black pixels around it, at any of the `(2 padding + 1)^2` places.
fn shifted(image: &Image, padding: usize, draw: Draw) -> Image {
    let mut dice = draw.dice(Chance::Crop);
    let [down, right] = [(); 2].map(|()| dice.below(2 * padding + 1) as isize - padding as isize);
    Image::from_fn(image.shape(), |c, y, x| image.at_or_black(c, y as isize + down, x as isize + right))
}

fn mirrored(image: &Image) -> Image {
    let width = image.shape().width;
    Image::from_fn(image.shape(), |c, y, x| image.at(c, y, width - 1 - x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn draw(step: u64, index: u64) -> Draw {
        Draw { seed: 7, step, index }
    }

    /// The pixels 1 to 6 in two rows.
    fn image() -> Image {
        Image::new(ImageShape::new(1, [2, 3]), (1..=6).collect())
    }

    #[test]
    fn nothing_is_changed_unless_it_is_asked_for() {
        let nothing = Augmentation::default();
        nothing.validate().unwrap();
        let mut pixels = vec![1.0; 6];
        (0..100).for_each(|step| nothing.erase(&mut pixels, image().shape(), draw(step, 0)));
        assert!((0..100).all(|step| nothing.apply(image(), draw(step, 0)) == image()) && pixels == [1.0; 6]);
    }

    #[test]
    fn a_mirrored_image_by_hand() {
        let always = Augmentation { flip: 1.0, ..Augmentation::default() };
        assert_eq!(always.apply(image(), draw(0, 0)).pixels(), [3, 2, 1, 6, 5, 4]);
        let half = Augmentation { flip: 0.5, ..Augmentation::default() };
        let flipped = (0..1000).filter(|step| half.apply(image(), draw(*step, 0)) != image()).count();
        // 500 expected, standard deviation 16.
        assert!((400..600).contains(&flipped), "{flipped}");
    }

    #[test]
    fn shifts_go_to_every_place_about_as_often() {
        let shift = Augmentation { crop_padding: 1, ..Augmentation::default() };
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        (0..9_000)
            .for_each(|step| *counts.entry(shift.apply(image(), draw(step, 3)).pixels().to_vec()).or_default() += 1);
        // By hand: down by one and right by one, the same as a cut that begins there.
        assert!(counts.contains_key(&vec![5, 6, 0, 0, 0, 0]) && counts.contains_key(&vec![0, 0, 0, 0, 1, 2]));
        // 1,000 expected, standard deviation 30.
        assert!(counts.len() == 9 && counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn what_happens_depends_on_seed_step_and_place_alone() {
        let all = Augmentation {
            crop_padding: 2,
            flip: 0.5,
            rand_augment: Some(RandAugment::default()),
            ..Augmentation::default()
        };
        let large = Image::from_fn(ImageShape::new(3, [9, 9]), |c, y, x| (40 * c + 9 * y + 5 * x) as u8);
        let found = |draw: Draw| all.apply(large.clone(), draw);
        assert_eq!(found(draw(5, 2)), found(draw(5, 2)));
        assert_ne!(found(draw(5, 2)), found(draw(5, 3)));
        assert_ne!(found(draw(5, 2)), found(draw(6, 2)));
        assert_ne!(found(draw(5, 2)), found(Draw { seed: 8, ..draw(5, 2) }));
        // One more kind of change leaves the others as they are.
        let more = Augmentation { erasing: 1.0, ..all.clone() };
        assert_eq!(more.apply(large.clone(), draw(5, 2)), found(draw(5, 2)));
    }

    #[test]
    fn settings_out_of_range_are_all_listed() {
        let bad = Augmentation {
            flip: 1.5,
            erasing: -0.1,
            rand_augment: Some(RandAugment { magnitude: 31, ..RandAugment::default() }),
            mixup: 3.0,
            cutmix: -1.0,
            ..Augmentation::default()
        };
        let text = bad.validate().unwrap_err().to_string();
        assert_eq!(text.split("; ").count(), 5, "{text}");
        assert!(text.starts_with("augmentation.flip = 1.5 must be from 0 to 1"), "{text}");
    }
}
