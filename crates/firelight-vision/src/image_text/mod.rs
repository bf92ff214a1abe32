//! Images and texts in one space: two towers whose vectors are close where the text says what the image shows.
//!
//! Source: Radford et al. 2021, §2.3 and §2.4 (<https://arxiv.org/abs/2103.00020>): CLIP. Both towers are pre-norm stacks; that of images
//! has another norm behind its embeddings, that of texts is causal, and the vector of a text is that of its end token.

mod matcher;
mod tower;

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use firelight_core::{
    AdapterConfig, AttentionPattern, ConfigError, Init, Linear, LinearConfig, ParamBuilder, PositionConfig,
    TokenEmbeddingConfig, TransformerConfig, VisionTransformer, VisionTransformerConfig,
};
use firelight_data::{Normalization, Resizing};
use serde::{Deserialize, Serialize};

pub use matcher::ImageTextMatcher;
pub use tower::TextTower;

use crate::embedder::l2_normalized;
use crate::model::{VIT, check_pixels};

/// The logarithm of what cosines are multiplied by before anything is learnt: `ln(1 / 0.07)`; Radford et al. 2021, §2.5.
const LOG_SCALE: f64 = 2.659_260_036_932_778;

/// Configuration of an [`ImageTextModel`], as it stands in `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageTextConfig {
    /// Width `E` of the space that images and texts share.
    pub width: usize,
    /// Number of tokens `V`.
    pub vocab_size: usize,
    /// The token whose vector is that of its text, at its first place; where nobody says which, the one with the highest id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_token: Option<u32>,
    /// How pixels become numbers.
    pub normalization: Normalization,
    /// How images are brought to size. Default: both sides to those of the model.
    #[serde(default, skip_serializing_if = "Resizing::is_plain")]
    pub resizing: Resizing,
    /// Low-rank adapters of layers of both towers. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// The tower of images, of no classes.
    pub vit: VisionTransformerConfig,
    /// The stack of the tower of texts, which is causal.
    pub text: TransformerConfig,
}

impl Config for ImageTextConfig {}

impl ImageTextConfig {
    /// Two towers of pixels from -1 to 1 and of texts with learned positions, whose vectors have the width of the second one.
    pub fn new(vocab_size: usize, vit: VisionTransformerConfig, text: TransformerConfig) -> Self {
        let halves = vec![0.5; vit.channels];
        let normalization = Normalization { mean: halves.clone(), std: halves };
        let text = text.with_position(PositionConfig::Learned);
        let text = text.each_layer(|layer| layer.pattern = AttentionPattern::Causal);
        let (resizing, width) = (Resizing::default(), text.d_model);
        Self { width, vocab_size, end_token: None, normalization, resizing, adapters: None, vit, text }
    }

    /// Sets the width of the space that images and texts share.
    pub fn with_width(mut self, width: usize) -> Self {
        self.width = width;
        self
    }

    /// Sets the token whose vector is that of its text.
    pub fn with_end_token(mut self, end_token: Option<u32>) -> Self {
        self.end_token = end_token;
        self
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (classes, size) = (self.vit.n_classes, self.vocab_size);
        let is_causal = self.text.patterns().iter().all(|pattern| pattern.is_causal());
        let outside = self.end_token.filter(|&token| token as usize >= size);
        let own = [
            (classes > 0).then(|| format!("vit.n_classes = {classes} must be 0: images become vectors, not classes")),
            (!is_causal).then(|| "text.patterns must be causal: the end of a text speaks for all of it".into()),
            self.text.has_cross_attention().then(|| "text.cross_attention must be false: a text has no memory".into()),
            outside.map(|token| format!("end_token = {token} must be below vocab_size = {size}")),
        ];
        let widths = [self.d_image(), self.text.d_model].map(|d| LinearConfig::new(d, self.width));
        let [image, text] = widths.map(|projection| projection.validate());
        let embedding = TokenEmbeddingConfig::new(size, self.text.d_model).validate();
        let adapters = self.adapters.as_ref().map_or(Ok(()), AdapterConfig::validate);
        let pixels = check_pixels(&self.vit, &self.resizing, &self.normalization);
        let parts = [self.vit.validate(), pixels, self.text.validate(), image, text, embedding, adapters];
        ConfigError::collect(parts, own)
    }

