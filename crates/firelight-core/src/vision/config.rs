//! The configuration of a [`VisionTransformer`].

use super::{Distillation, PatchEmbedding, VisionTransformer};
use crate::attention::AttentionPattern;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::linear::{Linear, LinearConfig};
use crate::position::PositionConfig;
use crate::transformer::TransformerConfig;
use burn::tensor::Device;
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
    /// A class token and, behind it, a distillation token with a head of its own, which learns from a teacher (Touvron et al.
    /// 2021, §4, <https://arxiv.org/abs/2012.12877>). The logits are the mean of both heads'.
    Distilled,
    /// The same two tokens, and one head, on the class token: DeiT trained further without a teacher.
    ClassOfDistilled,
    /// A class token, and beside its vector the mean of the patches, as classifiers on DINOv2 have it (Oquab et al. 2023, §B.3,
    /// <https://arxiv.org/abs/2304.07193>).
    ClassAndMean,
}

impl ImagePooling {
    /// Trained tokens before the patches.
    pub fn tokens(self) -> usize {
        match self {
            Self::Mean => 0,
            Self::ClassToken | Self::ClassAndMean => 1,
            Self::Distilled | Self::ClassOfDistilled => 2,
        }
    }

    /// Vectors side by side in what stands for the image.
    pub fn parts(self) -> usize {
        if self == Self::ClassAndMean { 2 } else { 1 }
    }
}

/// What is added to the tokens of an image before the layers. What the layers do with positions is the [`PositionConfig`] of the stack, for
/// images as for texts; a model may have both, as EVA-02 does. The two are separate because what is added belongs to a grid: a learned table
/// is interpolated for images of another size, and the tokens before the patches have no row and column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PatchPosition {
    /// A trained vector per place, and one for each token before the patches.
    #[default]
    Learned,
    /// Sines and cosines of row and column, half of the channels each; nothing for the tokens before the patches.
    Sinusoidal2d,
    /// Nothing is added: the layers turn queries and keys by row and column.
    None,
}

/// How rows and columns are counted where layers turn queries and keys by them. The tokens before the patches stand at 0 on both
/// axes, which turns nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PatchCoordinates {
    /// From 0, as in Pixtral, Qwen2-VL and, at the size that they are trained for, EVA-02.
    #[default]
    Index,
    /// The centre of the patch, from -2π at one edge of an image of any size to 2π at the other, as in DINOv3.
    Normalized,
}

fn channels() -> usize {
    3
}

fn yes() -> bool {
    true
}

/// Configuration of a [`VisionTransformer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VisionTransformerConfig {
    /// Height and width of an image in pixels, multiples of `patch_size`. Learned places are made for this size.
    pub image_size: [usize; 2],
    /// Height and width of a patch in pixels.
    pub patch_size: usize,
    /// Channels of an image. Default: 3.
    #[serde(default = "channels")]
    pub channels: usize,
    /// Number of classes; 0 is a model without a head, whose [`pooled`](VisionTransformer::pooled) vectors are read by something else.
    pub n_classes: usize,
    /// Whether the projection of patches has a bias; CLIP's has none. Default: true.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub patch_bias: bool,
    /// What stands for the whole image. Default: the class token.
    #[serde(default)]
    pub pooling: ImagePooling,
    /// How a patch knows its place. Default: learned.
    #[serde(default)]
    pub patch_position: PatchPosition,
    /// How rows and columns are counted where layers turn queries and keys by them. Default: from 0.
    #[serde(default)]
    pub patch_coordinates: PatchCoordinates,
    /// The stack; every token sees every other. Its own positions are off, or rotary with two axes, rows and columns.
    pub transformer: TransformerConfig,
}

impl TransformerConfig {
    /// The stack as images need it: every token sees every other, and positions are off but rotary ones of two axes.
    pub fn for_images(self) -> Self {
        let stack = if self.position.n_axes() == 2 { self } else { self.with_position(PositionConfig::None) };
        stack.each_layer(|layer| layer.pattern = AttentionPattern::Full)
    }
}

impl VisionTransformerConfig {
    /// A ViT on square RGB images with a class token and learned positions.
    pub fn new(image_size: usize, patch_size: usize, n_classes: usize, transformer: TransformerConfig) -> Self {
        Self {
            image_size: [image_size; 2],
            patch_size,
            channels: channels(),
            n_classes,
            patch_bias: true,
            pooling: ImagePooling::default(),
            patch_position: PatchPosition::default(),
            patch_coordinates: PatchCoordinates::default(),
            transformer: transformer.for_images(),
        }
    }

