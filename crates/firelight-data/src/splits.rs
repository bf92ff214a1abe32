//! The splits of a data set as files of a folder, under the names that data sets give them.

use std::fs;
use std::path::{Path, PathBuf};

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

/// The file of a split in a folder, with the first of these endings that is there: `DIR/dev.tsv`, `DIR/validation.parquet`, or
/// `DIR/dev-00000-of-00001.parquet`, as data sets of one shard are published.
pub fn split_file(folder: &Path, name: &str, endings: &[&str]) -> Option<PathBuf> {
    let stems = split_names(name).into_iter().flat_map(|name| [name.to_string(), format!("{name}-00000-of-00001")]);
    let mut files = stems.flat_map(|stem| endings.iter().map(move |ending| folder.join(format!("{stem}.{ending}"))));
    files.find(|file| file.is_file())
}

/// The stems of a folder's files with one of these endings, sorted: the splits that there are.
pub fn splits_in(folder: &Path, endings: &[&str]) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending));
    let stem = |path: PathBuf| Some(path.file_stem()?.to_string_lossy().into_owned());
    let mut names: Vec<String> = files.filter(is_one).filter_map(stem).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_found_under_any_of_its_names() {
        let home = tempfile::tempdir().unwrap();
        let found = |name: &str| split_file(home.path(), name, &["tsv", "parquet"]);
        assert_eq!(found("dev"), None);
        let write = |name: &str| fs::write(home.path().join(name), "x").unwrap();
        ["validation-00000-of-00001.parquet", "train.parquet", "train.txt"].into_iter().for_each(write);
        assert_eq!(found("dev").unwrap(), home.path().join("validation-00000-of-00001.parquet"));
        write("valid.tsv");
        assert_eq!(found("val").unwrap(), home.path().join("valid.tsv"));
        write("val.parquet");
        assert_eq!(found("val").unwrap(), home.path().join("val.parquet"), "its own name comes first");
        assert_eq!(found("training").unwrap(), home.path().join("train.parquet"));
        assert_eq!(found("test"), None);
        assert_eq!(splits_in(home.path(), &["tsv", "txt"]), ["train", "valid"]);
    }
}
