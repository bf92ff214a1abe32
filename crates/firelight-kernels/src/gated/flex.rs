//! Gated units on the flex backend: one pass forward, one pass for both gradients.

use super::{GatedExtension, GatedKernel};
use crate::activation::{Activation, Elementwise, with_function};
use crate::flex::{
    Number, contiguous, filled, for_each_block, for_each_pair_of_blocks, values, vectorised, with_number,
};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;

impl GatedExtension for Flex {
    fn gated(gate: FlexTensor, up: FlexTensor, activation: Activation) -> FlexTensor {
        Self::forward(gate, up, activation)
    }
}

impl GatedKernel for Flex {
    fn forward(gate: FlexTensor, up: FlexTensor, activation: Activation) -> FlexTensor {
        with_function!(activation, forward(gate, up))
    }

    fn backward(gate: FlexTensor, up: FlexTensor, grad: FlexTensor, activation: Activation) -> [FlexTensor; 2] {
        with_function!(activation, backward(gate, up, grad))
    }
}

fn forward<F: Elementwise>(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
    with_number!(gate, product[F](gate, up))
}

fn product<T: Number, F: Elementwise>(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
    let (gate, up) = (contiguous(gate), contiguous(up));
    let (gates, ups) = (values::<T>(&gate), values::<T>(&up));
    let out = filled(gates.len(), |out| {
        for_each_block(out, 1, |first, out| {
            let (gates, ups) = (&gates[first..first + out.len()], &ups[first..first + out.len()]);
            vectorised(
                #[inline(always)]
                || {
                    for ((out, gate), up) in out.iter_mut().zip(gates).zip(ups) {
                        *out = T::round(F::value(gate.widen()) * up.widen());
                    }
                },
            );
        });
    });
    T::tensor(out, gate.layout().shape().clone())
}

fn backward<F: Elementwise>(gate: FlexTensor, up: FlexTensor, grad: FlexTensor) -> [FlexTensor; 2] {
    with_number!(gate, slopes[F](gate, up, grad))
}

/// `d_gate = grad up kind'(gate)` and `d_up = grad kind(gate)`.
fn slopes<T: Number, F: Elementwise>(gate: FlexTensor, up: FlexTensor, grad: FlexTensor) -> [FlexTensor; 2] {
    let [gate, up, grad] = [gate, up, grad].map(contiguous);
    let [gates, ups, grads] = [&gate, &up, &grad].map(values::<T>);
    let mut d_up = Vec::new();
    let d_gate = filled(gates.len(), |d_gate| {
        d_up = filled(gates.len(), |d_up| {
            for_each_pair_of_blocks(d_gate, d_up, 1, |first, d_gate, d_up| {
                let range = first..first + d_gate.len();
                let (gates, ups, grads) = (&gates[range.clone()], &ups[range.clone()], &grads[range]);
                vectorised(
                    #[inline(always)]
                    || {
                        for i in 0..d_gate.len().min(d_up.len()).min(gates.len()).min(ups.len()).min(grads.len()) {
                            let (value, slope) = F::value_and_slope(gates[i].widen());
                            let grad = grads[i].widen();
                            d_gate[i] = T::round(grad * ups[i].widen() * slope);
                            d_up[i] = T::round(grad * value);
                        }
                    },
                );
            });
        });
    });
    [d_gate, d_up].map(|values| T::tensor(values, gate.layout().shape().clone()))
}
