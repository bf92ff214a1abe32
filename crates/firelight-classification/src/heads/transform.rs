//! A dense layer, an activation and a norm between an encoder and the last layer of a head, as ModernBERT has it in all of its heads.
//!
//! Source: Warner et al. 2024 (<https://arxiv.org/abs/2412.13663>), whose published code calls it the prediction head.

use burn::module::Module;
use burn::tensor::Tensor;
use firelight_core::{Init, Linear, LinearConfig, Norm, NormConfig, ParamBuilder};
use serde::{Deserialize, Serialize};

use super::HeadActivation;

/// Configuration of a [`HeadTransform`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadTransformConfig {
    /// The activation function.
    pub activation: HeadActivation,
    /// Whether the dense layer has a bias.
    pub bias: bool,
    /// The norm behind it.
    pub norm: NormConfig,
}

impl HeadTransformConfig {
    /// Builds the layers at the builder's path.
    pub fn init_with(&self, d_model: usize, init: Init, params: &ParamBuilder) -> HeadTransform {
        let dense = LinearConfig::new(d_model, d_model).with_bias(self.bias).with_init(init);
        HeadTransform {
            dense: dense.init_with(&params.scope("dense")),
            norm: self.norm.init_with(d_model, &params.scope("norm")),
            activation: self.activation,
        }
    }
}

/// `norm(activation(x W + b))`.
#[derive(Module, Debug)]
pub struct HeadTransform {
    /// `[D, D]`.
    pub dense: Linear,
    /// The norm behind it.
    pub norm: Norm,
    #[module(skip)]
    activation: HeadActivation,
}

impl HeadTransform {
    /// # Shapes
    /// - `x`: `[..., D]`; output: the same
    pub fn forward<const R: usize>(&self, x: Tensor<R>) -> Tensor<R> {
        self.norm.forward(self.activation.forward(self.dense.forward(x)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::tensor::Device;
    use firelight_kernels::assert_close;

    #[test]
    fn two_numbers_by_hand() {
        let device = Device::default();
        let norm = NormConfig::Layer { epsilon: 0.0, bias: false };
        let config = HeadTransformConfig { activation: HeadActivation::Relu, bias: false, norm };
        let mut layers = config.init_with(2, Init::Zeros, &ParamBuilder::new(&device, 0));
        layers.dense.weight = Param::from_tensor(Tensor::<2>::from_floats([[2.0, 1.0], [0.0, 1.0]], &device)).into();
        // (1, 3) W = (2, 4), which are 1 from their mean on both sides.
        let found = layers.forward(Tensor::<2>::from_floats([[1.0, 3.0]], &device));
        assert_close(&found, &[-1.0, 1.0], 1e-6);
    }
}
