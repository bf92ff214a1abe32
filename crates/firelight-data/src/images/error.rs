//! Everything that can be wrong with images, in words that name the file and the way out.

use std::path::PathBuf;

use firelight_storage::{InputError, StorageError, shortened, shortened_reason};

use super::ImageShape;

/// An error of reading images.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Something that was given does not fit, and there is nothing to do but to tell it.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A folder without images of a known format.
    #[error(
        "`{}` holds no images: expected IDX files as train-images-idx3-ubyte with train-labels-idx1-ubyte (or .gz), the binary \
         files of CIFAR, or a folder for each class with PNG or JPEG files, in `train` and `val` or alone",
        path.display()
    )]
    NoImages {
        /// The folder.
        path: PathBuf,
    },
    /// A split that the folder does not have.
    #[error("there is no split `{}` in `{}`: there is {found}", shortened(split), path.display())]
    UnknownSplit {
        /// The folder.
        path: PathBuf,
        /// The split that was asked for.
        split: String,
        /// The splits that there are.
        found: String,
    },
    /// A file that is neither PNG nor JPEG.
    #[error(
        "`{}` is no image: {}; expected PNG or JPEG, so remove it, or leave out what cannot be read with \
         data.skip_unreadable = true",
        path.display(), shortened_reason(reason)
    )]
    NotAnImage {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A PNG or JPEG file that cannot be decoded.
    #[error(
        "the image `{}` is damaged or cut short: {}; restore or remove it, or leave out what cannot be read with \
         data.skip_unreadable = true",
        path.display(), shortened_reason(reason)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the decoder says.
        reason: String,
    },
    /// An image with more pixels than are decoded.
    #[error(
        "the image `{}` has {width} x {height} pixels, above the limit of {limit}: make it smaller, or leave out what cannot be \
         read with data.skip_unreadable = true",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its columns of pixels.
        width: usize,
        /// Its rows of pixels.
        height: usize,
        /// The most pixels that are decoded.
        limit: usize,
    },
    /// An image of another size or with other channels than those before it.
    #[error(
        "the image `{}` has {found} (channels, height, width), but {expected} is expected as of the others: bring all to one size with \
         data.image_size = [{}, {}], and to the same channels with data.channels = {}",
        path.display(), expected.height, expected.width, expected.channels
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The shape that it should have.
        expected: ImageShape,
        /// The shape that it has.
        found: ImageShape,
    },
    /// Images to validate on of another shape than those to train on.
    #[error(
        "the images of `{}` have {found} (channels, height, width), but those to train on have {expected}: bring all to one \
         with data.image_size and data.channels",
        shortened(split)
    )]
    OtherShape {
        /// Their split.
        split: String,
        /// The shape of the images to train on.
        expected: ImageShape,
        /// Their own.
        found: ImageShape,
    },
    /// A class without images.
    #[error("the class folder `{}` holds no image: add PNG or JPEG files, or remove the folder", path.display())]
    EmptyClass {
        /// The folder.
        path: PathBuf,
    },
    /// A class that no model knows.
    #[error("the class `{}` is none that the model was trained on: known are {known}", shortened(class))]
    UnknownClass {
        /// The class.
        class: String,
        /// The classes of the model.
        known: String,
    },
    /// A file that is no IDX file of bytes.
    #[error("`{}` is no whole IDX file of images or labels: {reason}; fetch it anew", path.display())]
    Idx {
        /// The file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
    /// Images and labels that do not belong together.
    #[error(
        "`{}` has {images} images, but `{}` has {labels} labels: give files that belong together",
        image_path.display(), label_path.display()
    )]
    Counts {
        /// File of the images.
        image_path: PathBuf,
        /// Its number of images.
        images: usize,
        /// File of the labels.
        label_path: PathBuf,
        /// Its number of labels.
        labels: usize,
    },
    /// A file that is no whole number of CIFAR's records.
    #[error("`{}` has {bytes} bytes: expected a multiple of {record}, above 0; fetch it anew", path.display())]
    Cifar {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: usize,
        /// Bytes of a label and its image.
        record: usize,
    },
    /// A label that has no name.
    #[error("`{}` has the label {label}, but there are {classes} classes: fetch it anew", path.display())]
    Label {
        /// The file.
        path: PathBuf,
        /// The label.
        label: usize,
        /// Number of classes.
        classes: usize,
    },
    /// Nothing is left to train on, or to validate on.
    #[error(
        "{images} images cannot be split into those to train on and {validation} to validate on: give data.split.validation as a number \
         above 0 and below {images}"
    )]
    Split {
        /// Images that there are.
        images: usize,
        /// Images to validate on.
        validation: usize,
    },
    /// Settings that are out of their range.
    #[error("{problems}")]
    Settings {
        /// Each with its key, what was found and what is expected.
        problems: String,
    },
}

impl ImageError {
    /// Whether the user can mend this by giving something else, rather than the machine being at fault.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_user_error(),
            _ => true,
        }
    }
}
