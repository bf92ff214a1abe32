//! The path of a parameter while a visitor walks through a module, as `model.safetensors` has it: names of fields and
//! numbers of layers, without the names of enum variants.

use std::collections::{BTreeSet, HashSet};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Int, Tensor};
use firelight_kernels::BlockFormat;
use wildmatch::WildMatch;

/// The container of blocks of few bits.
const BLOCKS: &str = "Enum:Blocks";

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

/// A place in a model of a float parameter, or of one whose numbers lie in blocks of few bits.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) path: String,
    pub(crate) id: ParamId,
    pub(crate) shape: Vec<usize>,
}

/// The parameters of a model in the order of a visit, those with several places once. None is drawn for it.
pub(crate) fn parameters_of<M: Module>(model: &M) -> Vec<Parameter> {
    let mut seen = HashSet::new();
    places_of(model).into_iter().filter(|place| seen.insert(place.id)).collect()
}

/// The paths of the parameters with their shapes, every place of each. The shape of blocks is rows by numbers of a row.
pub(crate) fn shapes_of<M: Module>(model: &M) -> Vec<(String, Vec<usize>)> {
    places_of(model).into_iter().map(|place| (place.path, place.shape)).collect()
}

fn places_of<M: Module>(model: &M) -> Vec<Parameter> {
    let mut places = Places::default();
    model.visit(&mut places);
    places.found
}

#[derive(Default)]
struct Places {
    found: Vec<Parameter>,
    path: ModulePath,
    /// Of the blocks that are visited: models give them as bytes, in the variant of an enum that is named after the format.
    format: Option<BlockFormat>,
}

impl ModuleVisitor for Places {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
        self.format = if container == BLOCKS { BlockFormat::from_name(name) } else { None };
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
        self.format = None;
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push(Parameter { path: self.path.joined(), id: param.id, shape: param.lazy_shape().to_vec() });
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let Some(format) = self.format else { return };
        let mut shape = param.lazy_shape().to_vec();
        if let Some(bytes) = shape.last_mut() {
            *bytes = *bytes / format.bytes() * format.numbers();
        }
        self.found.push(Parameter { path: self.path.joined(), id: param.id, shape });
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
