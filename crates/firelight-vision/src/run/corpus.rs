//! The images of a run: read when it begins, kept in its folder as bytes, with their classes and the statistics of those that are
//! trained on.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_data::{ImageDataset, ImageFiles, ImageSet, Normalization, StepLoader};
use firelight_storage::{InputError, ModelFolder, TaskError, read_json, shortened, write_json};
use firelight_training::DataModule;
use serde::{Deserialize, Serialize};

use super::{ImageRecipe, Vision, VisionRecipe};
use crate::data::{ImageBatch, ImageBatcher};

/// Images of one validation batch: enough to keep the cores busy, few enough for small memories.
const VALIDATION_BATCH: usize = 128;

/// No index of images is larger, in bytes: it has a label for each of them.
const INDEX_LIMIT: u64 = 1 << 30;

/// A loader of batches.
type Loader = Arc<dyn DataLoader<ImageBatch>>;

/// What a vision transformer is trained and validated on.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageData {
    training: ImageSet,
    validation: ImageSet,
    normalization: Normalization,
    skipped: usize,
}

/// What a run folder says about the file of its images.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    classes: Vec<String>,
    /// How many of the images are trained on; the others are validated on.
    training: usize,
    /// Files that were left out.
    skipped: usize,
    normalization: Normalization,
    /// The class of each image, by its place in `classes`.
    labels: Vec<u32>,
}

impl ImageData {
    /// The images to train on.
    pub fn training(&self) -> &ImageSet {
        &self.training
    }

    /// The images to validate on.
    pub fn validation(&self) -> &ImageSet {
        &self.validation
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        self.training.classes()
    }

    /// How pixels become numbers, by the images to train on.
    pub fn normalization(&self) -> &Normalization {
        &self.normalization
    }

    pub(super) fn of_files(recipe: &ImageRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let folder = match paths {
            [folder] => folder,
            [] => {
                let problem = format!("the recipe `{}` needs images to train on", source.display());
                return Err(InputError::new(problem).advise("give a folder with --data DIR").into());
            }
            _ => {
                let problem = format!("images are read from one folder, but {} paths were given", paths.len());
                return Err(InputError::new(problem).advise("put them into one").into());
            }
        };
        let [training, validation] = ImageFiles::read_parts(folder, &recipe.options(), &recipe.split)?;
        if let [class] = training.set.classes() {
            let problem =
                format!("has images of the class `{}` alone, but a classifier needs two or more", shortened(class));
            let advice = "give a folder with a folder of images for each class";
            return Err(InputError::in_file(folder, problem).advise(advice).into());
        }
        let skipped = training.skipped.len() + validation.skipped.len();
        let normalization = Normalization::of(&training.set);
        Ok(Self { training: training.set, validation: validation.set, normalization, skipped })
    }
}

impl DataModule<Vision> for ImageData {
    fn read(recipe: &mut VisionRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        Self::of_files(&recipe.data, source, paths)
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), TaskError> {
        let both = self.training.followed_by(&self.validation)?;
        both.save(folder.images())?;
        let index = Index {
            classes: self.classes().to_vec(),
            training: self.training.len(),
            skipped: self.skipped,
            normalization: self.normalization.clone(),
            labels: both.labels().to_vec(),
        };
        Ok(write_json(folder.image_index(), &index)?)
    }

    fn open(_recipe: &VisionRecipe, folder: &ModelFolder) -> Result<Self, TaskError> {
        let index: Index = read_json(folder.image_index(), INDEX_LIMIT)?;
        let count = index.labels.len();
        let both = ImageSet::of_run(folder, &index.normalization, index.classes, index.labels)?;
        let (training, validation) = both.split(count.saturating_sub(index.training))?;
        Ok(Self { training, validation, normalization: index.normalization, skipped: index.skipped })
    }

    fn is_of(&self, recipe: &VisionRecipe, paths: &[PathBuf]) -> Result<bool, TaskError> {
        Ok(Self::of_files(&recipe.data, Path::new(""), paths)? == *self)
    }

    fn sizes(&self) -> String {
        let skipped = match self.skipped {
            0 => String::new(),
            files => format!(" ({files} files that cannot be read left out)"),
        };
        let [training, validation] = [&self.training, &self.validation].map(ImageSet::len);
        let (shape, classes) = (self.training.shape(), self.classes().len());
        format!("{training} images of {shape} in {classes} classes to train on{skipped}, {validation} to validate on")
    }

    fn batches_per_epoch(&self, recipe: &VisionRecipe) -> Result<usize, TaskError> {
        Ok(self.training.len().div_ceil(recipe.training.batch_size))
    }

