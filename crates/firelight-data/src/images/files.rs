//! Where the images of a data set lie: which splits a folder has, and how each is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, StorageError, listed, shortened};

use super::cifar::{self, Cifar};
use super::codec::MAX_PIXELS;
use super::set::ImageSet;
use super::{Image, ImageError, ImageShape, Resizing, folder, idx};
use crate::{HeldOut, SplitConfig, split_names};

/// The split that is validated on where nothing is said, under any of its names.
const VALIDATION: &str = "val";

/// The files of one split.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageFiles {
    /// IDX, packed or not, as of MNIST: `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`.
    Idx {
        /// Sizes `[N, H, W]` or `[N, C, H, W]`.
        images: PathBuf,
        /// Sizes `[N]`.
        labels: PathBuf,
    },
    /// The binary files of CIFAR.
    Cifar {
        /// Which of the two.
        kind: Cifar,
        /// One after the other.
        files: Vec<PathBuf>,
    },
    /// PNG and JPEG files in a folder for each class.
    Folders {
        /// The folder above the classes.
        path: PathBuf,
    },
}

/// How images are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Height and width that all images are brought to. Default: none, they must be of one size.
    pub size: Option<[usize; 2]>,
    /// Channels, 1 or 3, that all images are brought to. Default: none, they must have the same.
    pub channels: Option<usize>,
    /// How they are brought to that size.
    pub resizing: Resizing,
    /// Leaves out files that are no images or are damaged. Default: false, they are errors.
    pub skip_unreadable: bool,
}

impl ReadOptions {
    /// Refuses a size that no image may have.
    fn check(&self) -> Result<(), ImageError> {
        let [height, width] = self.size.unwrap_or([1, 1]);
        match height > 0 && width > 0 && height.saturating_mul(width) <= MAX_PIXELS {
            true => Ok(()),
            false => Err(InputError::new(format!(
                "data.image_size = [{height}, {width}] must be numbers above 0 with a product of at most {MAX_PIXELS}"
            ))
            .into()),
        }
    }

    /// The image as it is asked for.
    pub(super) fn fit(&self, image: Image) -> Image {
        self.resizing.apply(&image, self.shape(image.shape()))
    }

    /// The shape that is asked for, of images of this one.
    fn shape(&self, shape: ImageShape) -> ImageShape {
        ImageShape::new(self.channels.unwrap_or(shape.channels), self.size.unwrap_or(shape.size()))
    }

    fn fit_all(&self, set: ImageSet) -> ImageSet {
        let shape = self.shape(set.shape());
        if shape == set.shape() && self.resizing.is_plain() {
            return set;
        }
        let pixels = (0..set.len()).flat_map(|index| self.fit(set.image(index)).pixels().to_vec()).collect();
        ImageSet::new(self.resizing.shape(shape), set.classes().to_vec(), pixels, set.labels().to_vec())
    }
}

/// What was read.
#[derive(Clone, Debug)]
pub struct ReadImages {
    /// The images.
    pub set: ImageSet,
    /// Files that were left out.
    pub skipped: Vec<PathBuf>,
}

impl ImageFiles {
    /// The splits of a folder by their names. Folders of classes without a split above them are the split `train`.
    ///
    /// # Errors
    /// Fails if the folder cannot be read or holds no images of a known format.
    pub fn splits(folder: &Path) -> Result<BTreeMap<String, Self>, ImageError> {
        let entries = std::fs::read_dir(folder).map_err(StorageError::io("read", folder))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        for splits in [idx_splits(folder, &names), cifar_splits(folder, &names), folder_splits(folder)?] {
            if !splits.is_empty() {
                return Ok(splits);
            }
        }
        Err(ImageError::NoImages { path: folder.into() })
    }

    /// One split of a folder, under any of its [names](crate::split_names).
    ///
    /// # Errors
    /// As [`splits`](Self::splits), and if there is no such split.
    pub fn split(folder: &Path, split: &str) -> Result<Self, ImageError> {
        let mut splits = Self::splits(folder)?;
        let found = listed(splits.keys());
        let unknown = || {
            let split = shortened(split);
            InputError::new(format!("there is no split `{split}` in `{}`: there is {found}", folder.display()))
        };
        Ok(taken(&mut splits, split).ok_or_else(unknown)?)
    }

