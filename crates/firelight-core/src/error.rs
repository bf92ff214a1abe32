//! What a configuration can have wrong with it.

/// Every bad field of a configuration, each with what was found and what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problems.join("; "))]
pub struct ConfigError {
    problems: Vec<String>,
}

impl ConfigError {
    /// Adds the problems that a configuration finds itself to those of its parts.
    ///
    /// # Errors
    /// If there is any problem.
    pub fn collect(
        parts: impl IntoIterator<Item = Result<(), Self>>,
        own: impl IntoIterator<Item = Option<String>>,
    ) -> Result<(), Self> {
        let checks = parts.into_iter().fold(Checks::default(), Checks::include);
        own.into_iter().flatten().fold(checks, |checks, problem| checks.require(false, || problem)).finish()
    }

    /// The problems that a check found, none if all is well.
    pub fn list(result: Result<(), Self>) -> Vec<String> {
        result.err().map_or_else(Vec::new, |error| error.problems)
    }

    /// The problems, one line each, in the order of the fields.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// A configuration comes from a file or the command line, so its errors are always the user's to mend.
    pub fn is_user_error(&self) -> bool {
        true
    }
}

/// The largest size of a single dimension.
const MAX_SIZE: usize = 1 << 26;

/// Collects problems while a configuration validates itself, so that the user sees all of them at once.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    problems: Vec<String>,
}

impl Checks {
    /// Notes `problem` unless `holds`.
    pub(crate) fn require(mut self, holds: bool, problem: impl FnOnce() -> String) -> Self {
        if !holds {
            self.problems.push(problem());
        }
        self
    }

    /// Notes a size of 0, or one that no machine holds: such a slip of the hand would end in an aborted process.
    pub(crate) fn size(self, field: &str, value: usize) -> Self {
        self.require(value > 0, || format!("{field} = 0 must be at least 1"))
            .require(value <= MAX_SIZE, || format!("{field} = {value} must be at most {MAX_SIZE}"))
    }

    /// Notes a dropout rate outside `[0, 1)`.
    pub(crate) fn rate(self, field: &str, value: f64) -> Self {
        self.require((0.0..1.0).contains(&value), || format!("{field} = {value} must be in [0, 1)"))
    }

    /// Adds the problems of a part, each once: parts share fields.
    pub(crate) fn include(mut self, result: Result<(), ConfigError>) -> Self {
        for problem in result.err().into_iter().flat_map(|error| error.problems) {
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
        self
    }

    pub(crate) fn finish(self) -> Result<(), ConfigError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.problems }) }
    }
}

/// `init` of a configuration that does not validate: the caller skipped `validate`, so it panics with the same text.
pub(crate) fn expect_valid(result: Result<(), ConfigError>) {
    if let Err(error) = result {
        panic!("{error}");
    }
}