    fn training_loader(
        &self,
        recipe: &VisionRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader, TaskError> {
        let (size, data) = (recipe.training.batch_size, &recipe.data);
        let images = ImageDataset::for_training(
            self.training.clone(),
            self.normalization.clone(),
            data.augmentation.clone(),
            recipe.seed,
            [size, batches.end],
        );
        let batcher = ImageBatcher::new(self.training.shape()).with_mixing(data.augmentation.mixing());
        let loader = StepLoader::new(images, batcher, size, device);
        let loader = loader.with_workers(data.workers);
        Ok(loader.slice(batches.start.saturating_mul(size), batches.end.saturating_mul(size)))
    }

    fn validation_loader(&self, _recipe: &VisionRecipe, device: &Device) -> Result<Loader, TaskError> {
        Ok(loader_of(self.validation.clone(), self.normalization.clone(), device))
    }
}

/// A loader that reads every image once, as it is.
pub(super) fn loader_of(set: ImageSet, normalization: Normalization, device: &Device) -> Loader {
    let batcher = ImageBatcher::new(set.shape());
    Arc::new(StepLoader::new(ImageDataset::for_evaluation(set, normalization), batcher, VALIDATION_BATCH, device))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;
    use firelight_data::{HeldOut, SplitConfig};
    use firelight_data::{Image, ImageShape};
    use firelight_storage::Existing;

    /// Stripes: `class` says in which direction. Images differ by where the stripes begin.
    fn stripes(class: usize, offset: usize) -> Image {
        let pixel = |y: usize, x: usize| if (([y, x, y + x][class] + offset) / 2).is_multiple_of(2) { 230 } else { 20 };
        let pixels = (0..64).map(|place| pixel(place / 8, place % 8) + (offset % 8) as u8).collect();
        Image::new(ImageShape::new(1, [8, 8]), pixels)
    }

    /// A folder of three classes with `images` images each.
    pub(in crate::run) fn folder(path: &Path, images: usize) {
        for (class, name) in ["across", "diagonal", "upright"].iter().enumerate() {
            fs::create_dir_all(path.join(name)).unwrap();
            (0..images).for_each(|i| stripes(class, i).write_png(path.join(name).join(format!("{i:03}.png"))).unwrap());
        }
    }

    #[test]
    fn images_come_back_from_the_run_folder() {
        let home = tempfile::tempdir().unwrap();
        folder(&home.path().join("data"), 10);
        let data = [home.path().join("data")];
        let read = ImageData::of_files(&ImageRecipe::default(), Path::new("x.toml"), &data).unwrap();
        assert_eq!(read.sizes(), "27 images of 1 x 8 x 8 in 3 classes to train on, 3 to validate on");
        let mut labels = read.validation().labels().to_vec();
        labels.sort_unstable();
        assert_eq!(labels, [0, 1, 2], "the last images are of all classes");
        assert_eq!(read.normalization(), &Normalization::of(read.training()));
        let recipe = firelight_training::read_recipe::<Vision>(None, &[]).unwrap();
        let run = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        read.save(&run).unwrap();
        assert_eq!(ImageData::open(&recipe, &run).unwrap(), read);

        let half = ImageRecipe {
            split: SplitConfig { validation: Some(HeldOut::Count(15)), ..SplitConfig::default() },
            ..ImageRecipe::default()
        };
        assert_ne!(ImageData::of_files(&half, Path::new("x.toml"), &data).unwrap(), read);
        fs::write(run.image_index(), "{\"classes\": []}").unwrap();
        let error = ImageData::open(&recipe, &run).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("missing field"), "{error}");
    }

    #[test]
    fn a_split_of_its_own_is_validated_on() {
        let home = tempfile::tempdir().unwrap();
        folder(&home.path().join("train"), 4);
        folder(&home.path().join("val"), 2);
        let data = [home.path().to_path_buf()];
        let read = || ImageData::of_files(&ImageRecipe::default(), Path::new("x.toml"), &data);
        assert_eq!([read().unwrap().training().len(), read().unwrap().validation().len()], [12, 6]);
        fs::create_dir(home.path().join("val/spiral")).unwrap();
        stripes(0, 0).write_png(home.path().join("val/spiral/1.png")).unwrap();
        let error = read().unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("the class `spiral` is none"), "{error}");
    }

    #[test]
    fn no_data_and_two_folders_are_refused() {
        let read =
            |paths: &[PathBuf]| ImageData::of_files(&ImageRecipe::default(), Path::new("x.toml"), paths).unwrap_err();
        assert!(read(&[]).to_string().contains("`x.toml` needs images"));
        assert!(read(&["a".into(), "b".into()]).to_string().contains("2 paths were given"));
        assert!(read(&["missing".into()]).is_user_error());
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("only")).unwrap();
        (0..3).for_each(|i| stripes(0, i).write_png(home.path().join(format!("only/{i}.png"))).unwrap());
        let error = read(&[home.path().into()]);
        assert!(error.is_user_error() && error.to_string().contains("of the class `only` alone"), "{error}");
    }
}
