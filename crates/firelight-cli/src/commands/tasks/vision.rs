//! What a vision transformer shows after its training: what it says of some validation images.

use std::path::PathBuf;

use anyhow::Result;
use firelight::data::Image;
use firelight::device::NamedDevice;
use firelight::nn::{Cost, ParamBuilder};
use firelight::storage::{Checkpoint, ModelFolder};
use firelight::training::{RecipeOf, Sample};
use firelight::vision::{Classification, ImageClassifier, TrainedRun, Vision};

use super::super::classify::Classify;
use super::super::embedder::AnyEmbedder;
use super::super::trained_model::TrainedModel;
use super::{SAMPLES, Shown};

impl Shown for Vision {
    const DATA: &'static str = "a folder of images by class, or the files of MNIST or CIFAR";
    const SHOWS: &'static str = "predictions for validation images";
    const COMMANDS: &'static [&'static str] = &["classify", "embed"];

    fn next(folder: &str) -> String {
        format!("classify an image with: firelight classify {folder} --image FILE")
    }

    fn samples(run: &TrainedRun, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let classifier = ImageClassifier::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let set = run.corpus.validation();
        let images: Vec<Image> = (0..SAMPLES.min(set.len())).map(|index| set.image(index)).collect();
        let sample = |(index, found): (usize, Classification)| {
            let class = &set.classes()[set.labels()[index] as usize];
            let surety = found.probabilities.iter().copied().fold(0.0, f64::max);
            let output = format!("{} ({:.1} %)", found.label, 100.0 * surety);
            Sample::new(format!("validation image {index}"), output).expecting(class)
        };
        Ok(classifier.classify(&images)?.into_iter().enumerate().map(sample).collect())
    }

    fn cost(_: &RecipeOf<Self>, config: &Self::Config, _: Option<usize>) -> (Cost, usize) {
        (config.init_with(&ParamBuilder::counting()).cost(), config.tokens())
    }

    fn classify(asked: &Classify) -> Result<()> {
        asked.of_images()
    }

    fn embedder(model: &TrainedModel, are_images: bool) -> Result<AnyEmbedder> {
        AnyEmbedder::of_images(model, are_images)
    }

    fn kept(folder: &ModelFolder) -> PathBuf {
        folder.image_index()
    }
}
