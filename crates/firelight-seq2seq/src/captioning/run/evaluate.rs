//! How well a trained model describes the images that it validates on, or others.

use std::path::Path;

use firelight_data::CaptionedImages;
use firelight_storage::{InputError, TaskError, shortened};
use firelight_training::{AskedData, DataModule, ExampleDigest, MeasuredTask, Measurement, OpenedRun, TaskEvaluation};

use super::super::captioner::Captioner;
use super::data::{CaptionData, captioned, list_of, no_list, of_list};
use super::{Captioning, descriptions};
use crate::run::score::measurement;
use crate::vocabulary::Vocabulary;

/// How the images are described that a model is evaluated on. Default: by one beam, which is greedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptionOptions {
    /// Width of the beam search.
    pub beams: usize,
}

impl Default for CaptionOptions {
    fn default() -> Self {
        Self { beams: 1 }
    }
}

impl MeasuredTask for Captioning {
    type Options = CaptionOptions;
    type Report = TaskEvaluation;

    /// A list of images with captions, a `.jsonl` file or a folder with `captions.jsonl`, or, without one, the images that the run
    /// validates on. Every image is described.
    ///
    /// # Errors
    /// If the folder is no run of this task, keeps no images where no data is given, there is no such list or one that cannot be read, or
    /// a split is named.
    fn measured(
        run: &OpenedRun<'_, Self>,
        asked: AskedData<'_>,
        options: &CaptionOptions,
    ) -> Result<Measurement<Self>, TaskError> {
        let captioner = Captioner::load_from(run.folder.path(), run.checkpoint, run.device)?;
        let data = match asked {
            None => CaptionData::open(&run.recipe, &run.folder)?,
            Some((list, None)) => listed_in(list, run, &captioner)?,
            Some((_, Some(split))) => return Err(no_splits(split).into()),
        };
        let count = data.validation().captions.len();
        let written = descriptions(&run.recipe, &data, count, options.beams);
        let loader = data.validation_loader(&run.recipe, run.device)?;
        let examples = move |digest: &mut ExampleDigest| {
            let CaptionedImages { images, captions } = data.validation();
            digest.extend(images.pixels().chunks(images.shape().volume()).zip(captions));
        };
        Ok(measurement::<Self, _>(captioner.model(), loader, written, examples))
    }
}

/// The images of a list, in the shape that the model is made for.
fn listed_in(path: &Path, run: &OpenedRun<'_, Captioning>, captioner: &Captioner) -> Result<CaptionData, TaskError> {
    let list = list_of(path).ok_or_else(|| no_list(path))?;
    let (mut recipe, shape) = (run.recipe.data.clone(), captioner.shape());
    (recipe.image_size, recipe.channels) = (Some(shape.size()), Some(shape.channels));
    let normalization = captioner.config().normalization.clone();
    let (vocabulary, images) = (Vocabulary::load(&run.folder, true)?, captioned(&recipe, &list)?);
    CaptionData::measured(&run.recipe, vocabulary, normalization, images).map_err(of_list(&list))
}

fn no_splits(split: &str) -> InputError {
    let problem = format!("a list of captions is measured as a whole and has no split `{}`", shortened(split));
    InputError::new(problem).advise("leave the split out")
}
