//! What a model of captions shows after its training: what it says of some validation images.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use firelight::data::Image;
use firelight::device::NamedDevice;
use firelight::nn::{Cost, ParamBuilder};
use firelight::seq2seq::{CaptionConfig, CaptionOptions, CaptionRecipe, Captioner, Captioning};
use firelight::storage::{Checkpoint, ModelFolder};
use firelight::training::{Sample, TaskEvaluation, TrainedRun};

use super::super::evaluate::{Evaluate, Found};
use super::{SAMPLES, Shown};
use crate::failure::Mistake;

impl Shown for Captioning {
    const DATA: &'static str =
        "a folder of images with captions.jsonl, or one as of vision, of whose images pictures are composed";
    const SHOWS: &'static str = "captions of validation images";
    const COMMANDS: &'static [&'static str] = &["caption"];
    const WRITES: bool = true;

    fn next(folder: &str) -> String {
        format!("describe an image with: firelight caption {folder} --image FILE")
    }

    fn samples(run: &TrainedRun<Self>, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let captioner = Captioner::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let set = run.corpus.validation();
        let images: Vec<Image> = (0..SAMPLES.min(set.captions.len())).map(|index| set.images.image(index)).collect();
        let found = captioner.caption(&images, 1)?.into_iter().zip(&set.captions).enumerate();
        let sample = |(index, (found, caption))| {
            let found: firelight::seq2seq::Caption = found;
            Sample::new(format!("validation image {index}"), found.text).expecting(caption)
        };
        Ok(found.map(sample).collect())
    }

    fn cost(_: &CaptionRecipe, config: &CaptionConfig, length: Option<usize>) -> (Cost, usize) {
        let length = length.unwrap_or(config.decoder.max_seq_len);
        (config.init_with(&ParamBuilder::counting()).cost(length), length)
    }

    fn options(asked: &Evaluate) -> Result<CaptionOptions> {
        let plain = asked.split.is_none() && asked.length_penalty.is_none();
        ensure!(plain, Mistake("--split and --length-penalty are not for captions: leave them out".into()));
        Ok(asked.beams.map_or_else(CaptionOptions::default, |beams| CaptionOptions { beams }))
    }

    fn in_words(mut found: TaskEvaluation) -> String {
        found.scores = found.scores.into_iter().map(to_share).collect();
        Found::in_words(&found)
    }

    fn kept(folder: &ModelFolder) -> PathBuf {
        folder.image_index()
    }
}

/// Scores of texts are percentages already.
fn to_share((name, value): (&'static str, f64)) -> (&'static str, f64) {
    if name == "exact_match" { (name, value / 100.0) } else { (name, value) }
}
