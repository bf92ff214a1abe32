//! Which patches of an image the answer came from, as far as attention tells.
//!
//! Source: Abnar and Zuidema 2020, Quantifying attention flow in transformers, §3 (<https://arxiv.org/abs/2005.00928>): the layers
//! `A_l = (W_l + I) / 2`, with `W_l` the mean of the heads' weights, multiplied from the first to the last. The row of the class token is
//! taken, the mean of both rows with a distillation token, or that of all rows where the mean of the patches is classified. Weights are no
//! proof of what a model relies on.

use burn::tensor::{Device, Tensor};
use firelight_core::{Pass, Trace};
use firelight_data::Image;
use firelight_storage::{InputError, TaskError};

use crate::inference::ImageClassifier;

/// The longer side of an image in a picture, in pixels: as large as most models of photographs read them.
const SIDE: usize = 224;

/// The share of every patch in the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// Rows and columns of patches.
    pub grid: [usize; 2],
    /// One for each patch, row by row; with the share of the class token they sum up to 1, or to less where heads have sinks.
    pub shares: Vec<f64>,
}

impl ImageClassifier {
    /// The part of an image that the model sees, all of it unless the model cuts out the middle; it is what a [`Rollout`] is of.
    pub fn seen(&self, image: &Image) -> Image {
        self.config().resizing.seen(image, self.shape())
    }

    /// Follows the attention of all layers from the answer back to the patches of an image.
    ///
    /// # Errors
    /// If the device fails, or the weights are damaged.
    pub fn rollout(&self, image: &Image) -> Result<Rollout, TaskError> {
        let mut trace = Trace::default();
        self.model().logits(self.read(std::slice::from_ref(image)), &mut Pass::default().with_trace(&mut trace));
        let vit = &self.config().vit;
        let grid = self.config().processor().shape().size().map(|side| side / vit.patch_size);
        Rollout::of(&trace, grid, vit.pooling.tokens())
    }
}

/// The product of the layers, each with the identity beside its weights: `[T, T]`.
fn rolled(layers: &[Tensor<2>], device: &Device) -> Tensor<2> {
    let tokens = layers.first().map_or(0, |layer| layer.dims()[0]);
    let identity = Tensor::<2>::eye(tokens, device);
    layers.iter().fold(identity.clone(), |product, layer| ((layer.clone() + identity.clone()) * 0.5).matmul(product))
}

impl Rollout {
    /// Follows the attention in the trace of one image, of so many rows and columns of patches behind the `first` trained tokens.
    ///
    /// # Errors
    /// If no layer has weights, the device fails, or the weights are damaged.
    ///
    /// # Panics
    /// If a layer has other than `first` tokens and one for each patch.
    pub fn of(trace: &Trace, grid: [usize; 2], first: usize) -> Result<Self, TaskError> {
        let weights = trace.layers.iter().filter_map(|layer| layer.attention.clone());
        let layers: Vec<Tensor<2>> = weights.map(|weights| weights.mean_dim(1).squeeze_dims::<2>(&[0, 1])).collect(); // [T, T]
        let Some(device) = layers.first().map(Tensor::device) else {
            return Err(InputError::new("no layer of the model has weights of attention").into());
        };
        let flow = rolled(&layers, &device).try_into_vec_as::<f64>();
        let flow = flow.map_err(TaskError::device("the attention of an image"))?;
        TaskError::require_finite(flow.iter().all(|share| share.is_finite()))?;
        let tokens = first + grid[0] * grid[1];
        assert_eq!(flow.len(), tokens * tokens, "one token for each of {grid:?} patches behind {first}");
        let rows = if first > 0 { first } else { tokens };
        let share = |patch: usize| (0..rows).map(|row| flow[row * tokens + patch]).sum::<f64>() / rows as f64;
        Ok(Self { grid, shares: (first..tokens).map(share).collect() })
    }

    /// The image in colour, dark where little of the answer came from and reddish where most did; of its own size.
    pub fn overlay(&self, image: &Image) -> Image {
        image.highlighted(self.grid, &self.shares)
    }

