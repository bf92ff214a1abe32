//! Where the pairs of a run and of its splits are: in a folder of parallel files, in two files, or in a file of records.

use std::path::{Path, PathBuf};

use firelight_data::records::RecordFormat;
use firelight_data::{
    HeldOut, PairColumns, PairFiles, find_split, folder_of, no_data_at, no_split, split_names, splits_in,
};
use firelight_storage::{InputError, TaskError};

use super::PairRecipe;

/// The split that is validated on where nothing is said, under any of its names.
pub(super) const VALIDATION: &str = "val";

/// The files to train on, and those to validate on, if they have their own.
pub(super) fn files_of(
    recipe: &PairRecipe,
    paths: &[PathBuf],
) -> Result<(Vec<PairFiles>, Option<Vec<PairFiles>>), TaskError> {
    if let Some(path) = paths.iter().find(|path| !path.exists()) {
        return Err(no_data_at(path).into());
    }
    let training = match paths {
        [folder] if folder.is_dir() => split(recipe, folder, &recipe.split.train)?,
        [source, target] => vec![PairFiles::Lines { source: source.clone(), target: target.clone() }],
        [records] => vec![records_of(recipe, records)?],
        _ => return Err(no_pairs(paths.first().map_or(Path::new(""), |path| path)).into()),
    };
    let validation = match (&recipe.split.validation, paths) {
        (Some(HeldOut::Split(name)), [data, ..]) => Some(split(recipe, folder_of(data), name)?),
        (None, [folder]) if split_names(VALIDATION).iter().any(|name| is_there(recipe, folder, name)) => {
            Some(split(recipe, folder, VALIDATION)?)
        }
        _ => None,
    };
    Ok((training, validation))
}

/// The files of a split of a folder: `DIR/val.de` and `DIR/val.en`, or a file of records such as `DIR/val.parquet`.
pub(super) fn split(recipe: &PairRecipe, folder: &Path, split: &str) -> Result<Vec<PairFiles>, TaskError> {
    let names = split_names(split);
    if let Some([source, target]) = names.iter().filter_map(|name| sides(recipe, folder, name)).find(are_both) {
        return Ok(vec![PairFiles::Lines { source, target }]);
    }
    let named = folder.join(split);
    let files = if named.is_file() { vec![named] } else { find_split(folder, split, &RecordFormat::ENDINGS)? };
    if !files.is_empty() {
        return files.iter().map(|file| records_of(recipe, file)).collect();
    }
    let (Some(source), Some(target)) = (&recipe.source, &recipe.target) else { return Err(no_names(folder).into()) };
    let expected = format!("{split}.{source} and {split}.{target}");
    Err(no_split(folder, split, &expected, &splits_in(folder, &[source])).into())
}

/// A path that is none of the forms of pairs.
pub(super) fn no_pairs(path: &Path) -> InputError {
    let forms = "a folder of parallel files, a file of records (.tsv, .csv, .jsonl or .parquet), or two files, of source and target";
    InputError::in_file(path, format!("holds no pairs: expected {forms}"))
}

/// A folder of parallel files, without their names.
fn no_names(folder: &Path) -> InputError {
    let problem = "has files that are found by the names of the two sides";
    let advice = "set data.source and data.target, such as \"de\" and \"en\" for train.de and train.en";
    InputError::in_file(folder, problem).advise(advice)
}

/// Where the two sides of a split would lie, if the recipe names them.
fn sides(recipe: &PairRecipe, folder: &Path, name: &str) -> Option<[PathBuf; 2]> {
    let (source, target) = recipe.source.as_ref().zip(recipe.target.as_ref())?;
    Some([source, target].map(|side| folder.join(format!("{name}.{side}"))))
}

fn are_both(sides: &[PathBuf; 2]) -> bool {
    sides.iter().all(|side| side.is_file())
}

/// Whether something of a split is there, be it half of it.
fn is_there(recipe: &PairRecipe, folder: &Path, name: &str) -> bool {
    sides(recipe, folder, name).is_some_and(|sides| sides.iter().any(|side| side.is_file()))
        || find_split(folder, name, &RecordFormat::ENDINGS).is_ok_and(|files| !files.is_empty())
}

