//! What a recipe says about its captions, and the recipe that is built in.

use firelight_core::{
    AdapterConfig, ConfigError, ImagePooling, LossConfig, PatchPosition, TransformerConfig, VisionTransformerConfig,
};
use firelight_data::{HeldOut, ImageShape, Normalization, ReadOptions, SplitConfig, TokenizerConfig, check_workers};
use firelight_storage::InputError;
use firelight_training::metrics::text::TextMetric;
use firelight_training::{Apart, BuiltIn, Problem, Recipe};
use serde::{Deserialize, Serialize};

use super::super::CAPTIONING_TASK;
use super::super::model::{CaptionConfig, STACKS};

/// The recipe of a model that describes images.
pub type CaptionRecipe = Recipe<ImageTextRecipe, CaptionModelRecipe, LossConfig>;

/// The built-in recipe.
pub(super) const BUILT_IN: [BuiltIn; 1] = [BuiltIn { name: "captions", text: include_str!("captions.toml") }];

/// No recipe composes more pictures: they lie in memory.
const MAX_SCENES: usize = 200_000;

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageTextRecipe {
    /// How many digits are drawn, of which pictures are composed, where no data is given. Default: 0, data must be given.
    pub drawn_digits: usize,
    /// Pictures to train on that are composed of labelled images; from 1 to 200,000. Images with captions of their own are taken as
    /// they are. Default: 8,000.
    pub scenes: usize,
    /// The most images of a composed picture, from 1 to 4. Default: 4.
    pub max_parts: usize,
    /// Height and width that all images are brought to, those that pictures are composed of. Default: none, they must be of one
    /// size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<[usize; 2]>,
    /// Channels that all images are brought to, 1 or 3. Default: none, they must have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<usize>,
    /// Which images are trained on, and which are only validated on: `split.train` and `split.validation`. Of those with captions the last
    /// ones are held out; of composed pictures as many are composed, or a share of `scenes`.
    pub split: SplitConfig,
    /// How captions become tokens. Default: `"word"`.
    pub tokenizer: TokenizerConfig,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
    /// How many validation images are described, greedily, at every evaluation. Their scores are then metrics that
    /// `training.monitor` may name beside `token_accuracy`. Default: 100.
    pub described: usize,
    /// How those captions are scored. Default: `["exact_match", "bleu"]`.
    pub metrics: Vec<TextMetric>,
}

impl Default for ImageTextRecipe {
    fn default() -> Self {
        Self {
            drawn_digits: 0,
            scenes: 8_000,
            max_parts: 4,
            image_size: None,
            channels: None,
            split: SplitConfig::default(),
            tokenizer: TokenizerConfig::Word { min_frequency: 1 },
            workers: 0,
            described: 100,
            metrics: vec![TextMetric::ExactMatch, TextMetric::Bleu],
        }
    }
}

impl ImageTextRecipe {
    /// The count that is held out, if one is.
    fn count_held_out(&self) -> Option<usize> {
        match self.split.validation {
            Some(HeldOut::Count(count)) => Some(count),
            _ => None,
        }
    }

    /// How many pictures are composed to validate on.
    pub(super) fn scenes_held_out(&self) -> Result<usize, InputError> {
        match self.count_held_out() {
            Some(count) => Ok(count),
            None => Ok(self.scenes.max(2) - self.split.training_len(self.scenes.max(2), "pictures")?),
        }
    }

    /// How the files are read.
    pub(super) fn options(&self) -> ReadOptions {
        ReadOptions { size: self.image_size, channels: self.channels, ..ReadOptions::default() }
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let between = |key: &str, value: usize, least: usize, most: usize| {
            (!(least..=most).contains(&value)).then(|| format!("data.{key} = {value} must be from {least} to {most}"))
        };
        ConfigError::collect(
            [],
            [
                between("drawn_digits", self.drawn_digits, 0, MAX_SCENES),
                between("scenes", self.scenes, 1, MAX_SCENES),
                between("max_parts", self.max_parts, 1, 4),
                self.split.problem(),
                self.count_held_out()
                    .filter(|&count| count > 0)
                    .and_then(|count| between("split.validation", count, 1, MAX_SCENES)),
                self.channels
                    .filter(|channels| ![1, 3].contains(channels))
                    .map(|channels| format!("data.channels = {channels} must be 1 or 3")),
                check_workers(self.workers),
            ],
        )
    }
}

