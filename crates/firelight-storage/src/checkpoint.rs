//! Which of a run's weights are meant: those of the last step, the best ones, the average, or those of one step. The command line
//! reads it from `--checkpoint`, the model folder turns it into a path.

use std::fmt;
use std::str::FromStr;

use crate::{InputError, StorageError, shortened};

/// One state of the weights of a run. Its text form is `last`, `best`, `average` or the number of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checkpoint {
    /// The weights of the last step, in `model.safetensors`.
    #[default]
    Last,
    /// The weights of the best evaluation, in `checkpoints/best`.
    Best,
    /// The mean of several checkpoints' weights, in `checkpoints/average`.
    Average,
    /// The weights after this many steps, in `checkpoints/step-N`.
    Step(usize),
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => f.write_str("last"),
            Self::Best => f.write_str("best"),
            Self::Average => f.write_str("average"),
            Self::Step(step) => write!(f, "{step}"),
        }
    }
}

impl FromStr for Checkpoint {
    type Err = StorageError;

    fn from_str(name: &str) -> Result<Self, StorageError> {
        match name {
            "last" => Ok(Self::Last),
            "best" => Ok(Self::Best),
            "average" => Ok(Self::Average),
            _ => name.parse().map(Self::Step).map_err(|_| unknown(name).into()),
        }
    }
}

fn unknown(name: &str) -> InputError {
    InputError::new(format!(
        "`{}` is no checkpoint: expected `last`, `best`, `average` or the number of a step, such as `2000`",
        shortened(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for checkpoint in [Checkpoint::Last, Checkpoint::Best, Checkpoint::Average, Checkpoint::Step(2000)] {
            assert_eq!(checkpoint.to_string().parse::<Checkpoint>().unwrap(), checkpoint);
        }
    }

    #[test]
    fn another_name_is_refused_with_the_known_ones() {
        let error = "newest".parse::<Checkpoint>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`newest` is no checkpoint: expected `last`, `best`, `average` or the number of a step, such as `2000`"
        );
        assert!(error.is_user_error());
    }
}
