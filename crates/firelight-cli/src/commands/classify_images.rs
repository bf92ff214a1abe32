//! `firelight classify --image`: images in, their classes with probabilities out, and a picture of where the answer came from.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use firelight::data::Image;
use firelight::vision::{Classification, ImageClassifier, ImageTextMatcher};
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
    /// What an image may show, such as "a photo of a cat", for a model of images and texts; to be repeated
    #[arg(long, value_name = "TEXT", requires = "image", conflicts_with = "rollout")]
    pub(super) label: Vec<String>,
    /// Write a PNG of the image beside its attention rollout: bright where the patches count in the answer
    #[arg(long, value_name = "FILE", requires = "image")]
    pub(super) rollout: Option<PathBuf>,
}

impl ClassifyImages {
    /// Whether none is given.
    pub(super) fn is_empty(&self) -> bool {
        self.image.is_empty() && self.rollout.is_none() && self.label.is_empty()
    }

    /// A model of images and texts chooses among the labels.
    pub(super) fn run_with_labels(&self, model: &TrainedModel, as_json: bool) -> Result<()> {
        let images = self.images()?;
        ensure!(
            self.rollout.is_none(),
            Mistake("--rollout is for classifiers: a model of images and texts has no classes".into())
        );
        ensure!(
            !self.label.is_empty(),
            Mistake(
                "the model has no classes of its own: say what an image may show with --label TEXT, several times"
                    .into()
            )
        );
        let is_again = |(place, label): (usize, &String)| self.label[..place].contains(label);
        if let Some((_, label)) = self.label.iter().enumerate().find(|&found| is_again(found)) {
            bail!(Mistake(format!("--label \"{label}\" is given twice: give each once")));
        }
        let found = model.load(ImageTextMatcher::load_from)?.classify(&images, &self.label)?;
        self.print(&found, &self.label, as_json)
    }

    pub(super) fn run(&self, model: &TrainedModel, as_json: bool) -> Result<()> {
        ensure!(
            self.label.is_empty(),
            Mistake("--label is for models of images and texts: this one has classes of its own".into())
        );
        let images = self.images()?;
        check_picture("--rollout", self.rollout.as_deref(), &self.image)?;
        let classifier = model.load(ImageClassifier::load_from)?;
        if let (Some(path), [image]) = (&self.rollout, &images[..]) {
            classifier.rollout(image)?.picture(&classifier.seen(image)).write_png(path)?;
            output::note(format_args!("wrote {}", path.display()));
        }
        self.print(&classifier.classify(&images)?, classifier.classes(), as_json)
    }

    fn images(&self) -> Result<Vec<Image>> {
        ensure!(!self.image.is_empty(), Mistake("give an image to classify with --image FILE".into()));
        Ok(self.image.iter().map(Image::open).collect::<Result<Vec<_>, _>>()?)
    }

    fn print(&self, found: &[Classification], classes: &[String], as_json: bool) -> Result<()> {
        for (path, found) in self.image.iter().map(|path| path.display().to_string()).zip(found) {
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
