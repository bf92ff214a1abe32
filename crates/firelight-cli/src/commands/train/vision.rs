//! What a vision transformer shows after its training: what it says of some validation images.

use anyhow::Result;
use firelight::data::Image;
use firelight::device::NamedDevice;
use firelight::storage::Checkpoint;
use firelight::training::Sample;
use firelight::vision::{Classification, ImageClassifier, TrainedRun, Vision};

use super::course::Shown;

/// How many images are classified.
const SAMPLES: usize = 3;

impl Shown for Vision {
    const SHOWS: &'static str = "predictions for validation images";

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
}
