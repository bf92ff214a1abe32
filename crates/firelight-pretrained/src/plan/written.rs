//! A plan backwards: the tensors that a model's parameters make.

use std::collections::BTreeMap;

use super::{Table, View, WeightMapping};

/// A parameter within a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The path of the parameter.
    pub(crate) path: String,
    /// Where its numbers lie.
    pub(crate) view: View,
    /// What had been added to each.
    pub(crate) plus: f32,
}

/// A tensor made of parameters.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Its name.
    pub(crate) name: String,
    /// Its shape.
    pub(crate) shape: Vec<usize>,
    /// What lies in it; the rest is 0.
    pub(crate) parts: Vec<Part>,
}

/// What is known of a tensor before its shape is: the row, the parameter and its shape, the number of an expert.
type Known<'a> = (&'a WeightMapping, &'a str, &'a [usize], Option<usize>);

impl Table {
    /// The tensors of parameters, by their paths and shapes.
    ///
    /// # Errors
    /// Names a parameter that no row is about.
    pub(crate) fn written(&self, parameters: &BTreeMap<String, Vec<usize>>) -> Result<Vec<Written>, String> {
        let mut tensors: BTreeMap<String, Vec<Known<'_>>> = BTreeMap::new();
        for (path, shape) in parameters {
            let row = self.rows.iter().find_map(|row| Some((row, row.theirs(path)?)));
            let (row, (name, item)) = row.ok_or_else(|| path.clone())?;
            tensors.entry(name).or_default().push((row, path, shape, item));
        }
        tensors.into_iter().map(|(name, known)| written(name, &known)).collect()
    }
}

fn written(name: String, known: &[Known<'_>]) -> Result<Written, String> {
    let items = known.iter().filter_map(|(.., item)| *item).max().map_or(0, |last| last + 1);
    let mut shape = Vec::new();
    for (row, path, ours, _) in known {
        let found = row.shape_of(ours, items).ok_or_else(|| path.to_string())?;
        if !shape.is_empty() && shape != found {
            return Err(path.to_string());
        }
        shape = found;
    }
    let part = |(row, path, ours, item): &Known<'_>| match row.view(&shape, *item) {
        Some(view) if view.shape() == *ours => Ok(Part { path: path.to_string(), view, plus: row.addend() }),
        _ => Err(path.to_string()),
    };
    let parts = known.iter().map(part).collect::<Result<_, _>>()?;
    Ok(Written { name, shape, parts })
}
