//! What is wrong with what a user, a file or the network gave, where a caller can do nothing but tell it.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something that was given and does not fit: where it stands, what is wrong with it, and how to mend it. It is always the user's.
///
/// ```
/// use firelight_storage::InputError;
///
/// let error = InputError::at_line("train.tsv".as_ref(), 3, "has 1 column: expected 2").advise("put a tab behind the text");
/// assert_eq!(error.to_string(), "line 3 of `train.tsv` has 1 column: expected 2; put a tab behind the text");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputError {
    /// The file, if it is about one.
    pub path: Option<PathBuf>,
    /// The line of the file, or of Parquet its row, from 1.
    pub line: Option<usize>,
    /// What was found, and what was expected: the end of a sentence that begins with the place.
    pub problem: String,
    /// How to mend it, where the problem does not say it already.
    pub advice: Option<String>,
}

impl InputError {
    /// A problem of no file.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { path: None, line: None, problem: problem.into(), advice: None }
    }

    /// A problem of a file.
    pub fn in_file(path: &Path, problem: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..Self::new(problem) }
    }

    /// A problem of a line of a file, or of a row of Parquet.
    pub fn at_line(path: &Path, line: usize, problem: impl Into<String>) -> Self {
        Self { line: Some(line), ..Self::in_file(path, problem) }
    }

    /// The same, with how to mend it.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// One error out of several problems, if there are any.
    ///
    /// # Errors
    /// If there is a problem.
    pub fn of_all(problems: &[String]) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self::new(problems.join("; "))) }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            let unit = if path.extension().is_some_and(|ending| ending == "parquet") { "row" } else { "line" };
            self.line.map_or(Ok(()), |line| write!(f, "{unit} {line} of "))?;
            write!(f, "`{}` ", path.display())?;
        }
        f.write_str(&self.problem)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for InputError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_comes_first_and_the_way_out_last() {
        let path = Path::new("a.parquet");
        assert_eq!(InputError::new("x").advise("y").to_string(), "x; y");
        assert_eq!(InputError::in_file(path, "is no table").to_string(), "`a.parquet` is no table");
        assert_eq!(InputError::at_line(path, 2, "is empty").to_string(), "row 2 of `a.parquet` is empty");
    }

    #[test]
    fn several_problems_are_one_error() {
        assert_eq!(InputError::of_all(&[]), Ok(()));
        assert_eq!(InputError::of_all(&["a".into(), "b".into()]).unwrap_err().to_string(), "a; b");
    }
}
