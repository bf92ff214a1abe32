//! The images of a run with their captions: read or composed when it begins, kept in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;
use firelight_data::{
    CaptionedImages, HeldOut, ImageError, ImageFiles, ImageSet, Normalization, PairColumns, PairFiles, SplitConfig,
    StepLoader, Tokenizer, drawn_digits, folder_of,
};
use firelight_storage::{InputError, ModelFolder, TaskError, read_json, write_json};
use firelight_training::DataModule;
use serde::{Deserialize, Serialize};

use super::super::CAPTIONING_TASK;
use super::super::training::{CaptionBatch, CaptionBatcher, CaptionSample};
use super::Captioning;
use super::recipe::{CaptionRecipe, ImageTextRecipe};
use crate::vocabulary::Vocabulary;
use crate::vocabulary::too_long;

/// The list of a folder: objects with `image`, a path beside the list, and `caption`.
const LIST: &str = "captions.jsonl";

/// Images of one validation batch: enough to keep the cores busy, few enough for small memories.
pub(super) const VALIDATION_BATCH: usize = 64;

/// No index of images is larger, in bytes: it has a caption for each of them.
const INDEX_LIMIT: u64 = 1 << 30;

/// A loader of batches.
type Loader = Arc<dyn DataLoader<CaptionBatch>>;

/// What a model that describes images is trained and validated on.
#[derive(Debug, Clone)]
pub struct CaptionData {
    vocabulary: Vocabulary,
    normalization: Normalization,
    training: Part,
    validation: Part,
}

/// Images with captions and their ids.
#[derive(Debug, Clone)]
struct Part {
    texts: CaptionedImages,
    ids: Arc<[Vec<u32>]>,
}

/// What a run folder says about the file of its images.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    /// How many of the images are trained on; the others are validated on.
    training: usize,
    normalization: Normalization,
    /// What each image shows.
    captions: Vec<String>,
}

impl CaptionData {
    /// The tokenizer.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// How pixels become numbers, by the images to train on.
    pub fn normalization(&self) -> &Normalization {
        &self.normalization
    }

    /// The images to train on.
    pub fn training(&self) -> &CaptionedImages {
        &self.training.texts
    }

    /// The images to validate on.
    pub fn validation(&self) -> &CaptionedImages {
        &self.validation.texts
    }

    /// Images to measure a trained model on, which are neither trained nor validated on.
    pub(super) fn measured(
        recipe: &CaptionRecipe,
        vocabulary: Vocabulary,
        normalization: Normalization,
        images: CaptionedImages,
    ) -> Result<Self, TaskError> {
        let validation = Part::new(recipe, &vocabulary, images, 0)?;
        Ok(Self { vocabulary, normalization, training: validation.clone(), validation })
    }

    fn new(
        recipe: &CaptionRecipe,
        vocabulary: Vocabulary,
        normalization: Normalization,
        [training, validation]: [CaptionedImages; 2],
    ) -> Result<Self, TaskError> {
        let before = training.captions.len();
        let training = Part::new(recipe, &vocabulary, training, 0)?;
        let validation = Part::new(recipe, &vocabulary, validation, before)?;
        Ok(Self { vocabulary, normalization, training, validation })
    }

    fn loader(&self, part: &Part, batch_size: usize, device: &Device) -> StepLoader<CaptionSample, CaptionBatch> {
        let dataset = Samples {
            images: part.texts.images.clone(),
            ids: part.ids.clone(),
            normalization: self.normalization.clone(),
        };
        let ends = self.vocabulary.ends();
        let batcher = CaptionBatcher { shape: part.texts.images.shape(), ends: [ends.start, ends.target] };
        StepLoader::new(dataset, batcher, batch_size, device)
    }
}

impl Part {
    /// Before the first image stand `before` others in their list: errors name the line.
    fn new(
        recipe: &CaptionRecipe,
        vocabulary: &Vocabulary,
        texts: CaptionedImages,
        before: usize,
    ) -> Result<Self, TaskError> {
        let max_seq_len = recipe.model.transformer.max_seq_len;
        let encode = |(index, caption): (usize, &String)| {
            let line = before + index;
            let ids = vocabulary.target().encode(caption).map_err(TaskError::in_line(line))?;
            match ids.len() + 1 {
                tokens if tokens > max_seq_len => {
                    Err(TaskError::from(too_long((line + 1, "caption"), tokens, max_seq_len)))
                }
                _ => Ok(ids),
            }
        };
        let ids = texts.captions.iter().enumerate().map(encode).collect::<Result<_, _>>()?;
        Ok(Self { texts, ids })
    }
}