    /// Sets height and width of an image in pixels.
    pub fn with_image_size(mut self, image_size: [usize; 2]) -> Self {
        self.image_size = image_size;
        self
    }

    /// Sets the number of classes; 0 is a model without a head.
    pub fn with_n_classes(mut self, n_classes: usize) -> Self {
        self.n_classes = n_classes;
        self
    }

    /// Sets the channels of an image.
    pub fn with_channels(mut self, channels: usize) -> Self {
        self.channels = channels;
        self
    }

    /// Sets whether the projection of patches has a bias.
    pub fn with_patch_bias(mut self, patch_bias: bool) -> Self {
        self.patch_bias = patch_bias;
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

    /// Sets how rows and columns are counted where layers turn queries and keys by them.
    pub fn with_patch_coordinates(mut self, patch_coordinates: PatchCoordinates) -> Self {
        self.patch_coordinates = patch_coordinates;
        self
    }

    /// The position schemes of the stack and of its layers.
    fn schemes(&self) -> impl Iterator<Item = &PositionConfig> {
        let stack = &self.transformer;
        std::iter::once(&stack.position).chain(stack.layers.iter().filter_map(|layer| layer.position.as_ref()))
    }

    /// Whether layers turn queries and keys by row and column.
    fn has_axes(&self) -> bool {
        self.schemes().any(|position| position.n_axes() == 2)
    }

    /// Rows and columns of patches.
    pub fn grid(&self) -> [usize; 2] {
        self.image_size.map(|pixels| pixels / self.patch_size.max(1))
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (size, patch, stack) = (self.image_size, self.patch_size, &self.transformer);
        let [rows, columns] = self.grid();
        let d_model = stack.d_model;
        let pixels = self.channels.saturating_mul(patch).saturating_mul(patch);
        Checks::default()
            .include(stack.validate())
            .require(patch > 0 && size.iter().all(|pixels| *pixels > 0 && pixels.is_multiple_of(patch)), || {
                format!("image_size = {size:?} must be multiples of patch_size = {patch}, above 0")
            })
            .size("patches of image_size", rows.saturating_mul(columns).max(1))
            .size("channels", self.channels)
            .size("channels * patch_size^2", pixels.max(1))
            .size("n_classes", self.n_classes.max(1))
            .require(self.n_classes > 0 || self.pooling != ImagePooling::Distilled, || {
                "n_classes = 0 leaves the distillation token without a head: use pooling = \"class_token\" or \"mean\"".into()
            })
            .require(self.patch_position != PatchPosition::Sinusoidal2d || d_model.is_multiple_of(4), || {
                format!("d_model = {d_model} must be a multiple of 4 with two-dimensional positions")
            })
            .require(stack.patterns().iter().all(|pattern| *pattern == AttentionPattern::Full), || {
                "patterns must be [\"full\"], and so the pattern of each of layers: a patch sees the whole image".into()
            })
            .require(self.schemes().all(|position| *position == PositionConfig::None || position.n_axes() == 2), || {
                "position must be \"none\" or rotary with two axes, { kind = \"rotary\", axes = \"axial\" }: patches have places \
                 of their own, see patch_position"
                    .into()
            })
            .require(self.patch_position != PatchPosition::None || self.has_axes(), || {
                "patch_position = \"none\" needs position = { kind = \"rotary\", axes = \"axial\" }: nothing else tells patches \
                 apart"
                    .into()
            })
            .require(self.patch_coordinates == PatchCoordinates::Index || self.has_axes(), || {
                "patch_coordinates needs position = { kind = \"rotary\", axes = \"axial\" }: nothing else reads them".into()
            })
            .require(stack.embedding_projection.is_none(), || {
                "embedding_projection must be left out: patches are projected to d_model themselves".into()
            })
            .require(!stack.has_cross_attention(), || "cross_attention must be false: an image has no memory".into())
            .finish()
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> VisionTransformer {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> VisionTransformer {
        expect_valid(self.validate());
        let TransformerConfig { d_model, init, .. } = self.transformer;
        let [rows, columns] = self.grid();
        let tokens = self.pooling.tokens();
        let places = rows * columns + tokens;
        let learned = self.patch_position == PatchPosition::Learned;
        VisionTransformer {
            patches: self.patches(&params.scope("patches")),
            class_token: (tokens > 0).then(|| params.param("class_token", [1, 1, d_model], Init::Zeros)),
            distillation: (tokens > 1).then(|| self.distillation(&params.scope("distillation"))),
            position: learned.then(|| params.param("position", [places, d_model], init.weight)),
            transformer: self.transformer.init_with(&params.scope("transformer")),
            head: (self.n_classes > 0).then(|| self.head(params)),
            grid: [rows, columns],
            mean_beside: self.pooling == ImagePooling::ClassAndMean,
            patch_position: self.patch_position,
            coordinates: self.has_axes().then_some(self.patch_coordinates),
        }
    }

    fn patches(&self, params: &ParamBuilder) -> PatchEmbedding {
        let TransformerConfig { d_model, init, .. } = self.transformer;
        let patches = PatchEmbedding::new(self.channels, self.patch_size, d_model, init.weight, params);
        if self.patch_bias { patches } else { patches.without_bias() }
    }

    fn distillation(&self, params: &ParamBuilder) -> Distillation {
        let token = params.param("token", [1, 1, self.transformer.d_model], Init::Zeros);
        let head = (self.pooling == ImagePooling::Distilled).then(|| self.head(params));
        Distillation { token, head }
    }

    fn head(&self, params: &ParamBuilder) -> Linear {
        let width = self.transformer.d_model * self.pooling.parts();
        let head = LinearConfig::new(width, self.n_classes).with_init(self.transformer.init.weight);
        head.init_with(&params.without_adapters().scope("head"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> VisionTransformerConfig {
        VisionTransformerConfig::new(8, 4, 3, TransformerConfig::encoder(16, 2, 1))
    }

    #[test]
    fn bad_sizes_are_all_listed() {
        let mut config = config().with_image_size([10, 8]);
        (config.n_classes, config.pooling) = (0, ImagePooling::Distilled);
        config.transformer = config.transformer.with_cross_attention(true);
        let error = config.validate().expect_err("three problems");
        assert_eq!(
            error.problems(),
            [
                "image_size = [10, 8] must be multiples of patch_size = 4, above 0",
                "n_classes = 0 leaves the distillation token without a head: use pooling = \"class_token\" or \"mean\"",
                "cross_attention must be false: an image has no memory",
            ]
        );
    }

    #[test]
    fn slips_of_the_hand_are_refused_before_memory_is_asked_for() {
        for (image_size, patch_size) in [([1 << 40, 1 << 40], 1), ([1 << 30; 2], 1 << 30)] {
            let config = VisionTransformerConfig { patch_size, ..config().with_image_size(image_size) };
            config.validate().expect_err("no machine holds it");
        }
    }

    #[test]
    fn a_file_names_what_differs_and_comes_back() {
        let text = r#"{"image_size": [32, 48], "patch_size": 8, "n_classes": 10, "pooling": "mean",
            "transformer": {"d_model": 16, "n_heads": 2, "n_layers": 1, "position": "none", "patterns": ["full"]}}"#;
        let config: VisionTransformerConfig = serde_json::from_str(text).expect("a configuration");
        config.validate().expect("a model");
        assert_eq!((config.grid(), config.channels, config.pooling), ([4, 6], 3, ImagePooling::Mean));
        let written = serde_json::to_string(&config.clone().with_patch_bias(false)).expect("text");
        assert!(!serde_json::from_str::<VisionTransformerConfig>(&written).expect("a configuration").patch_bias);
        let written = serde_json::to_string(&config).expect("text");
        assert!(!written.contains("patch_bias"), "a file from before it is whole");
        assert_eq!(serde_json::from_str::<VisionTransformerConfig>(&written).expect("a configuration"), config);
    }

    #[test]
    fn rows_and_columns_are_for_layers_that_turn_by_them() {
        let problems = |config: VisionTransformerConfig| config.validate().expect_err("no axes").to_string();
        let config = config().with_patch_position(PatchPosition::None);
        assert!(problems(config.clone()).starts_with("patch_position = \"none\" needs position = { kind = \"rotary\""));
        let config = config.with_patch_position(PatchPosition::Learned);
        let config = config.with_patch_coordinates(PatchCoordinates::Normalized);
        assert!(problems(config).starts_with("patch_coordinates needs position = { kind = \"rotary\""));
        let text = r#"{"image_size": [8, 8], "patch_size": 4, "n_classes": 3, "patch_position": "none",
            "patch_coordinates": "normalized", "transformer": {"d_model": 16, "n_heads": 2, "n_layers": 1,
            "position": {"kind": "rotary", "axes": "axial"}, "patterns": ["full"]}}"#;
        let config: VisionTransformerConfig = serde_json::from_str(text).expect("a configuration");
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.transformer.clone().for_images(), config.transformer);
    }

    #[test]
    fn a_stack_with_positions_of_its_own_is_refused() {
        let mut config = config();
        config.transformer = config.transformer.with_position(PositionConfig::Learned);
        let error = config.validate().expect_err("two kinds of places");
        assert!(error.to_string().contains("see patch_position"), "{error}");
    }
}
