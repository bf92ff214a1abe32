//! The section `[data.split]` of every recipe: what is trained on, and what is only validated on.

use std::path::{Path, PathBuf};

use firelight_storage::InputError;
use serde::{Deserialize, Serialize};

use super::{find_split, split_files};

/// What is held out where nothing is said and the data have no validation split of their own.
const SHARE: f64 = 0.1;

/// The same of generated data, of which there is as much as a recipe asks for.
const GENERATED_SHARE: f64 = 0.05;

/// The split that is validated on where nothing is said, under any of its names.
const VALIDATION: &str = "validation";

/// Which part of the data is trained on, and which is only validated on.
///
/// ```
/// use firelight_data::{HeldOut, SplitConfig};
///
/// let split = SplitConfig { validation: Some(HeldOut::Share(0.2)), ..SplitConfig::default() };
/// assert_eq!(split.training_len(10, "texts").unwrap(), 8);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitConfig {
    /// The split of a folder to train on, by its name. Default: train.
    pub train: String,
    /// What is only validated on: the name of a split or of a file beside the data, a count, or a share. Default: the validation split
    /// of the folder (`dev`, `val`, `valid` or `validation`) where it has one, otherwise a tenth of what is trained on, of generated data
    /// a twentieth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<HeldOut>,
    /// Draws the records that a count or a share holds out, where they are drawn: labelled texts, tagged sentences and questions. Of
    /// running text, pairs and images the last ones are held out. Default: 0.
    pub seed: u64,
}

/// What is held out from a training, to validate on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a share such as 0.1, a count such as 500, or the name of a split in quotes")]
pub enum HeldOut {
    /// So many records, of running text tokens.
    Count(usize),
    /// This share of them, above 0 and below 1.
    Share(f64),
    /// A split or a file of its own.
    Split(String),
}

/// The files of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitFiles {
    /// What is trained on; what is held out as well, where that has no files.
    pub training: Vec<PathBuf>,
    /// What is only validated on, if it has files.
    pub validation: Vec<PathBuf>,
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self { train: "train".into(), validation: None, seed: 0 }
    }
}

impl SplitConfig {
    /// This share, held out.
    pub fn share(share: f64) -> Self {
        Self { validation: Some(HeldOut::Share(share)), ..Self::default() }
    }

    /// The same for generated data, which hold out a twentieth where nothing is said.
    pub fn of_generated(&self) -> Self {
        let validation = self.validation.clone().or(Some(HeldOut::Share(GENERATED_SHARE)));
        Self { validation, ..self.clone() }
    }

    /// The split that is validated on, if it is named.
    pub fn validation_split(&self) -> Option<&str> {
        match &self.validation {
            Some(HeldOut::Split(name)) => Some(name),
            _ => None,
        }
    }

    /// What is wrong with the section, if anything is.
    pub fn problem(&self) -> Option<String> {
        match self.validation {
            Some(HeldOut::Count(0)) => Some("data.split.validation = 0 must be at least 1".into()),
            Some(HeldOut::Share(share)) if !(share > 0.0 && share < 1.0) => {
                Some(format!("data.split.validation = {share} must be above 0 and below 1, or a count"))
            }
            _ => None,
        }
    }

    /// How many of `len` records are trained on, where the rest is held out: of a share those before `floor((1 - share) * len)`, as in
    /// nanoGPT, but one at least, and one is held out. `unit` is what they are called.
    ///
    /// # Errors
    /// Fails if nothing is left to train on.
    pub fn training_len(&self, len: usize, unit: &str) -> Result<usize, InputError> {
        match self.validation {
            Some(HeldOut::Count(count)) if count < len => Ok(len - count),
            Some(HeldOut::Count(count)) => {
                let problem = format!("data.split.validation = {count} leaves nothing of the {len} {unit} to train on");
                Err(InputError::new(problem).advise(format!("set it to a number below {len}")))
            }
            Some(HeldOut::Share(share)) => share_of(len, share, unit),
            _ => share_of(len, SHARE, unit),
        }
    }

    /// The files with one of these endings to train on and to validate on, of a folder of splits or of one file.
    ///
    /// # Errors
    /// Fails if there is nothing at the path, or the folder lacks a split.
    pub fn files(&self, data: &Path, endings: &[&str]) -> Result<SplitFiles, InputError> {
        if !data.exists() {
            return Err(no_data_at(data));
        }
        if !data.is_file() && !data.is_dir() {
            return Err(
                InputError::in_file(data, "is neither a file nor a folder").advise("copy its content to a file")
            );
        }
        let training = match data.is_file() {
            true => vec![data.into()],
            false => split_files(data, &self.train, endings)?,
        };
        Ok(SplitFiles { training, validation: self.validation_files(data, endings)? })
    }

