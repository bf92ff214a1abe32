//! `firelight recipes`: the recipes that are part of the program. Other commands find them by their names, too.

use std::path::Path;

use anyhow::{Result, ensure};
use firelight::training::{BuiltIn, Task};

use super::tasks::{self, with_task};
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight recipes
  firelight train dates
  firelight train texts --data DIR
  firelight train dates --print-config > mine.toml";

/// List the embedded recipes, which `train` takes by their names
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Recipes {}

/// An embedded recipe and the task that it is for.
pub(super) struct Embedded {
    pub(super) task: &'static str,
    pub(super) recipe: BuiltIn,
}

impl Recipes {
    pub(crate) fn run(self) -> Result<()> {
        let row = |name: &str, task: &str, what: &str| format!("{name:<10}{task:<22}{what}\n");
        let rows = all().into_iter().map(|found| row(found.recipe.name, found.task, &summary(found.recipe.text)));
        let table = std::iter::once(row("RECIPE", "TASK", "WHAT IT TRAINS")).chain(rows);
        output::print(&table.collect::<String>())?;
        Ok(())
    }
}

/// Every embedded recipe.
fn all() -> Vec<Embedded> {
    tasks::NAMES.iter().flat_map(|name| with_task!(name, |T| of::<T>(), Vec::new())).collect()
}

fn of<T: Task>() -> Vec<Embedded> {
    T::BUILT_IN.iter().map(|&recipe| Embedded { task: T::NAME, recipe }).collect()
}

/// The embedded recipe of this name, where there is no such file; none where the path is for the reader of files.
///
/// # Errors
/// If there is neither.
pub(super) fn named(path: &Path) -> Result<Option<Embedded>> {
    let names = all().iter().map(|known| known.recipe.name).collect::<Vec<_>>().join(", ");
    let found = all().into_iter().find(|known| path.as_os_str() == known.recipe.name && !path.is_file());
    let missing =
        || format!("there is no file `{}` and no embedded recipe of that name: those are {names}", path.display());
    ensure!(found.is_some() || path.exists(), Mistake(missing()));
    Ok(found)
}

/// The first sentence of the comment that a recipe begins with.
fn summary(text: &str) -> String {
    let comment: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("# ")).collect();
    let comment = comment.join(" ");
    comment.split_once(". ").map_or(comment.as_str(), |(first, _)| first).trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_recipe_says_what_it_trains_and_is_found_by_its_name() {
        let all = all();
        assert!(all.len() >= 10, "{}", all.len());
        for found in all {
            assert!(!summary(found.recipe.text).is_empty(), "{}", found.recipe.name);
            let again = named(Path::new(found.recipe.name)).unwrap().unwrap();
            assert_eq!((again.task, again.recipe), (found.task, found.recipe));
        }
        let error = named(Path::new("nowhere")).err().unwrap().to_string();
        assert!(error.contains("no file `nowhere`") && error.contains("stories, dates"), "{error}");
        assert!(named(Path::new("Cargo.toml")).unwrap().is_none());
        assert_eq!(summary("# One thing.\n# Another.\ntask = 1\n"), "One thing");
    }
}
