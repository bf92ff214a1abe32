//! Labelled texts in two parts, those that are trained on and those that are only validated on. A classifier and the masked
//! language model that it begins from are parted alike, so that neither learns the texts that the other is judged by.

use std::collections::BTreeSet;
use std::path::PathBuf;

use firelight_data::labelled::{self, Columns, LabelledText, stratified_split};

use super::recipe::Held;
use crate::error::ClassificationError;

/// Texts to train and to validate on, and the files of the two.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts {
    pub(crate) training: Vec<LabelledText>,
    pub(crate) validation: Vec<LabelledText>,
    pub(crate) files: [PathBuf; 2],
}

impl Parts {
    /// Reads the file to train on and that to validate on; where there is none, texts are held back, drawn by the seed with
    /// as large a share of each label as all have.
    pub(crate) fn read(
        (training_file, validation_file): (PathBuf, Option<PathBuf>),
        held: &Held,
        columns: &Columns,
        split_seed: u64,
    ) -> Result<Self, ClassificationError> {
        let texts = labelled::read(&training_file, columns)?;
        match (validation_file, held) {
            (Some(file), _) => {
                let validation = labelled::read(&file, columns)?;
                Ok(Self { training: texts, validation, files: [training_file, file] })
            }
            (None, Held::Texts(validation)) if *validation >= texts.len() => {
                Err(ClassificationError::NothingLeft { validation: *validation, texts: texts.len() })
            }
            (None, Held::Texts(validation)) => {
                let [training, validation] = hold_back(&texts, *validation, split_seed);
                Ok(Self { training, validation, files: [training_file.clone(), training_file] })
            }
            (None, Held::Split(_)) => unreachable!("a split has its file"),
        }
    }
}

fn hold_back(texts: &[LabelledText], validation: usize, split_seed: u64) -> [Vec<LabelledText>; 2] {
    let labels: Vec<&str> = texts.iter().map(|text| text.label.as_str()).collect();
    let known: Vec<&str> = labels.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let classes: Vec<usize> = labels.iter().map(|label| known.partition_point(|other| other < label)).collect();
    let (training, validation) = stratified_split(&classes, validation, split_seed);
    [training, validation].map(|items| items.into_iter().map(|item| texts[item].clone()).collect())
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
        let read = |seed| Parts::read((path.clone(), None), &Held::Texts(8), &Columns::default(), seed).unwrap();
        assert_eq!(read(1), read(1));
        assert_ne!(read(1), read(2));
        let Parts { training, validation, files } = read(1);
        assert_eq!((training.len(), validation.len(), files), (32, 8, [path.clone(), path.clone()]));
        assert_eq!(validation.iter().filter(|text| text.label == "rare").count(), 2);
        assert!(validation.iter().all(|text| !training.contains(text)));
    }
}
