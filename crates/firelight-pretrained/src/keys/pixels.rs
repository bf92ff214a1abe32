//! How images become numbers: what `preprocessor_config.json` says, as the image processors of `transformers` read it.

use firelight_core::VisionTransformerConfig;
use firelight_data::{Normalization, Resample, ResizeTo, Resizing};
use firelight_storage::{InputError, read_json};
use serde_json::{Value, json};

use super::Keys;
use crate::folder::JSON_LIMIT;

/// What pixels are multiplied by where nobody says otherwise.
const RESCALE: f64 = 1.0 / 255.0;

impl Keys<'_> {
    /// How images come to size and pixels become numbers: what `preprocessor_config.json` beside it says, or the image processor of
    /// `processor_config.json`; without these files what is `usual` in the family.
    ///
    /// # Errors
    /// If that file is damaged, says what no processor of ViT, DeiT, DINOv2 or CLIP does, or does not fit the model.
    pub fn pixels(
        &self,
        vit: &VisionTransformerConfig,
        usual: (Resizing, Normalization),
    ) -> Result<(Resizing, Normalization), InputError> {
        for name in ["processor_config.json", "preprocessor_config.json"] {
            let file = self.file.with_file_name(name);
            if !file.is_file() {
                continue;
            }
            let value: Value = read_json(&file, JSON_LIMIT).map_err(|error| InputError::new(error.to_string()))?;
            let whole = Keys { file, section: String::new(), value: &value, architecture: String::new() };
            // That of a tokenizer alone says nothing of images.
            let keys = if name == "processor_config.json" { whole.section("image_processor") } else { Some(whole) };
            if let Some(keys) = keys {
                let processor = Processor::of(keys, usual.0.size)?;
                return Ok((processor.resizing(vit)?, processor.normalization(usual.1)?));
            }
        }
        Ok(usual)
    }
}

struct Processor<'a> {
    keys: Keys<'a>,
    /// The size where nothing is said.
    usual: Option<ResizeTo>,
    /// Whether a size of one number is that of the shorter side.
    keeps_proportion: bool,
    /// Whether the middle of images is cut out, and pixels are cubic, where nothing is said.
    crops: bool,
}

impl<'a> Processor<'a> {
    fn of(keys: Keys<'a>, usual: Option<ResizeTo>) -> Result<Self, InputError> {
        let names = ["image_processor_type", "feature_extractor_type"];
        let name: String = keys.first(&names)?.unwrap_or_default();
        let keeps_proportion = usual.is_some() || ["CLIP", "Bit"].iter().any(|family| name.starts_with(family));
        let crops = keeps_proportion || name.starts_with("DeiT");
        Ok(Self { keys, usual, keeps_proportion, crops })
    }

    /// What is done to the size of an image: shorter, where the model's own size says as much.
    fn resizing(&self, vit: &VisionTransformerConfig) -> Result<Resizing, InputError> {
        let keys = &self.keys;
        let (resample, is_cut) = (self.resample()?, keys.or("do_center_crop", self.crops)?);
        if is_cut {
            keys.only("do_resize", &json!(true))?;
        }
        let size = if keys.or("do_resize", true)? { self.size()? } else { None };
        let crop = if is_cut { self.sides("crop_size")? } else { None };
        let own = |sides: &[usize; 2]| *sides != vit.image_size;
        let found = match (size, crop) {
            (Some(ResizeTo::ShortestEdge(_)), _) if !is_cut => {
                return Err(keys.unfit("do_center_crop", "true, since `size` keeps the proportion of an image"));
            }
            // Nothing is left to be cut off.
            (Some(ResizeTo::Sides(sides)), crop) if crop.is_none_or(|crop| crop == sides) => {
                Resizing { resample, size: None, crop: Some(sides).filter(own) }
            }
            (size, crop) => Resizing { resample, size, crop: crop.filter(own) },
        };
        let is_torn = |side: &usize| *side == 0 || !side.is_multiple_of(vit.patch_size);
        if found.crop.is_some_and(|crop| crop.iter().any(is_torn)) {
            let key = if is_cut { "crop_size" } else { "size" };
            return Err(keys.unfit(key, &format!("multiples of the {} pixels of a patch", vit.patch_size)));
        }
        if found.is_possible() { Ok(found) } else { Err(keys.unfit("size", "pixels above 0 that fit into memory")) }
    }

    fn resample(&self) -> Result<Resample, InputError> {
        match self.keys.or("resample", if self.crops { 3_u64 } else { 2 })? {
            0 => Ok(Resample::Nearest),
            1 => Ok(Resample::Lanczos),
            2 => Ok(Resample::Bilinear),
            3 => Ok(Resample::Bicubic),
            _ => Err(self.keys.unfit("resample", "0 (nearest), 1 (Lanczos), 2 (bilinear) or 3 (bicubic)")),
        }
    }

    /// `size`: one number, two sides, or the shorter side.
    fn size(&self) -> Result<Option<ResizeTo>, InputError> {
        let shortest = self.keys.section("size").filter(|size| size.value.get("shortest_edge").is_some());
        if let Some(size) = shortest {
            size.only("longest_edge", &Value::Null)?;
            return Ok(Some(ResizeTo::ShortestEdge(size.need("shortest_edge")?)));
        }
        Ok(match self.sides("size")? {
            None => self.usual,
            Some([edge, _]) if self.keeps_proportion && self.keys.value["size"].is_number() => {
                Some(ResizeTo::ShortestEdge(edge))
            }
            Some(sides) => Some(ResizeTo::Sides(sides)),
        })
    }

    /// Height and width: one number, or one of each.
    fn sides(&self, key: &str) -> Result<Option<[usize; 2]>, InputError> {
        match self.keys.section(key) {
            Some(section) => Ok(Some([section.need("height")?, section.need("width")?])),
            None => Ok(self.keys.get::<usize>(key)?.map(|side| [side; 2])),
        }
    }

    /// `(pixel * factor - mean) / std`, for pixels from 0 to 1.
    fn normalization(&self, usual: Normalization) -> Result<Normalization, InputError> {
        let keys = &self.keys;
        let factor = if keys.or("do_rescale", true)? { keys.or("rescale_factor", RESCALE)? } else { 1.0 };
        keys.only("offset", &json!(false))?;
        let channels = usual.mean.len();
        let (mean, std) = match keys.or("do_normalize", true)? {
            true => (keys.or("image_mean", usual.mean)?, keys.or("image_std", usual.std)?),
            false => (vec![0.0; channels], vec![1.0; channels]),
        };
        let scale = factor / RESCALE;
        // What everybody writes comes back to the bit.
        let scaled = |numbers: Vec<f32>| match (scale - 1.0).abs() < 1e-6 {
            true => numbers,
            false => numbers.iter().map(|number| (f64::from(*number) / scale) as f32).collect(),
        };
        let found = Normalization { mean: scaled(mean), std: scaled(std) };
        if found.fits(channels) {
            return Ok(found);
        }
        Err(keys.unfit("image_std", &format!("{channels} numbers above 0, as of image_mean")))
    }
}
