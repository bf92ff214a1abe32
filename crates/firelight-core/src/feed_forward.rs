//! The position-wise feed-forward network, plain or gated, alone or one of several experts.
//!
//! Sources: Vaswani et al. 2017, §3.3, eq. 2; gated units: Shazeer 2020, eq. 5 and 6
//! (<https://arxiv.org/abs/2002.05202>); squared ReLU: So et al. 2021 (<https://arxiv.org/abs/2109.08668>); clamped SwiGLU:
//! gpt-oss (OpenAI 2025, §2, <https://arxiv.org/abs/2508.10925>, and its published code).

mod experts;
mod routes;

pub use experts::{ExpertsConfig, MixtureOfExperts, RouterScores};

use crate::context::LayerContext;
use crate::cost::Cost;
use crate::dropout;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::layer::FeedForwardNetwork;
use crate::linear::{Linear, LinearConfig};
use crate::pass::LayerPass;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use firelight_kernels::{Gate, GeluForm, gated, gelu, silu};
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

/// The nonlinearity between the two projections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activation {
    /// `max(0, x)`.
    Relu,
    /// `x Φ(x)`, exact.
    Gelu,
    /// `x Φ(x)` in its tanh form, as GPT-2.
    #[default]
    GeluTanh,
    /// `x σ(1.702 x)`, the quick GELU of CLIP.
    QuickGelu,
    /// `x σ(x)`, also called swish.
    Silu,
    /// `max(0, x)²`, as Primer.
    SquaredRelu,
    /// `silu(gate(x)) * up(x)`, with a third projection.
    SwiGlu,
    /// `gelu(gate(x)) * up(x)`, exact.
    GeGlu,
    /// `gelu(gate(x)) * up(x)` with the tanh form, as Gemma.
    GeGluTanh,
    /// `relu(gate(x)) * up(x)`.
    ReGlu,
    /// `g σ(1.702 g) * (u + 1)`, as the experts of gpt-oss: `g` is `gate(x)`, 7 at most, and `u` is `up(x)`, between -7 and 7. What
    /// was cut off has no gradient. Published weights have gate and up in turn in the columns of one matrix.
    ClampedSwiGlu,
}

/// Bound of both inputs of a clamped unit.
const CLAMP: f64 = 7.0;

impl Activation {
    /// Whether a third projection gates the second.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::SwiGlu | Self::GeGlu | Self::GeGluTanh | Self::ReGlu | Self::ClampedSwiGlu)
    }

    /// The usual inner width: `4 D`; for gated units `8/3 D` rounded up to a multiple of 8, for the same parameters.
    pub fn default_d_ff(self, d_model: usize) -> usize {
        let plain = d_model.saturating_mul(4);
        if self.is_gated() { plain.saturating_mul(2).div_ceil(3).next_multiple_of(8) } else { plain }
    }

    /// What goes into the last projection: `up` through the nonlinearity, or scaled by the gate.
    fn forward<const R: usize>(self, up: Tensor<R>, gate: impl FnOnce() -> Tensor<R>) -> Tensor<R> {
        match self {
            Self::Relu => relu(up),
            Self::Gelu => gelu(up, GeluForm::Exact),
            Self::GeluTanh => gelu(up, GeluForm::Tanh),
            Self::QuickGelu => gelu(up, GeluForm::Sigmoid),
            Self::Silu => silu(up),
            Self::SquaredRelu => relu(up).square(),
            Self::SwiGlu => gated(gate(), up, Gate::Silu),
            Self::GeGlu => gated(gate(), up, Gate::Gelu(GeluForm::Exact)),
            Self::GeGluTanh => gated(gate(), up, Gate::Gelu(GeluForm::Tanh)),
            Self::ReGlu => gated(gate(), up, Gate::Relu),
            Self::ClampedSwiGlu => {
                let (gate, up) = (gate().clamp_max(CLAMP), up.clamp(-CLAMP, CLAMP) + 1.0);
                gated(gate, up, Gate::Gelu(GeluForm::Sigmoid))
            }
        }
    }
}

/// Configuration of a [`FeedForward`] network.
#[doc(alias = "MLP")]
#[doc(alias = "FFN")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedForwardConfig {
    /// Width of input and output.
    pub d_model: usize,
    /// Inner width. Default: [`Activation::default_d_ff`].
    #[serde(default)]
    pub d_ff: Option<usize>,
    /// The nonlinearity. Default: the tanh form of GELU.
    #[serde(default)]
    pub activation: Activation,
    /// Biases in all projections. Default: true.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Dropout behind the nonlinearity, as in PyTorch's `TransformerEncoderLayer`. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Distribution of the weights that read `x`. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub init: Init,
    /// Distribution of the weight that writes into the residual stream. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub output_init: Init,
}

