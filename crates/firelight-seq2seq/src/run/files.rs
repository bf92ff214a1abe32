//! Where the pairs of a run and of its splits are: in a folder of parallel files, in two files, or in a table.

use std::fs;
use std::path::{Path, PathBuf};

use firelight_data::{PairFiles, PairNames};
use firelight_storage::listed;

use super::PairRecipe;
use crate::error::Seq2SeqError;

/// The splits that a training reads of a folder.
const TRAINING: &str = "train";
const VALIDATION: &str = "val";

/// The files to train on, and those to validate on, if they have their own.
pub(super) fn files_of(recipe: &PairRecipe, paths: &[PathBuf]) -> Result<(PairFiles, Option<PairFiles>), Seq2SeqError> {
    if let Some(path) = paths.iter().find(|path| !path.exists()) {
        return Err(Seq2SeqError::Missing { path: path.clone() });
    }
    match paths {
        [folder] if folder.is_dir() => {
            let training = split(recipe, folder, TRAINING)?;
            let names = [&recipe.source, &recipe.target].into_iter().flatten();
            let has_own = names.map(|side| format!("{VALIDATION}.{side}")).any(|name| folder.join(name).is_file());
            Ok((training, has_own.then(|| split(recipe, folder, VALIDATION)).transpose()?))
        }
        [source, target] => Ok((PairFiles::Lines { source: source.clone(), target: target.clone() }, None)),
        [table] => Ok((table_of(recipe, table)?, None)),
        _ => Err(Seq2SeqError::NoPairs { path: paths.first().cloned().unwrap_or_default() }),
    }
}

/// The files of a split of a folder: `DIR/val.de` and `DIR/val.en`.
pub(super) fn split(recipe: &PairRecipe, folder: &Path, split: &str) -> Result<PairFiles, Seq2SeqError> {
    let (Some(source), Some(target)) = (&recipe.source, &recipe.target) else {
        return Err(Seq2SeqError::NoNames { path: folder.into() });
    };
    let names = [source, target].map(|side| format!("{split}.{side}"));
    let [source, target] = [&names[0], &names[1]].map(|name| folder.join(name));
    match source.is_file() && target.is_file() {
        true => Ok(PairFiles::Lines { source, target }),
        false => Err(Seq2SeqError::UnknownSplit {
            path: folder.into(),
            split: split.into(),
            expected: names.to_vec(),
            found: splits_in(folder, recipe.source.as_deref().unwrap_or_default()),
        }),
    }
}

/// The splits that a folder has, in words.
fn splits_in(folder: &Path, side: &str) -> String {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_side = names.filter(|path| path.extension().is_some_and(|ending| ending == side));
    let mut splits: Vec<String> =
        of_side.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    splits.sort_unstable();
    match splits.as_slice() {
        [] => format!("no file ends in `.{side}`"),
        splits => format!("there is {}", listed(splits)),
    }
}

pub(super) fn table_of(recipe: &PairRecipe, path: &Path) -> Result<PairFiles, Seq2SeqError> {
    let names = recipe.source.clone().zip(recipe.target.clone()).map(|(source, target)| PairNames { source, target });
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("tsv") => Ok(PairFiles::Tsv { path: path.into(), columns: names }),
        Some("jsonl") => Ok(PairFiles::Jsonl { path: path.into(), keys: names.unwrap_or_default() }),
        _ => Err(Seq2SeqError::NoPairs { path: path.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(names: Option<[&str; 2]>) -> PairRecipe {
        let [source, target] = names.map_or([None, None], |names| names.map(|name| Some(name.to_string())));
        PairRecipe { source, target, ..PairRecipe::default() }
    }

    #[test]
    fn a_folder_is_read_by_the_names_of_its_sides() {
        let home = tempfile::tempdir().unwrap();
        for name in ["train.de", "train.en", "test.de", "test.en"] {
            fs::write(home.path().join(name), "x\n").unwrap();
        }
        let named = recipe(Some(["de", "en"]));
        let (training, validation) = files_of(&named, &[home.path().into()]).unwrap();
        let [source, target] = ["train.de", "train.en"].map(|name| home.path().join(name));
        assert_eq!((training, validation), (PairFiles::Lines { source, target }, None));
        fs::write(home.path().join("val.de"), "x\n").unwrap();
        let half = files_of(&named, &[home.path().into()]).unwrap_err();
        assert!(half.to_string().contains("expected val.de and val.en"), "{half}");
        let error = split(&named, home.path(), "dev").unwrap_err();
        assert!(error.is_user_error() && error.to_string().ends_with("there is test, train, val"), "{error}");
        let error = files_of(&recipe(None), &[home.path().into()]).unwrap_err();
        assert!(error.to_string().contains("set data.source and data.target"), "{error}");
    }

    #[test]
    fn a_table_is_known_by_its_ending() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            fs::write(home.path().join(name), "").unwrap();
            [home.path().join(name)]
        };
        let (tsv, _) = files_of(&recipe(None), &path("a.tsv")).unwrap();
        assert_eq!(tsv, PairFiles::Tsv { path: home.path().join("a.tsv"), columns: None });
        let (jsonl, _) = files_of(&recipe(Some(["de", "en"])), &path("a.jsonl")).unwrap();
        let keys = PairNames { source: "de".into(), target: "en".into() };
        assert_eq!(jsonl, PairFiles::Jsonl { path: home.path().join("a.jsonl"), keys });
        assert!(files_of(&recipe(None), &path("a.txt")).unwrap_err().to_string().contains("a.txt` holds no pairs"));
        let typo = files_of(&recipe(None), &[home.path().join("b.tsv")]).unwrap_err();
        assert!(typo.is_user_error() && typo.to_string().starts_with("there is no file or folder"), "{typo}");
    }
}
