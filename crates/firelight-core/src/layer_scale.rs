//! A trained factor for every channel of a part's output, which begins small.
//!
//! Source: Touvron et al. 2021, §2 (<https://arxiv.org/abs/2103.17239>); their `diag(λ)` is `gamma`.

use crate::cost::Cost;
use crate::init::{Init, ParamBuilder};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// `gamma * x` over the last dimension.
#[derive(Module, Debug)]
pub struct LayerScale {
    /// `[D]`.
    pub gamma: Param<Tensor<1>>,
}

impl LayerScale {
    /// A layer for rows of `d_model` numbers, whose factors all begin at `value`.
    pub(crate) fn new(d_model: usize, value: f64, params: &ParamBuilder) -> Self {
        Self { gamma: params.param("gamma", [d_model], Init::Constant { value }) }
    }

    /// What it costs a token: it keeps its input.
    pub(crate) fn cost(&self) -> Cost {
        let cost = Cost::of(self);
        let d_model = cost.parameters;
        cost.with_activations(d_model)
    }

    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        x * self.gamma.val().unsqueeze::<3>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn every_channel_is_scaled() {
        let device = Device::default();
        let scale = LayerScale::new(2, 0.5, &ParamBuilder::new(&device, 0));
        let output = scale.forward(Tensor::from_floats([[[4.0, -6.0]]], &device));
        output.into_data().assert_eq(&TensorData::from([[[2.0f32, -3.0]]]), true);
    }
}
