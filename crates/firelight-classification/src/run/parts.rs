//! Labelled texts in two parts, those that are trained on and those that are only validated on. A classifier and the masked
//! language model that it begins from are parted alike, so that neither learns the texts that the other is judged by.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use firelight_data::DataError;
use firelight_data::labelled::{self, Columns, LabelKind, LabelledText, stratified_split};

use super::recipe::Held;
use crate::error::ClassificationError;

/// Texts to train and to validate on, and the files of the two.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts<T = LabelledText> {
    pub(crate) training: Vec<T>,
    pub(crate) validation: Vec<T>,
    pub(crate) files: [PathBuf; 2],
}

impl Parts {
    /// Reads the file to train on and that to validate on; where there is none, texts are held back, drawn by the seed; where
    /// each has one label, with as large a share of each as all have.
    pub(crate) fn read(
        files: (PathBuf, Option<PathBuf>),
        held: &Held,
        (columns, kind): (&Columns, &LabelKind),
        split_seed: u64,
    ) -> Result<Self, ClassificationError> {
        let classes =
            |texts: &[LabelledText]| if kind.is_single_label() { classes(texts) } else { vec![0; texts.len()] };
        Self::read_by(files, held, split_seed, |file| labelled::read_as(file, columns, kind), classes)
    }
}

impl<T: Clone> Parts<T> {
    /// The same of items of any kind: what reads them from a file, and the class of each, of which as large a share is held back as
    /// all have.
    pub(crate) fn read_by(
        (training_file, validation_file): (PathBuf, Option<PathBuf>),
        held: &Held,
        split_seed: u64,
        read: impl Fn(&Path) -> Result<Vec<T>, DataError>,
        classes: impl Fn(&[T]) -> Vec<usize>,
    ) -> Result<Self, ClassificationError> {
        let all = read(&training_file)?;
        match (validation_file, held) {
            (Some(file), _) => {
                let validation = read(&file)?;
                Ok(Self { training: all, validation, files: [training_file, file] })
            }
            (None, Held::Texts(validation)) if *validation >= all.len() => {
                Err(ClassificationError::NothingLeft { validation: *validation, texts: all.len() })
            }
            (None, Held::Texts(validation)) => {
                let (training, validation) = stratified_split(&classes(&all), *validation, split_seed);
                let some = |items: Vec<usize>| items.into_iter().map(|item| all[item].clone()).collect();
                let [training, validation] = [training, validation].map(some);
                Ok(Self { training, validation, files: [training_file.clone(), training_file] })
            }
            (None, Held::Split(_)) => unreachable!("a split has its file"),
        }
    }
}

/// The number of each text's label.
fn classes(texts: &[LabelledText]) -> Vec<usize> {
    let labels: Vec<&str> = texts.iter().map(|text| text.label.as_str()).collect();
    let known: Vec<&str> = labels.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    labels.iter().map(|label| known.partition_point(|other| other < label)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_same_texts_are_held_back_by_one_seed_and_others_by_another() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("train.tsv");
        let line = |i: usize| format!("text {i}\t{}\n", if i.is_multiple_of(4) { "rare" } else { "usual" });
        fs::write(&path, (0..40).map(line).collect::<String>()).unwrap();
        let columns = Columns::default();
        let read_as = |kind: LabelKind, seed| {
            Parts::read((path.clone(), None), &Held::Texts(8), (&columns, &kind), seed).unwrap()
        };
        let read = |seed| read_as(LabelKind::SingleLabel, seed);
        assert_eq!(read(1), read(1));
        assert_ne!(read(1), read(2));
        let Parts { training, validation, files } = read(1);
        assert_eq!((training.len(), validation.len(), files), (32, 8, [path.clone(), path.clone()]));
        assert_eq!(validation.iter().filter(|text| text.label == "rare").count(), 2);
        assert!(validation.iter().all(|text| !training.contains(text)));
        let several = read_as(LabelKind::multi_label(), 1);
        assert_eq!(several, read_as(LabelKind::multi_label(), 1));
        assert_ne!(several.validation, validation, "the shares of the labels count for nothing");
        assert_eq!((several.training.len(), several.validation.len()), (32, 8));
    }
}
