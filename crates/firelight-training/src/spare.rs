//! Memory for the busiest moment of a training, taken before the first step: the step after a checkpoint makes new weights and
//! moments, because those of the checkpoint are still being written. Fresh memory is cleared by the system when it is first
//! written to, and a virtual machine may have to ask its host for it; that would hold training up by seconds.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use firelight_kernels::awake;

/// Gradients, two moments, and a second copy of weights and moments.
const COPIES: usize = 6;

/// Takes as much memory as `model` six times, in pieces of its sizes, and frees it again; an allocator that keeps what is freed has
/// it ready then.
pub(crate) fn take<M: Module>(model: &M, device: &Device) {
    let model = model.clone();
    // Where steps are taken, for an allocator may keep for each thread what it has freed.
    awake(device, move || {
        let mut spare = Spare(Vec::new());
        (0..COPIES).for_each(|_| model.visit(&mut spare));
    });
}

struct Spare(Vec<Tensor<1>>);

impl ModuleVisitor for Spare {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().without_autodiff().ones_like().flatten(0, D - 1));
    }
}
