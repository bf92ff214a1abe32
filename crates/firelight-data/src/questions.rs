//! Questions about texts, whose answers are stretches of them, in SQuAD's form: read from JSON lines or Parquet, strictly, so
//! that whatever is wrong is an error with its line.
//!
//! Source: Rajpurkar et al. 2016, SQuAD, section 3 (<https://arxiv.org/abs/1606.05250>); questions without an answer Rajpurkar et
//! al. 2018 (<https://arxiv.org/abs/1806.03822>).
//!
//! ```
//! use firelight_data::questions;
//!
//! let home = tempfile::tempdir().unwrap();
//! let path = home.path().join("train.jsonl");
//! let line = r#"{"question": "Who wrote?", "context": "Ada wrote.", "answers": {"text": ["Ada"], "answer_start": [0]}}"#;
//! std::fs::write(&path, line).unwrap();
//!
//! let found = questions::read(&path).unwrap().remove(0);
//! assert_eq!((found.answers.text[0].as_str(), found.stretches()), ("Ada", vec![0..3]));
//! ```

use std::ops::Range;
use std::path::Path;

use firelight_storage::{InputError, shortened};
use serde::{Deserialize, Serialize};

use crate::DataError;
use crate::records::{Record, RecordFormat, Records};

/// Where a record has its question, its text, the answers and their places.
const COLUMNS: [&str; 4] = ["question", "context", "/answers/text", "/answers/answer_start"];

/// A question about a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Question {
    /// What is asked.
    pub question: String,
    /// The text that has the answer.
    pub context: String,
    /// The answers, of which any is right; none where the text does not tell.
    pub answers: Answers,
    /// The line of the file, from 1.
    pub line: usize,
}

/// Stretches of a text that answer a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Answers {
    /// The stretches.
    pub text: Vec<String>,
    /// Where each begins, in characters from 0.
    pub answer_start: Vec<usize>,
}

impl Question {
    /// The answers as bytes of the context.
    pub fn stretches(&self) -> Vec<Range<usize>> {
        let stretch = |(text, start): (&String, &usize)| {
            let begin = byte_of(&self.context, *start).unwrap_or(self.context.len());
            begin..begin + text.len()
        };
        self.answers.text.iter().zip(&self.answers.answer_start).map(stretch).collect()
    }
}

/// Reads the questions of a file, in their order. Empty lines are skipped, and so is a byte order mark.
///
/// # Errors
/// Fails if the file is missing, empty, not UTF-8 or does not end in `.jsonl`, `.ndjson` or `.parquet`, if a line lacks a key, or if an answer
/// does not stand where the line says; always with the line.
pub fn read(path: &Path) -> Result<Vec<Question>, DataError> {
    if RecordFormat::of(path).map_or(true, RecordFormat::is_table) {
        let problem = "has an ending that tells no format of questions: expected .jsonl or .parquet";
        return Err(InputError::in_file(path, problem).into());
    }
    let records = Records::open(path, &COLUMNS)?;
    let found: Vec<Question> = records.map(|record| question(path, &record?)).collect::<Result<_, _>>()?;
    if found.is_empty() {
        let advice = "give a file with a question, its context and its answers a line";
        return Err(InputError::in_file(path, "holds no question").advise(advice).into());
    }
    Ok(found)
}

fn question(path: &Path, record: &Record) -> Result<Question, DataError> {
    let [asked, context, text, answer_start] = COLUMNS;
    let [question, context] = [record.text(asked)?, record.text(context)?];
    let answers = Answers { text: record.list(text)?, answer_start: record.counts(answer_start)? };
    let found = Question { question, context, answers, line: record.line() };
    match problem(&found) {
        Some(problem) => Err(InputError::at_line(path, found.line, problem).into()),
        None => Ok(found),
    }
}