impl DataModule<Captioning> for CaptionData {
    fn read(recipe: &mut CaptionRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let parts = images_of(&recipe.data, recipe.seed, source, paths)?;
        let normalization = Normalization::of(&parts[0].images);
        let begun = recipe.init.run_with_tokenizer(recipe.data.tokenizer.is_file())?;
        // A model of images has none, and the decoder begins anew.
        let vocabulary = match begun.filter(|run| run.task().as_deref() == Some(CAPTIONING_TASK)) {
            Some(run) => Vocabulary::load(&run, true)?,
            None => Vocabulary::new(None, Tokenizer::train(&recipe.data.tokenizer, &parts[0].captions.join("\n"))?)?,
        };
        let data = Self::new(recipe, vocabulary, normalization, parts);
        match paths.first().and_then(|path| list_of(path)) {
            Some(list) => data.map_err(of_list(&list)),
            None => data,
        }
    }

    fn forget_generated(recipe: &mut CaptionRecipe) {
        recipe.data.drawn_digits = 0;
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), TaskError> {
        let [training, validation] = [self.training(), self.validation()];
        training.images.followed_by(&validation.images)?.save(folder.images())?;
        let captions = [&training.captions[..], &validation.captions[..]].concat();
        let index = Index { training: training.captions.len(), normalization: self.normalization.clone(), captions };
        write_json(folder.image_index(), &index)?;
        Ok(self.vocabulary.save(folder)?)
    }

    fn open(recipe: &CaptionRecipe, folder: &ModelFolder) -> Result<Self, TaskError> {
        let index: Index = read_json(folder.image_index(), INDEX_LIMIT)?;
        let count = index.captions.len();
        let images = ImageSet::of_run(folder, &index.normalization, vec![String::new()], vec![0; count])?;
        let both = CaptionedImages { images, captions: index.captions };
        let (training, validation) = both.split(count.saturating_sub(index.training))?;
        Self::new(recipe, Vocabulary::load(folder, true)?, index.normalization, [training, validation])
    }

    fn is_of(&self, recipe: &CaptionRecipe, paths: &[PathBuf]) -> Result<bool, TaskError> {
        let [training, validation] = images_of(&recipe.data, recipe.seed, Path::new(""), paths)?;
        Ok(training == *self.training() && validation == *self.validation())
    }

    fn sizes(&self) -> String {
        let [training, validation] = [self.training(), self.validation()].map(|part| part.captions.len());
        let shape = self.training().images.shape();
        format!("{training} images of {shape} with captions to train on, {validation} to validate on")
    }

    fn batches_per_epoch(&self, recipe: &CaptionRecipe) -> Result<usize, TaskError> {
        Ok(self.training().captions.len().div_ceil(recipe.training.batch_size))
    }

    fn training_loader(
        &self,
        recipe: &CaptionRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader, TaskError> {
        let loader = self.loader(&self.training, recipe.training.batch_size, device);
        Ok(Arc::new(loader.shuffled(recipe.seed, batches).with_workers(recipe.data.workers)))
    }

    fn validation_loader(&self, _recipe: &CaptionRecipe, device: &Device) -> Result<Loader, TaskError> {
        Ok(Arc::new(self.loader(&self.validation, VALIDATION_BATCH, device)))
    }
}

/// Normalised images with the ids of their captions.
struct Samples {
    images: ImageSet,
    ids: Arc<[Vec<u32>]>,
    normalization: Normalization,
}

impl Dataset<CaptionSample> for Samples {
    fn get(&self, index: usize) -> Result<CaptionSample, DatasetError> {
        let pixels = self.normalization.apply(&self.images.image(index));
        Ok(CaptionSample { pixels, ids: self.ids[index].clone() })
    }

