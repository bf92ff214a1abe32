//! How well a trained model describes the images that it validates on, or others.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_data::CaptionedImages;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{
    Alone, Communicator, DataModule, Shared, TaskEvaluation, TrainingModule, agree_on_examples, open_run, telling,
};

use super::super::captioner::Captioner;
use super::data::{CaptionData, captioned, list_of, no_list, of_list};
use super::{Captioning, descriptions};
use crate::run::score::TargetScores;
use crate::vocabulary::Vocabulary;

/// Evaluates a run on a list of images with captions, a `.jsonl` file or a folder with `captions.jsonl`, or, without one, on the
/// images that it validates on; every image is described by so many beams.
///
/// # Errors
/// If the folder is no run of this task, keeps no images where no data is given, or there is no such list or one that cannot be
/// read.
pub fn evaluate_captions(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    list: Option<&Path>,
    beams: usize,
    device: &Device,
) -> Result<TaskEvaluation, TaskError> {
    evaluate_captions_on(folder, checkpoint, list, beams, device, Arc::new(Alone))
}

/// Evaluates like [`evaluate_captions`] on several ranks, which share the batches and the captions: the same bytes as one process on a CPU, but
/// for the seconds. Each rank calls it, and finds the same.
///
/// ```no_run
/// use std::sync::Arc;
/// use firelight_seq2seq::evaluate_captions_on;
/// use firelight_storage::Checkpoint;
/// use firelight_training::{Threads, ThreadsOptions};
///
/// std::thread::scope(|scope| {
///     for rank in Threads::ranks(2, ThreadsOptions::default()) {
///         scope.spawn(move || {
///             let rank = Arc::new(rank);
///             let found = evaluate_captions_on("runs/captions-1", &Checkpoint::Last, None, 1, &Default::default(), rank);
///             println!("{:.4}", found.unwrap().loss);
///         });
///     }
/// });
/// ```
///
/// # Errors
/// As [`evaluate_captions`], and if ranks have other models or examples, or one of them has failed or does not come in time.
pub fn evaluate_captions_on(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    list: Option<&Path>,
    beams: usize,
    device: &Device,
    communicator: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError> {
    telling(communicator, |ranks| measure(folder.as_ref(), (checkpoint, list, device), beams, ranks))
}

fn measure(
    folder: &Path,
    (checkpoint, list, device): (&Checkpoint, Option<&Path>, &Device),
    beams: usize,
    ranks: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError> {
    let captioner = Captioner::load_from(folder, checkpoint, device)?;
    let (folder, recipe) = open_run::<Captioning>(folder)?;
    let data = match list {
        Some(path) => {
            let list = list_of(path).ok_or_else(|| no_list(path))?;
            let shape = captioner.shape();
            let mut asked = recipe.data.clone();
            (asked.image_size, asked.channels) = (Some(shape.size()), Some(shape.channels));
            let normalization = captioner.config().normalization.clone();
            let (vocabulary, images) = (Vocabulary::load(&folder, true)?, captioned(&asked, &list)?);
            CaptionData::measured(&recipe, vocabulary, normalization, images).map_err(of_list(&list))?
        }
        None => CaptionData::open(&recipe, &folder)?,
    };
    let CaptionedImages { images, captions } = data.validation();
    agree_on_examples(ranks.clone(), images.pixels().chunks(images.shape().volume()).zip(captions))?;
    let (count, began) = (captions.len(), Instant::now());
    let mut scores = Shared(TargetScores::new(Some(descriptions(&recipe, &data, count, beams))));
    let task = TrainingModule::new(captioner.model().clone(), LossConfig::default());
    let loader = data.validation_loader(&recipe, device)?;
    Ok(TaskEvaluation::on(&task, loader.as_ref(), &mut scores, (data.loss_unit(), count, began), ranks)?)
}
