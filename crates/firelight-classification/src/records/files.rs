//! What a finished run is measured on: texts of its own, a file, or a split of a folder.

use std::path::{Path, PathBuf};

use firelight_data::{SplitConfig, SplitFiles, split_files};
use firelight_storage::{InputError, TaskError};
use firelight_training::AskedData;

/// What a run is measured on.
#[derive(Debug, PartialEq)]
pub(crate) enum Measured {
    /// The texts that it held out.
    HeldOut,
    /// Those of files.
    Files(Vec<PathBuf>),
}

/// What to measure a run on, of files with these endings: the split of this name, or what the run validates on, or a file in the
/// place of a folder.
pub(crate) fn measured_in(
    asked: AskedData<'_>,
    (split, endings): (&SplitConfig, &[&str]),
    is_trained_on: impl FnOnce(&Path) -> bool,
) -> Result<Measured, TaskError> {
    let Some((data, name)) = asked else { return Ok(Measured::HeldOut) };
    if let Some(name) = name.or(split.validation_split().filter(|_| data.is_dir())) {
        return Ok(Measured::Files(split_files(data, name, endings)?));
    }
    let files = match data.is_file() {
        true => SplitFiles { training: vec![data.into()], validation: Vec::new() },
        false => split.files(data, endings)?,
    };
    match (files.validation.is_empty(), split.validation_split()) {
        (false, _) => Ok(Measured::Files(files.validation)),
        (true, None) if is_trained_on(data) => Ok(Measured::HeldOut),
        (true, _) => Ok(Measured::Files(files.training)),
    }
}

/// A recipe without data.
pub(crate) fn no_data(recipe: &Path) -> InputError {
    let problem = format!("the recipe `{}` needs data", recipe.display());
    InputError::new(problem).advise("give a folder or a file with --data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::HeldOut;
    use std::fs;

    const ENDINGS: [&str; 2] = ["tsv", "csv"];

    #[test]
    fn a_run_is_measured_on_what_it_validates_on_unless_a_split_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        ["train.csv", "dev.tsv", "test.tsv"].iter().for_each(|name| fs::write(path(name), "").unwrap());
        let measured = |asked: AskedData, validation: Option<HeldOut>, trained_on: bool| {
            let split = SplitConfig { validation, ..SplitConfig::default() };
            measured_in(asked, (&split, &ENDINGS), |_| trained_on)
        };
        let files = |name: &str| Measured::Files(vec![path(name)]);
        let (folder, train) = (home.path(), path("train.csv"));
        let named = |name: &str| Some(HeldOut::Split(name.into()));
        assert_eq!(measured(None, None, true).unwrap(), Measured::HeldOut);
        assert_eq!(measured(Some((folder, Some("test"))), named("dev"), false).unwrap(), files("test.tsv"));
        assert_eq!(measured(Some((folder, None)), named("test"), false).unwrap(), files("test.tsv"));
        assert_eq!(measured(Some((folder, None)), None, false).unwrap(), files("dev.tsv"));
        assert_eq!(measured(Some((folder, None)), Some(HeldOut::Count(2)), true).unwrap(), Measured::HeldOut);
        assert_eq!(measured(Some((folder, None)), Some(HeldOut::Count(2)), false).unwrap(), files("train.csv"));
        assert_eq!(measured(Some((&train, None)), None, true).unwrap(), Measured::HeldOut);
        assert_eq!(measured(Some((&train, None)), named("dev"), true).unwrap(), files("train.csv"));
        let error = measured(Some((&train, Some("dev"))), None, true).unwrap_err().to_string();
        assert!(error.contains("is one file and has no split `dev`"), "{error}");
        let error = measured(Some((folder, Some("none"))), None, true).unwrap_err().to_string();
        assert!(error.ends_with("there is dev, test, train"), "{error}");
    }
}
