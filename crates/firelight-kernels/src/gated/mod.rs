//! Gated linear units: one projection passes through a nonlinearity and scales the other.
//!
//! Source: Shazeer 2020, eq. 5 and 6 (<https://arxiv.org/abs/2002.05202>); `gate` is their `xW` and `up` their `xV`.

#[cfg(feature = "flex")]
mod flex;
mod reference;

use crate::GeluForm;
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
pub(crate) use extension::{GatedExtension, GatedKernel};

/// The nonlinearity of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// GEGLU.
    Gelu(GeluForm),
    /// ReGLU.
    Relu,
    /// The gated linear unit itself.
    Sigmoid,
    /// SwiGLU.
    Silu,
}

/// `kind(gate) * up`, elementwise.
///
/// # Shapes
/// - `gate`, `up`: any, equal; output: as they
///
/// # Panics
/// If the shapes or the types of the numbers differ.
pub fn gated<const D: usize>(gate: Tensor<D>, up: Tensor<D>, kind: Gate) -> Tensor<D> {
    assert!(gate.dims() == up.dims(), "gated: gate {:?} and up {:?} differ", gate.dims(), up.dims());
    crate::path::check_types("gated", &[("gate", Some(gate.dtype())), ("up", Some(up.dtype()))]);
    #[cfg(feature = "flex")]
    if crate::path::log_path("gated", crate::path::is_fused_on_cpu_in_any_type(&gate)) {
        return extension::gated(gate, up, kind);
    }
    reference::gated(gate, up, kind)
}

#[cfg(feature = "flex")]
mod extension {
    use super::Gate;
    use crate::activation::Activation;
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record_cheap};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait GatedExtension: Backend {
        fn gated(gate: FloatTensor<Self>, up: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self>;
    }

    /// What a backend brings: the product, and the gradients of `gate` and `up`.
    pub(crate) trait GatedKernel: Backend {
        fn forward(gate: FloatTensor<Self>, up: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self>;
        fn backward(
            gate: FloatTensor<Self>,
            up: FloatTensor<Self>,
            grad: FloatTensor<Self>,
            activation: Activation,
        ) -> [FloatTensor<Self>; 2];
    }

    pub(super) fn gated<const D: usize>(gate: Tensor<D>, up: Tensor<D>, kind: Gate) -> Tensor<D> {
        let activation = match kind {
            Gate::Gelu(form) => form.activation(),
            Gate::Relu => Activation::Relu,
            Gate::Sigmoid => Activation::Sigmoid,
            Gate::Silu => Activation::Silu,
        };
        Tensor::from_dispatch(Dispatch::gated(gate.into_dispatch(), up.into_dispatch(), activation))
    }

    /// The gradients of a gated unit, from its two inputs.
    impl<B: GatedKernel, C: CheckpointStrategy> GatedExtension for Autodiff<B, C> {
        fn gated(gate: FloatTensor<Self>, up: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self> {
            let forward = |gated: &Gated, [gate, up]: [FloatTensor<B>; 2]| B::forward(gate, up, gated.0);
            record_cheap::<B, C, _, 2>([gate, up], [true; 2], Gated(activation), forward)
        }
    }

    #[derive(Debug, Clone)]
    struct Gated(Activation);

    impl<B: GatedKernel> Operation<B, 2> for Gated {
        fn backward(self, pass: BackwardPass<B, 2>) -> [Option<FloatTensor<B>>; 2] {
            let [gate, up] = pass.inputs.map(|input| input.expect("both inputs are kept"));
            B::backward(gate, up, pass.gradient, self.0).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};

    const KINDS: [Gate; 6] = [
        Gate::Gelu(GeluForm::Exact),
        Gate::Gelu(GeluForm::Tanh),
        Gate::Gelu(GeluForm::Sigmoid),
        Gate::Relu,
        Gate::Sigmoid,
        Gate::Silu,
    ];

    #[test]
    fn a_gate_of_one_by_hand() {
        // gelu(1) = .841345, .841192 and .845796; relu(1) = 1; σ(1) = .731059 = silu(1); each times 2.
        let device = Device::default();
        let expected = [1.682_69f32, 1.682_384, 1.691_592, 2.0, 1.462_117, 1.462_117];
        for (kind, expected) in KINDS.into_iter().zip(expected) {
            let output = gated(Tensor::<1>::ones([1], &device), Tensor::full([1], 2.0, &device), kind);
            assert_close(&output, &TensorData::from([expected]), 1e-5);
        }
    }

    #[test]
    #[should_panic(expected = "differ")]
    fn shapes_that_differ_panic() {
        let device = Device::default();
        gated(Tensor::<1>::ones([2], &device), Tensor::ones([3], &device), Gate::Silu);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, normal};
        for (case, kind) in Case::all(&[3, 37]).into_iter().zip(KINDS.into_iter().cycle()) {
            let inputs = [normal(&case, 0), normal(&case, 1)];
            compare(&case, inputs, |[gate, up]| gated(gate, up, kind), |[gate, up]| reference::gated(gate, up, kind));
        }
    }
}
