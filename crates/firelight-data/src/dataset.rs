//! Windows of token ids with their targets, as a Burn `Dataset`. Language models are trained on every window of a text
//! and evaluated on windows that cover it once.

use std::fmt;

use burn::data::dataset::{Dataset, DatasetError};

use firelight_storage::InputError;

use crate::{DataError, Tokens};

/// The ids a model reads and, position by position, the ids it is to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Ids the model reads.
    pub inputs: Vec<u32>,
    /// For each input, the id that follows it.
    pub targets: Vec<u32>,
}

/// The two splits of a text, as errors name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// What a model is trained on.
    Training,
    /// What it is evaluated on.
    Validation,
}

impl Split {
    /// What the part that is held out has to become so that this split grows.
    pub(crate) fn more(self) -> &'static str {
        match self {
            Self::Training => "smaller",
            Self::Validation => "larger",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Training => "training",
            Self::Validation => "validation",
        })
    }
}

/// Windows over a run of tokens.
#[derive(Clone, Debug)]
pub struct WindowDataset {
    tokens: Tokens,
    length: usize,
    stride: usize,
    count: usize,
}

impl WindowDataset {
    /// The windows of a training split: every window of `length` tokens is an item, `tokens.len() - length` of them,
    /// overlapping, as in nanoGPT.
    ///
    /// # Errors
    /// Fails if there are fewer than `length + 1` tokens.
    ///
    /// # Panics
    /// Panics if `length` is 0.
    pub fn for_training(tokens: Tokens, length: usize) -> Result<Self, DataError> {
        check_length(Split::Training, &tokens, length)?;
        Ok(Self { count: tokens.len() - length, tokens, length, stride: 1 })
    }

    /// The windows of a validation split: `length` tokens each, side by side, the last one shorter if need be, so that each
    /// token but the first, which nothing precedes, is the target exactly once.
    ///
    /// # Errors
    /// Fails if there is no token at all or fewer than `length + 1`.
    ///
    /// # Panics
    /// Panics if `length` is 0.
    pub fn for_evaluation(tokens: Tokens, length: usize) -> Result<Self, DataError> {
        check_length(Split::Validation, &tokens, length)?;
        Ok(Self { count: (tokens.len() - 1).div_ceil(length), tokens, length, stride: length })
    }
}

impl Dataset<Window> for WindowDataset {
    fn get(&self, index: usize) -> Result<Window, DatasetError> {
        assert!(index < self.count, "window {index} of {}", self.count);
        let start = index * self.stride;
        let end = (start + self.length).min(self.tokens.len() - 1);
        let mut inputs = self.tokens.get(start..end + 1);
        let targets = inputs[1..].to_vec();
        inputs.pop();
        Ok(Window { inputs, targets })
    }

    fn len(&self) -> usize {
        self.count
    }
}

/// A window needs `length` inputs and one more token for the last target.
fn check_length(split: Split, tokens: &Tokens, length: usize) -> Result<(), DataError> {
    assert!(length > 0, "windows need at least one token");
    match tokens.len() {
        0 if split == Split::Validation => Err(no_validation_split().into()),
        tokens if tokens <= length => {
            let (needed, more) = (length + 1, split.more());
            let problem = format!(
                "the {split} split of the text is too short: a context of {length} tokens needs at least {needed} tokens, \
                 found {tokens}"
            );
            let advice = format!("give more text, a shorter context (max_seq_len), or a {more} data.split.validation");
            Err(InputError::new(problem).advise(advice).into())
        }
        _ => Ok(()),
    }
}

/// Nothing is left to validate on.
pub(crate) fn no_validation_split() -> InputError {
    let problem =
        "there is no validation split: no token is left for it, but a training needs one to tell how good the model is";
    InputError::new(problem).advise("give more text, or a larger data.split.validation, such as 0.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(count: u32) -> Tokens {
        Tokens::from((0..count).collect::<Vec<_>>())
    }

    #[test]
    fn training_windows_start_at_every_token() {
        let windows = WindowDataset::for_training(tokens(6), 3).unwrap();
        assert_eq!(windows.len(), 3);
        assert_eq!(windows.get(0).unwrap(), Window { inputs: vec![0, 1, 2], targets: vec![1, 2, 3] });
        assert_eq!(windows.get(2).unwrap(), Window { inputs: vec![2, 3, 4], targets: vec![3, 4, 5] });
    }

    #[test]
    fn evaluation_windows_lie_side_by_side_and_the_last_is_shorter() {
        let windows = WindowDataset::for_evaluation(tokens(6), 3).unwrap();
        assert_eq!(windows.len(), 2);
        assert_eq!(windows.get(0).unwrap(), Window { inputs: vec![0, 1, 2], targets: vec![1, 2, 3] });
        assert_eq!(windows.get(1).unwrap(), Window { inputs: vec![3, 4], targets: vec![4, 5] });
    }

    #[test]
    fn a_text_shorter_than_a_window_is_refused() {
        assert_eq!(WindowDataset::for_training(tokens(4), 3).unwrap().len(), 1);
        let short = [
            (Split::Training, WindowDataset::for_training(tokens(3), 3)),
            (Split::Validation, WindowDataset::for_evaluation(tokens(3), 3)),
        ];
        for (whose, result) in short {
            let Err(error) = result else { panic!("3 tokens are too few") };
            let expected =
                format!("the {whose} split of the text is too short: a context of 3 tokens needs at least 4");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_fraction_of_nothing_leaves_nothing_to_validate_on() {
        let (training, validation) = tokens(9).split(9);
        assert!(WindowDataset::for_training(training, 3).is_ok());
        let error = WindowDataset::for_evaluation(validation, 3).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with("there is no validation split"), "{error}");
    }

    proptest! {
        #[test]
        fn each_token_is_a_target_once_in_evaluation(count in 2_u32..60, length in 1_usize..20) {
            prop_assume!(count as usize > length);
            let windows = WindowDataset::for_evaluation(tokens(count), length).unwrap();
            let targets: Vec<u32> = windows.iter().flat_map(|window| window.unwrap().targets).collect();
            prop_assert_eq!(targets, (1..count).collect::<Vec<_>>());
        }
    }
}
