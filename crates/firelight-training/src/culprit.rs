//! Where a training left the numbers: the first tensor that is not finite. The trainer asks only when a loss is lost, so
//! that a healthy step pays nothing.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

/// The first parameter of `model` that holds a number that is not finite, or else the first with such a gradient, in words.
pub(crate) fn culprit<M: Module>(model: &M, gradients: &GradientsParams) -> Option<String> {
    let mut search = Search { gradients, path: Vec::new(), weight: None, gradient: None };
    model.visit(&mut search);
    let weight = search.weight.map(|path| format!("the weight `{path}`"));
    weight.or_else(|| search.gradient.map(|path| format!("the gradient of `{path}`")))
}

struct Search<'a> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
    weight: Option<String>,
    gradient: Option<String>,
}

impl ModuleVisitor for Search<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = || self.path.join(".");
        if self.weight.is_none() && !is_finite(param.val().without_autodiff()) {
            self.weight = Some(path());
        }
        let gradient = self.gradients.get::<D>(param.id);
        if self.gradient.is_none() && gradient.is_some_and(|gradient| !is_finite(gradient)) {
            self.gradient = Some(path());
        }
    }
}

/// Reads the values on the host: a device that cannot compute may not be asked to judge itself.
fn is_finite<const D: usize>(tensor: Tensor<D>) -> bool {
    tensor.try_into_vec_as::<f32>().is_ok_and(|values| values.iter().all(|value| value.is_finite()))
}
