//! The texts of a pre-training, as files and run folders hold them. Where sentences and their order count, a text is a document:
//! the lines of a `.txt` between two blank ones, or a row of a table, and a line of it is a sentence.

use std::path::{Path, PathBuf};

use firelight_data::labelled::{self, LabelledText};
use firelight_data::{SplitConfig, read_lines, stories};
use firelight_storage::{InputError, ModelFolder, TaskError, write_json_lines};

use super::recipe::TextsRecipe;
use crate::records::{Parts, classes_of, no_data, read_all};

/// The endings of files of texts, in the order in which they are looked for.
pub(super) const ENDINGS: [&str; 6] = ["txt", "tsv", "csv", "jsonl", "ndjson", "parquet"];

/// Texts to train and to validate on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Texts {
    pub(super) training: Vec<String>,
    pub(super) validation: Vec<String>,
}

impl Texts {
    /// Reads the file or folder of a recipe.
    pub(super) fn read(data: &TextsRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let [path] = paths else { return Err(no_data(source).into()) };
        let files = data.split.files(path, &ENDINGS)?;
        let texts_of = |files: &[PathBuf]| read_all(files, |file| of_file(file, data));
        let parts = match files.validation.is_empty() {
            false => [texts_of(&files.training)?, texts_of(&files.validation)?],
            true if files.training.iter().all(|file| is_table(file)) => {
                let read = |file: &Path| labelled::read_as(file, &data.columns, &data.problem_type);
                let classes = |texts: &[LabelledText]| classes_of(texts, &data.problem_type);
                let parts = Parts::read(&files, &data.split, read, classes)?;
                [parts.training, parts.validation].map(|rows| of_rows(rows, data))
            }
            true => last_apart(texts_of(&files.training)?, &data.split)?,
        };
        let [training, validation] =
            parts.map(|texts| texts.into_iter().filter(|text| !text.trim().is_empty()).collect());
        Ok(Self { training, validation })
    }

    /// Generated stories, a sentence a line where sentences count.
    pub(super) fn of_stories(data: &TextsRecipe, seed: u64, length: usize) -> Result<Self, TaskError> {
        let story = |story: &str| match data.objective.reads_documents() {
            true => story.replace(". ", ".\n"),
            false => story.into(),
        };
        let all: Vec<String> = stories(seed, length).split_terminator("\n\n").map(story).collect();
        let [training, validation] = last_apart(all, &data.split.of_generated())?;
        Ok(Self { training, validation })
    }

    /// Writes them into a run folder: a JSON string a line.
    pub(super) fn save(&self, folder: &ModelFolder) -> Result<(), TaskError> {
        write_json_lines(folder.training_pairs(), &self.training)?;
        Ok(write_json_lines(folder.validation_pairs(), &self.validation)?)
    }

    /// Reads those of a run folder.
    pub(super) fn open(folder: &ModelFolder) -> Result<Self, TaskError> {
        let [training, validation] = [stored(&folder.training_pairs())?, stored(&folder.validation_pairs())?];
        Ok(Self { training, validation })
    }
}

/// Whether a file has columns; a `.txt` has a text, or a sentence, on every line.
fn is_table(file: &Path) -> bool {
    file.extension().is_none_or(|ending| ending != "txt")
}

/// The texts of a file.
pub(super) fn of_file(file: &Path, data: &TextsRecipe) -> Result<Vec<String>, TaskError> {
    match (is_table(file), data.objective.reads_documents()) {
        (true, _) => Ok(of_rows(labelled::read_as(file, &data.columns, &data.problem_type)?, data)),
        (false, true) => Ok(documents(&read_lines(file)?)),
        (false, false) => Ok(read_lines(file)?),
    }
}

/// The texts of a table without their labels, of pairs both: two texts, or one document.
fn of_rows(rows: Vec<LabelledText>, data: &TextsRecipe) -> Vec<String> {
    let texts = rows.into_iter().map(|row| [Some(row.text), row.pair].into_iter().flatten());
    match data.objective.reads_documents() {
        true => texts.map(|texts| texts.collect::<Vec<_>>().join("\n")).collect(),
        false => texts.flatten().collect(),
    }
}

/// The lines between blank ones.
fn documents(lines: &[String]) -> Vec<String> {
    let documents = lines.split(|line| line.trim().is_empty());
    documents.filter(|document| !document.is_empty()).map(|document| document.join("\n")).collect()
}

/// The last texts of a file are those that are held out.
fn last_apart(mut texts: Vec<String>, split: &SplitConfig) -> Result<[Vec<String>; 2], TaskError> {
    let last = texts.split_off(split.training_len(texts.len(), "texts")?);
    Ok([texts, last])
}

/// The texts of a file of a run folder.
fn stored(path: &Path) -> Result<Vec<String>, TaskError> {
    let damaged = |_| {
        let problem = "is damaged: expected a JSON string on every line";
        InputError::in_file(path, problem).advise("restore the file that belongs to this run").into()
    };
    read_lines(path)?
        .iter()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).map_err(damaged))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PretrainingObjective;
    use firelight_data::HeldOut;
    use std::fs;

    fn read(objective: PretrainingObjective, validation: Option<HeldOut>, path: &Path) -> Texts {
        let split = SplitConfig { validation, ..SplitConfig::default() };
        let data = TextsRecipe { objective, split, ..TextsRecipe::default() };
        Texts::read(&data, Path::new("x.toml"), &[path.into()]).unwrap()
    }

    #[test]
    fn documents_are_lines_between_blank_ones_or_rows() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::write(path("train.txt"), "\none\ntwo\n \t\n\nthree\nfour\n\nfive\n").unwrap();
        fs::write(path("dev.csv"), "text,label\n\"six\nseven\",a\neight,b\n").unwrap();
        let split = Some(HeldOut::Split("dev".into()));
        let found = read(PretrainingObjective::MaskedAndNextSentence, split.clone(), home.path());
        assert_eq!(found.training, ["one\ntwo", "three\nfour", "five"]);
        assert_eq!(found.validation, ["six\nseven", "eight"]);
        let found = read(PretrainingObjective::MaskedAndNextSentence, Some(HeldOut::Count(2)), &path("train.txt"));
        assert_eq!(
            (found.training, found.validation),
            (vec!["one\ntwo".into()], vec!["three\nfour".into(), "five".into()])
        );
        let found = read(PretrainingObjective::Masked, split, home.path());
        assert_eq!(found.training, ["one", "two", "three", "four", "five"]);
    }

    #[test]
    fn a_pair_of_a_table_is_one_document_or_two_texts() {
        let row = LabelledText { text: "a".into(), pair: Some("b".into()), label: "x".into(), line: 1 };
        let of = |objective| of_rows(vec![row.clone()], &TextsRecipe { objective, ..TextsRecipe::default() });
        assert_eq!(of(PretrainingObjective::Masked), ["a", "b"]);
        assert_eq!(of(PretrainingObjective::MaskedAndNextSentence), ["a\nb"]);
    }
}