/// A file of records, with the columns that the recipe names.
pub(super) fn records_of(recipe: &PairRecipe, path: &Path) -> Result<PairFiles, TaskError> {
    let named = recipe.source.clone().zip(recipe.target.clone());
    let columns = match named.map(|(source, target)| PairColumns { source, target }) {
        Some(columns) => columns,
        None => PairColumns::usual(path).map_err(|_| no_pairs(path))?,
    };
    Ok(PairFiles::Records { path: path.into(), columns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::SplitConfig;
    use std::fs;

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
        assert_eq!((training, validation), (vec![PairFiles::Lines { source, target }], None));
        fs::write(home.path().join("val.de"), "x\n").unwrap();
        let half = files_of(&named, &[home.path().into()]).unwrap_err();
        assert!(half.to_string().contains("expected val.de and val.en"), "{half}");
        let error = split(&named, home.path(), "tset").unwrap_err();
        assert!(error.is_user_error() && error.to_string().ends_with("there is test, train, val"), "{error}");
        for name in ["dev.de", "dev.en"] {
            fs::write(home.path().join(name), "x\n").unwrap();
        }
        let [source, target] = ["dev.de", "dev.en"].map(|name| home.path().join(name));
        let (_, dev) = files_of(&named, &[home.path().into()]).unwrap();
        assert_eq!(
            dev,
            Some(vec![PairFiles::Lines { source, target }]),
            "another name of the split, of which both sides are there"
        );
        let error = files_of(&recipe(None), &[home.path().into()]).unwrap_err();
        assert!(error.to_string().contains("set data.source and data.target"), "{error}");
    }

    #[test]
    fn a_folder_may_hold_records() {
        let home = tempfile::tempdir().unwrap();
        for name in ["train-00000-of-00001.parquet", "validation.jsonl"] {
            fs::write(home.path().join(name), "x").unwrap();
        }
        let (training, validation) = files_of(&recipe(Some(["de", "en"])), &[home.path().into()]).unwrap();
        let columns = PairColumns { source: "de".into(), target: "en".into() };
        let of = |name: &str| vec![PairFiles::Records { path: home.path().join(name), columns: columns.clone() }];
        assert_eq!((training, validation), (of("train-00000-of-00001.parquet"), Some(of("validation.jsonl"))));
    }

    #[test]
    fn the_recipe_says_what_is_validated_on() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        for name in ["a.tsv", "dev.tsv", "train-00000-of-00002.tsv", "train-00001-of-00002.tsv"] {
            fs::write(path(name), "x\ty\n").unwrap();
        }
        let found = |validation: Option<HeldOut>, data: &Path| {
            let split = SplitConfig { validation, ..SplitConfig::default() };
            let (training, held) = files_of(&PairRecipe { split, ..PairRecipe::default() }, &[data.into()]).unwrap();
            (training.len(), held.map(|files| files.len()))
        };
        assert_eq!(found(None, home.path()), (2, Some(1)));
        assert_eq!(found(Some(HeldOut::Share(0.1)), home.path()), (2, None));
        assert_eq!(
            (found(None, &path("a.tsv")), found(Some(HeldOut::Split("dev".into())), &path("a.tsv"))),
            ((1, None), (1, Some(1)))
        );
    }

    #[test]
    fn records_are_known_by_their_ending() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            fs::write(home.path().join(name), "").unwrap();
            [home.path().join(name)]
        };
        let (tsv, _) = files_of(&recipe(None), &path("a.tsv")).unwrap();
        let columns = PairColumns { source: "0".into(), target: "1".into() };
        assert_eq!(tsv, [PairFiles::Records { path: home.path().join("a.tsv"), columns }]);
        let (parquet, _) = files_of(&recipe(Some(["de", "en"])), &path("a.parquet")).unwrap();
        let columns = PairColumns { source: "de".into(), target: "en".into() };
        assert_eq!(parquet, [PairFiles::Records { path: home.path().join("a.parquet"), columns }]);
        assert!(files_of(&recipe(None), &path("a.txt")).unwrap_err().to_string().contains("a.txt` holds no pairs"));
        let typo = files_of(&recipe(None), &[home.path().join("b.tsv")]).unwrap_err();
        assert!(typo.is_user_error() && typo.to_string().starts_with("there is no file or folder"), "{typo}");
    }
}
