//! Normalisation layers and the choice between them.

use crate::cost::Cost;
use crate::error::{Checks, ConfigError};
use crate::init::{Init, ParamBuilder};
use crate::precision::widened;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use firelight_kernels::{add_layer_norm, add_rms_norm, layer_norm, rms_norm};
use serde::{Deserialize, Serialize};

fn layer_norm_epsilon() -> f64 {
    1e-5
}

fn rms_norm_epsilon() -> f64 {
    1e-6
}

fn yes() -> bool {
    true
}

/// Which normalisation a block uses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum NormConfig {
    /// Layer normalisation (Ba et al. 2016).
    Layer {
        /// Added to the variance. Default: 1e-5.
        #[serde(default = "layer_norm_epsilon")]
        epsilon: f64,
        /// Adds a trained offset. Default: true.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Root mean square normalisation (Zhang and Sennrich 2019).
    Rms {
        /// Added to the mean square. Default: 1e-6.
        #[serde(default = "rms_norm_epsilon")]
        epsilon: f64,
    },
    /// No normalisation and no parameters: the rows stay as they are.
    None,
}

impl NormConfig {
    /// Layer normalisation with its defaults.
    pub fn layer() -> Self {
        Self::Layer { epsilon: layer_norm_epsilon(), bias: true }
    }

    /// Root mean square normalisation with its defaults.
    pub fn rms() -> Self {
        Self::Rms { epsilon: rms_norm_epsilon() }
    }

    /// # Errors
    /// If the epsilon is not a positive number.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (Self::Layer { epsilon, .. } | Self::Rms { epsilon }) = *self else { return Ok(()) };
        Checks::default()
            .require(epsilon > 0.0 && epsilon.is_finite(), || format!("norm.epsilon = {epsilon} must be above 0"))
            .finish()
    }

    /// Builds the layer for rows of `d_model` numbers; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, d_model: usize, device: &Device) -> Norm {
        self.init_with(d_model, &ParamBuilder::random(device))
    }

    /// Builds the layer at the builder's path.
    pub fn init_with(&self, d_model: usize, params: &ParamBuilder) -> Norm {
        let gamma = || params.param("gamma", [d_model], Init::Ones);
        match *self {
            Self::Layer { epsilon, bias } => {
                let beta = bias.then(|| params.param("beta", [d_model], Init::Zeros));
                Norm::Layer(LayerNorm { gamma: gamma(), beta, epsilon })
            }
            Self::Rms { epsilon } => Norm::Rms(RmsNorm { gamma: gamma(), epsilon }),
            Self::None => Norm::None(NoNorm {}),
        }
    }
}

impl Default for NormConfig {
    fn default() -> Self {
        Self::layer()
    }
}

/// A normalisation layer over the last dimension.
#[derive(Module, Debug)]
pub enum Norm {
    /// Layer normalisation.
    Layer(LayerNorm),
    /// Root mean square normalisation.
    Rms(RmsNorm),
    /// No normalisation.
    None(NoNorm),
}

impl Norm {
    /// What it costs a token: it keeps its input and its output, each of `d_model` numbers.
    pub(crate) fn cost(&self, d_model: usize) -> Cost {
        match self {
            Self::None(_) => Cost::of(self),
            Self::Layer(_) | Self::Rms(_) => Cost::of(self).with_activations(2 * d_model),
        }
    }

    /// # Shapes
    /// - `x`: `[..., D]`; output: the same
    pub fn forward<const R: usize>(&self, x: Tensor<R>) -> Tensor<R> {
        match self {
            Self::Layer(norm) => norm.forward(x),
            Self::Rms(norm) => norm.forward(x),
            Self::None(_) => x,
        }
    }

    /// `x + branch`, and [`forward`](Self::forward) of that, in one pass where the backend has a kernel for it.
    ///
    /// # Shapes
    /// - `x` and `branch`: `[..., D]`; both outputs: the same
    ///
    /// # Panics
    /// If `x` and `branch` differ in shape.
    pub fn forward_sum<const R: usize>(&self, x: Tensor<R>, branch: Tensor<R>) -> (Tensor<R>, Tensor<R>) {
        match self {
            Self::Layer(norm) => {
                let beta = norm.beta.as_ref().map(Param::val);
                add_layer_norm(x, branch, norm.gamma.val(), beta, norm.epsilon)
            }
            Self::Rms(norm) => add_rms_norm(x, branch, norm.gamma.val(), norm.epsilon),
            Self::None(_) => {
                let sum = x + branch;
                (sum.clone(), sum)
            }
        }
    }

