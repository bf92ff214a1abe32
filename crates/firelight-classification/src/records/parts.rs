//! Records in two parts, those that are trained on and those that are only validated on. A classifier and the masked
//! language model that it begins from are parted alike, so that neither learns the texts that the other is judged by.

use firelight_storage::TaskError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use firelight_data::labelled::{LabelKind, LabelledText, stratified_split};
use firelight_data::{DataError, SplitConfig, SplitFiles};

/// Records to train and to validate on, and the files of the two.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts<T> {
    pub(crate) training: Vec<T>,
    pub(crate) validation: Vec<T>,
    pub(crate) files: [PathBuf; 2],
    /// Whether those to validate on were read with those to train on.
    pub(crate) is_held_out: bool,
}

impl<T: Clone> Parts<T> {
    /// Reads the files to train on and those to validate on; where there are none, records are held out, drawn by the seed, with as
    /// large a share of each of the `classes` as all have.
    pub(crate) fn read(
        files: &SplitFiles,
        split: &SplitConfig,
        read: impl Fn(&Path) -> Result<Vec<T>, DataError>,
        classes: impl Fn(&[T]) -> Vec<usize>,
    ) -> Result<Self, TaskError> {
        let (all, name) = (read_all(&files.training, &read)?, name_of(&files.training));
        if !files.validation.is_empty() {
            let validation = read_all(&files.validation, &read)?;
            return Ok(Self {
                training: all,
                validation,
                files: [name, name_of(&files.validation)],
                is_held_out: false,
            });
        }
        let held_out = all.len() - split.training_len(all.len(), "texts")?;
        let parts = <[_; 2]>::from(stratified_split(&classes(&all), held_out, split.seed));
        let [training, validation] =
            parts.map(|items| items.into_iter().map(|item| all[item].clone()).collect::<Vec<_>>());
        Ok(Self { training, validation, files: [name.clone(), name], is_held_out: true })
    }

    /// The records to validate on that were read with those to train on.
    pub(crate) fn held_out(&self) -> &[T] {
        if self.is_held_out { &self.validation } else { &[] }
    }
}

/// The records of several files.
pub(crate) fn read_all<T, E>(files: &[PathBuf], read: impl Fn(&Path) -> Result<Vec<T>, E>) -> Result<Vec<T>, E> {
    files.iter().try_fold(Vec::new(), |mut all, file| {
        all.extend(read(file)?);
        Ok(all)
    })
}

/// What errors call the files of a split: of shards the folder.
pub(crate) fn name_of(files: &[PathBuf]) -> PathBuf {
    match files {
        [file] => file.clone(),
        shards => shards.first().and_then(|shard| shard.parent()).unwrap_or(Path::new("")).into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RecordTask;
    use crate::{Classification, LabelledRecipe};
    use firelight_data::HeldOut;
    use std::fs;

    #[test]
    fn the_same_texts_are_held_out_by_one_seed_and_others_by_another() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("train.tsv");
        let line = |i: usize| format!("text {i}\t{}\n", if i.is_multiple_of(4) { "rare" } else { "usual" });
        fs::write(&path, (0..40).map(line).collect::<String>()).unwrap();
        let read_as = |kind: LabelKind, seed| {
            let data = LabelledRecipe { problem_type: kind, ..LabelledRecipe::default() };
            let read = |file: &Path| Classification::read_file(&data, file);
            let classes = |texts: &[LabelledText]| Classification::classes(&data, texts);
            let split = SplitConfig { validation: Some(HeldOut::Count(8)), seed, ..SplitConfig::default() };
            Parts::read(&split.files(&path, &["tsv"]).unwrap(), &split, read, classes).unwrap()
        };
        let read = |seed| read_as(LabelKind::SingleLabel, seed);
        assert_eq!(read(1), read(1));
        assert_ne!(read(1), read(2));
        let Parts { training, validation, files, .. } = read(1);
        assert_eq!((training.len(), validation.len(), files), (32, 8, [path.clone(), path.clone()]));
        assert_eq!(validation.iter().filter(|text| text.label == "rare").count(), 2);
        assert!(validation.iter().all(|text| !training.contains(text)));
        let several = read_as(LabelKind::multi_label(), 1);
        assert_eq!(several, read_as(LabelKind::multi_label(), 1));
        assert_ne!(several.validation, validation, "the shares of the labels count for nothing");
        assert_eq!((several.training.len(), several.validation.len()), (32, 8));
    }
}
