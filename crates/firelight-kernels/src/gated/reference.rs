//! Gated units from Burn primitives.

use super::Gate;
use crate::gelu::reference::gelu;
use burn::tensor::{
    Tensor,
    activation::{relu, sigmoid},
};

pub(super) fn gated<const D: usize>(gate: Tensor<D>, up: Tensor<D>, kind: Gate) -> Tensor<D> {
    let gate = match kind {
        Gate::Gelu(form) => gelu(gate, form),
        Gate::Relu => relu(gate),
        Gate::Sigmoid => sigmoid(gate),
        Gate::Silu => {
            let weight = sigmoid(gate.clone());
            gate * weight
        }
    };
    gate * up
}