    /// The image and, to its right, its [`overlay`](Self::overlay), both enlarged or reduced until the longer side has 224
    /// pixels.
    pub fn picture(&self, image: &Image) -> Image {
        let image = image.clone().with_channels(3).scaled_to(SIDE);
        let overlay = self.overlay(&image);
        Image::tiled(&[image, overlay], 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{VisionConfig, VitSize};
    use firelight_core::{ImagePooling, Init, ParamBuilder, PatchPosition, TransformerConfig, WeightInit};
    use firelight_data::ImageShape;
    use firelight_kernels::assert_close;

    #[test]
    fn two_layers_of_two_tokens_by_hand() {
        // (W + I) / 2 of the layers: [[.6, .4], [.25, .75]] and [[.9, .1], [.5, .5]]; the second times the first.
        let device = Device::default();
        let layers =
            [[[0.2f32, 0.8], [0.5, 0.5]], [[0.8, 0.2], [1.0, 0.0]]].map(|layer| Tensor::from_floats(layer, &device));
        let found: Vec<f64> = rolled(&layers, &device).try_into_vec_as().unwrap();
        assert_close(&found, &[0.565, 0.435, 0.425, 0.575], 1e-6);
    }

    fn classifier(pooling: ImagePooling) -> ImageClassifier {
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let names = ["a", "b"].map(str::to_string).to_vec();
        let mut config = VisionConfig::of_small_images(VitSize::Tiny, names, 1, [8, 12]);
        config = config.with_stack(|_| TransformerConfig::encoder(16, 2, 3).with_init(wide));
        config.vit = config.vit.with_pooling(pooling).with_patch_position(PatchPosition::Sinusoidal2d);
        ImageClassifier::new(config.init_with(&ParamBuilder::new(&Device::default(), 0)), config)
    }

    #[test]
    fn shares_of_all_patches_and_the_class_token_are_the_whole() {
        let image = Image::new(ImageShape::new(1, [8, 12]), (0..96).map(|p| (p * p % 256) as u8).collect());
        let mean = classifier(ImagePooling::Mean).rollout(&image).unwrap();
        assert_eq!((mean.grid, mean.shares.len()), ([2, 3], 6));
        assert_close(&[mean.shares.iter().sum::<f64>()], &[1.0], 1e-5);
        assert!(mean.shares.iter().all(|share| *share > 0.0), "{mean:?}");
        // The class token keeps at least (1/2)^3 for itself.
        let class = classifier(ImagePooling::ClassToken).rollout(&image).unwrap();
        let sum: f64 = class.shares.iter().sum();
        assert!(sum > 0.0 && sum < 0.875 + 1e-6, "{sum}");
    }

    #[test]
    fn damaged_weights_have_no_rollout() {
        let sound = classifier(ImagePooling::Mean);
        let mut model = sound.model().clone();
        let weight = &mut model.vit.patches.projection.weight;
        *weight = weight.clone().map(|weight| weight * f32::NAN);
        let damaged = ImageClassifier::new(model, sound.config().clone());
        let image = Image::new(ImageShape::new(1, [8, 12]), vec![9; 96]);
        assert!(sound.rollout(&image).is_ok());
        assert_eq!(
            damaged.rollout(&image).unwrap_err().to_string(),
            TaskError::require_finite(false).unwrap_err().to_string()
        );
    }

    #[test]
    fn a_picture_is_the_image_and_its_overlay_side_by_side() {
        let rollout = Rollout { grid: [1, 2], shares: vec![0.1, 0.5] };
        let image = Image::new(ImageShape::new(1, [2, 3]), vec![200, 100, 0, 50, 150, 250]);
        let picture = rollout.picture(&image);
        assert_eq!(picture.shape(), ImageShape::new(3, [150, 448])); // 2 * 224 / 3 = 149.3
        let left = image.with_channels(3).resized([150, 224]);
        let right = rollout.overlay(&left);
        let rows = |image: &Image, width: usize| image.pixels().chunks(width).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let halves: Vec<_> = rows(&picture, 448).iter().map(|row| (row[..224].to_vec(), row[224..].to_vec())).collect();
        let expected: Vec<_> = rows(&left, 224).into_iter().zip(rows(&right, 224)).collect();
        assert_eq!((halves.len(), halves == expected), (3 * 150, true));
        assert_ne!(left, right);
        // A photograph is reduced.
        let large = Image::new(ImageShape::new(3, [448, 300]), vec![7; 3 * 448 * 300]);
        assert_eq!(rollout.picture(&large).shape(), ImageShape::new(3, [224, 300]));
    }
}
