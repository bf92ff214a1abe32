//! What a recipe says about its images, and the recipe that is built in.

use firelight_core::{ConfigError, LossConfig};
use firelight_data::{Augmentation, ReadOptions, SplitConfig, check_workers};
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use super::model_recipe::VisionModelRecipe;

/// The recipe of a vision transformer.
pub type VisionRecipe = Recipe<ImageRecipe, VisionModelRecipe, LossConfig>;

/// The built-in recipe.
pub(super) const IMAGES: &str = include_str!("images.toml");

/// The recipe that is trained by when none is named: a small model for the images that are given to it.
pub fn images_recipe() -> &'static str {
    IMAGES
}

/// The `[data]` section.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageRecipe {
    /// Height and width that all images are brought to. Default: none, they must be of one size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<[usize; 2]>,
    /// Channels that all images are brought to, 1 or 3. Default: none, they must have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<usize>,
    /// Which images are trained on, and which are only validated on: `split.train` and `split.validation`. Held out are the last ones;
    /// where there is a single split, it is trained on, whatever its name is.
    pub split: SplitConfig,
    /// Whether files that are no images, or damaged ones, are left out; otherwise they are an error. Default: false.
    pub skip_unreadable: bool,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
    /// What happens to the images that are trained on. Default: nothing.
    pub augmentation: Augmentation,
}

impl ImageRecipe {
    /// How the files are read.
    pub(super) fn options(&self) -> ReadOptions {
        ReadOptions {
            size: self.image_size,
            channels: self.channels,
            skip_unreadable: self.skip_unreadable,
            ..ReadOptions::default()
        }
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let text = |error: firelight_data::ImageError| format!("data.{}", error.to_string().replace("; ", "; data."));
        ConfigError::collect(
            [],
            [
                self.channels
                    .filter(|channels| ![1, 3].contains(channels))
                    .map(|channels| format!("data.channels = {channels} must be 1 or 3")),
                self.split.problem(),
                check_workers(self.workers),
                self.augmentation.validate().err().map(text),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::HeldOut;

    #[test]
    fn the_built_in_recipe_is_whole_and_comes_back_from_its_own_text() {
        let recipe = VisionRecipe::parse(images_recipe(), "images.toml", &[]).unwrap();
        assert_eq!((recipe.task.as_str(), recipe.data.augmentation.crop_padding), (crate::TASK, 2));
        recipe.model.sketch(None).validate().unwrap();
        let text = recipe.to_toml().unwrap();
        assert_eq!(VisionRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
    }

    #[test]
    fn an_augmentation_comes_back_from_its_text() {
        let text = format!(
            "{}erasing = 0.25\nmixup = 0.8\n[data.augmentation.rand_augment]\nfrom = [\"rotate\", \"shear_x\"]\n",
            images_recipe().split("[loss]").next().unwrap()
        );
        let recipe = VisionRecipe::parse(&text, "mine.toml", &[]).unwrap();
        let augmentation = &recipe.data.augmentation;
        assert_eq!((augmentation.mixup, augmentation.erasing), (0.8, 0.25));
        assert_eq!(augmentation.rand_augment.as_ref().unwrap().from.len(), 2);
        assert_eq!(VisionRecipe::parse(&recipe.to_toml().unwrap(), "recipe.toml", &[]).unwrap(), recipe);
    }

    #[test]
    fn all_problems_are_listed() {
        let recipe = ImageRecipe {
            channels: Some(2),
            split: SplitConfig { validation: Some(HeldOut::Count(0)), ..SplitConfig::default() },
            workers: 65,
            augmentation: Augmentation { flip: 2.0, ..Augmentation::default() },
            ..ImageRecipe::default()
        };
        assert_eq!(recipe.validate().unwrap_err().problems().len(), 4);
        ImageRecipe::default().validate().unwrap();
    }
}