    fn len(&self) -> usize {
        self.ids.len()
    }
}

/// The images to train and to validate on: those of a list, or pictures composed of labelled images or of drawn digits.
fn images_of(
    recipe: &ImageTextRecipe,
    seed: u64,
    source: &Path,
    paths: &[PathBuf],
) -> Result<[CaptionedImages; 2], TaskError> {
    let path = match paths {
        [] if recipe.drawn_digits == 0 => {
            let problem = format!("the recipe `{}` needs images to train on", source.display());
            let advice = "give a folder with captions.jsonl or with labelled images with --data DIR";
            return Err(InputError::new(problem).advise(advice).into());
        }
        [] => {
            let seeds = [seed, seed.wrapping_add(1)];
            return Ok(composed(recipe, seeds, seeds.map(|seed| drawn_digits(seed, recipe.drawn_digits)))?);
        }
        [path] => path,
        _ => {
            let problem = format!("captions are read from one file or folder, but {} paths were given", paths.len());
            return Err(InputError::new(problem).advise("put them into one").into());
        }
    };
    if let Some(list) = list_of(path) {
        let all = captioned(recipe, &list)?;
        if let Some(name) = recipe.split.validation_split() {
            return Ok([all, captioned(recipe, &folder_of(&list).join(name))?]);
        }
        let images = all.captions.len();
        let held_out = images - recipe.split.training_len(images, "images").map_err(of_list(&list))?;
        return Ok(all.split(held_out).map_err(of_list(&list))?.into());
    }
    // What pictures to validate on are composed of is held out, however many those are.
    let split = match recipe.split.validation {
        Some(HeldOut::Count(_)) => SplitConfig { validation: None, ..recipe.split.clone() },
        _ => recipe.split.clone(),
    };
    let parts = ImageFiles::read_parts(path, &recipe.options(), &split).map_err(|error| no_captions(error, path))?;
    Ok(composed(recipe, [seed, seed.wrapping_add(1)], parts.map(|part| part.set))?)
}

/// A folder that holds neither captions nor labelled images.
fn no_captions(error: ImageError, path: &Path) -> TaskError {
    match error {
        ImageError::NoImages { .. } => no_list(path).into(),
        error => error.into(),
    }
}

/// A path that is no list of captions and holds none.
pub(super) fn no_list(path: &Path) -> InputError {
    let problem = "holds no captions: expected a file of JSON lines, or a folder with captions.jsonl, with objects such as \
                   {\"image\": \"1.png\", \"caption\": \"a dog\"}";
    InputError::in_file(path, problem).advise("to train on composed pictures, give a folder of images by class")
}

fn composed(
    recipe: &ImageTextRecipe,
    seeds: [u64; 2],
    [training, validation]: [ImageSet; 2],
) -> Result<[CaptionedImages; 2], InputError> {
    let compose = |images, seed, count| CaptionedImages::composed(images, recipe.max_parts, seed, count);
    let held_out = recipe.scenes_held_out()?;
    Ok([compose(&training, seeds[0], recipe.scenes), compose(&validation, seeds[1], held_out)])
}

/// The list of captions that a path is or holds.
pub(super) fn list_of(path: &Path) -> Option<PathBuf> {
    [path.to_path_buf(), path.join(LIST)].into_iter().find(|path| path.is_file())
}

/// The images of a list with their captions.
pub(super) fn captioned(recipe: &ImageTextRecipe, list: &Path) -> Result<CaptionedImages, TaskError> {
    let columns = PairColumns { source: "image".into(), target: "caption".into() };
    let pairs = PairFiles::Records { path: list.into(), columns }.read()?.pairs;
    let folder = list.parent().unwrap_or(Path::new(""));
    let (paths, captions): (Vec<PathBuf>, Vec<String>) =
        pairs.into_iter().map(|pair| (folder.join(pair.source), pair.target)).unzip();
    let images = ImageSet::of_files(&paths, &recipe.options()).map_err(of_list(list))?;
    Ok(CaptionedImages { images, captions })
}

/// Names the list that holds what a user is to mend.
pub(super) fn of_list<E: Into<TaskError>>(list: &Path) -> impl FnOnce(E) -> TaskError {
    move |error| match error.into() {
        error if error.is_user_error() => InputError::in_file(list, format!("cannot be used: {error}")).into(),
        error => error,
    }
}
