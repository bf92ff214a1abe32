//! The configuration of a [`GatedDelta`] mixer.

use super::convolution::ShortConvolution;
use super::{GatedDelta, rule_is_kept};
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::{Init, ParamBuilder};
use crate::linear::LinearConfig;
use crate::norm::NormConfig;
use burn::tensor::Device;
use firelight_kernels::PairRule;
use serde::{Deserialize, Serialize};

fn convolution() -> usize {
    4
}

fn epsilon() -> f64 {
    1e-6
}

/// Configuration of a [`GatedDelta`] mixer.
///
/// Qwen3-Next has 16 key heads and 32 value heads of 128 channels at a width of 2,048.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedDeltaConfig {
    /// Width `D` of input and output.
    pub d_model: usize,
    /// Number of heads of queries and keys.
    pub n_key_heads: usize,
    /// Number of heads of values, a multiple of `n_key_heads`: each has a state of its own. Default: `n_key_heads`.
    #[serde(default)]
    pub n_value_heads: Option<usize>,
    /// Width `E` of a query or key. Default: `D / n_key_heads`.
    #[serde(default)]
    pub d_key: Option<usize>,
    /// Width `W` of a value. Default: `E`.
    #[serde(default)]
    pub d_value: Option<usize>,
    /// Width of the convolution, in tokens. Default: 4.
    #[serde(default = "convolution")]
    pub convolution: usize,
    /// Added to the mean square in the norm of the output. Default: 1e-6.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Distribution of the projections that read `x`. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub init: Init,
    /// Distribution of the projection that writes into the residual stream. Default: `N(0, 0.02)`.
    #[serde(default)]
    pub output_init: Init,
}

impl GatedDeltaConfig {
    /// A mixer with heads of `d_model / n_key_heads`.
    pub fn new(d_model: usize, n_key_heads: usize) -> Self {
        Self {
            d_model,
            n_key_heads,
            n_value_heads: None,
            d_key: None,
            d_value: None,
            convolution: convolution(),
            epsilon: epsilon(),
            init: Init::default(),
            output_init: Init::default(),
        }
    }

    /// Sets the number of heads of values.
    pub fn with_n_value_heads(mut self, n_value_heads: usize) -> Self {
        self.n_value_heads = Some(n_value_heads);
        self
    }

    /// Sets the width of a query or key.
    pub fn with_d_key(mut self, d_key: usize) -> Self {
        self.d_key = Some(d_key);
        self
    }

    /// Sets the width of a value.
    pub fn with_d_value(mut self, d_value: usize) -> Self {
        self.d_value = Some(d_value);
        self
    }

    /// Sets the width of the convolution, in tokens.
    pub fn with_convolution(mut self, convolution: usize) -> Self {
        self.convolution = convolution;
        self
    }

    /// Sets what is added to the mean square in the norm of the output.
    pub fn with_epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets the distributions of the reading and the writing projections.
    pub fn with_init(mut self, init: Init, output_init: Init) -> Self {
        (self.init, self.output_init) = (init, output_init);
        self
    }

    /// Number of heads of values.
    pub fn n_value_heads(&self) -> usize {
        self.n_value_heads.unwrap_or(self.n_key_heads)
    }

    /// Width of a query or key.
    pub fn d_key(&self) -> usize {
        self.d_key.unwrap_or(self.d_model / self.n_key_heads.max(1))
    }

    /// Width of a value.
    pub fn d_value(&self) -> usize {
        self.d_value.unwrap_or(self.d_key())
    }

    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (d_model, n_key_heads, n_value_heads) = (self.d_model, self.n_key_heads, self.n_value_heads());
        Checks::default()
            .size("d_model", d_model)
            .size("n_key_heads", n_key_heads)
            .size("n_value_heads", self.n_value_heads.unwrap_or(1))
            .size("d_key", self.d_key.unwrap_or(1))
            .size("d_value", self.d_value.unwrap_or(1))
            .require(self.d_key.is_some() || n_key_heads == 0 || d_model.is_multiple_of(n_key_heads), || {
                format!("d_model = {d_model} is not divisible by n_key_heads = {n_key_heads}; change one, or set d_key")
            })
            .require(n_key_heads == 0 || n_value_heads.is_multiple_of(n_key_heads), || {
                format!("n_value_heads = {n_value_heads} is not a multiple of n_key_heads = {n_key_heads}")
            })
            .require((2..=64).contains(&self.convolution), || {
                format!("convolution = {} must be from 2 to 64 tokens", self.convolution)
            })
            .part(NormConfig::Rms { epsilon: self.epsilon }.validate())
            .part(self.init.validate())
            .part(self.output_init.validate())
            .finish()
    }

    /// Whether a layer can be this mixer where `rule` says who sees whom.
    ///
    /// # Errors
    /// If a query sees later keys, or does not see all earlier ones of its document: a recurrence cannot do otherwise.
    pub fn validate_rule(rule: &PairRule) -> Result<(), ConfigError> {
        Checks::default()
            .require(rule_is_kept(rule), || {
                "a gated delta rule reads every token and all before it: its pattern and the pass's rule must be causal, \
                 without a window or any other limit"
                    .into()
            })
            .finish()
    }

    /// Number of parameters.
    pub fn num_params(&self) -> usize {
        let (heads, values) = (self.n_value_heads(), self.n_value_heads() * self.d_value());
        let mixed = 2 * self.n_key_heads * self.d_key() + values;
        self.d_model * (mixed + 2 * values + 2 * heads) + self.convolution * mixed + 2 * heads + self.d_value()
    }

    /// Builds the mixer with seed 0.
    pub fn init(&self, device: &Device) -> GatedDelta {
        self.init_with(&ParamBuilder::new(device, 0))
    }

    /// Builds the mixer at the builder's seed and path. Decay and convolution begin as in Mamba 2, whatever
    /// [`init`](Self::init) says: rates of decay from 0 to 16, times their step, from 0.001 to 0.1.
    ///
    /// # Panics
    /// With the text of [`validate`](Self::validate).
    pub fn init_with(&self, params: &ParamBuilder) -> GatedDelta {
        expect_valid(self.validate());
        let (heads, keys) = (self.n_value_heads(), self.n_key_heads * self.d_key());
        let values = heads * self.d_value();
        let linear = |name: &str, d_in, d_out, init| {
            LinearConfig::new(d_in, d_out).with_bias(false).with_init(init).init_with(&params.scope(name))
        };
        let reading = |name: &str, d_out| linear(name, self.d_model, d_out, self.init);
        GatedDelta {
            qkv: reading("qkv", 2 * keys + values),
            convolution: ShortConvolution::new(self.convolution, 2 * keys + values, &params.scope("convolution")),
            gate: reading("gate", values),
            strength: reading("strength", heads),
            step: reading("step", heads),
            step_bias: params.mapped("step_bias", [heads], inverse_softplus_of_step),
            log_rate: params.mapped("log_rate", [heads], |unit| (16.0 * unit).max(0.01).ln()),
            norm: NormConfig::Rms { epsilon: self.epsilon }.init_with(self.d_value(), &params.scope("norm")),
            output: linear("output", values, self.d_model, self.output_init),
            n_key_heads: self.n_key_heads,
            n_value_heads: heads,
        }
    }
}