/// The structure that a user chooses. The size of the images and the vocabulary come from the data.
///
/// In a file the keys of [`TransformerConfig`] stand beside those of the model. They describe the decoder, and the stack that reads
/// the image but for its `n_layers`, which `n_image_layers` may set apart, and for its positions and its pattern: patches have
/// places of their own, and an image is seen whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Apart<Own, TransformerConfig>")]
pub struct CaptionModelRecipe {
    /// Keys of the model.
    #[serde(flatten)]
    own: Own,
    /// The stack.
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
    /// Which tokens stand before the patches; the decoder reads them, too.
    pooling: ImagePooling,
    /// How a patch knows its place.
    patch_position: PatchPosition,
    /// Low-rank adapters of layers of the stacks, which themselves stay as the run that `init.from` names has learnt them.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdapterConfig>,
    /// Blocks of the stack that reads the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_image_layers: Option<usize>,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            patch_size: 16,
            patch_bias: true,
            pooling: ImagePooling::Mean,
            patch_position: PatchPosition::default(),
            adapters: None,
            n_image_layers: None,
        }
    }
}

impl CaptionModelRecipe {
    /// The whole configuration, for images of this shape and a vocabulary of this size.
    pub fn config(
        &self,
        (shape, normalization): (ImageShape, Normalization),
        vocab_size: usize,
        start_token: u32,
    ) -> CaptionConfig {
        let n_layers = self.own.n_image_layers.unwrap_or(self.transformer.n_layers);
        let stack = TransformerConfig { n_layers, ..self.transformer.clone() }.with_cross_attention(false);
        // The same tokens, and no head that learns from a teacher.
        let pooling = match self.own.pooling {
            ImagePooling::Distilled => ImagePooling::ClassOfDistilled,
            other => other,
        };
        let vit = VisionTransformerConfig::new(1, self.own.patch_size, 0, stack)
            .with_image_size(shape.size())
            .with_channels(shape.channels)
            .with_patch_bias(self.own.patch_bias)
            .with_pooling(pooling)
            .with_patch_position(self.own.patch_position);
        let decoder = self.transformer.clone().with_cross_attention(true);
        let mut config = CaptionConfig { start_token, normalization, ..CaptionConfig::new(vocab_size, vit, decoder) };
        config.adapters = self.own.adapters.clone();
        config.vit.transformer.max_seq_len = config.image_tokens().max(1);
        config
    }

    /// The configuration for images of one patch and two tokens: what can be judged before the data is there.
    pub(super) fn sketch(&self) -> CaptionConfig {
        let normalization = Normalization { mean: vec![0.5], std: vec![0.5] };
        self.config((ImageShape::new(1, [self.own.patch_size; 2]), normalization), 2, 0)
    }
}

/// What `config.json` of a model of images has, whatever it has beside.
#[derive(Debug, Serialize, Deserialize)]
struct ImageModel {
    vit: VisionTransformerConfig,
}

/// What captions cannot take over from a model of another task. A decoder that has learnt without images has other tokens and places, which
/// nothing here would tell; and layers that turn by rows and columns would need a position that the decoder cannot have.
pub(super) fn foreign(recipe: &CaptionRecipe) -> Option<Problem> {
    let run = recipe.init.run().ok().flatten()?;
    let task = run.task().filter(|task| task != CAPTIONING_TASK)?;
    let config = run.read_config::<ImageModel>(&task);
    if config.is_ok_and(|model| model.vit.transformer.position.n_axes() > 1) {
        let text = "init.from names a model of images whose layers turn by rows and columns, which captions do not have: begin from one \
                    whose patches have learned places";
        return Some(Problem { key: "init.from".into(), text: text.into() });
    }
    let include = &recipe.init.include;
    let is_of_images = |pattern: &String| pattern == STACKS[0] || pattern.starts_with("vit.");
    let fits = !include.is_empty() && include.iter().all(is_of_images);
    (!fits).then(|| Problem {
        key: "init.include".into(),
        text: format!(
            "init.include must be [\"vit\"], or name parts of it: of a model of the task `{task}`, which init.from names, captions take over \
             the encoder of images alone"
        ),
    })
}

impl From<Apart<Own, TransformerConfig>> for CaptionModelRecipe {
    fn from(Apart { own, rest, named }: Apart<Own, TransformerConfig>) -> Self {
        Self { own, transformer: rest.for_recipe(|key| named.contains(key)) }
    }
}
