//! Recipes that are part of the program, so that a task can be tried without a file.

use std::path::Path;

use super::Task;

/// A recipe that is part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// What it is called: `dates`.
    pub name: &'static str,
    /// The recipe, as a file would hold it.
    pub text: &'static str,
}

/// The name and the text of the recipe that is trained where none is named.
pub(super) fn unnamed<T: Task>() -> (&'static str, String) {
    match T::BUILT_IN.first() {
        Some(first) => (first.name, first.text.into()),
        None => (T::NAME, format!("task = \"{}\"\n", T::NAME)),
    }
}

/// The built-in recipe that `path` names, if there is no such file: a file of one's own is never hidden. A folder is no
/// recipe, whatever it is called.
pub fn built_in<T: Task>(path: &Path) -> Option<BuiltIn> {
    let named = T::BUILT_IN.iter().find(|recipe| path.as_os_str() == recipe.name);
    named.copied().filter(|_| !path.is_file())
}
