//! The splits of a data set as files of a folder, under the names that data sets give them, in one file each or in shards.

mod config;

use std::fs;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, listed, shortened};

pub use config::{HeldOut, SplitConfig, SplitFiles, folder_of, no_data_at};

/// Names that mean the same split.
const ALIASES: [&[&str]; 2] = [&["train", "training"], &["dev", "val", "valid", "validation"]];

/// The names under which a split is looked for: its own, and then those that mean the same, as `val` and `validation` for `dev`.
///
/// ```
/// assert_eq!(firelight_data::split_names("val"), ["val", "dev", "valid", "validation"]);
/// assert_eq!(firelight_data::split_names("test"), ["test"]);
/// ```
pub fn split_names(name: &str) -> Vec<&str> {
    let others = ALIASES.iter().filter(|names| names.contains(&name)).flat_map(|names| names.iter());
    std::iter::once(name).chain(others.copied().filter(|other| *other != name)).collect()
}

/// The files of a split in a folder, with the first of these endings that is there: `DIR/dev.tsv`, `DIR/validation.parquet`, or in
/// their order the shards `DIR/dev-00000-of-00002.parquet` and `DIR/dev-00001-of-00002.parquet`. None if there is no such split.
///
/// # Errors
/// Fails if the split is asked of a file, or a shard is missing.
pub fn find_split(folder: &Path, name: &str, endings: &[&str]) -> Result<Vec<PathBuf>, InputError> {
    if folder.is_file() {
        let problem = format!("is one file and has no split `{}`", shortened(name));
        let advice = "leave --split out, or give the folder that the splits are in";
        return Err(InputError::in_file(folder, problem).advise(advice));
    }
    let stems = split_names(name).into_iter().flat_map(|name| endings.iter().map(move |ending| (name, *ending)));
    for (name, ending) in stems {
        let file = folder.join(format!("{name}.{ending}"));
        if file.is_file() {
            return Ok(vec![file]);
        }
        let shards = shards(folder, name, ending)?;
        if !shards.is_empty() {
            return Ok(shards);
        }
    }
    Ok(Vec::new())
}

/// The files of a split that has to be there: see [`find_split`]. The name may be that of a file of the folder, too.
///
/// # Errors
/// Fails if there is no such split, it is asked of a file, or a shard is missing.
pub fn split_files(folder: &Path, name: &str, endings: &[&str]) -> Result<Vec<PathBuf>, InputError> {
    let file = folder.join(name);
    if file.is_file() {
        return Ok(vec![file]);
    }
    match find_split(folder, name, endings)? {
        files if files.is_empty() => {
            let expected: Vec<String> = endings.iter().map(|ending| format!("{name}.{ending}")).collect();
            Err(no_split(folder, name, &expected.join(" or "), &splits_in(folder, endings)))
        }
        files => Ok(files),
    }
}

/// A split that is not in a folder: what was expected, and which there are.
pub fn no_split(folder: &Path, name: &str, expected: &str, found: &[String]) -> InputError {
    let found = match found {
        [] => "there is no such file in it".into(),
        names => format!("there is {}", listed(names)),
    };
    InputError::in_file(folder, format!("has no split `{}`: expected {expected}; {found}", shortened(name)))
}

/// The splits of a folder, by its files with one of these endings, sorted.
pub fn splits_in(folder: &Path, endings: &[&str]) -> Vec<String> {
    let is_one = |path: &PathBuf| endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending));
    let mut names: Vec<String> = files_in(folder).filter(is_one).filter_map(|path| split_of(&path)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn files_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The split that a file is of, or a shard of.
fn split_of(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    Some(shard(&stem).map_or(stem.clone(), |(name, _)| name.to_string()))
}

/// The split of `NAME-00001-of-00003`, and how many shards it has.
fn shard(stem: &str) -> Option<(&str, usize)> {
    let (first, count) = stem.split_once("-of-")?;
    let (name, index) = first.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(index) && is_number(count)).then(|| Some((name, count.parse().ok()?))).flatten()
}

/// The shards of a split, all of them or none.
fn shards(folder: &Path, name: &str, ending: &str) -> Result<Vec<PathBuf>, InputError> {
    let is_ending = |path: &PathBuf| path.extension().is_some_and(|found| found == ending);
    let count = |path: PathBuf| {
        let stem = path.file_stem()?.to_str()?.to_owned();
        shard(&stem).filter(|(of, _)| *of == name).map(|(_, count)| count)
    };
    let count = files_in(folder).filter(is_ending).filter_map(count).max().unwrap_or(0);
    let all = (0..count).map(|index| folder.join(format!("{name}-{index:05}-of-{count:05}.{ending}")));
    let (there, missing): (Vec<_>, Vec<_>) = all.partition(|file| file.is_file());
    match missing.first() {
        None => Ok(there),
        Some(file) => {
            let problem = format!("is missing, but others of the {count} shards of the split `{name}` are there");
            Err(InputError::in_file(file, problem).advise("put it beside them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(names: &[&str]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| fs::write(home.path().join(name), "x").unwrap());
        home
    }

    #[test]
    fn a_split_is_found_under_any_of_its_names() {
        let home = home(&[]);
        let found = |name: &str| find_split(home.path(), name, &["tsv", "parquet"]).unwrap();
        let file = |name: &str| vec![home.path().join(name)];
        assert!(found("dev").is_empty());
        let write = |name: &str| fs::write(home.path().join(name), "x").unwrap();
        ["validation-00000-of-00001.parquet", "train.parquet", "train.txt"].into_iter().for_each(write);
        assert_eq!(found("dev"), file("validation-00000-of-00001.parquet"));
        write("valid.tsv");
        assert_eq!(found("val"), file("valid.tsv"));
        write("val.parquet");
        assert_eq!(found("val"), file("val.parquet"), "its own name comes first");
        assert_eq!(found("training"), file("train.parquet"));
        assert!(found("test").is_empty());
        assert_eq!(splits_in(home.path(), &["tsv", "txt"]), ["train", "valid"]);
        assert_eq!(splits_in(home.path(), &["parquet"]), ["train", "val", "validation"]);
    }

    #[test]
    fn shards_are_read_in_their_order_and_all_of_them() {
        let home = home(&["train-00001-of-00002.parquet", "train-00000-of-00002.parquet", "test-1-of-2.parquet"]);
        let found = |name: &str| split_files(home.path(), name, &["parquet"]);
        let shard = |index: usize| home.path().join(format!("train-0000{index}-of-00002.parquet"));
        assert_eq!(found("train").unwrap(), [shard(0), shard(1)]);
        assert!(found("test").is_err(), "no shards by that pattern");
        assert_eq!(splits_in(home.path(), &["parquet"]), ["test-1-of-2", "train"]);
        fs::remove_file(shard(0)).unwrap();
        let error = found("train").unwrap_err().to_string();
        assert!(error.contains("train-00000-of-00002.parquet` is missing, but others of the 2 shards"), "{error}");
    }

    #[test]
    fn those_that_are_there_are_named_where_one_is_not() {
        let home = home(&["train.csv", "dev.tsv", "notes.md"]);
        let error = split_files(home.path(), "test", &["tsv", "csv"]).unwrap_err().to_string();
        assert!(error.ends_with("has no split `test`: expected test.tsv or test.csv; there is dev, train"), "{error}");
        assert_eq!(split_files(home.path(), "notes.md", &["tsv"]).unwrap(), [home.path().join("notes.md")]);
        let error = split_files(home.path(), "test", &["txt"]).unwrap_err().to_string();
        assert!(error.ends_with("there is no such file in it"), "{error}");
    }
}