    /// Width of what the tower of images says of an image.
    fn d_image(&self) -> usize {
        self.vit.transformer.d_model.saturating_mul(self.vit.pooling.parts())
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> ImageTextModel {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> ImageTextModel {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let adapted = params.adapted(self.adapters.as_ref());
        let projection = |name: &str, d_model: usize| {
            let projection = LinearConfig::new(d_model, self.width).with_bias(false);
            projection.with_init(Init::Normal { std: (d_model as f64).powf(-0.5) }).init_with(&params.scope(name))
        };
        ImageTextModel {
            vit: self.vit.init_with(&adapted.scope(VIT)),
            text: TextTower::new(self, &adapted.scope("text")),
            image_projection: projection("image_projection", self.d_image()),
            text_projection: projection("text_projection", self.text.d_model),
            log_scale: params.param("log_scale", [1], Init::Constant { value: LOG_SCALE }),
        }
    }
}

/// A tower of images and one of texts, whose vectors have one width and length 1.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use firelight_core::{Pass, TransformerConfig, VisionTransformerConfig};
/// use firelight_vision::ImageTextConfig;
///
/// let (device, mut pass) = (Device::flex(), Pass::default());
/// let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(16, 2, 1));
/// let model = ImageTextConfig::new(40, vit, TransformerConfig::new(8, 2, 1)).init(&device);
/// let images = model.of_images(model.vit.hidden(Tensor::ones([2, 3, 8, 8], &device), &mut pass)); // [images, E]
/// let tokens = Tensor::<2, Int>::from_ints([[5, 9, 39], [7, 39, 39], [39, 0, 0]], &device);
/// let texts = model.of_texts(tokens.clone(), model.text.hidden(tokens, None, &mut pass)); // [texts, E]
/// assert_eq!(model.logits(images, texts).dims(), [2, 3]);
/// ```
#[derive(Module, Debug)]
pub struct ImageTextModel {
    /// The tower of images.
    pub vit: VisionTransformer,
    /// The tower of texts.
    pub text: TextTower,
    /// `[D, E]` of the tower of images, without a bias.
    pub image_projection: Linear,
    /// `[D, E]` of the tower of texts, without a bias.
    pub text_projection: Linear,
    /// `[1]`, the logarithm of what cosines are multiplied by.
    pub log_scale: Param<Tensor<1>>,
}

impl ImageTextModel {
    /// One vector of length 1 for each image.
    ///
    /// # Shapes
    /// - `hidden`: `[B, N + R S, D]`, of [`VisionTransformer::hidden`]; output: `[B, E]`
    pub fn of_images(&self, hidden: Tensor<3>) -> Tensor<2> {
        l2_normalized(self.image_projection.forward(self.vit.pooled(hidden)))
    }

    /// One vector of length 1 for each text.
    ///
    /// # Shapes
    /// - `tokens`: `[B, T]`; `hidden`: `[B, T, D]`, of [`TextTower::hidden`]; output: `[B, E]`
    pub fn of_texts(&self, tokens: Tensor<2, Int>, hidden: Tensor<3>) -> Tensor<2> {
        l2_normalized(self.text_projection.forward(self.text.pooled(tokens, hidden)))
    }

    /// The cosine similarity of each image and each text, times the learned scale.
    ///
    /// # Shapes
    /// - `images`: `[B, E]`; `texts`: `[C, E]`; output: `[B, C]`
    pub fn logits(&self, images: Tensor<2>, texts: Tensor<2>) -> Tensor<2> {
        images.matmul(texts.transpose()) * self.log_scale.val().exp().unsqueeze()
    }

    /// Where the parameters are.
    pub(crate) fn device(&self) -> Device {
        self.log_scale.device()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::Weight;
    use firelight_kernels::assert_close;

    fn config() -> ImageTextConfig {
        let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(4, 2, 1));
        ImageTextConfig::new(9, vit, TransformerConfig::new(2, 1, 1)).with_width(2)
    }

    fn model(config: &ImageTextConfig) -> ImageTextModel {
        config.init_with(&ParamBuilder::new(&Device::default(), 0))
    }

    #[test]
    fn vectors_and_logits_by_hand() {
        let device = Device::default();
        let mut model = model(&config());
        let weight = |rows: &[f32], d: usize| {
            Weight::of_map(Param::from_tensor(Tensor::<1>::from_floats(rows, &device).reshape([d, 2])))
        };
        model.image_projection.weight = weight(&[1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0], 4);
        model.text_projection.weight = weight(&[0.0, 1.0, 1.0, 0.0], 2);
        model.log_scale = Param::from_tensor(Tensor::from_floats([2.0_f32.ln()], &device));
        // The class token, (3, 2): projected to (3, 4), of length 5.
        let hidden = Tensor::<3>::from_floats([[[3.0, 2.0, 7.0, 7.0], [9.0, 9.0, 9.0, 9.0]]], &device);
        let images = model.of_images(hidden);
        assert_close(&images, &[0.6, 0.8], 1e-6);
        // The end, token 8, stands at place 1 and says (0, 5): exchanged (5, 0), of length 1 (1, 0).
        let hidden = Tensor::<3>::from_floats([[[1.0, 1.0], [0.0, 5.0], [4.0, 4.0]]], &device);
        let texts = model.of_texts(Tensor::<2, Int>::from_ints([[3, 8, 8]], &device), hidden);
        assert_close(&texts, &[1.0, 0.0], 1e-6);
        assert_close(&model.logits(images, texts), &[1.2], 1e-6);
    }

    #[test]
    fn what_does_not_fit_is_listed() {
        let mut config = config().with_end_token(Some(9));
        config.vit.n_classes = 3;
        config.text = config.text.each_layer(|layer| layer.pattern = AttentionPattern::Full);
        config.normalization.mean.pop();
        let error = config.validate().expect_err("four problems");
        assert_eq!(error.problems().len(), 4, "{error}");
        let end = "end_token = 9 must be below vocab_size = 9";
        assert!(error.problems().iter().any(|problem| problem == end), "{error}");
    }

    #[test]
    fn both_towers_take_adapters() {
        let mut config = config();
        let bare = model(&config).num_params();
        config.adapters = Some(AdapterConfig::new(1).with_targets(["query"]));
        // Of each tower [D, 1] and [1, D]: 8 for images, 4 for texts.
        assert_eq!(model(&config).num_params(), bare + 12);
    }
}