impl FeedForwardConfig {
    /// A network with the usual inner width.
    pub fn new(d_model: usize, activation: Activation) -> Self {
        let (init, output_init) = (Init::default(), Init::default());
        Self { d_model, d_ff: None, activation, bias: true, dropout: 0.0, init, output_init }
    }

    /// Sets the inner width.
    pub fn with_d_ff(mut self, d_ff: usize) -> Self {
        self.d_ff = Some(d_ff);
        self
    }

    /// Sets whether there are biases.
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets the dropout behind the nonlinearity.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets the distributions of the reading and the writing weights.
    pub fn with_init(mut self, init: Init, output_init: Init) -> Self {
        (self.init, self.output_init) = (init, output_init);
        self
    }

    /// The inner width.
    pub fn d_ff(&self) -> usize {
        self.d_ff.unwrap_or_else(|| self.activation.default_d_ff(self.d_model))
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Checks::default()
            .size("d_model", self.d_model)
            .size("d_ff", self.d_ff.unwrap_or(1))
            .rate("feed_forward_dropout", self.dropout)
            .include(self.init.validate())
            .include(self.output_init.validate())
            .finish()
    }

    /// Builds the network; the device draws the seed: see [`ParamBuilder::random`].
    pub fn init(&self, device: &Device) -> FeedForward {
        self.init_with(&ParamBuilder::random(device))
    }

    /// Builds the network at the builder's seed and path.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> FeedForward {
        expect_valid(self.validate());
        let inner = LinearConfig::new(self.d_model, self.d_ff()).with_bias(self.bias).with_init(self.init);
        let outer = LinearConfig::new(self.d_ff(), self.d_model).with_bias(self.bias).with_init(self.output_init);
        FeedForward {
            gate: self.activation.is_gated().then(|| inner.init_with(&params.scope("gate"))),
            up: inner.init_with(&params.scope("up")),
            down: outer.init_with(&params.scope("down")),
            dropout: DropoutConfig::new(self.dropout).init(),
            activation: self.activation,
        }
    }
}

/// `down(activation(up(x)))`, or `down(activation(gate(x)) * up(x))` when gated.
#[doc(alias = "MLP")]
#[doc(alias = "FFN")]
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `[D, F]`, in gated networks only.
    pub gate: Option<Linear>,
    /// `[D, F]`.
    pub up: Linear,
    /// `[F, D]`.
    pub down: Linear,
    dropout: Dropout,
    #[module(skip)]
    activation: Activation,
}

impl FeedForward {
    /// # Shapes
    /// - `x`: `[..., D]`; output: the same
    pub fn forward<const R: usize>(&self, x: Tensor<R>) -> Tensor<R> {
        let up = self.up.forward(x.clone());
        let gate = || self.gate.as_ref().expect("a gated network has a gate").forward(x);
        self.down.forward(dropout::drop(&self.dropout, self.activation.forward(up, gate)))
    }

    /// What it costs a token: it keeps what the nonlinearity reads and gives.
    pub(crate) fn cost(&self) -> Cost {
        let linear = |name: &str, layer: &Linear| Cost::of(layer).named(name);
        let gate = self.gate.as_ref().map(|gate| linear("gate", gate));
        let inner = if gate.is_some() { 3 } else { 2 };
        Cost::sum(gate.into_iter().chain([linear("up", &self.up), linear("down", &self.down)]))
            .with_activations(inner * self.up.widths()[1])
    }
}

/// What stands in a block: one network for all tokens, or experts.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per layer, and Burn's modules cannot be boxed")]
pub enum FeedForwardLayer {
    /// One network.
    Dense(FeedForward),
    /// A few of several networks for each token.
    Experts(MixtureOfExperts),
}