    /// The images of a folder to train on, and those to validate on, with the classes of the former: by default the splits
    /// `train` and `val`, or the last tenth of the only split.
    ///
    /// # Errors
    /// As [`splits`](Self::splits) and [`read`](Self::read), and if the parts are of different shapes or one is empty.
    pub fn read_parts(
        folder: &Path,
        options: &ReadOptions,
        split: &SplitConfig,
    ) -> Result<[ReadImages; 2], ImageError> {
        let mut splits = Self::splits(folder)?;
        let only = if splits.len() == 1 { splits.keys().next().cloned() } else { None };
        let training = match taken(&mut splits, only.as_deref().unwrap_or(&split.train)) {
            Some(files) => files.read(options)?,
            None => Self::split(folder, &split.train)?.read(options)?, // which tells what there is
        };
        let validation = match &split.validation {
            Some(HeldOut::Split(name)) => Some(Self::split(folder, name)?),
            Some(_) => None,
            None => taken(&mut splits, VALIDATION),
        };
        let Some(files) = validation else {
            let images = training.set.len();
            let (set, held_out) = training.set.split(images - split.training_len(images, "images")?)?;
            return Ok([ReadImages { set, ..training }, ReadImages { set: held_out, skipped: Vec::new() }]);
        };
        let validation = files.read(options)?;
        let (expected, found) = (training.set.shape(), validation.set.shape());
        if expected != found {
            let split = shortened(split.validation_split().unwrap_or(VALIDATION));
            return Err(InputError::new(format!(
                "the images of `{split}` have {found} (channels, height, width), but those to train on have {expected}: bring \
                 all to one with data.image_size and data.channels"
            ))
            .into());
        }
        let set = validation.set.with_classes(training.set.classes())?;
        Ok([training, ReadImages { set, ..validation }])
    }

    /// Reads all images.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is damaged, images and labels do not belong together, images differ in their shapes, or
    /// a class is empty.
    pub fn read(&self, options: &ReadOptions) -> Result<ReadImages, ImageError> {
        options.check()?;
        let set = match self {
            Self::Idx { images, labels } => read_idx(images, labels)?,
            Self::Cifar { kind, files } => cifar::read(*kind, files)?,
            Self::Folders { path } => return folder::read(path, options),
        };
        Ok(ReadImages { set: options.fit_all(set), skipped: Vec::new() })
    }
}

fn idx_splits(folder: &Path, names: &[String]) -> BTreeMap<String, ImageFiles> {
    let split = |name: &String| {
        let (split, kind) = name.split_once("-images")?;
        let is_idx = ["-idx3-ubyte", ".idx3-ubyte", "-idx4-ubyte"].contains(&kind.trim_end_matches(".gz"));
        let labels = format!("{split}-labels{}", kind.trim_end_matches(".gz").replace(['3', '4'], "1"));
        let labels = [labels.clone(), labels + ".gz"].into_iter().find(|name| names.contains(name));
        let labels = folder.join(labels.filter(|_| is_idx)?);
        Some((split.to_string(), ImageFiles::Idx { images: folder.join(name), labels }))
    };
    names.iter().filter_map(split).collect()
}

fn cifar_splits(folder: &Path, names: &[String]) -> BTreeMap<String, ImageFiles> {
    let named = |fits: fn(&str) -> bool| -> Vec<PathBuf> {
        names.iter().filter(|name| fits(name)).map(|name| folder.join(name)).collect()
    };
    let parts = [
        ("train", Cifar::Ten, named(|name| name.starts_with("data_batch_") && name.ends_with(".bin"))),
        ("test", Cifar::Ten, named(|name| name == "test_batch.bin")),
        ("train", Cifar::Hundred, named(|name| name == "train.bin")),
        ("test", Cifar::Hundred, named(|name| name == "test.bin")),
    ];
    let found = parts.into_iter().filter(|(_, _, files)| !files.is_empty());
    found.map(|(split, kind, files)| (split.to_string(), ImageFiles::Cifar { kind, files })).collect()
}

fn folder_splits(folder: &Path) -> Result<BTreeMap<String, ImageFiles>, ImageError> {
    let subfolders = folder::subfolders(folder)?;
    let of = |path: &Path| ImageFiles::Folders { path: path.into() };
    let has_splits = subfolders.iter().any(|path| path.ends_with("train"));
    Ok(match subfolders.is_empty() {
        true => BTreeMap::new(),
        false if has_splits => subfolders.iter().map(|path| (folder::name(path), of(path))).collect(),
        false => [("train".to_string(), of(folder))].into(),
    })
}

fn read_idx(image_path: &Path, label_path: &Path) -> Result<ImageSet, ImageError> {
    let (images, labels) = (idx::read(image_path)?, idx::read(label_path)?);
    let sizes = |path: &Path, sizes: &[usize], expected: &str| {
        ImageError::from(idx::not_idx(path, &format!("its sizes are {sizes:?}, expected {expected}")))
    };
    let (count, shape) = match images.sizes[..] {
        [count, height, width] => (count, ImageShape::new(1, [height, width])),
        [count, channels @ (1 | 3), height, width] => (count, ImageShape { channels, height, width }),
        _ => return Err(sizes(image_path, &images.sizes, "those of images, [N, H, W] or [N, C, H, W]")),
    };
    let [named] = labels.sizes[..] else { return Err(sizes(label_path, &labels.sizes, "one, of labels")) };
    if images.sizes.contains(&0) {
        return Err(sizes(image_path, &images.sizes, "none of them 0"));
    }
    if count != named {
        let problem = format!("has {count} images, but `{}` has {named} labels", label_path.display());
        return Err(InputError::in_file(image_path, problem + ": give files that belong together").into());
    }
    let classes = labels.values.iter().max().map_or(0, |last| usize::from(*last) + 1);
    let names = (0..classes).map(|class| class.to_string()).collect();
    Ok(ImageSet::new(shape, names, images.values, labels.values.into_iter().map(u32::from).collect()))
}

