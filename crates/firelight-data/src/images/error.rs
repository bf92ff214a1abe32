//! Everything that can be wrong with images, in words that name the file and the way out.

use std::path::PathBuf;

use firelight_storage::{InputError, StorageError, TaskError};

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
    /// A file that is no PNG or JPEG, is damaged, or has too many pixels: a reader of many files may leave it out.
    #[error(transparent)]
    Unreadable(InputError),
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

impl From<ImageError> for TaskError {
    fn from(error: ImageError) -> Self {
        Self::new(error.is_user_error(), error)
    }
}
