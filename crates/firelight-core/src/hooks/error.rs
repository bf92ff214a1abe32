//! What a hook can have wrong with it.

use super::path::nearest;

/// A hook that no activation of the pass fits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {problem}")]
pub struct HookError {
    path: String,
    problem: String,
}

impl HookError {
    pub(crate) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }

    /// No activation of the pass, which had those of `paths`, is called so.
    pub(super) fn unreached(pattern: &str, paths: &[String]) -> Self {
        let problem = match paths.is_empty() {
            true => "the pass had no activation at all: hand it to the model that runs".into(),
            false => format!("the pass had no such activation; the nearest are {}", named(pattern, paths)),
        };
        Self::new(pattern, problem)
    }

    /// It was not asked for, unlike those of `paths`.
    pub(super) fn unrecorded(path: &str, paths: &[String]) -> Self {
        let problem = match paths.is_empty() {
            true => "nothing was recorded: call `record` before the pass".into(),
            false => format!("it was not recorded; the nearest that were are {}", named(path, paths)),
        };
        Self::new(path, problem)
    }

    /// The path or pattern of the hook.
    pub fn path(&self) -> &str {
        &self.path
    }
}

fn named(pattern: &str, paths: &[String]) -> String {
    let near: Vec<String> = nearest(pattern, paths).into_iter().map(|path| format!("`{path}`")).collect();
    near.join(", ")
}
