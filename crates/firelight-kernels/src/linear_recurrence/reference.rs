//! Step by step, from Burn's operations.

use burn::tensor::Tensor;

pub(super) fn linear_recurrence(transitions: Tensor<4>, inputs: Tensor<4>, initial_state: Tensor<3>) -> Tensor<4> {
    let mut states = vec![initial_state.unsqueeze::<4>()];
    for (transition, input) in pieces(transitions).into_iter().zip(pieces(inputs)) {
        let state = transition.matmul(states[states.len() - 1].clone()) + input;
        states.push(state);
    }
    Tensor::cat(states, 0)
}

/// The rows of the first dimension one by one, by halves: the backward pass of one slice writes a gradient of all that it was cut
/// from, which for each row from the whole would be the square of their number.
fn pieces(x: Tensor<4>) -> Vec<Tensor<4>> {
    match x.dims()[0] {
        0 => Vec::new(),
        1 => vec![x],
        length => {
            let half = length / 2;
            [(0, half), (half, length - half)]
                .map(|(start, length)| pieces(x.clone().narrow(0, start, length)))
                .concat()
        }
    }
}
