//! The binary files of CIFAR-10 and CIFAR-100: records of one label, or a coarse and a fine one, and 3 x 32 x 32 bytes.
//!
//! Source: Krizhevsky 2009, Learning multiple layers of features from tiny images; the layout is that of "binary version" at
//! <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::path::{Path, PathBuf};

use firelight_storage::{InputError, read_file};

use super::set::ImageSet;
use super::{ImageError, ImageShape};

/// No set is larger, in bytes: CIFAR's own have 180 MB.
const LIMIT: u64 = 4 << 30;

/// No file of names is larger, in bytes.
const NAMES_LIMIT: u64 = 1 << 20;

/// Which of the two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cifar {
    /// 10 classes, one label.
    Ten,
    /// 100 classes, a coarse label before the fine one, which counts.
    Hundred,
}

impl Cifar {
    fn shape() -> ImageShape {
        ImageShape::new(3, [32, 32])
    }

    fn classes(self) -> usize {
        match self {
            Self::Ten => 10,
            Self::Hundred => 100,
        }
    }

    /// Bytes before the pixels, of which the last is the label.
    fn labels(self) -> usize {
        match self {
            Self::Ten => 1,
            Self::Hundred => 2,
        }
    }

    /// The file of the classes' names, one a line.
    fn names(self) -> &'static str {
        match self {
            Self::Ten => "batches.meta.txt",
            Self::Hundred => "fine_label_names.txt",
        }
    }
}

/// Reads files one after the other. Classes have the names of the file beside them, or their numbers.
pub(super) fn read(kind: Cifar, files: &[PathBuf]) -> Result<ImageSet, ImageError> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for path in files {
        let bytes = read_file(path, LIMIT)?;
        let record = kind.labels() + Cifar::shape().volume();
        if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
            let problem = format!("has {} bytes: expected a multiple of {record}, above 0", bytes.len());
            return Err(InputError::in_file(path, problem).advise("fetch it anew").into());
        }
        for record in bytes.chunks_exact(record) {
            let (head, image) = record.split_at(kind.labels());
            let label = usize::from(head[kind.labels() - 1]);
            if label >= kind.classes() {
                let problem = format!("has the label {label}, but there are {} classes: fetch it anew", kind.classes());
                return Err(InputError::in_file(path, problem).into());
            }
            labels.push(label as u32);
            pixels.extend_from_slice(image);
        }
    }
    let folder = files.first().and_then(|path| path.parent()).unwrap_or(Path::new(""));
    Ok(ImageSet::new(Cifar::shape(), names(kind, folder), pixels, labels))
}

fn names(kind: Cifar, folder: &Path) -> Vec<String> {
    let bytes = read_file(folder.join(kind.names()), NAMES_LIMIT).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let names: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_string).collect();
    match names.len() == kind.classes() {
        true => names,
        false => (0..kind.classes()).map(|class| class.to_string()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(folder: &Path, name: &str, heads: &[&[u8]]) -> PathBuf {
        let image: Vec<u8> = (0..3072).map(|i| (i % 251) as u8).collect();
        let bytes: Vec<u8> = heads.iter().flat_map(|head| [*head, &image].concat()).collect();
        fs::write(folder.join(name), bytes).unwrap();
        folder.join(name)
    }

    #[test]
    fn the_last_label_before_the_pixels_counts() {
        let home = tempfile::tempdir().unwrap();
        let ten =
            [write(home.path(), "data_batch_1.bin", &[&[3], &[9]]), write(home.path(), "data_batch_2.bin", &[&[0]])];
        let set = read(Cifar::Ten, &ten).unwrap();
        assert_eq!(
            (set.labels(), set.shape(), set.classes().len()),
            (&[3, 9, 0][..], ImageShape::new(3, [32, 32]), 10)
        );
        assert_eq!(set.image(2).pixels()[..4], [0, 1, 2, 3]);
        let hundred = read(Cifar::Hundred, &[write(home.path(), "train.bin", &[&[19, 99]])]).unwrap();
        assert_eq!((hundred.labels(), hundred.classes()[99].as_str()), (&[99][..], "99"));
    }

    #[test]
    fn classes_have_the_names_of_the_file_beside_them() {
        let home = tempfile::tempdir().unwrap();
        let names = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
        fs::write(home.path().join("batches.meta.txt"), names).unwrap();
        let set = read(Cifar::Ten, &[write(home.path(), "test_batch.bin", &[&[8]])]).unwrap();
        assert_eq!(set.classes()[8], "ship");
    }

    #[test]
    fn a_file_cut_short_and_a_label_without_a_class_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = write(home.path(), "data_batch_1.bin", &[&[10]]);
        let error = read(Cifar::Ten, std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("the label 10, but there are 10 classes"), "{error}");
        fs::write(&path, [0; 3000]).unwrap();
        let error = read(Cifar::Ten, &[path]).unwrap_err().to_string();
        assert!(error.contains("3000 bytes: expected a multiple of 3073"), "{error}");
    }
}
