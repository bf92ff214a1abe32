//! Many images of one shape with their labels, as bytes.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use firelight_storage::{InputError, ModelFolder, listed, shortened, unfit_file, write_atomic_with};
use memmap2::Mmap;
use rayon::prelude::*;

use super::{Image, ImageError, ImageShape, Normalization, ReadOptions, idx};

/// Labelled images of one shape. Cheap to clone and to cut into parts.
#[derive(Clone)]
pub struct ImageSet {
    shape: ImageShape,
    classes: Arc<[String]>,
    pixels: Pixels,
    labels: Arc<[u32]>,
    range: Range<usize>,
}

/// `[N, C, H, W]`.
#[derive(Clone)]
enum Pixels {
    Memory(Arc<[u8]>),
    File { map: Arc<Mmap>, header: usize },
}

impl Pixels {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::File { map, header } => &map[*header..],
        }
    }
}

impl ImageSet {
    /// Images one behind the other, `[N, C, H, W]`, and the class of each.
    ///
    /// # Panics
    /// Panics if there are not as many pixels as labels say, or a label has no class.
    pub fn new(shape: ImageShape, classes: Vec<String>, pixels: Vec<u8>, labels: Vec<u32>) -> Self {
        Self::of(shape, classes, Pixels::Memory(pixels.into()), labels)
    }

    /// Images without labels, which are all of one class that has no name.
    ///
    /// # Panics
    /// Panics if the pixels are of no whole number of images.
    pub fn unlabelled(shape: ImageShape, pixels: Vec<u8>) -> Self {
        let count = pixels.len() / shape.volume();
        Self::new(shape, vec![String::new()], pixels, vec![0; count])
    }

    /// Reads files, in their order, as images without labels.
    ///
    /// # Errors
    /// Fails if one cannot be read or is no image, or images differ in their shapes.
    pub fn of_files(paths: &[PathBuf], options: &ReadOptions) -> Result<Self, ImageError> {
        let images: Vec<Result<Image, ImageError>> =
            paths.par_iter().map(|path| Ok(options.fit(Image::open(path)?))).collect();
        let images = images.into_iter().collect::<Result<Vec<_>, _>>()?;
        let shape = images.first().map_or(ImageShape::new(1, [1, 1]), Image::shape);
        let odd = images.iter().zip(paths).find(|(image, _)| image.shape() != shape);
        if let Some((image, path)) = odd {
            return Err(other_shape(path, shape, image.shape()).into());
        }
        Ok(Self::unlabelled(shape, images.iter().flat_map(|image| image.pixels().to_vec()).collect()))
    }

    fn of(shape: ImageShape, classes: Vec<String>, pixels: Pixels, labels: Vec<u32>) -> Self {
        assert_eq!(pixels.bytes().len(), labels.len() * shape.volume(), "pixels of {} images of {shape}", labels.len());
        assert!(labels.iter().all(|label| (*label as usize) < classes.len()), "every label has a class");
        let range = 0..labels.len();
        Self { shape, classes: classes.into(), pixels, labels: labels.into(), range }
    }

    /// Channels, height and width of every image.
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The class of every image.
    pub fn labels(&self) -> &[u32] {
        &self.labels[self.range.clone()]
    }

    /// The pixels of all images, `[N, C, H, W]`.
    pub fn pixels(&self) -> &[u8] {
        let volume = self.shape.volume();
        &self.pixels.bytes()[self.range.start * volume..self.range.end * volume]
    }

    /// One image.
    ///
    /// # Panics
    /// Panics if there are not so many.
    pub fn image(&self, index: usize) -> Image {
        let volume = self.shape.volume();
        Image::new(self.shape, self.pixels()[index * volume..(index + 1) * volume].to_vec())
    }

    /// The images before the last `validation`, and these.
    ///
    /// # Errors
    /// Fails if either part would be empty.
    pub fn split(&self, validation: usize) -> Result<(Self, Self), ImageError> {
        let images = self.len();
        if validation == 0 || validation >= images {
            return Err(InputError::new(format!(
                "{images} images cannot be split into those to train on and {validation} to validate on: give data.split.validation \
                 as a number above 0 and below {images}"
            ))
            .into());
        }
        let middle = self.range.end - validation;
        let part = |range| Self { range, ..self.clone() };
        Ok((part(self.range.start..middle), part(middle..self.range.end)))
    }

    /// This set and another of the same shape behind it, with the classes of this one.
    ///
    /// # Errors
    /// As [`with_classes`](Self::with_classes).
    ///
    /// # Panics
    /// Panics if the shapes differ.
    pub fn followed_by(&self, other: &Self) -> Result<Self, ImageError> {
        assert_eq!(self.shape, other.shape, "images of one shape");
        let other = other.with_classes(&self.classes)?;
        let pixels = [self.pixels(), other.pixels()].concat();
        let labels = [self.labels(), other.labels()].concat();
        Ok(Self::new(self.shape, self.classes.to_vec(), pixels, labels))
    }

    /// The same images labelled by their place in other `classes`, by name.
    ///
    /// # Errors
    /// Fails if one has an image and is not among them.
    pub fn with_classes(&self, classes: &[String]) -> Result<Self, ImageError> {
        let place = |label: &u32| {
            let class = &self.classes[*label as usize];
            let place = classes.iter().position(|known| known == class);
            place.map(|place| place as u32).ok_or_else(|| unknown_class(class, classes))
        };
        let labels: Vec<u32> = self.labels.iter().map(place).collect::<Result<_, _>>()?;
        Ok(Self { classes: classes.into(), labels: labels.into(), ..self.clone() })
    }

