//! Why a task failed, whatever the task is: one type, because all that callers do with it is to tell it, problem by problem, and to
//! choose an exit code.

use std::error::Error;
use std::fmt;
use std::path::Path;

use burn::tensor::TensorReadError;

use crate::{InputError, StorageError};

/// Why a model could not be trained, loaded, evaluated or asked: what failed, and whether the user can mend it. The crates of the
/// family convert their own errors into it.
///
/// ```
/// use firelight_storage::{InputError, TaskError};
///
/// let error = TaskError::in_line(3)(InputError::new("the text is empty"));
/// assert_eq!(error.to_string(), "line 3: the text is empty");
/// assert!(error.is_user_error());
/// ```
#[derive(Debug)]
pub struct TaskError {
    cause: Box<dyn Error + Send + Sync>,
    problems: Vec<String>,
    is_user_error: bool,
}

impl TaskError {
    /// An error of another type, or a message, and before it whether it is the user's.
    pub fn new(is_user_error: bool, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: cause.into(), problems: Vec::new(), is_user_error }
    }

    /// The same error, which lists these problems.
    #[must_use]
    pub fn listing(self, problems: Vec<String>) -> Self {
        Self { problems, ..self }
    }

    /// Refuses a model that a recipe or a `config.json` describes and that cannot be built, because there are problems.
    ///
    /// # Errors
    /// If there is a problem.
    pub fn in_config(path: &Path, problems: &[String]) -> Result<(), Self> {
        let place = format!("`{}`: ", path.display());
        let whole = InputError::new(place.clone() + &problems.join("; "));
        let each = problems.iter().map(|problem| place.clone() + problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(Self::from(whole).listing(each)) }
    }

    /// Returns a converter of what is wrong in a line, counted from 1, for `map_err`.
    pub fn in_line<E: Into<Self>>(line: usize) -> impl FnOnce(E) -> Self {
        move |error| {
            let error = error.into();
            Self::new(error.is_user_error, format!("line {line}: {error}"))
        }
    }

    /// Returns a converter of a device's failure to compute `quantity`, for `map_err`.
    pub fn device(quantity: &'static str) -> impl FnOnce(TensorReadError) -> Self {
        move |cause| Self::new(false, format!("the device failed to compute {quantity}: {cause}"))
    }

    /// Refuses answers of a model of which one is NaN or infinite.
    ///
    /// # Errors
    /// If they are not finite.
    pub fn require_finite(are_finite: bool) -> Result<(), Self> {
        let problem =
            "the model answers with numbers that are not finite: its weights are damaged, or its training diverged";
        let advice = "restore them, or train with a lower `optimizer.learning_rate`";
        if are_finite { Ok(()) } else { Err(InputError::new(problem).advise(advice).into()) }
    }

    /// True when the user can mend it by asking for something else, false when the machine failed.
    pub fn is_user_error(&self) -> bool {
        self.is_user_error
    }

    /// The problems, one line each: those that the error lists, or the error itself.
    pub fn problems(&self) -> Vec<String> {
        if self.problems.is_empty() { vec![self.to_string()] } else { self.problems.clone() }
    }

    /// What failed, for callers that know its type.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for TaskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

impl From<InputError> for TaskError {
    fn from(error: InputError) -> Self {
        Self::new(true, error)
    }
}

impl From<StorageError> for TaskError {
    fn from(error: StorageError) -> Self {
        Self::new(error.is_user_error(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn the_cause_says_what_failed_and_whose_mistake_it_was() {
        let disk = StorageError::io("write", Path::new("x"))(io::ErrorKind::StorageFull.into());
        let text = disk.to_string();
        let error = TaskError::from(disk);
        assert_eq!((error.to_string(), error.is_user_error(), error.problems()), (text.clone(), false, vec![text]));
        assert!(error.cause().is::<StorageError>());
        let in_line = TaskError::in_line(2)(error);
        assert!(in_line.to_string().starts_with("line 2: cannot write `x`") && !in_line.is_user_error(), "{in_line}");
        assert!(TaskError::require_finite(true).is_ok());
        assert!(TaskError::require_finite(false).unwrap_err().is_user_error());
    }

    #[test]
    fn every_problem_of_a_structure_names_its_file() {
        let path = Path::new("config.json");
        assert!(TaskError::in_config(path, &[]).is_ok());
        let error = TaskError::in_config(path, &["a = 0".into(), "b = 1".into()]).unwrap_err();
        assert_eq!(error.to_string(), "`config.json`: a = 0; b = 1");
        assert_eq!(error.problems(), ["`config.json`: a = 0", "`config.json`: b = 1"]);
        assert!(error.is_user_error());
    }
}
