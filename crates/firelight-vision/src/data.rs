//! Normalised images become batches, those of a training mixed in pairs where that is asked for.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_data::{ImageSample, ImageShape, Mixing};

/// What one step of a model reads.
#[derive(Debug, Clone)]
pub struct ImageBatch {
    /// `[B, C, H, W]`, normalised.
    pub images: Tensor<4>,
    /// `[B]`, the class of each image.
    pub targets: Tensor<1, Int>,
    /// What the images are mixed with; none where they are not.
    pub partners: Option<Partners>,
}

/// The other images of a mixed batch.
#[derive(Debug, Clone)]
pub struct Partners {
    /// `[B]`, the class of the image that each is mixed with.
    pub targets: Tensor<1, Int>,
    /// The share that each image keeps of itself, from 0 to 1.
    pub share: f64,
}

/// Stacks images of one shape.
#[derive(Debug, Clone, Copy)]
pub struct ImageBatcher {
    shape: ImageShape,
    mixing: Mixing,
}

impl ImageBatcher {
    /// A batcher of images of this shape, as they are.
    pub fn new(shape: ImageShape) -> Self {
        Self { shape, mixing: Mixing::default() }
    }

    /// Mixes the batches of a training; images that are evaluated stay as they are.
    #[must_use]
    pub fn with_mixing(mut self, mixing: Mixing) -> Self {
        self.mixing = mixing;
        self
    }
}

impl Batcher<ImageSample, ImageBatch> for ImageBatcher {
    fn batch(&self, mut samples: Vec<ImageSample>, device: &Device) -> ImageBatch {
        let ImageShape { channels, height, width } = self.shape;
        let labels: Vec<i32> = samples.iter().map(|sample| sample.label as i32).collect();
        let share = match samples.first().and_then(|sample| sample.draw) {
            Some(draw) => {
                let mut pixels: Vec<&mut [f32]> =
                    samples.iter_mut().map(|sample| sample.pixels.as_mut_slice()).collect();
                self.mixing.mix(&mut pixels, self.shape, draw.seed, draw.step)
            }
            None => 1.0,
        };
        let pixels: Vec<f32> = samples.iter().flat_map(|sample| sample.pixels.iter().copied()).collect();
        let targets = |labels: Vec<i32>| {
            let count = labels.len();
            Tensor::from_data(TensorData::new(labels, [count]), device)
        };
        let others = labels.iter().rev().copied().collect();
        ImageBatch {
            images: Tensor::from_data(TensorData::new(pixels, [labels.len(), channels, height, width]), device),
            partners: (share < 1.0).then(|| Partners { targets: targets(others), share }),
            targets: targets(labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::Draw;
    use firelight_kernels::assert_close;

    fn sample(value: f32, label: u32, draw: Option<Draw>) -> ImageSample {
        ImageSample { pixels: vec![value; 4], label, draw }
    }

    fn batch(mixing: Mixing, draw: Option<Draw>) -> ImageBatch {
        let samples = vec![sample(0.0, 3, draw), sample(1.0, 5, draw), sample(2.0, 7, draw)];
        ImageBatcher::new(ImageShape::new(1, [2, 2])).with_mixing(mixing).batch(samples, &Device::default())
    }

    fn ids(tensor: &Tensor<1, Int>) -> Vec<i64> {
        tensor.try_to_vec_as().unwrap()
    }

    #[test]
    fn images_are_stacked_with_their_classes() {
        let batch = batch(Mixing::default(), None);
        assert_eq!((batch.images.dims(), ids(&batch.targets)), ([3, 1, 2, 2], vec![3, 5, 7]));
        let pixels: Vec<f32> = batch.images.try_into_vec_as().unwrap();
        assert_eq!(pixels, [[0.0; 4], [1.0; 4], [2.0; 4]].concat());
        assert!(batch.partners.is_none());
    }

    #[test]
    fn a_training_batch_is_mixed_with_its_reverse() {
        let draw = Draw { seed: 1, step: 2, index: 0 };
        let mixing = Mixing { mixup: 1.0, cutmix: 0.0 };
        let mixed = batch(mixing, Some(draw));
        let partners = mixed.partners.expect("mixed");
        assert_eq!((ids(&mixed.targets), ids(&partners.targets)), (vec![3, 5, 7], vec![7, 5, 3]));
        let pixels: Vec<f32> = mixed.images.try_into_vec_as().unwrap();
        // Images of one shade each: 0, 1 and 2 with the share that they keep, and what is left of 2, 1 and 0.
        let shades = [2.0 * (1.0 - partners.share), 1.0, 2.0 * partners.share];
        assert_close(&pixels, &shades.map(|shade| [shade; 4]).concat(), 1e-6);
        assert!(batch(mixing, None).partners.is_none(), "what is evaluated is never mixed");
    }
}