/// The split under the first of its names that is there.
fn taken(splits: &mut BTreeMap<String, ImageFiles>, name: &str) -> Option<ImageFiles> {
    split_names(name).into_iter().find_map(|name| splits.remove(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write_idx(path: &Path, sizes: &[usize], values: &[u8]) {
        let mut bytes = Vec::new();
        idx::write_header(&mut bytes, sizes).unwrap();
        fs::write(path, [&bytes[..], values].concat()).unwrap();
    }

    fn mnist() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let values: Vec<u8> = (0..12).collect();
        write_idx(&home.path().join("t10k-images-idx3-ubyte"), &[3, 2, 2], &values);
        write_idx(&home.path().join("t10k-labels-idx1-ubyte"), &[3], &[1, 4, 0]);
        home
    }

    #[test]
    fn the_splits_of_mnist_are_found_and_read() {
        let home = mnist();
        let files = ImageFiles::split(home.path(), "t10k").unwrap();
        let set = files.read(&ReadOptions::default()).unwrap().set;
        assert_eq!((set.shape(), set.labels(), set.classes().len()), (ImageShape::new(1, [2, 2]), &[1, 4, 0][..], 5));
        assert_eq!(set.image(2).pixels(), [8, 9, 10, 11]);
        let error = ImageFiles::split(home.path(), "train").unwrap_err().to_string();
        assert!(error.ends_with("there is t10k"), "{error}");
    }

    #[test]
    fn images_are_brought_to_a_size_and_to_channels() {
        let home = mnist();
        let options = ReadOptions { size: Some([4, 2]), channels: Some(3), ..ReadOptions::default() };
        let set = ImageFiles::split(home.path(), "t10k").unwrap().read(&options).unwrap().set;
        assert_eq!((set.shape(), set.len()), (ImageShape::new(3, [4, 2]), 3));
        assert_eq!(set.image(0), set.image(0).with_channels(3).resized([4, 2]));
    }

    #[test]
    fn images_and_labels_that_do_not_belong_together_are_refused() {
        let home = mnist();
        let labels = home.path().join("t10k-labels-idx1-ubyte");
        let files = ImageFiles::split(home.path(), "t10k").unwrap();
        let refuse = || files.read(&ReadOptions::default()).unwrap_err().to_string();
        write_idx(&labels, &[2], &[1, 4]);
        assert!(refuse().contains("has 3 images, but") && refuse().contains("has 2 labels"), "{}", refuse());
        write_idx(&labels, &[3, 1], &[1, 4, 0]);
        assert!(refuse().contains("its sizes are [3, 1], expected one"), "{}", refuse());
        write_idx(&home.path().join("t10k-images-idx3-ubyte"), &[3, 0, 2], &[]);
        write_idx(&labels, &[3], &[1, 4, 0]);
        assert!(refuse().contains("its sizes are [3, 0, 2], expected none of them 0"), "{}", refuse());
    }

    #[test]
    fn a_size_that_takes_too_much_memory_is_refused_before_it_is_taken() {
        let home = mnist();
        let files = ImageFiles::split(home.path(), "t10k").unwrap();
        for size in [[100_000, 100_000], [0, 4], [usize::MAX, 2]] {
            let options = ReadOptions { size: Some(size), ..ReadOptions::default() };
            let error = files.read(&options).unwrap_err();
            assert!(
                error.is_user_error() && error.to_string().contains(&format!("data.image_size = {size:?}")),
                "{error}"
            );
        }
    }

    #[test]
    fn every_format_is_known_by_its_files() {
        let home = tempfile::tempdir().unwrap();
        let folder = |name: &str, files: &[&str]| {
            let folder = home.path().join(name);
            for file in files {
                fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
                fs::write(folder.join(file), "").unwrap();
            }
            folder
        };
        let splits = |folder: &Path| ImageFiles::splits(folder).unwrap().into_keys().collect::<Vec<_>>();
        let gz = folder("gz", &["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "readme"]);
        assert_eq!(splits(&gz), ["train"]);
        let ten = folder("ten", &["data_batch_2.bin", "data_batch_1.bin", "test_batch.bin"]);
        let files = ["data_batch_1.bin", "data_batch_2.bin"].map(|name| ten.join(name)).to_vec();
        assert_eq!(ImageFiles::split(&ten, "train").unwrap(), ImageFiles::Cifar { kind: Cifar::Ten, files });
        assert_eq!(splits(&folder("hundred", &["train.bin", "test.bin"])), ["test", "train"]);
        assert_eq!(splits(&folder("split", &["train/cat/1.png", "val/cat/1.png"])), ["train", "val"]);
        let alone = folder("alone", &["cat/1.png", "owl/1.png"]);
        assert_eq!(ImageFiles::split(&alone, "train").unwrap(), ImageFiles::Folders { path: alone });
        let error = ImageFiles::splits(&folder("text", &["a.txt"])).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("text` holds no images"), "{error}");
    }
}
