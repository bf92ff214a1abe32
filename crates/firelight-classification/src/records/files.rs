//! Where the texts of a run and of its splits are: in the files of a folder, or in one.

use std::path::{Path, PathBuf};

use firelight_data::{split_file, splits_in};
use firelight_storage::{InputError, listed, shortened};

use super::Held;
use crate::error::ClassificationError;

/// The file of these endings to train on, and that to validate on where it has its own.
pub(crate) fn files_in(
    path: &Path,
    (training, validation): (&str, &Held),
    endings: &[&str],
) -> Result<(PathBuf, Option<PathBuf>), ClassificationError> {
    match validation {
        _ if !path.exists() => Err(missing(path).into()),
        Held::Texts(_) if path.is_file() => Ok((path.into(), None)),
        Held::Texts(_) => Ok((split_of(path, training, endings)?, None)),
        Held::Split(name) if path.is_file() => {
            let problem =
                format!("is one file, but data.validation = \"{}\" names another file of a folder", shortened(name));
            let advice = "give the folder, or set data.validation to the number of texts that are only validated on";
            Err(InputError::in_file(path, problem).advise(advice).into())
        }
        Held::Split(name) => Ok((split_of(path, training, endings)?, Some(split_of(path, name, endings)?))),
    }
}

/// A folder of splits, or a file, and the name of one; without either what a run held back.
pub(crate) type Asked<'a> = Option<(&'a Path, Option<&'a str>)>;

/// What a run is measured on.
#[derive(Debug, PartialEq)]
pub(crate) enum Measured {
    /// The texts that it held back.
    HeldBack,
    /// Those of a file.
    File(PathBuf),
}

/// What to measure a run on, of files with these endings: the split of this name, or what the run validates on, or a file in the place of a folder.
pub(crate) fn measured_in(
    asked: Asked<'_>,
    (training, validation): (&str, &Held),
    endings: &[&str],
    is_trained_on: impl FnOnce(&Path) -> bool,
) -> Result<Measured, ClassificationError> {
    let Some((data, name)) = asked else { return Ok(Measured::HeldBack) };
    let split = |name: &str| Ok(Measured::File(split_of(data, name, endings)?));
    match (name, validation) {
        _ if !data.exists() => Err(missing(data).into()),
        (Some(name), _) if data.is_file() => {
            let problem = format!("is one file and has no split `{}`", shortened(name));
            let advice = "leave --split out, or give the folder that the splits are in";
            Err(InputError::in_file(data, problem).advise(advice).into())
        }
        (None, Held::Texts(_)) if is_trained_on(data) => Ok(Measured::HeldBack),
        (None, _) if data.is_file() => Ok(Measured::File(data.into())),
        (Some(name), _) => split(name),
        (None, Held::Split(name)) => split(name),
        (None, Held::Texts(_)) => split(training),
    }
}

/// The file of a split in a folder: `DIR/dev.tsv`.
fn split_of(folder: &Path, name: &str, endings: &[&str]) -> Result<PathBuf, ClassificationError> {
    split_file(folder, name, endings).ok_or_else(|| {
        let expected: Vec<String> = endings.iter().map(|ending| format!("{name}.{ending}")).collect();
        let found = match splits_in(folder, endings).as_slice() {
            [] => "there is no such file in it".into(),
            names => format!("there is {}", listed(names)),
        };
        let problem = format!("has no split `{}`: expected {}; {found}", shortened(name), expected.join(" or "));
        InputError::in_file(folder, problem).into()
    })
}

/// A recipe without data.
pub(crate) fn no_data(recipe: &Path) -> InputError {
    let problem = format!("the recipe `{}` needs data", recipe.display());
    InputError::new(problem).advise("give a folder or a file with --data")
}

fn missing(path: &Path) -> InputError {
    let problem = format!("there is no file or folder `{}` to read texts from", path.display());
    InputError::new(problem).advise("check the path")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ENDINGS: [&str; 3] = ["tsv", "csv", "jsonl"];

    #[test]
    fn splits_are_files_and_those_that_are_there_are_named() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        for name in ["train.csv", "dev.tsv", "notes.md"] {
            fs::write(path(name), "").unwrap();
        }
        let dev = Held::Split("dev".into());
        let files_of = |held: &Held, path: &Path| files_in(path, ("train", held), &ENDINGS);
        assert_eq!(files_of(&dev, home.path()).unwrap(), (path("train.csv"), Some(path("dev.tsv"))));
        let error = split_of(home.path(), "test", &ENDINGS).unwrap_err();
        assert!(error.is_user_error() && error.to_string().ends_with("there is dev, train"), "{error}");
        assert_eq!(files_of(&Held::Texts(5), &path("dev.tsv")).unwrap(), (path("dev.tsv"), None));
        let error = files_of(&dev, &path("dev.tsv")).unwrap_err();
        assert!(error.to_string().contains("data.validation = \"dev\" names another file"), "{error}");
        assert!(files_of(&dev, &path("nothing")).unwrap_err().to_string().starts_with("there is no file or folder"));
    }
}
