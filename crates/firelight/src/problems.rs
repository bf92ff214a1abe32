//! Takes an error apart that lists several problems, such as the bad keys of a recipe.

use std::error::Error;

use crate::generation::GenerationError;
use crate::storage::TaskError;
use crate::training::RecipeError;

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
    let of_task = error.downcast_ref().map(TaskError::problems);
    let of_recipe = of_task.or_else(|| error.downcast_ref().map(RecipeError::problems));
    let found = of_recipe.or_else(|| error.downcast_ref().map(GenerationError::problems));
    found.unwrap_or_else(|| vec![error.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_key_and_every_bad_option_is_a_problem_of_its_own() {
        let changes = [("training.steps", "many"), ("schedule.warmup_steps", "x"), ("model.wide", "1")];
        let changes = changes.map(|(key, value)| (key.to_string(), value.to_string()));
        let recipe = || crate::training::read_recipe::<crate::language::Language>(None, &changes).unwrap_err();
        let errors: [Box<dyn Error>; 2] = [Box::new(recipe()), Box::new(TaskError::from(recipe()))];
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
