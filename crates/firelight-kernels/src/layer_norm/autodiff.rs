//! The gradients of layer normalisation, from its input: mean and variance are computed again, which costs less than
//! the memory traffic of the rest.

use super::{LayerNormExtension, LayerNormKernel};
use crate::graph::{BackwardPass, Operation, record};
use crate::optional::OptionalFloat;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: LayerNormKernel, C: CheckpointStrategy> LayerNormExtension for Autodiff<B, C> {
    fn layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: OptionalFloat<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let beta = beta.into_option();
        let [x_values, gamma_values] = [&x, &gamma].map(|x| x.clone().into_primitive());
        let beta_values = beta.clone().map(|beta| beta.into_primitive());
        let output = B::forward(x_values, gamma_values, beta_values, epsilon);
        record_layer_norm::<B, C>([x, gamma], beta, epsilon, output)
    }
}

/// Joins the norm of `x` with `gamma`, which was computed as `output`, to the graph.
pub(crate) fn record_layer_norm<B: LayerNormKernel, C: CheckpointStrategy>(
    [x, gamma]: [FloatTensor<Autodiff<B, C>>; 2],
    beta: Option<FloatTensor<Autodiff<B, C>>>,
    epsilon: f64,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let norm = LayerNorm { epsilon };
    match beta {
        Some(beta) => record::<B, C, _, 3>([x, gamma, beta], [true, true, false], |_| (output, norm)),
        None => record::<B, C, _, 2>([x, gamma], [true; 2], |_| (output, norm)),
    }
}

#[derive(Debug, Clone)]
struct LayerNorm {
    epsilon: f64,
}

impl<B: LayerNormKernel, const N: usize> Operation<B, N> for LayerNorm {
    fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
        let mut inputs = pass.inputs.into_iter().flatten();
        let mut next = || inputs.next().expect("x and gamma are kept");
        let mut gradients = B::backward(next(), next(), pass.gradient, self.epsilon).into_iter();
        std::array::from_fn(|_| gradients.next())
    }
}