/// What is wrong with the answers.
fn problem(found: &Question) -> Option<String> {
    let Answers { text, answer_start } = &found.answers;
    if found.context.trim().is_empty() {
        return Some("has an empty context: leave the line out, or give the text that the question is about".into());
    }
    if text.len() != answer_start.len() {
        let (texts, starts) = (text.len(), answer_start.len());
        return Some(format!("has {texts} answers and {starts} values of `answer_start`: give every answer its place"));
    }
    text.iter().zip(answer_start).find_map(|(text, start)| misplaced(&found.context, text, *start))
}

/// What is wrong with an answer that does not stand where it should.
fn misplaced(context: &str, text: &str, start: usize) -> Option<String> {
    if text.trim().is_empty() {
        return Some("has an empty answer: a question without an answer has an empty list of them".into());
    }
    let there = byte_of(context, start).map_or("", |begin| &context[begin..]);
    if there.starts_with(text) {
        return None;
    }
    let found: String = there.chars().take(text.chars().count()).collect();
    let (text, found) = (shortened(text), shortened(&found));
    Some(format!(
        "has the answer `{text}` at character {start} of its context, where `{found}` stands; `answer_start` counts characters from 0"
    ))
}

/// The byte at which a character begins, or the end of the text.
fn byte_of(text: &str, character: usize) -> Option<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(character)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read_as(name: &str, content: &str) -> Result<Vec<Question>, DataError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        fs::write(&path, content).unwrap();
        read(&path)
    }

    fn line(context: &str, answers: &str) -> String {
        format!("{{\"id\": \"7\", \"question\": \"Who?\", \"context\": \"{context}\", \"answers\": {answers}}}\n")
    }

    #[test]
    fn answers_are_placed_by_characters_and_there_may_be_none() {
        let several = line("\u{c9}va and Ada", "{\"text\": [\"Ada\", \"and Ada\"], \"answer_start\": [8, 4]}");
        let none = line("Ada", "{\"text\": [], \"answer_start\": []}");
        let found = read_as("a.jsonl", &format!("\u{feff}{several}\n{none}")).unwrap();
        assert_eq!((found[0].stretches(), found[1].stretches()), (vec![9..12, 5..12], vec![]));
        assert_eq!((found.len(), found[1].line), (2, 3));
        let stored = serde_json::to_string(&found[0]).unwrap();
        assert_eq!(read_as("b.jsonl", &stored).unwrap()[0].answers, found[0].answers);
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        let good = line("Ada", "{\"text\": [], \"answer_start\": []}");
        let check = |bad: String, parts: &[&str]| {
            let error = read_as("a.jsonl", &[good.as_str(), &bad].concat()).unwrap_err();
            assert!(error.is_user_error());
            let text = error.to_string();
            parts.iter().chain(&["line 2 of `"]).for_each(|part| assert!(text.contains(part), "{text}"));
        };
        check(line("Ada", "{\"text\": [\"Ada\"], \"answer_start\": []}"), &["1 answers and 0 values"]);
        check(
            line("It is Ada", "{\"text\": [\"Ada\"], \"answer_start\": [5]}"),
            &["`Ada` at character 5", "where ` Ad`"],
        );
        let answer = "x".repeat(1_000);
        check(
            line("Ada", &format!("{{\"text\": [\"{answer}\"], \"answer_start\": [0]}}")),
            &[&format!("the answer `{}...` at character 0", &answer[..80])],
        );
        check(line("Ada", "{\"text\": [\"Ada\"], \"answer_start\": [9]}"), &["at character 9", "where ``"]);
        check(line("Ada", "{\"text\": [\" \"], \"answer_start\": [0]}"), &["an empty answer"]);
        check(
            line("Ada", "{\"text\": [\"Ada\"], \"answer_start\": [-1]}"),
            &["its `/answers/answer_start`", "whole numbers"],
        );
        check(line(" ", "{\"text\": [], \"answer_start\": []}"), &["empty context"]);
        check(line("Ada", "[]"), &["lacks the key `/answers/text`"]);
        assert!(read_as("a.tsv", &good).unwrap_err().to_string().contains("expected .jsonl"));
        assert!(read_as("a.jsonl", "\n\n").unwrap_err().to_string().contains("no question"));
    }
}
