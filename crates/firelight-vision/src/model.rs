//! The model and what belongs to its weights: the names of its classes and how images are normalised.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use firelight_core::{
    Activation, AdapterConfig, ConfigError, Cost, LinearConfig, ParamBuilder, ParameterReport, Pass, TransformerConfig,
    VisionTransformer, VisionTransformerConfig,
};
use firelight_data::{ImageProcessor, ImageShape, Normalization, Resizing};
use serde::{Deserialize, Serialize};

/// The sizes of the field, 12 layers each, the feed-forward network four times as wide as the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VitSize {
    /// Width 192, 3 heads (Touvron et al. 2021, table 1: DeiT-Ti, <https://arxiv.org/abs/2012.12877>).
    Tiny,
    /// Width 384, 6 heads (DeiT-S).
    Small,
    /// Width 768, 12 heads (Dosovitskiy et al. 2021, table 1: ViT-B, <https://arxiv.org/abs/2010.11929>).
    Base,
}

impl VitSize {
    /// The encoder, with the exact GELU of the field.
    pub fn stack(self) -> TransformerConfig {
        let (d_model, n_heads) = match self {
            Self::Tiny => (192, 3),
            Self::Small => (384, 6),
            Self::Base => (768, 12),
        };
        TransformerConfig::encoder(d_model, n_heads, 12).with_activation(Activation::Gelu)
    }
}

/// The transformer in the paths of a model's parameters.
pub(crate) const VIT: &str = "vit";

/// Configuration of a [`VisionModel`], as it stands in `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VisionConfig {
    /// The names of the classes, in the order of the logits.
    pub classes: Vec<String>,
    /// How pixels become numbers.
    pub normalization: Normalization,
    /// How images are brought to size. Default: both sides to those of the model.
    #[serde(default, skip_serializing_if = "Resizing::is_plain")]
    pub resizing: Resizing,
    /// Low-rank adapters of layers of the encoder. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdapterConfig>,
    /// The structure.
    pub vit: VisionTransformerConfig,
}

impl Config for VisionConfig {}

impl VisionConfig {
    /// A model of these classes. Pixels are taken as from -1 to 1 until the statistics of a training are known.
    pub fn new(classes: Vec<String>, vit: VisionTransformerConfig) -> Self {
        let halves = vec![0.5; vit.channels];
        let normalization = Normalization { mean: halves.clone(), std: halves };
        Self { classes, normalization, resizing: Resizing::default(), adapters: None, vit }
    }

    /// The usual model of a size: colour images of 224 x 224 pixels in patches of 16.
    pub fn of_size(size: VitSize, classes: Vec<String>) -> Self {
        let vit = VisionTransformerConfig::new(224, 16, classes.len(), size.stack());
        Self::new(classes, vit)
    }

    /// A model of small images, such as 28 x 28 or 32 x 32 pixels, in patches of 4.
    pub fn of_small_images(size: VitSize, classes: Vec<String>, channels: usize, image_size: [usize; 2]) -> Self {
        let vit = VisionTransformerConfig::new(4, 4, classes.len(), size.stack());
        Self::new(classes, vit.with_channels(channels).with_image_size(image_size))
    }

    /// Changes the stack; every token sees every other, and its own positions stay off, but rotary ones of two axes.
    pub fn with_stack(mut self, change: impl FnOnce(TransformerConfig) -> TransformerConfig) -> Self {
        let stack = change(self.vit.transformer);
        self.vit.transformer = stack.for_images();
        self
    }

    /// Tokens of an image: its patches, and those before them.
    pub fn tokens(&self) -> usize {
        tokens(&self.vit)
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (names, classes) = (self.classes.len(), self.vit.n_classes);
        ConfigError::collect(
            [
                self.vit.validate(),
                self.adapters.as_ref().map_or(Ok(()), AdapterConfig::validate),
                check_pixels(&self.vit, &self.resizing, &self.normalization),
            ],
            [
                (classes == 0).then(|| "vit.n_classes = 0 must be at least 1".into()),
                (names != classes).then(|| format!("classes has {names} names, but vit.n_classes = {classes}")),
            ],
        )
    }

    /// What stands between image files and the model.
    pub fn processor(&self) -> ImageProcessor {
        processor(&self.vit, self.resizing, &self.normalization)
    }

    /// Builds the model; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> VisionModel {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the model at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> VisionModel {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        VisionModel { vit: self.vit.init_with(&params.adapted(self.adapters.as_ref()).scope(VIT)) }
    }
}

/// Whether pixels become numbers of the model's channels, in whole patches.
pub(crate) fn check_pixels(
    vit: &VisionTransformerConfig,
    resizing: &Resizing,
    normalization: &Normalization,
) -> Result<(), ConfigError> {
    let (channels, patch) = (vit.channels, vit.patch_size);
    let is_torn = |crop: [usize; 2]| crop.iter().any(|side| *side == 0 || *side % patch.max(1) != 0);
    ConfigError::collect(
        [],
        [
            (!normalization.fits(channels)).then(|| {
                format!("normalization must have a mean and a std above 0 for each of the {channels} channels")
            }),
            (!resizing.is_possible()).then(|| "resizing must be to sizes above 0 that fit into memory".into()),
            resizing.crop.filter(|crop| is_torn(*crop)).map(|[height, width]| {
                format!("resizing.crop = [{height}, {width}] must be multiples of vit.patch_size = {patch}")
            }),
        ],
    )
}

/// What stands between image files and a vision transformer.
pub(crate) fn processor(
    vit: &VisionTransformerConfig,
    resizing: Resizing,
    normalization: &Normalization,
) -> ImageProcessor {
    let model = ImageShape::new(vit.channels, vit.image_size);
    ImageProcessor { resizing, normalization: normalization.clone(), model }
}

