//! A linear recurrence of matrices: what linear attention with decay, delta rules and state space models remember from one chunk to
//! the next.
//!
//! Source: Blelloch 1990, "Prefix Sums and Their Applications", §1.4.1, first-order recurrences. Its gradient is the same recurrence
//! backwards. Steps are taken in turn here, each a product for all rows at once.

#[cfg(feature = "extension")]
mod passes;
mod reference;

use burn::tensor::Tensor;

/// The states `S_0 = initial_state`, `S_n+1 = transitions_n S_n + inputs_n`, the one after the last step included.
///
/// # Shapes
/// - `transitions`: `[N, R, E, E]`, `inputs`: `[N, R, E, W]`, `initial_state`: `[R, E, W]`; output: `[N + 1, R, E, W]`
///
/// # Panics
/// If the shapes do not fit together, or the types of the numbers.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::linear_recurrence;
///
/// // A number that is halved, and given 1.
/// let device = Device::flex();
/// let [half, one] = [0.5, 1.0].map(|number| Tensor::<4>::full([3, 1, 1, 1], number, &device));
/// let states = linear_recurrence(half, one, Tensor::zeros([1, 1, 1], &device));
/// assert_eq!(states.into_data().iter::<f32>().collect::<Vec<_>>(), [0.0, 1.0, 1.5, 1.75]);
/// ```
#[doc(alias = "associative scan")]
pub fn linear_recurrence(transitions: Tensor<4>, inputs: Tensor<4>, initial_state: Tensor<3>) -> Tensor<4> {
    check(&transitions, &inputs, &initial_state);
    #[cfg(feature = "flex")]
    if crate::half::is_half(&transitions) {
        use crate::half::{in_single, widen};
        return in_single(transitions, |transitions| {
            linear_recurrence(transitions, widen(inputs), widen(initial_state))
        });
    }
    #[cfg(feature = "extension")]
    if crate::path::log_path("linear_recurrence", crate::path::is_fused(&transitions) && crate::path::is_fused(&inputs))
    {
        return extension::linear_recurrence(transitions, inputs, initial_state);
    }
    reference::linear_recurrence(transitions, inputs, initial_state)
}

fn check(transitions: &Tensor<4>, inputs: &Tensor<4>, initial_state: &Tensor<3>) {
    let [steps, rows, height, width] = inputs.dims();
    let (found, first) = (transitions.dims(), initial_state.dims());
    assert!(
        found == [steps, rows, height, height] && first == [rows, height, width],
        "linear_recurrence: transitions {found:?} and initial_state {first:?} do not fit inputs {:?}",
        inputs.dims()
    );
    let types =
        [("transitions", transitions.dtype()), ("inputs", inputs.dtype()), ("initial_state", initial_state.dtype())];
    crate::path::check_types("linear_recurrence", &types.map(|(name, dtype)| (name, Some(dtype))));
}

#[cfg(feature = "extension")]
mod extension {
    use super::passes::{backward, forward};
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff)]
    pub(crate) trait LinearRecurrenceExtension: Backend {
        fn linear_recurrence(
            transitions: FloatTensor<Self>,
            inputs: FloatTensor<Self>,
            initial_state: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
    }

    pub(super) fn linear_recurrence(transitions: Tensor<4>, inputs: Tensor<4>, initial_state: Tensor<3>) -> Tensor<4> {
        let (transitions, inputs) = (transitions.into_dispatch(), inputs.into_dispatch());
        Tensor::from_dispatch(Dispatch::linear_recurrence(transitions, inputs, initial_state.into_dispatch()))
    }

    /// The gradients of a recurrence, from its transitions and its states.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, Distribution, TensorData};

    fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
        Tensor::random(shape, Distribution::Uniform(-0.5, 0.5), &Device::default())
    }

    #[test]
    fn two_steps_by_hand() {
        // [1, 2] turned by a quarter and doubled is [-4, 2]; with [1, 0] it is [-3, 2], which becomes [3, -2] + [0, 5].
        let device = Device::default();
        let transitions =
            Tensor::<4>::from_floats([[[[0.0, -2.0], [2.0, 0.0]]], [[[-1.0, 0.0], [0.0, -1.0]]]], &device);
        let inputs = Tensor::<4>::from_floats([[[[1.0], [0.0]]], [[[0.0], [5.0]]]], &device);
        let states = linear_recurrence(transitions, inputs, Tensor::from_floats([[[1.0], [2.0]]], &device));
        let expected = TensorData::from([[[[1.0f32], [2.0]]], [[[-3.0], [2.0]]], [[[3.0], [3.0]]]]);
        states.into_data().assert_eq(&expected, false);
    }

    #[test]
    fn two_halves_are_the_whole() {
        let (transitions, inputs, initial_state) = (random([7, 3, 4, 4]), random([7, 3, 4, 5]), random([3, 4, 5]));
        let whole = linear_recurrence(transitions.clone(), inputs.clone(), initial_state.clone());
        let part = |x: &Tensor<4>, start, length| x.clone().narrow(0, start, length);
        let first = linear_recurrence(part(&transitions, 0, 3), part(&inputs, 0, 3), initial_state);
        let between = first.clone().narrow(0, 3, 1).squeeze_dim(0);
        let second = linear_recurrence(part(&transitions, 3, 4), part(&inputs, 3, 4), between);
        assert_close(&Tensor::cat(vec![first.narrow(0, 0, 3), second], 0), &whole, 1e-6);
    }

    #[test]
    fn without_a_step_the_state_stays() {
        let initial_state = random([2, 3, 4]);
        let states = linear_recurrence(random([0, 2, 3, 3]), random([0, 2, 3, 4]), initial_state.clone());
        assert_close(&states, &initial_state.unsqueeze::<4>(), 0.0);
    }

    #[test]
    #[should_panic(expected = "transitions [2, 1, 3, 3] and initial_state [1, 4, 5] do not fit inputs [2, 1, 4, 5]")]
    fn a_transition_of_another_height_panics() {
        linear_recurrence(random([2, 1, 3, 3]), random([2, 1, 4, 5]), random([1, 4, 5]));
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, random};
        for case in [Case::all(&[6, 5]), Case::on_gpu(&[6, 5])].concat() {
            let [steps, height] = case.shape;
            for width in [1, 7] {
                let inputs = [
                    random(&case, [steps, 2, height, height], 0),
                    random(&case, [steps, 2, height, width], 1),
                    random(&case, [1, 2, height, width], 2),
                ];
                let [fused, slow] = [linear_recurrence, reference::linear_recurrence].map(|recurrence| {
                    move |[transitions, inputs, initial_state]: [Tensor<4>; 3]| {
                        let factor = 0.1 / case.size; // Products of many would be out of all proportion.
                        recurrence(transitions * factor, inputs, initial_state.squeeze_dim(0))
                    }
                });
                compare(&case, inputs, fused, slow);
            }
        }
    }
}
