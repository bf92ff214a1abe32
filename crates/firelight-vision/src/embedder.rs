//! Vectors of images that can be compared: what a head reads, of length 1, so that the scalar product of two is the cosine of their
//! angle.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};
use firelight_core::{ConfigError, Pass, build_in_blocks, onto_device};
use firelight_data::{Image, ImageProcessor};
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, ModelFolder, StorageError, TaskError};

use crate::encoder::{ImageEncoder, ImageEncoderConfig};
use crate::inference::BATCH;
use crate::model::{VisionConfig, VisionModel, processor};
use crate::{IMAGE_ENCODER_TASK, TASK};

/// A vision transformer of a run, with a head or without.
///
/// ```no_run
/// use firelight_data::Image;
/// use firelight_vision::ImageEmbedder;
///
/// let embedder = ImageEmbedder::load("runs/images-1")?;
/// let vectors = embedder.embed(&[Image::open("one.png")?, Image::open("two.png")?])?;
/// let cosine: f32 = vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum();
/// # let _ = cosine;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ImageEmbedder {
    model: ImageEncoder,
    processor: ImageProcessor,
}

impl ImageEmbedder {
    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// As [`load_from`](Self::load_from).
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// If the folder is no run of a vision transformer, there is no such checkpoint, or one of its files is missing or damaged.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let folder = ModelFolder::open(folder)?;
        let weights = folder.weights(checkpoint)?;
        let loaded = |problems| TaskError::in_config(&folder.config(), &ConfigError::list(problems));
        if folder.task().as_deref() == Some(IMAGE_ENCODER_TASK) {
            let config: ImageEncoderConfig = folder.read_config(IMAGE_ENCODER_TASK)?;
            loaded(config.validate())?;
            let processor = processor(&config.vit, config.resizing, &config.normalization);
            return Ok(Self { model: filled(&folder, &weights, device, |device| config.init(device))?, processor });
        }
        let config: VisionConfig = folder.read_config(TASK)?;
        loaded(config.validate())?;
        let VisionModel { vit } = filled(&folder, &weights, device, |device| config.init(device))?;
        Ok(Self { model: ImageEncoder { vit, pooler: None }, processor: config.processor() })
    }

    /// The model.
    pub fn model(&self) -> &ImageEncoder {
        &self.model
    }

    /// What stands between image files and the model.
    pub fn processor(&self) -> &ImageProcessor {
        &self.processor
    }

    /// A vector of length 1 for every image, brought to the size and the channels of the model, as many and in the same order.
    ///
    /// # Errors
    /// If the device fails.
    pub fn embed(&self, images: &[Image]) -> Result<Vec<Vec<f32>>, TaskError> {
        let device = self.model.vit.patches.projection.weight.device();
        let vectors = images.chunks(BATCH).map(|images| {
            let pixels = self.processor.tensor(images, &device);
            let hidden = || self.model.vit.hidden(pixels, &mut Pass::default());
            rows(l2_normalized(awake(&device, || self.model.pooled(hidden()))))
        });
        Ok(vectors.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

/// The model that `build` makes with the weights of a run.
pub(crate) fn filled<M: Module>(
    folder: &ModelFolder,
    weights: &Path,
    device: &Device,
    build: impl FnOnce(&Device) -> M,
) -> Result<M, StorageError> {
    let build = |names: &_| build_in_blocks(names, device, build);
    folder.load_model((weights, FloatDType::F32), build, |model| onto_device(model, device))
}

/// Vectors, row by row, divided by their lengths: `[B, D] -> [B, D]`.
pub(crate) fn l2_normalized(vectors: Tensor<2>) -> Tensor<2> {
    let length = vectors.clone().square().sum_dim(1).sqrt();
    vectors / length
}

/// The vectors of a batch on the host.
pub(crate) fn rows(vectors: Tensor<2>) -> Result<Vec<Vec<f32>>, TaskError> {
    let width = vectors.dims()[1];
    let numbers: Vec<f32> = vectors.try_into_vec_as().map_err(TaskError::device("the vectors of images and texts"))?;
    TaskError::require_finite(numbers.iter().all(|number| number.is_finite()))?;
    Ok(numbers.chunks(width).map(<[f32]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{ParamBuilder, TransformerConfig, VisionTransformerConfig};
    use firelight_data::ImageShape;
    use firelight_kernels::assert_close;
    use firelight_storage::{Existing, save_weights};

    fn images() -> Vec<Image> {
        let shape = ImageShape::new(3, [8, 8]);
        (0..3).map(|i| Image::new(shape, (0..192).map(|p| (p * (i + 7) % 256) as u8).collect())).collect()
    }

    #[test]
    fn a_classifier_and_its_encoder_see_the_same() {
        let (home, device) = (tempfile::tempdir().unwrap(), Device::default());
        let folder = |name: &str| ModelFolder::create(home.path().join(name), Existing::Refuse).unwrap();
        let vit = VisionTransformerConfig::new(8, 4, 2, TransformerConfig::encoder(16, 2, 1));
        let config = VisionConfig::new(vec!["a".into(), "b".into()], vit.clone());
        let (whole, params) = (folder("whole"), ParamBuilder::new(&device, 0));
        let model = config.init_with(&params);
        whole.write_config(TASK, &config).unwrap();
        save_weights(&model, whole.weights_path(&Checkpoint::Last)).unwrap();

        let config = ImageEncoderConfig::new(vit.with_n_classes(0));
        let alone = folder("alone");
        alone.write_config(IMAGE_ENCODER_TASK, &config).unwrap();
        save_weights(&config.init_with(&params), alone.weights_path(&Checkpoint::Last)).unwrap();

        let found = ImageEmbedder::load(whole.path()).unwrap().embed(&images()).unwrap();
        assert_eq!(ImageEmbedder::load(alone.path()).unwrap().embed(&images()).unwrap(), found);
        assert!(found[0].iter().zip(&found[1]).any(|(a, b)| (a - b).abs() > 1e-4), "images differ");
        for vector in &found {
            assert_close(&[vector.iter().map(|number| number * number).sum::<f32>()], &[1.0], 1e-5);
        }
        // What the head reads, by hand.
        let pixels = processor(&config.vit, config.resizing, &config.normalization).tensor(&images()[..1], &device);
        let read: Vec<f32> =
            model.vit.pooled(model.vit.hidden(pixels, &mut Pass::default())).try_into_vec_as().unwrap();
        let length = read.iter().map(|number| number * number).sum::<f32>().sqrt();
        assert_close(&found[0], &read.iter().map(|number| number / length).collect::<Vec<_>>(), 1e-5);
    }
}