    fn validation_files(&self, data: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, InputError> {
        match &self.validation {
            Some(HeldOut::Split(name)) => split_files(folder_of(data), name, endings),
            None if data.is_dir() => find_split(data, VALIDATION, endings),
            _ => Ok(Vec::new()),
        }
    }
}

/// A path at which there is nothing.
pub fn no_data_at(path: &Path) -> InputError {
    InputError::new(format!("there is no file or folder `{}`", path.display())).advise("check the path")
}

/// The folder that data is or lies in.
pub fn folder_of(data: &Path) -> &Path {
    match data.parent() {
        _ if data.is_dir() => data,
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn share_of(len: usize, share: f64, unit: &str) -> Result<usize, InputError> {
    if len < 2 {
        let problem =
            format!("there is too little to train and to validate on: found {len} {unit}, expected 2 or more");
        return Err(InputError::new(problem).advise("give more data"));
    }
    Ok((((1.0 - share) * len as f64) as usize).clamp(1, len - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn held(text: &str) -> SplitConfig {
        let json = format!("{{\"validation\": {text}}}");
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_share_a_count_and_a_name_are_told_apart() {
        assert_eq!(held("0.25").validation, Some(HeldOut::Share(0.25)));
        assert_eq!(held("25").validation, Some(HeldOut::Count(25)));
        assert_eq!(held("\"dev\"").validation_split(), Some("dev"));
        let error = serde_json::from_str::<HeldOut>("[]").unwrap_err().to_string();
        assert!(error.starts_with("expected a share such as 0.1, a count such as 500"), "{error}");
        for bad in ["0", "0.0", "1.0", "-0.5"] {
            assert!(
                held(bad).problem().is_some_and(|problem| problem.starts_with("data.split.validation = ")),
                "{bad}"
            );
        }
        let generated = |split: SplitConfig| split.of_generated().training_len(100, "texts").unwrap();
        assert_eq!((generated(SplitConfig::default()), generated(held("0.2"))), (95, 80));
        assert_eq!((held("1").problem(), held("0.5").problem(), SplitConfig::default().problem()), (None, None, None));
    }

    #[test]
    fn both_parts_have_something() {
        let kept = |split: &SplitConfig, len| split.training_len(len, "texts").map_err(|error| error.to_string());
        assert_eq!(
            (kept(&held("0.1"), 1_115_394), kept(&held("0.9"), 3), kept(&held("0.01"), 2)),
            (Ok(1_003_854), Ok(1), Ok(1))
        );
        assert_eq!((kept(&SplitConfig::default(), 60_000), kept(&held("7"), 40)), (Ok(54_000), Ok(33)));
        let nothing = kept(&held("40"), 40).unwrap_err();
        assert_eq!(
            nothing,
            "data.split.validation = 40 leaves nothing of the 40 texts to train on; set it to a number below 40"
        );
        assert!(kept(&held("0.1"), 1).unwrap_err().contains("found 1 texts, expected 2 or more"));
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_no_data() {
        let error = SplitConfig::default().files(Path::new("/dev/null"), &["tsv"]).unwrap_err().to_string();
        assert_eq!(error, "`/dev/null` is neither a file nor a folder; copy its content to a file");
    }

    #[test]
    fn a_folder_has_its_validation_split_and_a_file_one_beside_it_if_that_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        ["train.tsv", "val.tsv", "other.tsv"].iter().for_each(|name| fs::write(path(name), "x").unwrap());
        let files = |split: &SplitConfig, data: &Path| {
            let SplitFiles { training, validation } = split.files(data, &["tsv"]).unwrap();
            let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            (training.iter().map(name).collect::<Vec<_>>().join("+"), validation.iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(files(&SplitConfig::default(), home.path()), ("train.tsv".into(), vec!["val.tsv".into()]));
        assert_eq!(files(&held("0.1"), home.path()), ("train.tsv".into(), vec![]));
        assert_eq!(files(&held("\"other\""), home.path()), ("train.tsv".into(), vec!["other.tsv".into()]));
        assert_eq!(files(&SplitConfig::default(), &path("train.tsv")), ("train.tsv".into(), vec![]));
        assert_eq!(files(&held("\"other.tsv\""), &path("train.tsv")), ("train.tsv".into(), vec!["other.tsv".into()]));
        let error = SplitConfig::default().files(&path("none"), &["tsv"]).unwrap_err().to_string();
        assert!(error.starts_with("there is no file or folder `"), "{error}");
    }
}
