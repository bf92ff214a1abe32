//! Adapters become part of the weights beside them.

use super::{AdapterConfig, NAME, column_scale};
use crate::weight::format_in;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use std::collections::{HashMap, HashSet};

/// Merges the adapters of a model into its weights and resets the adapters so that they change nothing; the outputs stay the same. The
/// weights without the adapters are then a complete model. An adapter beside a quantized weight stays as it is.
///
/// `config` is the one that the adapters were built with.
pub fn merge_adapters<M: Module>(model: M, config: &AdapterConfig) -> M {
    let mut factors = Factors::default();
    model.visit(&mut factors);
    model.map(&mut Merge { factors: factors.found, scale: config.scale(), path: Vec::new() })
}

/// The tensors of each adapter, by the path of their layer; of the magnitude `[1, O]`.
#[derive(Default)]
struct Factors {
    found: HashMap<String, [Option<Tensor<2>>; 3]>,
    /// Layers whose weight takes no change.
    in_blocks: HashSet<String>,
    path: Vec<String>,
}

/// The layer's path and which of the tensors, for the path of an adapter's tensor.
fn factor(path: &[String]) -> Option<(String, usize)> {
    let [layer @ .., adapter, name] = path else { return None };
    let place = ["down", "up", "magnitude"].iter().position(|other| other == name)?;
    (adapter == NAME).then(|| (layer.join("."), place))
}

impl ModuleVisitor for Factors {
    fn enter_module(&mut self, name: &str, container: &str) {
        if let ([layer @ .., _weight], Some(_)) = (&self.path[..], format_in(name, container)) {
            self.in_blocks.insert(layer.join("."));
        }
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some((layer, place)) = factor(&self.path).filter(|(layer, _)| !self.in_blocks.contains(layer)) {
            let dims = param.val().dims();
            let rows = if D == 1 { 1 } else { dims[0] };
            let matrix = param.val().without_autodiff().reshape([rows, dims[D - 1]]);
            self.found.entry(layer).or_default()[place] = Some(matrix);
        }
    }
}

struct Merge {
    factors: HashMap<String, [Option<Tensor<2>>; 3]>,
    scale: f64,
    path: Vec<String>,
}

impl Merge {
    /// The adapter of the weight at the present path, if it has one.
    fn adapter(&self) -> Option<&[Option<Tensor<2>>; 3]> {
        let [layer @ .., name] = &self.path[..] else { return None };
        self.factors.get(&layer.join(".")).filter(|_| name == "weight")
    }

    /// The weight as it is with its adapter.
    fn merged(&self, weight: Tensor<2>, adapter: &[Option<Tensor<2>>; 3]) -> Tensor<2> {
        let [Some(down), Some(up), magnitude] = adapter else { return weight };
        let change = down.clone().matmul(up.clone()) * self.scale;
        let changed = weight.clone() + change.clone();
        match magnitude {
            Some(magnitude) => changed * column_scale(weight, change, magnitude.clone().squeeze_dim(0)).unsqueeze(),
            None => changed,
        }
    }
}

impl ModuleMapper for Merge {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let written = |tensor: Tensor<D>, new: Tensor<D>| {
            let tracked = tensor.is_require_grad();
            Tensor::from_data(new.into_data(), &tensor.device()).set_require_grad(tracked)
        };
        if let Some(adapter) = self.adapter() {
            return param.map(|weight| {
                let (dims, matrix) = (weight.dims(), weight.clone().without_autodiff());
                let merged = self.merged(matrix.reshape([dims[0], dims[D - 1]]), adapter);
                written(weight, merged.reshape(dims))
            });
        }
        match factor(&self.path).filter(|(layer, _)| self.factors.contains_key(layer)) {
            Some((_, 1)) => param.map(|up| written(up.clone(), up.without_autodiff().zeros_like())),
            Some((_, 2)) => param.map(|magnitude| written(magnitude.clone(), magnitude.without_autodiff().ones_like())),
            _ => param,
        }
    }
}
