//! Takes an error apart that lists several problems, such as the bad keys of a recipe.

use std::error::Error;
use std::path::Path;

use crate::classification::ClassificationError;
use crate::generation::GenerationError;
use crate::language::LanguageError;
use crate::nn::ConfigError;
use crate::seq2seq::Seq2SeqError;
use crate::training::RecipeError;
#[cfg(feature = "images")]
use crate::vision::VisionError;

/// What a library returns, of which crate is not known.
type Cause = dyn Error + 'static;

/// An error that may list several problems.
enum Listed<'a> {
    Recipe(&'a RecipeError),
    Options(&'a GenerationError),
    Model(&'a Path, &'a ConfigError),
}

/// The problems of an error of any crate of the family, one line each: those that it lists, or the error itself.
///
/// # Example
///
/// ```
/// use firelight::generation::GenerationOptions;
///
/// let error = GenerationOptions::new(1).with_temperature(0.0).with_top_p(Some(-1.0)).validate().unwrap_err();
/// for problem in firelight::problems(&error) {
///     eprintln!("error: {problem}");
/// }
/// assert_eq!(firelight::problems(&error).len(), 2);
/// ```
pub fn problems(error: &(dyn Error + 'static)) -> Vec<String> {
    let listed = of_no_task(error).or_else(|| of_language(error)).or_else(|| of_seq2seq(error));
    let listed = listed.or_else(|| of_classification(error));
    #[cfg(feature = "images")]
    let listed = listed.or_else(|| of_vision(error));
    listed.and_then(Listed::problems).unwrap_or_else(|| vec![error.to_string()])
}

impl Listed<'_> {
    fn problems(self) -> Option<Vec<String>> {
        match self {
            Self::Recipe(RecipeError::Several { errors }) => Some(errors.iter().map(ToString::to_string).collect()),
            Self::Options(GenerationError::InvalidOptions { problems }) => Some(problems.clone()),
            Self::Model(path, error) => {
                Some(error.problems().iter().map(|problem| format!("`{}`: {problem}", path.display())).collect())
            }
            Self::Recipe(_) | Self::Options(_) => None,
        }
    }
}

fn of_no_task(error: &Cause) -> Option<Listed<'_>> {
    let recipe = error.downcast_ref().map(Listed::Recipe);
    recipe.or_else(|| error.downcast_ref().map(Listed::Options))
}

fn of_language(error: &Cause) -> Option<Listed<'_>> {
    match error.downcast_ref::<LanguageError>()? {
        LanguageError::Recipe(error) => Some(Listed::Recipe(error)),
        LanguageError::Generation(error) => Some(Listed::Options(error)),
        LanguageError::Config { path, error } => Some(Listed::Model(path, error)),
        _ => None,
    }
}

fn of_seq2seq(error: &Cause) -> Option<Listed<'_>> {
    match error.downcast_ref::<Seq2SeqError>()? {
        Seq2SeqError::Recipe(error) => Some(Listed::Recipe(error)),
        Seq2SeqError::Generation(error) => Some(Listed::Options(error)),
        Seq2SeqError::Config { path, error } => Some(Listed::Model(path, error)),
        _ => None,
    }
}

fn of_classification(error: &Cause) -> Option<Listed<'_>> {
    match error.downcast_ref::<ClassificationError>()? {
        ClassificationError::Recipe(error) => Some(Listed::Recipe(error)),
        ClassificationError::Config { path, error } => Some(Listed::Model(path, error)),
        _ => None,
    }
}

#[cfg(feature = "images")]
fn of_vision(error: &Cause) -> Option<Listed<'_>> {
    match error.downcast_ref::<VisionError>()? {
        VisionError::Recipe(error) => Some(Listed::Recipe(error)),
        VisionError::Config { path, error } => Some(Listed::Model(path, error)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_key_and_every_bad_option_is_a_problem_of_its_own() {
        let changes = [("training.steps", "many"), ("schedule.warmup_steps", "x"), ("model.wide", "1")];
        let changes = changes.map(|(key, value)| (key.to_string(), value.to_string()));
        let recipe = || crate::training::read_recipe::<crate::language::Language>(None, &changes).unwrap_err();
        let errors: [Box<dyn Error>; 2] = [Box::new(recipe()), Box::new(LanguageError::from(recipe()))];
        for error in errors {
            let problems = problems(&*error);
            assert_eq!(problems.len(), 3, "{problems:?}");
            for (key, _) in &changes {
                assert_eq!(problems.iter().filter(|problem| problem.contains(key)).count(), 1, "{problems:?}");
            }
        }
        let options = crate::generation::GenerationOptions::new(1).with_temperature(0.0).with_top_p(Some(-1.0));
        assert_eq!(problems(&options.validate().unwrap_err()).len(), 2);
        assert_eq!(problems(&std::io::Error::other("one; and no other")), ["one; and no other"]);
    }
}
