//! Labelled images: everything between the files of the field and the normalised pixels that a model is trained on.
//!
//! 1. [`ImageFiles`] (files.rs) finds the splits of a folder: IDX as of MNIST (idx.rs), the binary files of CIFAR (cifar.rs),
//!    or folders of PNG and JPEG files with a subfolder for each class (folder.rs).
//! 2. [`ImageSet`] (set.rs) holds their pixels as bytes, with labels and the names of the classes, in memory or in a
//!    memory-mapped IDX file.
//! 3. [`Normalization`] is taken once from the training split; [`ImageProcessor`] brings any image to size and normalises it.
//! 4. [`Augmentation`] changes what is trained on; [`Mixing`] mixes the images of a batch. Every choice is a pure function of
//!    a [`Draw`], the seed of the run with the step and the place in its batch, so that a resumed run has nothing to replay.
//! 5. [`ImageDataset`] puts them together, item by item, for the [`StepLoader`](crate::StepLoader).

mod augmentation;
mod cifar;
mod codec;
mod dataset;
mod error;
mod files;
mod folder;
mod idx;
mod mixing;
mod normalization;
mod picture;
mod pixels;
mod processor;
mod scenes;
mod set;

pub use augmentation::{Augmentation, RandAugment, RandomOperation};
pub use cifar::Cifar;
pub use dataset::{Draw, ImageDataset, ImageSample};
pub use error::ImageError;
pub use files::{ImageFiles, ReadImages, ReadOptions};
pub use mixing::Mixing;
pub use normalization::Normalization;
pub use pixels::{Image, ImageShape};
pub use processor::{ImageProcessor, Resample, ResizeTo, Resizing};
pub use scenes::{CaptionedImages, drawn_digits};
pub use set::ImageSet;
