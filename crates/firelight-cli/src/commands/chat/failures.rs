//! What went wrong with messages and commands, after which the conversation goes on.

use anyhow::{Error, Result};
use firelight::storage::TaskError;

use crate::failure::{self, Mistake};

/// How many messages and commands failed, and whether the first of them was the user's mistake.
#[derive(Default)]
pub(super) struct Failures {
    count: usize,
    is_user_error: bool,
}

impl Failures {
    /// Tells what went wrong, if anything did.
    pub(super) fn tell(&mut self, done: Result<(), TaskError>) {
        let Err(error) = done else { return };
        if self.count == 0 {
            self.is_user_error = error.is_user_error();
        }
        self.count += 1;
        failure::tell(&error.into());
    }

    /// The end of a conversation that nobody types: an error where something failed, as grave as the first failure.
    pub(super) fn verdict(&self) -> Result<()> {
        let told = match self.count {
            0 => return Ok(()),
            1 => "1 message or command failed, see above".to_string(),
            count => format!("{count} messages or commands failed, see above"),
        };
        Err(if self.is_user_error { Mistake(told).into() } else { Error::msg(told) })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use firelight::storage::InputError;

    use super::*;

    #[test]
    fn the_first_failure_says_whose_mistake_it_was() {
        let (mistake, failure) = (|| InputError::new("a").into(), || TaskError::new(false, io::Error::other("b")));
        let told = |errors: [TaskError; 2]| {
            let mut failures = Failures::default();
            failures.tell(Ok(()));
            assert!(failures.verdict().is_ok());
            errors.into_iter().for_each(|error| failures.tell(Err(error)));
            failures.verdict().unwrap_err()
        };
        let found = told([mistake(), failure()]);
        assert!(found.is::<Mistake>() && found.to_string() == "2 messages or commands failed, see above", "{found}");
        assert!(!told([failure(), mistake()]).is::<Mistake>());
    }
}
