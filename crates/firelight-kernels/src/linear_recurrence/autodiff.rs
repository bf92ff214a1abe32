//! The gradients of a recurrence, from its transitions and its states.

use super::extension::LinearRecurrenceExtension;
use super::passes::{backward, forward};
use crate::graph::{BackwardPass, Operation, record};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, Backend, tensor::FloatTensor};

impl<B: Backend, C: CheckpointStrategy> LinearRecurrenceExtension for Autodiff<B, C> {
    fn linear_recurrence(
        transitions: FloatTensor<Self>,
        inputs: FloatTensor<Self>,
        initial_state: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        record::<B, C, _, 3>(
            [transitions, inputs, initial_state],
            [true, false, false],
            |[transitions, inputs, initial_state]| {
                let states = forward::<B>(&transitions, &inputs, initial_state);
                (states.clone(), States::<B>(states))
            },
        )
    }
}

#[derive(Debug, Clone)]
struct States<B: Backend>(FloatTensor<B>);

impl<B: Backend> Operation<B, 3> for States<B> {
    fn backward(self, pass: BackwardPass<B, 3>) -> [Option<FloatTensor<B>>; 3] {
        let [Some(transitions), ..] = pass.inputs else { unreachable!("transitions are kept") };
        backward::<B>(&transitions, self.0, &pass.gradient).map(Some)
    }
}
