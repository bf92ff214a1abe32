//! The path of a parameter while a visitor walks through a module, as `model.safetensors` has it: names of fields and
//! numbers of layers, without the names of enum variants.

use std::collections::{BTreeSet, HashSet};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use wildmatch::WildMatch;

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

/// Whether a pattern names a parameter by its path, or a module that it is in: `*` stands for any text, dots included, and `?` for
/// one character.
pub(crate) fn fits(pattern: &str, path: &str) -> bool {
    WildMatch::new(pattern).matches(path) || WildMatch::new(&format!("{pattern}.*")).matches(path)
}

/// A float parameter of a model.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) path: String,
    pub(crate) id: ParamId,
    pub(crate) shape: Vec<usize>,
}

/// The float parameters of a model in the order of a visit. None is drawn for it; one that stands in several places is there with each
/// of its paths.
pub(crate) fn parameters_of<M: Module>(model: &M) -> Vec<Parameter> {
    let mut collect = Collect::default();
    model.visit(&mut collect);
    collect.found
}

/// The same, each once, with its first path.
pub(crate) fn distinct_parameters_of<M: Module>(model: &M) -> Vec<Parameter> {
    let (mut parameters, mut seen) = (parameters_of(model), HashSet::new());
    parameters.retain(|parameter| seen.insert(parameter.id));
    parameters
}

/// The paths of the float parameters with their shapes.
pub(crate) fn shapes_of<M: Module>(model: &M) -> Vec<(String, Vec<usize>)> {
    parameters_of(model).into_iter().map(|parameter| (parameter.path, parameter.shape)).collect()
}

#[derive(Default)]
struct Collect {
    found: Vec<Parameter>,
    path: ModulePath,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push(Parameter { path: self.path.joined(), id: param.id, shape: param.lazy_shape().to_vec() });
    }
}

/// Paths as an error lists them, with one entry for what repeats from layer to layer.
pub(crate) fn listed<'a>(paths: impl IntoIterator<Item = &'a String>) -> String {
    general(paths).join(", ")
}

/// The same one by one.
pub(crate) fn general<'a>(paths: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let general = |path: &str| {
        let names = path.split('.').map(|name| if name.parse::<usize>().is_ok() { "*" } else { name });
        format!("`{}`", names.collect::<Vec<_>>().join("."))
    };
    let mut seen = BTreeSet::new();
    let paths = paths.into_iter().map(|path| general(path));
    paths.filter(|path| seen.insert(path.clone())).collect()
}

/// Whether what is entered in a container is a variant of an enum.
fn is_variant(container: &str) -> bool {
    container.starts_with("Enum:")
}
