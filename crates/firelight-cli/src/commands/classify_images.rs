//! `firelight classify --image`: images in, their classes with probabilities out, and a picture of where the answer came from.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use firelight::data::Image;
use firelight::vision::{Classification, ImageClassifier};
use serde_json::{Map, Value, json};

use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

/// The arguments of `firelight classify` that are for images.
#[derive(clap::Args)]
pub(super) struct ClassifyImages {
    /// Image to classify (PNG or JPEG), resized to what the model takes; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(super) image: Vec<PathBuf>,
    /// Write a PNG of the image beside its attention rollout: bright where the patches count in the answer
    #[arg(long, value_name = "FILE", requires = "image")]
    pub(super) rollout: Option<PathBuf>,
}

impl ClassifyImages {
    /// Whether none is given.
    pub(super) fn is_empty(&self) -> bool {
        self.image.is_empty() && self.rollout.is_none()
    }

    pub(super) fn run(&self, model: &TrainedModel, as_json: bool) -> Result<()> {
        ensure!(!self.image.is_empty(), Mistake("give an image to classify with --image FILE".into()));
        check_picture("--rollout", self.rollout.as_deref(), &self.image)?;
        let images = self.image.iter().map(Image::open).collect::<Result<Vec<_>, _>>()?;
        let classifier = model.load(ImageClassifier::load_from)?;
        if let (Some(path), [image]) = (&self.rollout, &images[..]) {
            classifier.rollout(image)?.picture(image).write_png(path)?;
            output::note(format_args!("wrote {}", path.display()));
        }
        let (found, classes) = (classifier.classify(&images)?, classifier.classes());
        for (path, found) in self.image.iter().map(|path| path.display().to_string()).zip(&found) {
            output::print(&if as_json { to_json(&path, found, classes) } else { to_text(&path, found) })?;
        }
        Ok(())
    }
}

/// Refuses an `option` that draws several images, or into the file of the one that it draws.
pub(super) fn check_picture(option: &str, picture: Option<&Path>, images: &[PathBuf]) -> Result<()> {
    let Some(picture) = picture else { return Ok(()) };
    ensure!(images.len() == 1, Mistake(format!("{option} draws one image: give one --image")));
    let takes_place = picture.canonicalize().is_ok_and(|out| images[0].canonicalize().is_ok_and(|image| image == out));
    ensure!(!takes_place, Mistake(format!("{option} would replace the image: give the picture another name")));
    Ok(())
}

fn to_json(path: &str, found: &Classification, classes: &[String]) -> String {
    let probabilities: Map<String, Value> =
        classes.iter().zip(&found.probabilities).map(|(class, value)| (class.clone(), json!(value))).collect();
    format!("{}\n", json!({"image": path, "label": found.label, "probabilities": probabilities}))
}

fn to_text(path: &str, found: &Classification) -> String {
    let surety = found.probabilities.iter().copied().fold(0.0, f64::max);
    format!("{path}\t{}\t{surety:.4}\n", found.label)
}
