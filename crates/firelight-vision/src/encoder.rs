//! A vision transformer without classes: its vectors are compared, or read by something else.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::tanh;
use burn::tensor::{Device, Tensor};
use firelight_core::{
    AdapterConfig, ConfigError, Linear, LinearConfig, ParamBuilder, VisionTransformer, VisionTransformerConfig,
};
use firelight_data::{Normalization, Resizing};
use serde::{Deserialize, Serialize};

use crate::model::{VIT, check_pixels};

/// Configuration of an [`ImageEncoder`], as it stands in `config.json`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{Pass, TransformerConfig, VisionTransformerConfig};
/// use firelight_vision::ImageEncoderConfig;
///
/// let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(16, 2, 1));
/// let model = ImageEncoderConfig::new(vit).init(&Device::flex());
/// let hidden = model.vit.hidden(Tensor::ones([2, 3, 8, 8], &Device::flex()), &mut Pass::default());
/// assert_eq!(model.pooled(hidden).dims(), [2, 16]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEncoderConfig {
    /// How pixels become numbers.
    pub normalization: Normalization,
    /// How images are brought to size. Default: both sides to those of the model.
    #[serde(default, skip_serializing_if = "Resizing::is_plain")]
    pub resizing: Resizing,
    /// Whether the vector of an image goes through a dense layer and tanh, which a pre-training has left behind. Default: false.
    #[serde(default)]
    pub pooler: bool,
    /// Low-rank adapters of layers of the encoder. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// The structure, of no classes.
    pub vit: VisionTransformerConfig,
}

impl Config for ImageEncoderConfig {}

impl ImageEncoderConfig {
    /// An encoder of pixels from -1 to 1, without a pooler.
    pub fn new(vit: VisionTransformerConfig) -> Self {
        let halves = vec![0.5; vit.channels];
        let normalization = Normalization { mean: halves.clone(), std: halves };
        Self { normalization, resizing: Resizing::default(), pooler: false, adapters: None, vit }
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let classes = self.vit.n_classes;
        let own = (classes > 0).then(|| format!("vit.n_classes = {classes} must be 0: an encoder has no head"));
        let pixels = check_pixels(&self.vit, &self.resizing, &self.normalization);
        ConfigError::collect([self.vit.validate(), pixels], [own])
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> ImageEncoder {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> ImageEncoder {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let width = self.vit.transformer.d_model;
        ImageEncoder {
            vit: self.vit.init_with(&params.adapted(self.adapters.as_ref()).scope(VIT)),
            pooler: self.pooler.then(|| LinearConfig::new(width, width).init_with(&params.scope("pooler"))),
        }
    }
}

/// A vision transformer whose vectors are read by something else.
#[derive(Module, Debug)]
pub struct ImageEncoder {
    /// The model of `firelight-core`.
    pub vit: VisionTransformer,
    /// `[D, D]`.
    pub pooler: Option<Linear>,
}

impl ImageEncoder {
    /// One vector for each image: that of its class token, or the mean of its patches; through a dense layer and tanh where there is one.
    ///
    /// # Shapes
    /// - `hidden`: `[B, N + R S, D]`, of [`VisionTransformer::hidden`]; output: `[B, D]`
    pub fn pooled(&self, hidden: Tensor<3>) -> Tensor<2> {
        let pooled = self.vit.pooled(hidden);
        match &self.pooler {
            Some(dense) => tanh(dense.forward(pooled)),
            None => pooled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{Pass, TransformerConfig};
    use firelight_kernels::assert_close;

    #[test]
    fn the_vector_of_an_image_is_that_of_its_class_token_or_what_the_pooler_makes_of_it() {
        let device = Device::default();
        let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(4, 2, 1));
        let hidden = Tensor::<3>::from_floats([[[0.5, -1.0, 2.0, 0.0], [9.0, 9.0, 9.0, 9.0]]], &device);
        let plain = ImageEncoderConfig::new(vit.clone());
        assert_close(&plain.init(&device).pooled(hidden.clone()), &[0.5, -1.0, 2.0, 0.0], 0.0);
        let mut model = ImageEncoderConfig { pooler: true, ..plain.clone() }.init(&device);
        let identity = Tensor::<2>::eye(4, &device);
        model.pooler = model.pooler.map(|dense| {
            let weight = burn::module::Param::from_tensor(identity.clone()).into();
            Linear { weight, ..dense }
        });
        let expected = [0.5_f32, -1.0, 2.0, 0.0].map(f32::tanh);
        assert_close(&model.pooled(hidden), &expected, 1e-6);
        let images = Tensor::ones([1, 3, 8, 8], &device);
        assert_eq!(model.vit.hidden(images, &mut Pass::default()).dims(), [1, 5, 4]);
        let classes = ImageEncoderConfig { vit: vit.with_n_classes(2), ..plain };
        assert!(classes.validate().unwrap_err().to_string().contains("must be 0"));
    }
}
