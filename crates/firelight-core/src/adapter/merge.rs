//! Adapters become part of the weights beside them.

use super::{AdapterConfig, NAME};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use std::collections::HashMap;

/// Adds the adapters of a model into the weights beside them, and makes the adapters zero, so that it computes the same. Its
/// weights without those of the adapters are then a model of their own.
///
/// `config` is the one that the adapters were built with.
pub fn merge_adapters<M: Module>(model: M, config: &AdapterConfig) -> M {
    let mut factors = Factors::default();
    model.visit(&mut factors);
    model.map(&mut Merge { factors: factors.found, scale: config.scale(), path: Vec::new() })
}

/// Both matrices of each adapter, by the path of their layer.
#[derive(Default)]
struct Factors {
    found: HashMap<String, [Option<Tensor<2>>; 2]>,
    path: Vec<String>,
}

/// The layer's path and which of its two matrices, for the path of an adapter's matrix.
fn factor(path: &[String]) -> Option<(String, usize)> {
    let [layer @ .., adapter, name] = path else { return None };
    let place = ["down", "up"].iter().position(|other| other == name)?;
    (adapter == NAME).then(|| (layer.join("."), place))
}

impl ModuleVisitor for Factors {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some((layer, place)) = factor(&self.path) {
            let dims = param.val().dims();
            let matrix = param.val().without_autodiff().reshape([dims[0], dims[D - 1]]);
            self.found.entry(layer).or_default()[place] = Some(matrix);
        }
    }
}

struct Merge {
    factors: HashMap<String, [Option<Tensor<2>>; 2]>,
    scale: f64,
    path: Vec<String>,
}

impl Merge {
    /// The change of the weight at the present path, if it has an adapter.
    fn change(&self) -> Option<Tensor<2>> {
        let [layer @ .., name] = &self.path[..] else { return None };
        match (name.as_str(), self.factors.get(&layer.join("."))) {
            ("weight", Some([Some(down), Some(up)])) => Some(down.clone().matmul(up.clone()) * self.scale),
            _ => None,
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
        if let Some(change) = self.change() {
            return param.map(|weight| {
                let sum = weight.clone().without_autodiff() + change.reshape(weight.dims());
                written(weight, sum)
            });
        }
        match factor(&self.path) {
            Some((_, 1)) => param.map(|up| written(up.clone(), up.without_autodiff().zeros_like())),
            _ => param,
        }
    }
}
