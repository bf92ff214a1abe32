//! The parameters of a part, away from the graph and back in one.

use burn::backend::DispatchTensor;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};
use std::collections::HashSet;

/// The same part with parameters that belong to no graph.
pub(super) fn detached<M: Module>(module: &M) -> M {
    module.clone().map(&mut Detach)
}

/// The same part with parameters that are leaves of a graph to come, those named in `trained`.
pub(super) fn tracked<M: Module>(module: M, trained: &[ParamId]) -> M {
    module.map(&mut Track(trained.iter().copied().collect()))
}

/// The parameters that are trained, each once.
pub(super) fn trained<M: Module>(module: &M) -> Vec<(ParamId, DispatchTensor)> {
    let mut visitor = Trained { seen: HashSet::new(), found: Vec::new() };
    module.visit(&mut visitor);
    visitor.found
}

/// The gradients of the parameters of `module`, in the order of `trained`.
pub(super) fn gradients<M: Module>(
    module: &M,
    trained: &[ParamId],
    gradients: &Gradients,
) -> Vec<Option<DispatchTensor>> {
    let mut visitor = Found { trained, gradients, found: vec![None; trained.len()] };
    module.visit(&mut visitor);
    visitor.found
}

struct Detach;

impl ModuleMapper for Detach {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        // A detached leaf would still require its gradient, and with it the graph that is to be spared.
        param.map(|tensor| tensor.detach().set_require_grad(false))
    }
}

struct Track(HashSet<ParamId>);

impl ModuleMapper for Track {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_trained = self.0.contains(&param.id);
        param.map(|tensor| tensor.detach().set_require_grad(is_trained))
    }
}

struct Trained {
    seen: HashSet<ParamId>,
    found: Vec<(ParamId, DispatchTensor)>,
}

impl ModuleVisitor for Trained {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        if value.is_require_grad() && self.seen.insert(param.id) {
            self.found.push((param.id, value.into_dispatch()));
        }
    }
}

struct Found<'a> {
    trained: &'a [ParamId],
    gradients: &'a Gradients,
    found: Vec<Option<DispatchTensor>>,
}

impl ModuleVisitor for Found<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(place) = self.trained.iter().position(|id| *id == param.id) else { return };
        if let Some(gradient) = param.val().grad(self.gradients) {
            // A parameter that stands in two places is two leaves here.
            self.found[place] = Some(match self.found[place].take() {
                Some(other) => (Tensor::<D>::from_dispatch(other) + gradient).into_dispatch(),
                None => gradient.into_dispatch(),
            });
        }
    }
}
