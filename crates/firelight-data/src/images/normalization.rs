//! Mean and spread of every channel, by which pixels become numbers around 0 of size 1.

use serde::{Deserialize, Serialize};

use super::{Image, ImageSet};

/// How pixels become numbers: `(pixel / 255 - mean) / std`, channel by channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalization {
    /// Mean of every channel, of pixels from 0 to 1.
    pub mean: Vec<f32>,
    /// Standard deviation of every channel, above 0.
    pub std: Vec<f32>,
}

impl Normalization {
    /// The statistics of all pixels of a set, to be taken once, from the training split alone. A channel of one value counts as
    /// one of standard deviation 1.
    pub fn of(set: &ImageSet) -> Self {
        let counts = counts(set);
        let mean: Vec<f64> = counts.iter().map(|counts| moment(counts, |pixel| pixel)).collect();
        let deviation = |(counts, mean): (&[u64; 256], &f64)| moment(counts, |pixel| (pixel - mean).powi(2)).sqrt();
        let std = counts.iter().zip(&mean).map(deviation).map(|std| if std > 0.0 { std } else { 1.0 });
        Self { std: std.map(|std| std as f32).collect(), mean: mean.iter().map(|mean| *mean as f32).collect() }
    }

    /// Whether there are as many numbers as channels, all finite, and no spread is 0.
    pub fn fits(&self, channels: usize) -> bool {
        let counted = self.mean.len() == channels && self.std.len() == channels;
        counted
            && self.mean.iter().all(|mean| mean.is_finite())
            && self.std.iter().all(|std| std.is_finite() && *std > 0.0)
    }

    /// The numbers of an image, `[C, H, W]`.
    ///
    /// # Panics
    /// Panics if the image has more channels than there are statistics.
    pub fn apply(&self, image: &Image) -> Vec<f32> {
        let number = |(channel, plane): (usize, &[u8])| {
            let (mean, std) = (self.mean[channel], self.std[channel]);
            plane.iter().map(move |pixel| (f32::from(*pixel) / 255.0 - mean) / std).collect::<Vec<_>>()
        };
        image.pixels().chunks_exact(image.shape().plane().max(1)).enumerate().flat_map(number).collect()
    }
}

/// How often each channel has each value.
fn counts(set: &ImageSet) -> Vec<[u64; 256]> {
    let shape = set.shape();
    let mut counts = vec![[0; 256]; shape.channels];
    for (index, plane) in set.pixels().chunks_exact(shape.plane().max(1)).enumerate() {
        plane.iter().for_each(|pixel| counts[index % shape.channels][usize::from(*pixel)] += 1);
    }
    counts
}

/// The mean of a function of the pixels, which are from 0 to 1.
fn moment(counts: &[u64; 256], of: impl Fn(f64) -> f64) -> f64 {
    let total: u64 = counts.iter().sum();
    let sum: f64 = counts.iter().enumerate().map(|(pixel, count)| *count as f64 * of(pixel as f64 / 255.0)).sum();
    sum / total.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageShape;

    #[test]
    fn two_channels_by_hand() {
        // Channel 0: 0, 0, 255, 255: mean 1/2, deviation 1/2. Channel 1: 51 alone.
        let set = ImageSet::new(
            ImageShape::new(2, [1, 2]),
            vec!["a".into()],
            vec![0, 255, 51, 51, 255, 0, 51, 51],
            vec![0, 0],
        );
        let found = Normalization::of(&set);
        assert_eq!(found, Normalization { mean: vec![0.5, 0.2], std: vec![0.5, 1.0] });
        assert_eq!(found.apply(&set.image(0)), [-1.0, 1.0, 0.0, 0.0]);
        assert!(found.fits(2) && !found.fits(1));
        for bad in [0.0, f32::INFINITY, f32::NAN] {
            assert!(!Normalization { std: vec![0.5, bad], ..found.clone() }.fits(2));
        }
    }

    #[test]
    fn what_was_measured_is_0_and_1_afterwards() {
        let pixels: Vec<u8> = (0..400u32).map(|i| (i * i % 256) as u8).collect();
        let set = ImageSet::new(ImageShape::new(1, [10, 10]), vec!["a".into()], pixels, vec![0; 4]);
        let found = Normalization::of(&set);
        let numbers: Vec<f64> = (0..4).flat_map(|index| found.apply(&set.image(index))).map(f64::from).collect();
        let mean = numbers.iter().sum::<f64>() / 400.0;
        let square = numbers.iter().map(|number| number * number).sum::<f64>() / 400.0;
        assert!(mean.abs() < 1e-5 && (square - 1.0).abs() < 1e-5, "{mean}, {square}");
    }

    #[test]
    fn the_statistics_come_back_from_their_text() {
        let found = Normalization { mean: vec![0.130_660_5, 1.0 / 3.0], std: vec![0.308_107_8, 0.1] };
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Normalization>(&text).unwrap(), found);
    }
}
