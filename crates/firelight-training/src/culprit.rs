//! Where a training diverged: the first tensor that is not finite or, where all are and only a sum is not, the largest
//! gradient. The trainer asks only when a loss is lost, so that a healthy step pays nothing.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

/// The first parameter of `model` that holds a number that is not finite, or else the first with such a gradient, or else the
/// largest gradient, in words. None if there are no gradients.
pub(crate) fn culprit<M: Module>(model: &M, gradients: &GradientsParams) -> Option<String> {
    let mut search = Search { gradients, path: Vec::new(), weight: None, gradient: None, largest: None };
    model.visit(&mut search);
    let weight = search.weight.map(|path| format!("the weight `{path}` is not finite"));
    let gradient = || search.gradient.map(|path| format!("the gradient of `{path}` is not finite"));
    let largest = || search.largest.map(|(size, path)| format!("the largest gradient is {size:.1e}, of `{path}`"));
    weight.or_else(gradient).or_else(largest)
}

struct Search<'a> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
    weight: Option<String>,
    gradient: Option<String>,
    /// The size of the largest gradient, and whose it is.
    largest: Option<(f32, String)>,
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
        if self.weight.is_none() && !size(param.val().without_autodiff()).is_finite() {
            self.weight = Some(path());
        }
        let Some(size) = self.gradients.get::<D>(param.id).map(size) else { return };
        if self.gradient.is_none() && !size.is_finite() {
            self.gradient = Some(path());
        }
        if self.largest.as_ref().is_none_or(|(largest, _)| size > *largest) {
            self.largest = Some((size, path()));
        }
    }
}

/// The largest size of a value, NaN if there is one or the device fails. Read on the host: a device that cannot compute may not
/// be asked to judge itself.
fn size<const D: usize>(tensor: Tensor<D>) -> f32 {
    let larger = |size: f32, value: &f32| if value.is_nan() || value.abs() > size { value.abs() } else { size };
    tensor.try_into_vec_as::<f32>().map_or(f32::NAN, |values| values.iter().fold(0.0, larger))
}