impl FeedForwardNetwork for FeedForwardLayer {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        match self {
            Self::Dense(network) => network.forward(x),
            Self::Experts(experts) => experts.forward(x, context.padding.as_ref(), pass),
        }
    }

    fn cost(&self) -> Cost {
        match self {
            Self::Dense(network) => network.cost(),
            Self::Experts(experts) => experts.cost(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight::Weight;
    use burn::module::Param;
    use burn::tensor::TensorData;
    use firelight_kernels::assert_close;
    use std::collections::BTreeSet;

    fn one(value: f32, device: &Device) -> Linear {
        Linear { weight: Weight::of_map(Param::from_data([[value]], device)), bias: None, adapter: None }
    }

    #[test]
    fn a_gated_unit_by_hand() {
        // gate: silu(2 * 1) = 2 sigmoid(2) = 1.761594; up: 3; down: halves it -> 2.642391.
        let device = Device::default();
        let layer = FeedForward {
            gate: Some(one(2.0, &device)),
            up: one(3.0, &device),
            down: one(0.5, &device),
            dropout: DropoutConfig::new(0.0).init(),
            activation: Activation::SwiGlu,
        };
        let output = layer.forward(Tensor::<2>::ones([1, 1], &device)).into_scalar::<f32>();
        assert!((output - 2.642391).abs() < 1e-5);
    }

    #[test]
    fn relu_cuts_below_zero() {
        let device = Device::default();
        let layer = FeedForward {
            gate: None,
            up: one(1.0, &device),
            down: one(2.0, &device),
            dropout: DropoutConfig::new(0.0).init(),
            activation: Activation::Relu,
        };
        let output = layer.forward(Tensor::<2>::from_floats([[-3.0], [3.0]], &device)).into_data();
        output.assert_eq(&TensorData::from([[0.0f32], [6.0]]), false);
    }

    #[test]
    fn what_the_nonlinearity_gives_is_dropped_and_nothing_else() {
        // (1 + 1)² is 4, times 3 and 5 more 17: in training a half of the fours become 8, 29 in the end, the others 0, which
        // leaves the bias. Dropped before the nonlinearity there would be 53, before `up` 8 and 32, behind `down` 0 and 34.
        let device = Device::default();
        let biased = |weight: f32, bias: f32, device: &Device| Linear {
            bias: Some(Param::from_data([bias], device)),
            ..one(weight, device)
        };
        let outputs = |device: &Device| {
            let layer = FeedForward {
                gate: None,
                up: biased(1.0, 1.0, device),
                down: biased(3.0, 5.0, device),
                dropout: DropoutConfig::new(0.5).init(),
                activation: Activation::SquaredRelu,
            };
            let output = layer.forward(Tensor::<2>::ones([100, 1], device)).into_data();
            output.iter::<f32>().map(|value| value as i32).collect::<BTreeSet<_>>()
        };
        assert_eq!(outputs(&device), BTreeSet::from([17]));
        assert_eq!(outputs(&device.autodiff()), BTreeSet::from([5, 29]));
    }

    #[test]
    fn activations_by_hand() {
        // At 2: the square of relu 4, silu 2 / (1 + exp(-2)), quick gelu 2 / (1 + exp(-3.404)), gelu 2 (.977250). With a
        // gate of 1: relu 1, silu .731059, gelu .841345 and in its tanh form .841192, each times 2; quick gelu .845796 times 3.
        let x = || Tensor::<1>::from_floats([2.0], &Device::default());
        for (activation, expected) in [
            (Activation::SquaredRelu, 4.0),
            (Activation::Silu, 1.761_594),
            (Activation::QuickGelu, 1.935_666),
            (Activation::ReGlu, 2.0),
            (Activation::SwiGlu, 1.462_117),
            (Activation::GeGlu, 1.682_689),
            (Activation::GeGluTanh, 1.682_384),
            (Activation::Gelu, 1.954_5),
            (Activation::ClampedSwiGlu, 2.537_388),
        ] {
            let found = activation.forward(x(), || x() / 2.0).into_scalar::<f32>();
            assert!((found - expected).abs() < 1e-5, "{activation:?}: {found}");
        }
        assert_eq!(Activation::SquaredRelu.forward(-x(), x).into_scalar::<f32>(), 0.0);
    }

    #[test]
    fn a_clamped_unit_by_hand() {
        // Beyond 7 and -7 nothing changes and no gradient comes back; at them it does, as in PyTorch. The gate is bounded above
        // alone. For the gate `u + 1` is multiplied with the slope of `g σ(1.702 g)`, which is 1.000073 at 7.
        let device = Device::default().autodiff();
        let leaf = |numbers: [f32; 5]| Tensor::<1>::from_floats(numbers, &device).require_grad();
        let (gate, up) = (leaf([9.0, 7.0, 1.0, 1.0, -9.0]), leaf([9.0, 7.0, -7.0, -8.0, 0.0]));
        let output = Activation::ClampedSwiGlu.forward(up.clone(), || gate.clone());
        let grads = output.clone().sum().backward();
        assert_close(&output, &[55.999_625, 55.999_625, -5.074_775, -5.074_775, -2.003e-6], 1e-5);
        let [gate, up] =
            [gate, up].map(|leaf| leaf.grad(&grads).expect("a leaf").try_into_vec_as::<f32>().expect("numbers"));
        let slope = 0.845_796 + 1.702 * 0.845_796 * 0.154_204;
        assert_close(&gate, &[0.0, 8.0 * 1.000_073, -6.0 * slope, -6.0 * slope, -3.187e-6], 1e-5);
        assert_close(&up, &[0.0, 6.999_953, 0.845_796, 0.0, -2.003e-6], 1e-5);
    }

    #[test]
    fn gated_and_plain_have_about_the_same_parameters() {
        assert_eq!(Activation::SwiGlu.default_d_ff(384), 1024);
        assert_eq!(Activation::GeluTanh.default_d_ff(384), 1536);
    }
}