/// `ln(exp(s) - 1)` of a step `s` whose logarithm is uniform from that of 0.001 to that of 0.1.
fn inverse_softplus_of_step(unit: f64) -> f64 {
    let step = 10f64.powf(2.0 * unit - 3.0);
    step.exp_m1().ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;

    #[test]
    fn parameters_are_counted_exactly() {
        // Two heads of 4 channels: 8 * 24 of queries, keys and values, 4 * 24 of the convolution, 8 * 8 of the gate and of the
        // output, 8 * 2 of strength and step, two numbers a head, and a gain of 4.
        let config = GatedDeltaConfig::new(8, 2);
        assert_eq!(config.num_params(), 8 * 24 + 4 * 24 + 2 * 64 + 2 * 16 + 2 * 2 + 4);
        let wide = config.clone().with_n_value_heads(6).with_d_key(3).with_d_value(5).with_convolution(2);
        for config in [config, wide] {
            assert_eq!(config.init(&Device::default()).num_params(), config.num_params());
        }
    }

    #[test]
    fn decays_begin_as_in_mamba() {
        let mixer = GatedDeltaConfig::new(256, 256).init(&Device::default());
        let numbers = |param: Vec<f32>, map: fn(f32) -> f32| {
            let mut mapped: Vec<f32> = param.into_iter().map(map).collect();
            mapped.sort_by(f32::total_cmp);
            [mapped[0], mapped[mapped.len() / 2], mapped[mapped.len() - 1]]
        };
        let host = |param: &burn::module::Param<burn::tensor::Tensor<1>>| param.val().try_to_vec_as::<f32>().unwrap();
        let [low, middle, high] = numbers(host(&mixer.log_rate), f32::exp);
        assert!(low >= 0.0099 && (6.0..10.0).contains(&middle) && high < 16.0, "{low} {middle} {high}");
        let [low, middle, high] = numbers(host(&mixer.step_bias), |bias| bias.exp().ln_1p());
        assert!(low > 0.00099 && (0.006..0.016).contains(&middle) && high < 0.101, "{low} {middle} {high}");
    }

    #[test]
    fn bad_fields_are_all_listed() {
        let config = GatedDeltaConfig::new(100, 3).with_n_value_heads(4).with_d_value(0).with_convolution(1);
        assert_eq!(
            config.with_epsilon(0.0).validate().expect_err("five problems").problems(),
            [
                "d_value = 0 must be at least 1",
                "d_model = 100 is not divisible by n_key_heads = 3; change one, or set d_key",
                "n_value_heads = 4 is not a multiple of n_key_heads = 3",
                "convolution = 1 must be from 2 to 64 tokens",
                "norm.epsilon = 0 must be above 0",
            ]
        );
    }

    #[test]
    fn rules_that_a_recurrence_cannot_keep_are_refused() {
        let documents = PairRule::documents(&burn::tensor::Tensor::from_ints([[0, 1]], &Device::default()));
        for rule in [PairRule::Causal, PairRule::Causal.and(documents.clone()), PairRule::Causal.and(PairRule::Causal)]
        {
            assert!(GatedDeltaConfig::validate_rule(&rule).is_ok(), "{rule:?}");
        }
        let window = PairRule::window(2, 0);
        for rule in [PairRule::Full, window.clone(), documents, PairRule::Causal.and(window), PairRule::strided(3)] {
            let error = GatedDeltaConfig::validate_rule(&rule).expect_err("a rule of another kind");
            assert!(error.to_string().contains("must be causal, without a window"), "{rule:?}: {error}");
        }
    }
}
