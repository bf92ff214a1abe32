//! Images become tokens; the rest is the same Transformer.
//!
//! Source: Dosovitskiy et al. 2021, §3.1 (<https://arxiv.org/abs/2010.11929>): patches, a class token, learned positions,
//! a pre-norm encoder, a head on the class token after the final norm. Differs from the paper: the mean of the patches may
//! stand in for the class token (Beyer et al. 2022, <https://arxiv.org/abs/2205.01580>), with fixed two-dimensional
//! positions.

use crate::attention::AttentionPattern;
use crate::error::ConfigError;
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use crate::pass::Pass;
use crate::position::PositionConfig;
use crate::transformer::{SequenceInput, Transformer, TransformerConfig};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// What stands for the whole image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImagePooling {
    /// A trained token before the patches.
    #[default]
    ClassToken,
    /// The mean of the patches.
    Mean,
}

/// How a patch knows its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PatchPosition {
    /// A trained vector per place, and one for the class token.
    #[default]
    Learned,
    /// Sines and cosines of row and column, half of the channels each; nothing for the class token.
    Sinusoidal2d,
}

fn channels() -> usize {
    3
}

/// Configuration of a [`VisionTransformer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VisionTransformerConfig {
    /// Height and width of an image in pixels, multiples of `patch_size`.
    pub image_size: [usize; 2],
    /// Height and width of a patch in pixels.
    pub patch_size: usize,
    /// Channels of an image. Default: 3.
    #[serde(default = "channels")]
    pub channels: usize,
    /// Number of classes.
    pub n_classes: usize,
    /// What stands for the whole image. Default: the class token.
    #[serde(default)]
    pub pooling: ImagePooling,
    /// How a patch knows its place. Default: learned.
    #[serde(default)]
    pub patch_position: PatchPosition,
    /// The stack; its own positions are off and every token sees every other.
    pub transformer: TransformerConfig,
}

impl VisionTransformerConfig {
    /// A ViT on square RGB images with a class token and learned positions.
    pub fn new(image_size: usize, patch_size: usize, n_classes: usize, transformer: TransformerConfig) -> Self {
        Self {
            image_size: [image_size; 2],
            patch_size,
            channels: channels(),
            n_classes,
            pooling: ImagePooling::default(),
            patch_position: PatchPosition::default(),
            transformer: transformer.with_position(PositionConfig::None).with_patterns(vec![AttentionPattern::Full]),
        }
    }

    /// Sets the channels of an image.
    pub fn with_channels(mut self, channels: usize) -> Self {
        self.channels = channels;
        self
    }

    /// Sets what stands for the whole image.
    pub fn with_pooling(mut self, pooling: ImagePooling) -> Self {
        self.pooling = pooling;
        self
    }

    /// Sets how a patch knows its place.
    pub fn with_patch_position(mut self, patch_position: PatchPosition) -> Self {
        self.patch_position = patch_position;
        self
    }

    /// Rows and columns of patches.
    pub fn grid(&self) -> [usize; 2] {
        self.image_size.map(|pixels| pixels / self.patch_size.max(1))
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (size, patch, d_model) = (self.image_size, self.patch_size, self.transformer.d_model);
        let fits = patch > 0 && size.iter().all(|pixels| *pixels > 0 && pixels.is_multiple_of(patch));
        let quarters = self.patch_position != PatchPosition::Sinusoidal2d || d_model.is_multiple_of(4);
        let full = self.transformer.patterns == [AttentionPattern::Full];
        let problem = |holds: bool, text: String| (!holds).then_some(text);
        let own = [
            problem(fits, format!("image_size = {size:?} must be multiples of patch_size = {patch}, above 0")),
            problem(self.channels > 0, "channels = 0 must be at least 1".into()),
            problem(self.n_classes > 0, "n_classes = 0 must be at least 1".into()),
            problem(quarters, format!("d_model = {d_model} must be a multiple of 4 with two-dimensional positions")),
            problem(full, "patterns must be [\"full\"]: a patch sees the whole image".into()),
        ];
        ConfigError::collect([self.transformer.validate()], own)
    }