    /// Writes the pixels as an IDX file of four sizes, replacing one that is there.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ImageError> {
        let ImageShape { channels, height, width } = self.shape;
        write_atomic_with(path, |writer| {
            idx::write_header(writer, &[self.len(), channels, height, width])?;
            writer.write_all(self.pixels())
        })?;
        Ok(())
    }

    /// Opens the images of a run folder, of which its index says classes and labels, and how they are normalised.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if they have other channels than the normalization.
    pub fn of_run(
        folder: &ModelFolder,
        normalization: &Normalization,
        classes: Vec<String>,
        labels: Vec<u32>,
    ) -> Result<Self, ImageError> {
        let images = Self::open(folder.images(), classes, labels)?;
        let channels = images.shape.channels;
        match normalization.fits(channels) {
            true => Ok(images),
            false => {
                let reason = format!("its normalization is not one of {channels} channels");
                Err(unfit_file(&folder.image_index(), &reason).into())
            }
        }
    }

    /// Opens what [`save`](Self::save) wrote, memory-mapped. The file must not change while it is open.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is no such file, or does not belong to the labels.
    pub fn open(path: impl AsRef<Path>, classes: Vec<String>, labels: Vec<u32>) -> Result<Self, ImageError> {
        let path = path.as_ref();
        let map = idx::map(path)?;
        let broken = |reason: String| idx::not_idx(path, &reason);
        let (sizes, header) = idx::sizes(&map).map_err(broken)?;
        let [count, channels, height, width] = sizes[..] else {
            return Err(broken(format!("its sizes are {sizes:?}, expected four")).into());
        };
        if count != labels.len() || labels.iter().any(|label| *label as usize >= classes.len()) {
            return Err(broken(format!("it has {count} images, but there are {} labels for it", labels.len())).into());
        }
        let shape = ImageShape { channels, height, width };
        if sizes.contains(&0) {
            return Err(broken(format!("its sizes are {sizes:?}, expected none of them 0")).into());
        }
        Ok(Self::of(shape, classes, Pixels::File { map: Arc::new(map), header }, labels))
    }
}

/// An image of another size or with other channels than those before it.
pub(super) fn other_shape(path: &Path, expected: ImageShape, found: ImageShape) -> InputError {
    let ImageShape { channels, height, width } = expected;
    InputError::new(format!(
        "the image `{}` has {found} (channels, height, width), but {expected} is expected as of the others: bring all to one size \
         with data.image_size = [{height}, {width}], and to the same channels with data.channels = {channels}",
        path.display()
    ))
}

/// A class that no model knows.
fn unknown_class(class: &str, classes: &[String]) -> InputError {
    let class = shortened(class);
    InputError::new(format!("the class `{class}` is none that the model was trained on: known are {}", listed(classes)))
}

/// Equal images with equal labels and classes, wherever they lie.
impl PartialEq for ImageSet {
    fn eq(&self, other: &Self) -> bool {
        let head = |set: &Self| (set.shape, set.classes.clone());
        head(self) == head(other) && self.labels() == other.labels() && self.pixels() == other.pixels()
    }
}

impl fmt::Debug for ImageSet {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ImageSet({} images of {}, {} classes)", self.len(), self.shape, self.classes.len())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Images of 1 x 2 x 2 pixels `10 i, 10 i + 1, ...` with the labels `i mod 3` of the classes a, b and c.
    pub(in super::super) fn counted(images: usize) -> ImageSet {
        let pixels = (0..images).flat_map(|i| (0..4).map(move |p| (10 * i + p) as u8)).collect();
        let classes = ["a", "b", "c"].map(str::to_string).to_vec();
        ImageSet::new(ImageShape::new(1, [2, 2]), classes, pixels, (0..images).map(|i| (i % 3) as u32).collect())
    }

    #[test]
    fn the_last_images_are_validated_on() {
        let (training, validation) = counted(5).split(2).unwrap();
        assert_eq!((training.len(), validation.labels()), (3, &[0, 1][..]));
        assert_eq!(validation.image(1).pixels(), [40, 41, 42, 43]);
        assert_eq!(training.pixels().len() + validation.pixels().len(), 20);
        for validation in [0, 5, 9] {
            let error = counted(5).split(validation).unwrap_err().to_string();
            assert!(error.contains("data.split.validation as a number above 0 and below 5"), "{error}");
        }
    }

    #[test]
    fn a_set_comes_back_from_its_file() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("images.idx");
        let (set, classes) = (counted(4), counted(4).classes().to_vec());
        set.split(1).unwrap().0.save(&path).unwrap();
        let found = ImageSet::open(&path, classes.clone(), vec![0, 1, 2]).unwrap();
        assert_eq!(found, set.split(1).unwrap().0);
        let error = ImageSet::open(&path, classes, vec![0]).unwrap_err().to_string();
        assert!(error.contains("3 images, but there are 1 labels"), "{error}");
        std::fs::write(&path, [&[0, 0, 8, 4][..], &[0; 16]].concat()).unwrap();
        let error = ImageSet::open(&path, Vec::new(), Vec::new()).unwrap_err().to_string();
        assert!(error.contains("its sizes are [0, 0, 0, 0], expected none of them 0"), "{error}");
    }

    #[test]
    fn labels_follow_the_names_of_their_classes() {
        let other = ["c", "a", "d", "b"].map(str::to_string);
        assert_eq!(counted(4).with_classes(&other).unwrap().labels(), [1, 3, 0, 1]);
        let error = counted(4).with_classes(&other[..2]).unwrap_err().to_string();
        assert_eq!(error, "the class `b` is none that the model was trained on: known are c, a");
        let both = counted(2).followed_by(&counted(1)).unwrap();
        assert_eq!((both.labels(), both.image(2)), (&[0, 1, 0][..], counted(1).image(0)));
    }
}
