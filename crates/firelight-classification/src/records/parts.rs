//! Records in two parts, those that are trained on and those that are only validated on. A classifier and the masked
//! language model that it begins from are parted alike, so that neither learns the texts that the other is judged by.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use firelight_data::DataError;
use firelight_data::labelled::{LabelKind, LabelledText, stratified_split};

use firelight_storage::InputError;

use super::Held;
use crate::error::ClassificationError;

/// Records to train and to validate on, and the files of the two.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts<T> {
    pub(crate) training: Vec<T>,
    pub(crate) validation: Vec<T>,
    pub(crate) files: [PathBuf; 2],
}

impl<T: Clone> Parts<T> {
    /// Reads the file to train on and that to validate on; where there is none, records are held back, drawn by the seed, with as
    /// large a share of each of the `classes` as all have.
    pub(crate) fn read(
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
                Err(nothing_left(*validation, all.len()).into())
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

/// The number of each text's label, where each has one; else all are of one class.
pub(crate) fn classes_of(texts: &[LabelledText], kind: &LabelKind) -> Vec<usize> {
    if !kind.is_single_label() {
        return vec![0; texts.len()];
    }
    let labels: Vec<&str> = texts.iter().map(|text| text.label.as_str()).collect();
    let known: Vec<&str> = labels.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    labels.iter().map(|label| known.partition_point(|other| other < label)).collect()
}

/// More is held back than there is.
pub(crate) fn nothing_left(validation: usize, texts: usize) -> InputError {
    let problem = format!("data.validation = {validation} leaves nothing of the {texts} texts to train on");
    InputError::new(problem).advise(format!("set it to a number below {texts}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RecordTask;
    use crate::{Classification, LabelledRecipe};
    use std::fs;

    #[test]
    fn the_same_texts_are_held_back_by_one_seed_and_others_by_another() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("train.tsv");
        let line = |i: usize| format!("text {i}\t{}\n", if i.is_multiple_of(4) { "rare" } else { "usual" });
        fs::write(&path, (0..40).map(line).collect::<String>()).unwrap();
        let read_as = |kind: LabelKind, seed| {
            let data = LabelledRecipe { problem_type: kind, ..LabelledRecipe::default() };
            let read = |file: &Path| Classification::read_file(&data, file);
            let classes = |texts: &[LabelledText]| Classification::classes(&data, texts);
            Parts::read((path.clone(), None), &Held::Texts(8), seed, read, classes).unwrap()
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