    /// Builds the model with seed 0.
    pub fn init(&self, device: &Device) -> VisionTransformer {
        self.init_with(&ParamBuilder::new(device, 0))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> VisionTransformer {
        crate::error::expect_valid(self.validate());
        let (d_model, init) = (self.transformer.d_model, self.transformer.init.weight);
        let [rows, columns] = self.grid();
        let with_class = self.pooling == ImagePooling::ClassToken;
        let tokens = rows * columns + usize::from(with_class);
        let learned = self.patch_position == PatchPosition::Learned;
        VisionTransformer {
            patches: PatchEmbedding::new(self.channels, self.patch_size, d_model, init, &params.scope("patches")),
            class_token: with_class.then(|| params.param("class_token", [1, 1, d_model], Init::Zeros)),
            position: learned.then(|| params.param("position", [tokens, d_model], init)),
            transformer: self.transformer.init_with(&params.scope("transformer")),
            head: LinearConfig::new(d_model, self.n_classes).with_init(init).init_with(&params.scope("head")),
        }
    }
}

/// Cuts an image into patches and projects each: a convolution whose stride is its size, computed as one matrix product.
#[derive(Module, Debug)]
pub struct PatchEmbedding {
    /// `[C P P, D]`; the rows run over channels, then rows, then columns of a patch, as a convolution's weight
    /// `[D, C, P, P]` flattened and transposed.
    pub projection: Linear,
    channels: usize,
    patch_size: usize,
}

impl PatchEmbedding {
    /// Builds the projection at the builder's path.
    pub fn new(channels: usize, patch_size: usize, d_model: usize, init: Init, params: &ParamBuilder) -> Self {
        let projection = LinearConfig::new(channels * patch_size * patch_size, d_model).with_init(init);
        Self { projection: projection.init_with(&params.scope("projection")), channels, patch_size }
    }

    /// # Shapes
    /// - `images`: `[B, C, R P, S P]`; output: `[B, R S, D]`, patches row by row
    ///
    /// # Panics
    /// If the channels differ or the image is no whole number of patches.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<3> {
        let [batch, channels, height, width] = images.dims();
        let patch = self.patch_size;
        assert!(
            channels == self.channels && height.is_multiple_of(patch) && width.is_multiple_of(patch),
            "images {:?} do not fit {} channels and patches of {patch} pixels",
            images.dims(),
            self.channels
        );
        let (rows, columns) = (height / patch, width / patch);
        let patches = images.reshape([batch, channels, rows, patch, columns, patch]);
        let patches = patches.permute([0, 2, 4, 1, 3, 5]); // [B, R, S, C, P, P]
        self.projection.forward(patches.reshape([batch, rows * columns, channels * patch * patch]))
    }
}

/// An image classifier.
#[derive(Module, Debug)]
pub struct VisionTransformer {
    /// Pixels become vectors.
    pub patches: PatchEmbedding,
    /// `[1, 1, D]`, begins at 0.
    pub class_token: Option<Param<Tensor<3>>>,
    /// `[R S (+ 1), D]`, the class token's place first.
    pub position: Option<Param<Tensor<2>>>,
    /// The encoder, with its final norm.
    pub transformer: Transformer,
    /// `[D, classes]`.
    pub head: Linear,
}

impl VisionTransformer {
    /// The logits of every class.
    ///
    /// # Shapes
    /// - `images`: `[B, C, H, W]`; output: `[B, classes]`
    ///
    /// # Panics
    /// If the images are not of the size that the model is for.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let hidden = self.hidden(images);
        let pooled = match &self.class_token {
            Some(_) => hidden.narrow(1, 0, 1),
            None => hidden.mean_dim(1),
        };
        self.head.forward(pooled.squeeze_dim::<2>(1))
    }

    /// The vectors of all tokens after the final norm, the class token's first.
    ///
    /// # Shapes
    /// - `images`: `[B, C, H, W]`; output: `[B, R S (+ 1), D]`
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn hidden(&self, images: Tensor<4>) -> Tensor<3> {
        let [batch, _, height, width] = images.dims();
        let grid = [height, width].map(|pixels| pixels / self.patches.patch_size);
        let patches = self.patches.forward(images);
        let x = match &self.position {
            None => self.with_class(patches.clone() + table(grid, patches.dims()[2], &patches.device()), batch),
            Some(position) => {
                let x = self.with_class(patches, batch);
                let [places, _] = position.dims();
                assert!(x.dims()[1] == places, "{} tokens for {places} learned places: resize the images", x.dims()[1]);
                x + position.val().unsqueeze()
            }
        };
        self.transformer.forward(x, &SequenceInput::default(), &mut Pass::default())
    }

    fn with_class(&self, patches: Tensor<3>, batch: usize) -> Tensor<3> {
        match &self.class_token {
            Some(class) => {
                let d_model = patches.dims()[2];
                Tensor::cat(vec![class.val().expand([batch, 1, d_model]), patches], 1)
            }
            None => patches,
        }
    }
}

