//! The path of a parameter while a visitor walks through a module, as `model.safetensors` has it: names of fields and
//! numbers of layers, without the names of enum variants.

use std::collections::BTreeSet;

/// What a visitor or mapper keeps of the modules that it is in.
#[derive(Debug, Default)]
pub(crate) struct ModulePath(Vec<String>);

impl ModulePath {
    /// For `enter_module`.
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        if !is_variant(container) {
            self.0.push(name.into());
        }
    }

    /// For `exit_module`.
    pub(crate) fn exit(&mut self, container: &str) {
        if !is_variant(container) {
            self.0.pop();
        }
    }

    /// The names, joined by dots.
    pub(crate) fn joined(&self) -> String {
        self.0.join(".")
    }
}

/// Paths as an error lists them, with one entry for what repeats from layer to layer.
pub(crate) fn listed<'a>(paths: impl IntoIterator<Item = &'a String>) -> String {
    let general = |path: &str| {
        let names = path.split('.').map(|name| if name.parse::<usize>().is_ok() { "*" } else { name });
        format!("`{}`", names.collect::<Vec<_>>().join("."))
    };
    let mut seen = BTreeSet::new();
    let paths = paths.into_iter().map(|path| general(path));
    paths.filter(|path| seen.insert(path.clone())).collect::<Vec<_>>().join(", ")
}

/// Whether what is entered in a container is a variant of an enum.
fn is_variant(container: &str) -> bool {
    container.starts_with("Enum:")
}
