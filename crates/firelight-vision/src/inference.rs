//! A trained model, loaded from a run folder: images in, classes with probabilities out, as many and in the same order.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use firelight_core::{ConfigError, Pass};
use firelight_data::{Image, ImageShape};
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, InputError, ModelFolder, StorageError, TaskError};

use crate::embedder::filled;
use crate::model::{VisionConfig, VisionModel};

/// Images that are read at once: enough to keep the cores busy, few enough for small memories.
pub(crate) const BATCH: usize = 64;

/// What a model says of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    /// The likeliest class.
    pub label: String,
    /// The probability of every class, in the order of the model's classes; their sum is 1.
    pub probabilities: Vec<f64>,
}

/// A trained model with the names of its classes.
#[derive(Debug)]
pub struct ImageClassifier {
    model: VisionModel,
    config: VisionConfig,
}

impl ImageClassifier {
    /// Puts a model and its configuration together.
    pub fn new(model: VisionModel, config: VisionConfig) -> Self {
        Self { model, config }
    }

    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of this task, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let folder = ModelFolder::open(folder)?;
        let config: VisionConfig = folder.read_config(crate::TASK)?;
        TaskError::in_config(&folder.config(), &ConfigError::list(config.validate()))?;
        let weights = folder.weights(checkpoint)?;
        let model = filled(&folder, &weights, device, |device| config.init(device));
        let model = model.map_err(|error| head_error(error, &weights, config.classes.len()))?;
        Ok(Self::new(model, config))
    }

    /// The model.
    pub fn model(&self) -> &VisionModel {
        &self.model
    }

    /// Its configuration.
    pub fn config(&self) -> &VisionConfig {
        &self.config
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.config.classes
    }

    /// Channels, height and width of the images that the model is made for.
    pub fn shape(&self) -> ImageShape {
        ImageShape::new(self.config.vit.channels, self.config.vit.image_size)
    }

    /// The class of every image, brought to the size and the channels of the model. Neither batch mates nor their order change
    /// an answer.
    ///
    /// # Errors
    /// If the device fails.
    pub fn classify(&self, images: &[Image]) -> Result<Vec<Classification>, TaskError> {
        let batches = images.chunks(BATCH).map(|batch| {
            let images = self.read(batch);
            probabilities(&self.model, images)
        });
        let rows = batches.collect::<Result<Vec<_>, _>>()?.concat();
        Ok(rows.into_iter().map(|probabilities| self.classification(probabilities)).collect())
    }

    /// Images as the model reads them, `[B, C, H, W]`.
    pub(crate) fn read(&self, images: &[Image]) -> Tensor<4> {
        self.config.processor().tensor(images, &self.model.device())
    }

    fn classification(&self, probabilities: Vec<f64>) -> Classification {
        Classification { label: self.config.classes[likeliest(&probabilities)].clone(), probabilities }
    }
}

/// The probabilities of every class, image by image, computed from the logits in double precision.
pub(crate) fn probabilities(model: &VisionModel, images: Tensor<4>) -> Result<Vec<Vec<f64>>, TaskError> {
    let device = images.device();
    let logits = awake(&device, || model.logits(images, &mut Pass::default()));
    let [_, classes] = logits.dims();
    let logits: Vec<f64> = logits.try_into_vec_as().map_err(TaskError::device("the logits of images"))?;
    TaskError::require_finite(logits.iter().all(|logit| logit.is_finite()))?;
    Ok(logits.chunks(classes).map(softmax).collect())
}