    /// What the norm of `whole` makes of `part`: the scale is that of `whole`, so that the shares of parts that sum to `whole` sum to
    /// [`forward`](Self::forward) of it, but for its [`offset`](Self::offset). `part` and `whole` may be broadcast.
    ///
    /// # Shapes
    /// - `whole` and `part`: `[..., D]`; output: as `part`
    pub fn share<const R: usize>(&self, whole: &Tensor<R>, part: Tensor<R>) -> Tensor<R> {
        let (gamma, epsilon, centres) = match self {
            Self::Layer(norm) => (&norm.gamma, norm.epsilon, true),
            Self::Rms(norm) => (&norm.gamma, norm.epsilon, false),
            Self::None(_) => return part,
        };
        let read = |x: Tensor<R>| match centres {
            true => widened(x.clone()) - widened(x).mean_dim(R - 1),
            false => widened(x),
        };
        let dtype = part.dtype();
        let size = (read(whole.clone()).square().mean_dim(R - 1) + epsilon).sqrt();
        let shares = read(part) / size * widened(gamma.val()).unsqueeze::<R>();
        firelight_kernels::cast(shares, dtype.into())
    }

    /// What it adds to every row, `[D]`, where it adds anything.
    pub fn offset(&self) -> Option<Tensor<1>> {
        match self {
            Self::Layer(norm) => norm.beta.as_ref().map(Param::val),
            Self::Rms(_) | Self::None(_) => None,
        }
    }
}

/// No normalisation: the identity.
#[derive(Module, Debug)]
pub struct NoNorm {}

/// Layer normalisation; see [`firelight_kernels::layer_norm`].
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// `[D]`, begins at 1.
    pub gamma: Param<Tensor<1>>,
    /// `[D]`, begins at 0.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
}

impl LayerNorm {
    /// # Shapes
    /// - `x`: `[..., D]`; output: the same
    pub fn forward<const R: usize>(&self, x: Tensor<R>) -> Tensor<R> {
        layer_norm(x, self.gamma.val(), self.beta.as_ref().map(Param::val), self.epsilon)
    }
}

/// Root mean square normalisation; see [`firelight_kernels::rms_norm`].
#[doc(alias = "RMSNorm")]
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// `[D]`, begins at 1.
    pub gamma: Param<Tensor<1>>,
    epsilon: f64,
}

impl RmsNorm {
    /// # Shapes
    /// - `x`: `[..., D]`; output: the same
    pub fn forward<const R: usize>(&self, x: Tensor<R>) -> Tensor<R> {
        rms_norm(x, self.gamma.val(), self.epsilon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_kernels::{assert_close, assert_same_bits};

    #[test]
    fn shares_of_parts_sum_to_the_norm_of_the_sum() {
        let device = Device::default();
        let part = |numbers: [f32; 3]| Tensor::<2>::from_floats([numbers], &device);
        let parts = [part([1.0, -2.0, 0.5]), part([0.3, 4.0, -1.0])];
        let whole = parts[0].clone() + parts[1].clone();
        for config in [NormConfig::layer(), NormConfig::rms(), NormConfig::None] {
            let mut norm = config.init(3, &device);
            if let Norm::Layer(layer) = &mut norm {
                layer.beta = Some(Param::from_tensor(Tensor::from_floats([0.1, -0.2, 0.3], &device)));
            }
            let [first, second] = parts.clone().map(|part| norm.share(&whole, part));
            let sum = first + second;
            let sum = match norm.offset() {
                Some(offset) => sum + offset.unsqueeze::<2>(),
                None => sum,
            };
            assert_close(&sum, &norm.forward(whole.clone()), 1e-5);
        }
    }

    #[test]
    fn no_norm_is_the_identity_without_parameters() {
        let device = Device::default();
        let norm = NormConfig::None.init(3, &device);
        let x = Tensor::<2>::from_floats([[5.0, -7.0, 9.0]], &device);
        norm.forward(x.clone()).into_data().assert_eq(&x.into_data(), true);
        assert_eq!((norm.num_params(), norm.cost(3).activations_per_token), (0, 0));
    }

    #[test]
    fn a_sum_and_its_norm_are_those_of_two_steps() {
        let device = Device::default();
        let [x, branch] = [0.3f32, 1.1].map(|step| {
            let numbers: Vec<f32> = (0..24).map(|i| (step * i as f32).sin()).collect();
            Tensor::<3>::from_data(burn::tensor::TensorData::new(numbers, [2, 3, 4]), &device)
        });
        for config in [NormConfig::default(), NormConfig::rms(), NormConfig::None] {
            let norm = config.init(4, &device);
            let (sum, normed) = norm.forward_sum(x.clone(), branch.clone());
            assert_same_bits(&sum, &(x.clone() + branch.clone()));
            assert_close(&normed, &norm.forward(sum), 1e-5);
        }
    }

    #[test]
    fn an_epsilon_of_zero_is_refused() {
        let error = NormConfig::Rms { epsilon: 0.0 }.validate().expect_err("a division by zero");
        assert_eq!(error.to_string(), "norm.epsilon = 0 must be above 0");
    }
}
