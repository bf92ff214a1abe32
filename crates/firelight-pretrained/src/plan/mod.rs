//! Where every parameter of a model lies in a published checkpoint. A plan is data: it can be shown, checked against the headers of the
//! files before a number is read, followed to load, and followed backwards to write.

mod load;
mod mapping;
mod misfit;
mod view;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use firelight_core::ParameterEntry;
use firelight_storage::TaskError;

pub use mapping::{Step, WeightMapping};
pub(crate) use mapping::{filled, numbers};
pub use view::View;
pub(crate) use written::{Part, Written};

use crate::HubFolder;
use crate::folder::{Weights, is_float};
use misfit::Misfit;

/// What a family says of the names of its tensors.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The parts, the more special ones first: the first row that knows a parameter, and whose tensor is there, is taken.
    pub rows: Vec<WeightMapping>,
    /// What names begin with where the model stands within another, with a head: `bert.`. Folders of the model alone have names without.
    pub prefix: &'static str,
    /// Tensors that no model reads, such as masks that are computed; `{}` is a number, a `*` at the end anything.
    pub ignored: Vec<&'static str>,
}

/// Where a parameter comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The tensor there.
    pub tensor: String,
    /// Which of its numbers, in which order.
    pub view: View,
    /// The shape of the parameter.
    pub shape: Vec<usize>,
    /// What is added to each number.
    pub plus: f32,
}

/// Where all parameters of a model come from.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// By the path of the parameter.
    pub sources: BTreeMap<String, Source>,
    /// Tensors that are left alone.
    pub skipped: Vec<String>,
}

impl Plan {
    /// Finds every parameter in the weights of a folder. Only the headers of its files are looked at.
    ///
    /// # Errors
    /// Lists every tensor that is missing, that nobody needs, or that has another shape or type.
    pub fn new(
        table: &Table,
        parameters: &[ParameterEntry],
        folder: &HubFolder,
        weights: &Weights,
    ) -> Result<Self, TaskError> {
        let (plan, misfit) = Self::find(table, parameters, weights);
        match folder.gguf() {
            Some(_) => misfit.check(folder.path(), "its metadata", "download it again")?,
            None => misfit.check(folder.path(), "its config.json", "download both again, from one place")?,
        }
        Ok(plan)
    }

    /// The same for a module without a `config.json`, in one file.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_file(
        table: &Table,
        parameters: &[ParameterEntry],
        file: &Path,
        weights: &Weights,
    ) -> Result<Self, TaskError> {
        let (plan, misfit) = Self::find(table, parameters, weights);
        misfit.check(file, "the module", "build the module as the one whose weights they are")?;
        Ok(plan)
    }

    fn find(table: &Table, parameters: &[ParameterEntry], weights: &Weights) -> (Self, Misfit) {
        let (mut plan, mut misfit) = (Self::default(), Misfit::default());
        for parameter in parameters {
            match table.source(parameter, weights) {
                Ok(source) => drop(plan.sources.insert(parameter.path.clone(), source)),
                Err(found) => misfit.push(found),
            }
        }
        let used: BTreeSet<&str> = plan.sources.values().map(|source| source.tensor.as_str()).collect();
        for name in weights.names().filter(|name| !used.contains(name)) {
            match table.ignores(name) {
                true => plan.skipped.push(name.into()),
                false => misfit.unused(name),
            }
        }
        (plan, misfit)
    }

    /// One line for every parameter, and for every tensor that is left alone: what the option `--report` of the command prints.
    pub fn report(&self, weights: &Weights) -> Vec<String> {
        let taken = self.sources.iter().map(|(path, source)| {
            let shape = weights.info(&source.tensor).map(|info| info.shape.clone()).unwrap_or_default();
            format!("{} {shape:?} -> {path} {:?}{}", source.tensor, source.shape, source.change(&shape))
        });
        taken.chain(self.skipped.iter().map(|name| format!("{name} is not needed"))).collect()
    }
}

impl Source {
    /// In a few words, what is done to the tensor.
    fn change(&self, shape: &[usize]) -> String {
        let (whole, turned) = (View::whole(shape), View::whole(shape).transposed());
        let how = match () {
            () if self.view == whole || self.view == turned => "",
            () if self.shape.iter().product::<usize>() < shape.iter().product() => ", a part",
            () => ", rearranged",
        };
        let is_turned = self.view != whole && (self.view == turned || self.view.is_transposed());
        let transposed = if is_turned { ", transposed" } else { "" };
        let plus = if self.plus == 0.0 { String::new() } else { format!(", plus {}", self.plus) };
        format!("{how}{transposed}{plus}")
    }
}

impl Table {
    fn source(&self, parameter: &ParameterEntry, weights: &Weights) -> Result<Source, misfit::Found> {
        let candidates = self.rows.iter().filter_map(|row| Some((row, row.theirs(&parameter.path)?)));
        let mut candidates: Vec<_> = candidates.collect();
        if candidates.is_empty() {
            return Err(misfit::Found::Unknown(parameter.path.clone()));
        }
        let known = candidates.iter().position(|(_, (name, _))| self.found(name, weights).is_some());
        let (row, (name, item)) = candidates.swap_remove(known.unwrap_or(0));
        let Some(tensor) = self.found(&name, weights) else { return Err(misfit::Found::Missing(name)) };
        let Some(info) = weights.info(&tensor) else { return Err(misfit::Found::Missing(name)) };
        if !is_float(info.dtype) {
            return Err(misfit::Found::Type(tensor, info.dtype));
        }
        match row.view(&info.shape, item) {
            Some(view) if view.shape() == parameter.shape => {
                let shape = parameter.shape.clone();
                Ok(Source { tensor, view, shape, plus: row.addend() })
            }
            view => Err(misfit::Found::Shape {
                tensor,
                found: info.shape.clone(),
                becomes: view.map(|view| view.shape()),
                needed: parameter.clone(),
            }),
        }
    }

    /// Whether the tensor of a parameter is there.
    pub(crate) fn has(&self, path: &str, weights: &Weights) -> bool {
        self.rows.iter().filter_map(|row| row.theirs(path)).any(|(name, _)| self.found(&name, weights).is_some())
    }

    /// The name under which a tensor is there, with the prefix or without it.
    fn found(&self, name: &str, weights: &Weights) -> Option<String> {
        let without = name.strip_prefix(self.prefix).filter(|_| !self.prefix.is_empty());
        // Files that were converted from TensorFlow have its names of norms.
        let older = |name: &str| {
            name.replace(".LayerNorm.weight", ".LayerNorm.gamma").replace(".LayerNorm.bias", ".LayerNorm.beta")
        };
        let names = [Some(name), without].into_iter().flatten().flat_map(|name| [name.to_string(), older(name)]);
        names.into_iter().find(|name| weights.info(name).is_some())
    }

    fn ignores(&self, name: &str) -> bool {
        let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => mapping::numbers(pattern, name).is_some(),
        };
        let prefixed = format!("{}{name}", self.prefix);
        self.ignored.iter().any(|pattern| fits(pattern, name) || fits(pattern, &prefixed))
    }
}