pub(crate) fn softmax(logits: &[f64]) -> Vec<f64> {
    let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = logits.iter().map(|logit| (logit - highest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The place of the largest; the first of several.
pub(crate) fn likeliest(probabilities: &[f64]) -> usize {
    let better = |best: usize, class: usize| if probabilities[class] > probabilities[best] { class } else { best };
    (0..probabilities.len()).reduce(better).unwrap_or_default()
}

/// Says what to do about a head that alone does not fit.
fn head_error(error: StorageError, path: &Path, classes: usize) -> TaskError {
    match &error {
        StorageError::WeightsMismatch { missing, unused, wrong, .. }
            if missing.is_empty() && unused.is_empty() && wrong.iter().all(|key| is_of_a_head(key)) =>
        {
            let problem = format!(
                "the head in `{}` is for another number of classes than the {classes} that config.json names: {}",
                path.display(),
                wrong.join(", ")
            );
            let advice = "restore the config.json of these weights, or keep the rest and begin the head anew: read the weights with \
                          their own config.json and call `VisionModel::with_new_head`";
            InputError::new(problem).advise(advice).into()
        }
        _ => error.into(),
    }
}

fn is_of_a_head(key: &str) -> bool {
    ["vit.head.", "vit.distillation.head."].iter().any(|head| key.starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::VitSize;
    use firelight_core::{Init, ParamBuilder, TransformerConfig, WeightInit};
    use firelight_kernels::assert_close;
    use firelight_storage::{Existing, save_weights};

    fn config(classes: usize) -> VisionConfig {
        let names = (0..classes).map(|class| format!("class {class}")).collect();
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        VisionConfig::of_small_images(VitSize::Tiny, names, 3, [8, 8])
            .with_stack(|_| TransformerConfig::encoder(16, 2, 2).with_init(wide))
    }

    fn classifier() -> ImageClassifier {
        ImageClassifier::new(config(5).init_with(&ParamBuilder::new(&Device::default(), 0)), config(5))
    }

    fn images(count: usize) -> Vec<Image> {
        let image =
            |i: usize| Image::new(ImageShape::new(3, [8, 8]), (0..192).map(|p| (p * (i + 7) % 256) as u8).collect());
        (0..count).map(image).collect()
    }

    #[test]
    fn batch_mates_change_no_answer() {
        let (classifier, images) = (classifier(), images(70)); // more than one batch
        let together = classifier.classify(&images).unwrap();
        assert!(together.iter().any(|found| found.label != together[0].label), "several classes are named");
        assert_eq!(together.len(), images.len());
        for (image, found) in images.iter().zip(&together) {
            let alone = &classifier.classify(std::slice::from_ref(image)).unwrap()[0];
            assert_eq!(alone.label, found.label);
            assert_close(&alone.probabilities, &found.probabilities, 1e-5);
            assert_close(&[found.probabilities.iter().sum::<f64>()], &[1.0], 1e-12);
        }
        assert!(classifier.classify(&[]).unwrap().is_empty());
    }

    #[test]
    fn images_of_other_sizes_and_channels_are_brought_to_those_of_the_model() {
        let grey = Image::new(ImageShape::new(1, [5, 11]), (0..55).map(|p| 4 * p).collect());
        let fitted = grey.clone().with_channels(3).resized([8, 8]);
        assert_eq!(classifier().classify(&[grey]).unwrap(), classifier().classify(&[fitted]).unwrap());
    }

    #[test]
    fn probabilities_by_hand() {
        assert_close(&softmax(&[2.0, 1.0, 0.5, -0.5]), &[0.598, 0.220, 0.133, 0.049], 5e-4);
        assert_eq!((likeliest(&[0.2, 0.4, 0.4]), softmax(&[1e4, 0.0])), (1, vec![1.0, 0.0]));
    }

    #[test]
    fn a_model_comes_back_from_its_folder_to_the_bit() {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        let before = classifier();
        folder.write_config(crate::TASK, before.config()).unwrap();
        save_weights(before.model(), folder.weights_path(&Checkpoint::Last)).unwrap();
        let after = ImageClassifier::load(folder.path()).unwrap();
        assert_eq!(
            (after.config(), after.classify(&images(9)).unwrap()),
            (before.config(), before.classify(&images(9)).unwrap())
        );

        // Names of another model.
        folder.write_config(crate::TASK, &config(4)).unwrap();
        let error = ImageClassifier::load(folder.path()).unwrap_err();
        let text = error.to_string();
        assert!(error.is_user_error() && text.starts_with("the head in `"), "{text}");
        assert!(text.contains("than the 4 that config.json names") && text.contains("with_new_head"), "{text}");
    }
}
