//! Readers of images: IDX, packed or not, CIFAR, folders of PNG and JPEG files, lists of captions.

use std::fs;
use std::path::Path;

use firelight::data::{Cifar, Image, ImageFiles, ImageShape, ReadOptions};
use firelight::seq2seq::{CaptionData, Captioning};
use firelight::training::{DataModule, read_recipe};

use super::{Names, Reader, text_of, written};

pub(super) fn readers() -> Vec<Reader> {
    let idx = |home: &Path| read(&idx_files(home, "train-images-idx3-ubyte"));
    vec![
        Reader { names: Names::File, name: "idx", file: "train-images-idx3-ubyte", valid: idx_images, read: idx },
        Reader {
            names: Names::File,
            name: "idx-labels",
            file: "train-labels-idx1-ubyte",
            valid: idx_labels,
            read: idx,
        },
        Reader {
            names: Names::File,
            name: "idx-gzip",
            file: "images.gz",
            valid: packed,
            read: |home| read(&idx_files(home, "images.gz")),
        },
        Reader {
            names: Names::File,
            name: "cifar",
            file: "data_batch_1.bin",
            valid: cifar,
            read: |home| read(&cifar_files(home)),
        },
        Reader { names: Names::File, name: "png", file: "cats/1.png", valid: png, read: |home| read(&folders(home)) },
        Reader {
            names: Names::File,
            name: "jpeg",
            file: "cats/1.jpeg",
            valid: jpeg,
            read: |home| read(&folders(home)),
        },
        Reader { names: Names::File, name: "captions", file: CAPTIONS, valid: captions, read: captioned },
    ]
}

const CAPTIONS: &str = "captions.jsonl";

/// Four images of 3 x 2 pixels.
fn idx_bytes() -> Vec<u8> {
    [&[0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 2][..], &(0..24).collect::<Vec<u8>>()].concat()
}

const LABELS: [u8; 12] = [0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 1, 0];

fn idx_images(home: &Path) -> Vec<Vec<u8>> {
    written(home, "train-labels-idx1-ubyte", &[LABELS]);
    written(home, "train-images-idx3-ubyte", &[idx_bytes()])
}

fn idx_labels(home: &Path) -> Vec<Vec<u8>> {
    written(home, "train-images-idx3-ubyte", &[idx_bytes()]);
    written(home, "train-labels-idx1-ubyte", &[LABELS])
}

fn packed(home: &Path) -> Vec<Vec<u8>> {
    written(home, "train-labels-idx1-ubyte", &[LABELS]);
    written(home, "images.gz", &[include_bytes!("../../inputs/valid/images.idx.gz")])
}

fn cifar(home: &Path) -> Vec<Vec<u8>> {
    let record = |label: u8| [&[label][..], &[7 * label; 3072]].concat();
    written(home, "data_batch_1.bin", &[[record(0), record(3)].concat(), record(9)])
}

fn png(home: &Path) -> Vec<Vec<u8>> {
    folder_of_two_classes(home);
    let files = [ImageShape::new(3, [5, 6]), ImageShape::new(1, [5, 6])].map(|shape| {
        let pixels = (0..shape.volume()).map(|at| (at * 37) as u8).collect();
        Image::new(shape, pixels).write_png(home.join("cats/1.png")).expect("a picture in a scratch folder");
        fs::read(home.join("cats/1.png")).expect("the picture")
    });
    written(home, "cats/1.png", &files)
}

fn jpeg(home: &Path) -> Vec<Vec<u8>> {
    folder_of_two_classes(home);
    written(home, "cats/1.jpeg", &[include_bytes!("../../inputs/valid/image.jpeg")])
}

/// Lists of three images, each of which may have several captions.
fn captions(home: &Path) -> Vec<Vec<u8>> {
    for name in ["1.png", "2.png", "3.png"] {
        Image::new(ImageShape::new(1, [8, 8]), vec![7; 64]).write_png(home.join(name)).expect("a picture");
    }
    let line = |(image, caption): (&str, &str)| format!("{{\"image\": \"{image}\", \"caption\": \"{caption}\"}}\n");
    let lists = [
        vec![("1.png", "a dog"), ("2.png", "a cat"), ("3.png", "two d\\u00f6gs")],
        vec![("1.png", "a dog"), ("1.png", "one dog, on the left"), ("3.png", "")],
    ];
    written(home, CAPTIONS, &lists.map(|list| list.into_iter().map(line).collect::<String>()))
}

fn folder_of_two_classes(home: &Path) {
    for class in ["cats", "dogs"] {
        fs::create_dir_all(home.join(class)).expect("a scratch folder");
    }
    written(home, "dogs/1.jpeg", &[include_bytes!("../../inputs/valid/image.jpeg")]);
}

fn idx_files(home: &Path, images: &str) -> ImageFiles {
    ImageFiles::Idx { images: home.join(images), labels: home.join("train-labels-idx1-ubyte") }
}

fn cifar_files(home: &Path) -> ImageFiles {
    ImageFiles::Cifar { kind: Cifar::Ten, files: vec![home.join("data_batch_1.bin")] }
}

fn folders(home: &Path) -> ImageFiles {
    ImageFiles::Folders { path: home.into() }
}

/// As a training reads them: brought to one shape.
fn read(files: &ImageFiles) -> Result<(), String> {
    text_of(files.read(&ReadOptions { size: Some([4, 4]), channels: Some(3), ..ReadOptions::default() }))
}

/// As a training of captions reads them.
fn captioned(home: &Path) -> Result<(), String> {
    let mut recipe =
        read_recipe::<Captioning>(None, &[("data.split.validation".into(), "1".into())]).expect("the built-in recipe");
    text_of(CaptionData::read(&mut recipe, Path::new("captions.toml"), &[home.into()]))
}