/// Tokens of an image of the size that a model is made for.
pub(crate) fn tokens(vit: &VisionTransformerConfig) -> usize {
    vit.grid().iter().product::<usize>() + vit.pooling.tokens()
}

/// A vision transformer as a task.
#[derive(Module, Debug)]
pub struct VisionModel {
    /// The model of `firelight-core`.
    pub vit: VisionTransformer,
}

impl VisionModel {
    /// What a token costs: a patch, or one before them.
    pub fn cost(&self) -> Cost {
        Cost::sum([self.vit.cost().named("vit")])
    }

    /// The logits of every class.
    ///
    /// # Shapes
    /// - `images`: `[B, C, H, W]`, normalised; output: `[B, classes]`
    ///
    /// # Panics
    /// If the channels differ or the images are no whole number of patches.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.logits(images, &mut Pass::default())
    }

    /// The same with the channels of a pass: precision, the attention of every layer.
    pub(crate) fn logits(&self, images: Tensor<4>, pass: &mut Pass) -> Tensor<2> {
        self.vit.logits(self.vit.hidden(images, pass))
    }

    /// The same model with a head for other classes, drawn anew from `seed`: what it has learnt to see is kept, to be trained
    /// further. Its configuration is the old one with other `classes` and `vit.n_classes`.
    #[must_use]
    pub fn with_new_head(mut self, classes: usize, seed: u64) -> Self {
        let width = self.vit.patches.projection.weight.dims()[1];
        let params = ParamBuilder::new(&self.device(), seed);
        let params = params.scope("vit");
        let head = |params: ParamBuilder| LinearConfig::new(width, classes).init_with(&params.scope("head"));
        self.vit.head = Some(head(params.clone()));
        if let Some(distillation) = &mut self.vit.distillation {
            distillation.head = distillation.head.take().map(|_| head(params.scope("distillation")));
        }
        self
    }

    /// Where the parameters are.
    pub(crate) fn device(&self) -> Device {
        self.vit.patches.projection.weight.device()
    }

    /// The parameters by part.
    pub fn report(&self) -> ParameterReport {
        ParameterReport::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{ImagePooling, PatchPosition};

    fn names(classes: usize) -> Vec<String> {
        (0..classes).map(|class| class.to_string()).collect()
    }

    #[test]
    fn published_models_are_counted_exactly() {
        let count = |size| VisionConfig::of_size(size, names(1000)).init(&Device::default()).num_params();
        // DeiT, table 1, says 5, 22 and 86 million; these are the weights of timm.
        assert_eq!([VitSize::Tiny, VitSize::Small, VitSize::Base].map(count), [5_717_416, 22_050_664, 86_567_656]);
    }

    #[test]
    fn the_parts_of_the_costs_are_all_parameters() {
        for pooling in
            [ImagePooling::ClassToken, ImagePooling::Mean, ImagePooling::Distilled, ImagePooling::ClassOfDistilled]
        {
            for position in [PatchPosition::Learned, PatchPosition::Sinusoidal2d] {
                for (channels, size) in [(1, [28, 28]), (3, [32, 32])] {
                    let config = VisionConfig::of_small_images(VitSize::Tiny, names(10), channels, size);
                    let mut config = config.with_stack(|_| TransformerConfig::encoder(16, 2, 2));
                    config.vit = config.vit.with_pooling(pooling).with_patch_position(position);
                    let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
                    assert_eq!(model.cost().parameters, model.num_params());
                }
            }
        }
    }

    #[test]
    fn the_parts_of_the_report_are_all_parameters() {
        let config = VisionConfig::of_small_images(VitSize::Tiny, names(3), 1, [8, 8]);
        let config = config.with_stack(|_| TransformerConfig::encoder(16, 2, 1));
        let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        let parts = model.report().parts();
        assert!(parts.len() > 2, "{parts:?}");
        assert_eq!(parts.iter().map(|(_, count)| count).sum::<usize>(), model.num_params());
        // Patches of 4 x 4 pixels and, in this model, what stands for the whole image.
        assert_eq!(config.tokens(), 4 + config.vit.pooling.tokens());
    }

    #[test]
    fn a_new_head_is_for_other_classes_and_the_rest_stays() {
        let config = VisionConfig::of_small_images(VitSize::Tiny, names(3), 1, [8, 8]);
        let model = config
            .with_stack(|_| TransformerConfig::encoder(16, 2, 1))
            .init_with(&ParamBuilder::new(&Device::default(), 0));
        let place = |model: &VisionModel| model.vit.position.as_ref().expect("learned").val().into_data();
        let before = place(&model);
        let renewed = model.with_new_head(7, 5);
        assert_eq!(place(&renewed), before);
        assert_eq!(renewed.forward(Tensor::zeros([2, 1, 8, 8], &Device::default())).dims(), [2, 7]);
        let again = renewed.clone().with_new_head(7, 5).vit.head.expect("a head").weight.val().into_data();
        assert_eq!(renewed.vit.head.as_ref().expect("a head").weight.val().into_data(), again);
        assert_ne!(renewed.with_new_head(7, 6).vit.head.expect("a head").weight.val().into_data(), again);
    }

    #[test]
    fn all_problems_are_listed() {
        let mut config = VisionConfig::of_small_images(VitSize::Tiny, names(3), 3, [30, 28]);
        config.normalization.std[1] = 0.0;
        config.classes.pop();
        let error = config.validate().expect_err("three problems");
        assert_eq!(error.problems().len(), 3, "{error}");
        assert!(error.to_string().contains("classes has 2 names, but vit.n_classes = 3"), "{error}");
    }
}
