//! The cut of an image into patches.
//!
//! Source: Dosovitskiy et al. 2021, §3.1, eq. 1 (<https://arxiv.org/abs/2010.11929>): `x_p E`, a convolution whose stride is its
//! size.

use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use burn::module::Module;
use burn::tensor::Tensor;

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

    /// The same projection without its bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.projection.bias = None;
        self
    }

    /// Channels of an image.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Rows and columns of patches in an image of so many pixels, `[height, width]`; `None` where they do not fit.
    pub fn grid(&self, image_size: [usize; 2]) -> Option<[usize; 2]> {
        let patch = self.patch_size;
        let fits = image_size.iter().all(|pixels| *pixels > 0 && pixels.is_multiple_of(patch));
        fits.then(|| image_size.map(|pixels| pixels / patch))
    }

    /// # Shapes
    /// - `images`: `[B, C, R P, S P]`; output: `[B, R S, D]`, patches row by row
    ///
    /// # Panics
    /// If the channels differ or the image is no whole number of patches.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<3> {
        let [batch, channels, height, width] = images.dims();
        let patch = self.patch_size;
        let Some([rows, columns]) = self.grid([height, width]).filter(|_| channels == self.channels) else {
            let shape = images.dims();
            panic!("images {shape:?} do not fit {} channels and patches of {patch} pixels", self.channels);
        };
        let patches = images.reshape([batch, channels, rows, patch, columns, patch]);
        let patches = patches.permute([0, 2, 4, 1, 3, 5]); // [B, R, S, C, P, P]
        self.projection.forward(patches.reshape([batch, rows * columns, channels * patch * patch]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::module::conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Distribution};
    use firelight_kernels::assert_close;

    fn patches() -> PatchEmbedding {
        PatchEmbedding::new(3, 4, 5, Init::Normal { std: 1.0 }, &ParamBuilder::new(&Device::default(), 1))
    }

    #[test]
    fn the_product_over_patches_is_the_strided_convolution() {
        let patches = patches();
        let images = Tensor::<4>::random([2, 3, 8, 12], Distribution::Default, &Device::default());
        let weight = patches.projection.weight.val().transpose().reshape([5, 3, 4, 4]);
        let options = ConvOptions::new([4, 4], [0, 0], [1, 1], 1);
        let convolved = conv2d(images.clone(), weight, None, options); // [B, D, R, S]
        let expected = convolved.flatten::<3>(2, 3).swap_dims(1, 2).into_data();
        assert_close(&patches.forward(images), &expected, 1e-4);
    }

    #[test]
    fn without_a_bias_a_black_image_is_nothing() {
        let black = Tensor::zeros([1, 3, 4, 4], &Device::default());
        let biased = patches();
        let ones = Tensor::ones([5], &Device::default());
        let projection = Linear { bias: Some(burn::module::Param::from_tensor(ones)), ..biased.projection };
        let biased = PatchEmbedding { projection, ..biased };
        assert_close(&biased.forward(black.clone()), &[1.0; 5], 0.0);
        assert_close(&biased.without_bias().forward(black), &[0.0; 5], 0.0);
    }

    #[test]
    #[should_panic(expected = "images [1, 3, 8, 10] do not fit 3 channels and patches of 4 pixels")]
    fn a_part_of_a_patch_is_refused() {
        patches().forward(Tensor::zeros([1, 3, 8, 10], &Device::default()));
    }

    #[test]
    #[should_panic(expected = "images [1, 1, 8, 8] do not fit 3 channels")]
    fn other_channels_are_refused() {
        patches().forward(Tensor::zeros([1, 1, 8, 8], &Device::default()));
    }
}
