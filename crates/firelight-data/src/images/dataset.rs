//! Images as numbers, item by item, for the [`StepLoader`](crate::StepLoader): in their order to evaluate, and changed, in the
//! order of a seed, to train.

use burn::data::dataset::{Dataset, DatasetError};

use super::{Augmentation, Image, ImageSet, ImageShape, Normalization};
use crate::Order;

/// Which choices are made for an image: those of a seed, a step and a place in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the batch in the run.
    pub step: u64,
    /// The place in the batch.
    pub index: u64,
}

/// One image as a model reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageSample {
    /// Normalised, `[C, H, W]`.
    pub pixels: Vec<f32>,
    /// Its class.
    pub label: u32,
    /// The choices of its step; none where nothing is drawn.
    pub draw: Option<Draw>,
}

/// Normalised images with their labels.
#[derive(Clone, Debug)]
pub struct ImageDataset {
    set: ImageSet,
    normalization: Normalization,
    training: Option<Training>,
}

/// How the items of a training follow each other.
#[derive(Clone, Debug)]
struct Training {
    augmentation: Augmentation,
    seed: u64,
    batch_size: usize,
    batches: usize,
}

impl ImageDataset {
    /// The images as they are, each once.
    pub fn for_evaluation(set: ImageSet, normalization: Normalization) -> Self {
        Self { set, normalization, training: None }
    }

    /// The images of the first `batches` batches of a training, one behind the other: item `i` is the one at the place
    /// `i % batch_size` of batch `i / batch_size`. All images are seen in an order of `seed`, then all in another, changed anew.
    ///
    /// # Panics
    /// Panics if there is no image, or `batch_size` is 0.
    pub fn for_training(
        set: ImageSet,
        normalization: Normalization,
        augmentation: Augmentation,
        seed: u64,
        [batch_size, batches]: [usize; 2],
    ) -> Self {
        assert!(!set.is_empty() && batch_size > 0, "batches of {batch_size} out of {} images", set.len());
        let training = Training { augmentation, seed, batch_size, batches };
        Self { set, normalization, training: Some(training) }
    }

    /// Channels, height and width of every image.
    pub fn shape(&self) -> ImageShape {
        self.set.shape()
    }

    fn plain(&self, index: usize) -> ImageSample {
        self.sample(&self.set.image(index), index, None)
    }

    fn trained(&self, item: usize, training: &Training) -> ImageSample {
        let index = Order::new(training.seed).item(item, self.set.len());
        let [step, place] = [item / training.batch_size, item % training.batch_size].map(|number| number as u64);
        let draw = Draw { seed: training.seed, step, index: place };
        let image = training.augmentation.apply(self.set.image(index), draw);
        let mut sample = self.sample(&image, index, Some(draw));
        training.augmentation.erase(&mut sample.pixels, self.shape(), draw);
        sample
    }

    fn sample(&self, image: &Image, index: usize, draw: Option<Draw>) -> ImageSample {
        ImageSample { pixels: self.normalization.apply(image), label: self.set.labels()[index], draw }
    }
}

impl Dataset<ImageSample> for ImageDataset {
    fn get(&self, index: usize) -> Result<ImageSample, DatasetError> {
        Ok(match &self.training {
            Some(training) => self.trained(index, training),
            None => self.plain(index),
        })
    }

    fn len(&self) -> usize {
        match &self.training {
            Some(training) => training.batch_size.saturating_mul(training.batches),
            None => self.set.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::set::tests::counted;
    use super::*;

    fn training(augmentation: Augmentation, batches: usize) -> ImageDataset {
        let set = counted(6);
        ImageDataset::for_training(set.clone(), Normalization::of(&set), augmentation, 5, [4, batches])
    }

    #[test]
    fn a_training_sees_every_image_once_an_epoch_with_its_label() {
        let plain = ImageDataset::for_evaluation(counted(6), Normalization::of(&counted(6)));
        let known: Vec<ImageSample> = (0..6).map(|index| plain.get(index).unwrap()).collect();
        let trained = training(Augmentation::default(), 6);
        assert_eq!(trained.len(), 24);
        for epoch in 0..4 {
            let mut seen: Vec<usize> = (0..6)
                .map(|item| {
                    let found = trained.get(6 * epoch + item).unwrap();
                    known.iter().position(|known| (&known.pixels, known.label) == (&found.pixels, found.label)).unwrap()
                })
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn an_item_is_the_same_however_long_the_training_is() {
        let change = Augmentation { crop_padding: 1, flip: 0.5, erasing: 0.5, ..Augmentation::default() };
        let (short, long) = (training(change.clone(), 2), training(change, 9));
        for item in 0..8 {
            assert_eq!(short.get(item).unwrap(), long.get(item).unwrap());
        }
        assert_eq!(long.get(6).unwrap().draw, Some(Draw { seed: 5, step: 1, index: 2 }));
        // An image that comes again in the next epoch is changed anew.
        let differs = |item: usize| {
            (0..36).any(|other| {
                let [a, b] = [item, other].map(|item| long.get(item).unwrap());
                a.label == b.label && a.pixels != b.pixels
            })
        };
        assert!((0..6).all(differs));
    }
}
