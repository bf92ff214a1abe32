//! The `[model]` section of a recipe: the keys of the encoder, and those of the model around it.

use firelight_core::{
    AdapterConfig, AttentionPattern, ImagePooling, PatchCoordinates, PatchPosition, PositionConfig, TransformerConfig,
    VisionTransformerConfig,
};
use firelight_data::ImageShape;
use firelight_training::Apart;
use serde::{Deserialize, Serialize};

use crate::model::tokens;

/// The structure that a user chooses. Size, channels and classes come from the images.
///
/// In a file the keys of [`TransformerConfig`] stand beside those of the model. `patterns`, which a model of images has no choice
/// of, may be left out, and so may `position`: it is none, or rotary with two axes, beside which `patch_position` is none by
/// default. `dropout` is the rate of residual branches, attention weights and embeddings
/// alike, where `attention_dropout` and `embedding_dropout` say nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Apart<Own, TransformerConfig>")]
pub struct VisionModelRecipe {
    /// Keys of the model.
    #[serde(flatten)]
    own: Own,
    /// The encoder.
    #[serde(flatten)]
    pub transformer: TransformerConfig,
}

/// The keys that are not the stack's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Own {
    /// Height and width of a patch in pixels.
    patch_size: usize,
    /// Whether the projection of patches has a bias.
    patch_bias: bool,
    /// What stands for the whole image.
    pooling: ImagePooling,
    /// How a patch knows its place.
    patch_position: PatchPosition,
    /// How rows and columns are counted where layers turn queries and keys by them.
    patch_coordinates: PatchCoordinates,
    /// Low-rank adapters of layers of the encoder, which itself stays as the run that `init.from` names has learnt it.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdapterConfig>,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            patch_size: 16,
            patch_bias: true,
            pooling: ImagePooling::default(),
            patch_position: PatchPosition::default(),
            patch_coordinates: PatchCoordinates::default(),
            adapters: None,
        }
    }
}

impl VisionModelRecipe {
    /// The whole configuration, for images of this shape.
    pub fn config(&self, shape: ImageShape, n_classes: usize) -> VisionTransformerConfig {
        let mut vit = VisionTransformerConfig {
            image_size: shape.size(),
            patch_size: self.own.patch_size,
            channels: shape.channels,
            n_classes,
            patch_bias: self.own.patch_bias,
            pooling: self.own.pooling,
            patch_position: self.own.patch_position,
            patch_coordinates: self.own.patch_coordinates,
            transformer: self.transformer.clone(),
        };
        vit.transformer.max_seq_len = tokens(&vit).max(1);
        vit
    }

    /// Low-rank adapters of the encoder.
    pub(super) fn adapters(&self) -> Option<AdapterConfig> {
        self.own.adapters.clone()
    }

    /// The configuration for images of this size, or of one patch: what can be judged before the images are there.
    pub(super) fn sketch(&self, image_size: Option<[usize; 2]>) -> VisionTransformerConfig {
        self.config(ImageShape::new(1, image_size.unwrap_or([self.own.patch_size; 2])), 1)
    }
}

impl From<Apart<Own, TransformerConfig>> for VisionModelRecipe {
    fn from(Apart { mut own, rest, named }: Apart<Own, TransformerConfig>) -> Self {
        let mut transformer = rest.for_recipe(|key| named.contains(key));
        if !named.contains("position") {
            transformer.position = PositionConfig::None;
        }
        if transformer.position.n_axes() == 2 && !named.contains("patch_position") {
            own.patch_position = PatchPosition::None;
        }
        if !named.contains("patterns") && !named.contains("layers") {
            transformer = transformer.with_patterns(vec![AttentionPattern::Full]);
        }
        Self { own, transformer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_are_named_stay_as_they_are() {
        let recipe = read("layers = [{pattern = \"full\"}, {pattern = \"full\", n_kv_heads = 1}]").unwrap();
        assert_eq!(recipe.transformer.layers[1].block.attention.n_kv_heads, Some(1));
        recipe.sketch(None).validate().unwrap();
        let error = read("layers = [{}]").unwrap().sketch(None).validate().expect_err("a causal layer").to_string();
        assert!(error.contains("the pattern of each of layers"), "{error}");
    }

    fn read(text: &str) -> Result<VisionModelRecipe, toml::de::Error> {
        toml::from_str(&format!("d_model = 8\nn_heads = 2\nn_layers = 3\n{text}"))
    }

    #[test]
    fn the_images_decide_the_size() {
        let recipe = read("patch_size = 4\npooling = \"mean\"\ndropout = 0.1\n").unwrap();
        let vit = recipe.config(ImageShape::new(1, [28, 32]), 10);
        vit.validate().unwrap();
        assert_eq!((vit.grid(), vit.channels, vit.transformer.max_seq_len), ([7, 8], 1, 56));
        assert_eq!((vit.pooling, vit.transformer.embedding_dropout), (ImagePooling::Mean, 0.1));
        let again: VisionModelRecipe = toml::from_str(&toml::to_string(&recipe).unwrap()).unwrap();
        assert_eq!(again, recipe);
        assert!(recipe.sketch(Some([30, 28])).validate().is_err());
    }

    #[test]
    fn layers_that_turn_by_row_and_column_need_no_other_places() {
        let position = "position = { kind = \"rotary\", theta = 100.0, axes = \"axial\" }\n";
        let place = |text: &str| {
            let recipe = read(&format!("{position}{text}")).unwrap();
            let vit = recipe.sketch(None);
            vit.validate().unwrap();
            let again: VisionModelRecipe = toml::from_str(&toml::to_string(&recipe).unwrap()).unwrap();
            assert_eq!(again, recipe);
            (vit.patch_position, vit.patch_coordinates)
        };
        assert_eq!(place("patch_coordinates = \"normalized\""), (PatchPosition::None, PatchCoordinates::Normalized));
        assert_eq!(place("patch_position = \"learned\""), (PatchPosition::Learned, PatchCoordinates::Index));
        let text = read("position = \"rotary\"").unwrap().sketch(None).validate().unwrap_err();
        assert!(text.to_string().contains("rotary with two axes"), "{text}");
    }

    #[test]
    fn what_an_image_has_no_use_for_is_refused() {
        let error = read("tied = true\n").unwrap_err();
        assert!(error.message().contains("unknown field `tied`"), "{error}");
        let causal = read("patterns = [\"causal\"]\n").unwrap().sketch(None).validate().unwrap_err();
        assert!(causal.to_string().contains("a patch sees the whole image"), "{causal}");
        assert!(firelight_training::fields_of::<VisionModelRecipe>().unwrap().contains(&"patch_size"));
    }
}
