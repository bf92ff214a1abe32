//! How well a trained model names the images of a split.

use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use firelight_data::{ImageFiles, ImageSet, ReadOptions};
use firelight_storage::{Checkpoint, ModelFolder};
use firelight_training::metrics::classes::class_report;
use firelight_training::read_recipe;
use serde::Serialize;

use super::accuracy::answers;
use super::corpus::{loader_of, read_parts};
use super::{ImageCorpus, ImageRecipe, Vision};
use crate::error::VisionError;
use crate::inference::ImageClassifier;

/// What a model is worth on a split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean cross-entropy in nats.
    pub loss: f64,
    /// Share of the images that are named rightly.
    pub accuracy: f64,
    /// The mean over the classes of their F1, of those that occur.
    pub macro_f1: f64,
    /// Number of images.
    pub examples: usize,
    /// Seconds of the answers.
    pub seconds: f64,
}

/// Evaluates a run on one split of a folder of images, or, without its name, on the part that a training would validate on;
/// without a folder on the images that the run itself validates on, which its own folder keeps.
/// Classes are known by their names, and images are brought to the shape that the model is made for.
///
/// # Errors
/// If the folder is no run of this task, keeps no images where no data is given, there is no such split, an image cannot be read,
/// or one is of a class that the model was not trained on.
pub fn evaluate(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<Evaluation, VisionError> {
    let classifier = ImageClassifier::load_from(folder.as_ref(), checkpoint, device)?;
    let folder = ModelFolder::open(folder)?;
    let recipe = read_recipe::<Vision>(Some(&folder.recipe()), &[])?;
    let set = match data {
        Some((data, split)) => images(&recipe.data, &classifier, data, split)?.with_classes(classifier.classes())?,
        None => ImageCorpus::open(&folder)?.validation().clone(),
    };
    let loader = loader_of(set, classifier.config().normalization.clone(), device);
    let began = Instant::now();
    let answers = answers(classifier.model(), loader.as_ref())?;
    let seconds = began.elapsed().as_secs_f64();
    let (probabilities, targets): (Vec<_>, Vec<_>) =
        answers.into_iter().map(|answer| (answer.probabilities, answer.target)).unzip();
    let report = class_report(&probabilities, &targets);
    let loss = probabilities.iter().zip(&targets).map(|(row, target)| -row[*target].ln()).sum::<f64>();
    let examples = targets.len();
    let loss = loss / examples as f64;
    Ok(Evaluation { loss, accuracy: report.accuracy, macro_f1: report.macro_f1, examples, seconds })
}

fn images(
    recipe: &ImageRecipe,
    classifier: &ImageClassifier,
    data: &Path,
    split: Option<&str>,
) -> Result<ImageSet, VisionError> {
    let shape = classifier.shape();
    match split {
        Some(split) => {
            let options = ReadOptions { size: Some(shape.size()), channels: Some(shape.channels), ..recipe.options() };
            Ok(ImageFiles::split(data, split)?.read(&options)?.set)
        }
        None => {
            let recipe =
                ImageRecipe { image_size: Some(shape.size()), channels: Some(shape.channels), ..recipe.clone() };
            let [_, validation] = read_parts(&recipe, data)?;
            Ok(validation.set)
        }
    }
}
