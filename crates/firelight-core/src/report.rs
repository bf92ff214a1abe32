//! How many parameters a module has, and where.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Int, Tensor};
use firelight_kernels::BlockFormat;
use std::collections::HashSet;
use std::fmt;

use crate::weight::format_in;

/// One parameter tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterEntry {
    /// Its path, as in the weight file: `blocks.0.attention.output.weight`.
    pub path: String,
    /// Its shape; that of rows of numbers where it is in blocks.
    pub shape: Vec<usize>,
}

impl ParameterEntry {
    /// Number of scalars.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Every parameter of a module; one that is used in several places is counted once.
///
/// Its text is a table of the parts; the layers of a stack are one row.
#[derive(Debug, Clone, Default)]
pub struct ParameterReport {
    entries: Vec<ParameterEntry>,
}

impl ParameterReport {
    /// Counts `module`.
    pub fn of<M: Module>(module: &M) -> Self {
        let mut counter = Counter::default();
        module.visit(&mut counter);
        counter.report
    }

    /// The parameters in the order of the module.
    pub fn entries(&self) -> &[ParameterEntry] {
        &self.entries
    }

    /// Number of scalars in all.
    pub fn total(&self) -> usize {
        self.entries.iter().map(ParameterEntry::count).sum()
    }

    /// Number of scalars of each part: the path up to the first number, or its first two names.
    pub fn parts(&self) -> Vec<(String, usize)> {
        let mut parts: Vec<(String, usize)> = Vec::new();
        for entry in &self.entries {
            let part = part_of(&entry.path);
            match parts.iter_mut().find(|(name, _)| *name == part) {
                Some((_, count)) => *count += entry.count(),
                None => parts.push((part, entry.count())),
            }
        }
        parts
    }
}

/// `transformer.blocks.0.norm.gamma -> transformer.blocks`, `embedding.weight -> embedding`.
fn part_of(path: &str) -> String {
    let names: Vec<&str> = path.split('.').collect();
    let end = names.iter().position(|name| name.parse::<usize>().is_ok()).unwrap_or((names.len() - 1).clamp(1, 2));
    names[..end].join(".")
}

impl fmt::Display for ParameterReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let parts = self.parts();
        let width = parts.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("total".len());
        for (name, count) in &parts {
            writeln!(f, "{name:width$}  {:>13}", grouped(*count))?;
        }
        write!(f, "{:width$}  {:>13}", "total", grouped(self.total()))
    }
}

/// `1234567 -> 1,234,567`.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

#[derive(Default)]
struct Counter {
    path: Vec<String>,
    format: Option<BlockFormat>,
    seen: HashSet<ParamId>,
    report: ParameterReport,
}

impl Counter {
    fn note(&mut self, id: ParamId, shape: Vec<usize>) {
        if self.seen.insert(id) {
            self.report.entries.push(ParameterEntry { path: self.path.join("."), shape });
        }
    }
}

impl ModuleVisitor for Counter {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.note(param.id, param.lazy_shape().to_vec());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let Some(format) = self.format else { return };
        let mut shape = param.lazy_shape().to_vec();
        shape[D - 1] = shape[D - 1] / format.bytes() * format.numbers();
        self.note(param.id, shape);
    }

    // The variants of an enum are no part of a path, as in the weight file.
    fn enter_module(&mut self, name: &str, container: &str) {
        self.format = format_in(name, container);
        if !container.starts_with("Enum:") {
            self.path.push(name.to_string());
        }
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamBuilder;
    use crate::transformer::TransformerConfig;
    use burn::tensor::Device;

    #[test]
    fn the_table_is_literal() {
        let model =
            TransformerConfig::new(16, 2, 2).with_max_seq_len(8).init_with(&ParamBuilder::new(&Device::default(), 0));
        let report = ParameterReport::of(&model);
        assert_eq!(report.total(), model.num_params());
        // A block of D = 16: attention 4 x 272, feed-forward 1,088 + 1,040, two norms of 32.
        let expected =
            "position            128\nblocks            6,560\nnorm                 32\ntotal             6,720";
        assert_eq!(report.to_string(), expected);
        assert_eq!(report.entries()[1].path, "blocks.0.attention_norm.gamma");
    }
}
