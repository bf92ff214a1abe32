//! Both passes on the numbers of a backend. Outside of a graph a step is a view, and nothing is written but the states.

use super::extension::LinearRecurrenceExtension;
use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Slice;

/// The states, `[N + 1, R, E, W]`.
pub(super) fn forward<B: Backend>(
    transitions: &FloatTensor<B>,
    inputs: &FloatTensor<B>,
    initial_state: FloatTensor<B>,
) -> FloatTensor<B> {
    let [steps, rows, height, width] = inputs.shape().dims();
    let mut state = B::float_reshape(initial_state, [1, rows, height, width].into());
    let mut states = vec![state.clone()];
    for index in 0..steps {
        state = B::float_add(B::float_matmul(step::<B>(transitions, index), state), step::<B>(inputs, index));
        states.push(state.clone());
    }
    B::float_cat(states, 0)
}

/// The gradients of the transitions, of the inputs and of the initial state, from that of the states: `g_n = grad_n +
/// transitions_nᵀ g_n+1`, which is what the input of step `n - 1` receives.
pub(super) fn backward<B: Backend>(
    transitions: &FloatTensor<B>,
    states: FloatTensor<B>,
    grad: &FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let [number, rows, height, width] = states.shape().dims();
    let mut gradient = step::<B>(grad, number - 1);
    let mut gradients = vec![gradient.clone()];
    for index in (0..number - 1).rev() {
        let back = B::float_matmul(transposed::<B>(step::<B>(transitions, index)), gradient);
        gradient = B::float_add(back, step::<B>(grad, index));
        gradients.push(gradient.clone());
    }
    let of_initial_state = gradients.pop().unwrap_or(gradient);
    gradients.reverse();
    let of_inputs = B::float_cat(gradients, 0);
    let states = B::float_slice(states, &[Slice::from(0..number - 1)]);
    let of_transitions = B::float_matmul(of_inputs.clone(), transposed::<B>(states));
    [of_transitions, of_inputs, B::float_reshape(of_initial_state, [rows, height, width].into())]
}

/// `[N, ..] -> [1, ..]`.
fn step<B: Backend>(x: &FloatTensor<B>, index: usize) -> FloatTensor<B> {
    B::float_slice(x.clone(), &[Slice::from(index..index + 1)])
}

fn transposed<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(x, 2, 3)
}

macro_rules! in_steps {
    ($backend:ty) => {
        impl LinearRecurrenceExtension for $backend {
            fn linear_recurrence(
                transitions: FloatTensor<Self>,
                inputs: FloatTensor<Self>,
                initial_state: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                forward::<Self>(&transitions, &inputs, initial_state)
            }
        }
    };
}

#[cfg(feature = "flex")]
in_steps!(burn::backend::Flex);
#[cfg(feature = "cube")]
in_steps!(burn::backend::Cube);
