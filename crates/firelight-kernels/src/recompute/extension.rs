//! The operation that stands for a part in Burn's dispatch.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor, backend_extension};
use burn::tensor::Tensor;

/// Runs a part again and returns the gradients of its inputs and then of its parameters, for that of its output.
pub(super) type Backwards = Box<dyn FnOnce(Tensor<1>) -> Vec<Option<DispatchTensor>> + Send>;

/// A part that can run again, and where its gradients belong.
pub(crate) struct Again {
    /// In the graph around the part.
    pub(super) inputs: Vec<DispatchTensor>,
    /// In the graph around the part, those that are trained.
    pub(super) parameters: Vec<DispatchTensor>,
    pub(super) backwards: Backwards,
}

/// The operation: it hands on what was computed already.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    Cube: cfg(feature = "cube"),
    NdArray: cfg(feature = "ndarray"),
    Autodiff
)]
pub(crate) trait RecomputeExtension: Backend {
    fn stand_for(output: FloatTensor<Self>, again: Again) -> FloatTensor<Self>;
}

macro_rules! without_a_graph {
    ($backend:ty) => {
        impl RecomputeExtension for $backend {
            fn stand_for(output: FloatTensor<Self>, _: Again) -> FloatTensor<Self> {
                output
            }
        }
    };
}

#[cfg(feature = "flex")]
without_a_graph!(burn::backend::Flex);
#[cfg(feature = "cube")]
without_a_graph!(burn::backend::Cube);
#[cfg(feature = "ndarray")]
without_a_graph!(burn::backend::NdArray);

pub(super) fn stand_for(output: Tensor<1>, again: Again) -> Tensor<1> {
    Tensor::from_dispatch(Dispatch::stand_for(output.into_dispatch(), again))
}