/// Sines and cosines of the row, then of the column, a quarter of the channels each: `[1, R S, D]`.
///
/// Source: Beyer et al. 2022, `posemb_sincos_2d` of their code: frequencies `10000^(-i / (D/4 - 1))`.
fn table([rows, columns]: [usize; 2], d_model: usize, device: &Device) -> Tensor<3> {
    let quarter = d_model / 4;
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / (quarter as f64 - 1.0).max(1.0));
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row as f64, column as f64)));
    let values: Vec<f32> = places
        .flat_map(|(row, column)| {
            let wave =
                move |place: f64, turn: fn(f64) -> f64| (0..quarter).map(move |i| turn(place * frequency(i)) as f32);
            wave(column, f64::sin).chain(wave(column, f64::cos)).chain(wave(row, f64::sin)).chain(wave(row, f64::cos))
        })
        .collect();
    Tensor::<1>::from_floats(values.as_slice(), device).reshape([1, rows * columns, d_model])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed_forward::Activation;
    use burn::tensor::module::conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Distribution, Tolerance};

    fn config(pooling: ImagePooling, position: PatchPosition) -> VisionTransformerConfig {
        let stack = TransformerConfig::encoder(16, 2, 1);
        VisionTransformerConfig::new(8, 4, 3, stack).with_pooling(pooling).with_patch_position(position)
    }

    #[test]
    fn published_models_are_counted_exactly() {
        let device = Device::default();
        let small = TransformerConfig::encoder(128, 8, 4).with_d_ff(512).with_activation(Activation::Gelu);
        assert_eq!(VisionTransformerConfig::new(32, 8, 10, small).init(&device).num_params(), 821_642);
        let base = TransformerConfig::encoder(768, 12, 12).with_activation(Activation::Gelu);
        assert_eq!(VisionTransformerConfig::new(224, 16, 1000, base).init(&device).num_params(), 86_567_656);
    }

    #[test]
    fn the_product_over_patches_is_the_strided_convolution() {
        let device = Device::default();
        let patches = PatchEmbedding::new(3, 4, 5, Init::Normal { std: 1.0 }, &ParamBuilder::new(&device, 1));
        let images = Tensor::<4>::random([2, 3, 8, 12], Distribution::Default, &device);
        let weight = patches.projection.weight.val().transpose().reshape([5, 3, 4, 4]);
        let options = ConvOptions::new([4, 4], [0, 0], [1, 1], 1);
        let convolved = conv2d(images.clone(), weight, None, options); // [B, D, R, S]
        let expected = convolved.flatten::<3>(2, 3).swap_dims(1, 2).into_data();
        patches.forward(images).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-4));
    }

    #[test]
    fn without_places_patches_may_change_theirs_and_with_them_not() {
        let device = Device::default();
        let images = Tensor::<4>::random([1, 3, 8, 8], Distribution::Default, &device);
        let flipped = Tensor::cat(vec![images.clone().narrow(2, 4, 4), images.clone().narrow(2, 0, 4)], 2);
        let moved = |model: &VisionTransformer| {
            (model.forward(images.clone()) - model.forward(flipped.clone())).abs().max().into_scalar::<f64>()
        };
        let mut model = config(ImagePooling::Mean, PatchPosition::Learned).init(&device);
        assert!(moved(&model) > 1e-6);
        model.position = Some(Param::from_tensor(Tensor::zeros([4, 16], &device)));
        assert!(moved(&model) < 1e-6);
        let fixed = config(ImagePooling::ClassToken, PatchPosition::Sinusoidal2d).init(&device);
        assert!(moved(&fixed) > 1e-6);
    }

    #[test]
    fn a_place_by_hand() {
        // D = 4: one frequency, 1: column 2, row 1 -> sin 2, cos 2, sin 1, cos 1.
        let place = table([2, 3], 4, &Device::default()).narrow(1, 5, 1);
        let expected = [0.909_297f32, -0.416_147, 0.841_471, 0.540_302];
        let expected = burn::tensor::TensorData::new(expected.to_vec(), [1, 1, 4]);
        place.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    }

    #[test]
    fn bad_sizes_are_all_listed() {
        let mut config = config(ImagePooling::ClassToken, PatchPosition::Learned);
        (config.image_size, config.n_classes) = ([10, 8], 0);
        let error = config.validate().expect_err("two problems");
        assert_eq!(error.problems().len(), 2, "{error}");
    }
}
