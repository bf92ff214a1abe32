//! The sizes of a [`GatedDelta`] mixer.

use super::convolution::ShortConvolution;
use super::{GatedDelta, rule_is_kept};
use crate::attention::AttentionConfig;
use crate::error::{Checks, ConfigError, expect_valid};
use crate::init::ParamBuilder;
use crate::linear::LinearConfig;
use crate::norm::NormConfig;
use firelight_kernels::PairRule;
use serde::{Deserialize, Serialize};

fn convolution() -> usize {
    4
}

fn epsilon() -> f64 {
    1e-6
}

/// The sizes of a [`GatedDelta`] mixer beside those of every attention: width, biases and distributions are those.
///
/// Qwen3-Next has 16 key heads and 32 value heads of 128 channels at a width of 2,048.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedDeltaConfig {
    /// Number of heads of queries and keys. Default: `n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_key_heads: Option<usize>,
    /// Number of heads of values, a multiple of `n_key_heads`: each has a state of its own. Default: `n_key_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_value_heads: Option<usize>,
    /// Width `E` of a query or key. Default: `d_head`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_key: Option<usize>,
    /// Width `W` of a value. Default: `E`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_value: Option<usize>,
    /// Width of the convolution, in tokens. Default: 4.
    #[serde(default = "convolution")]
    pub convolution: usize,
    /// Added to the mean square in the norm of the output. Default: 1e-6.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
}

impl Default for GatedDeltaConfig {
    fn default() -> Self {
        let (convolution, epsilon) = (convolution(), epsilon());
        Self { n_key_heads: None, n_value_heads: None, d_key: None, d_value: None, convolution, epsilon }
    }
}

impl GatedDeltaConfig {
    /// Sets the number of heads of queries and keys.
    pub fn with_n_key_heads(mut self, n_key_heads: usize) -> Self {
        self.n_key_heads = Some(n_key_heads);
        self
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

    /// With every size that it leaves to the attention.
    fn sizes(&self, attention: &AttentionConfig) -> Sizes {
        let n_key_heads = self.n_key_heads.unwrap_or(attention.n_heads);
        let d_key = self.d_key.unwrap_or(attention.d_head());
        let (n_value_heads, d_value) = (self.n_value_heads.unwrap_or(n_key_heads), self.d_value.unwrap_or(d_key));
        Sizes { n_key_heads, n_value_heads, d_key, d_value }
    }

    /// What does not fit, or has no place in a recurrence, in the attention that is built by these.
    pub(crate) fn validate(&self, attention: &AttentionConfig) -> Result<(), ConfigError> {
        let Sizes { n_key_heads, n_value_heads, .. } = self.sizes(attention);
        attention
            .check_taken(&["qkv_bias"], "gated_delta")
            .size("mixer.n_key_heads", n_key_heads)
            .size("mixer.n_value_heads", n_value_heads)
            .size("mixer.d_key", self.d_key.unwrap_or(1))
            .size("mixer.d_value", self.d_value.unwrap_or(1))
            .require(n_key_heads == 0 || n_value_heads.is_multiple_of(n_key_heads), || {
                format!("mixer.n_value_heads = {n_value_heads} is not a multiple of n_key_heads = {n_key_heads}")
            })
            .require((2..=64).contains(&self.convolution), || {
                format!("mixer.convolution = {} must be from 2 to 64 tokens", self.convolution)
            })
            .require(self.epsilon > 0.0 && self.epsilon.is_finite(), || {
                format!("mixer.epsilon = {} must be above 0", self.epsilon)
            })
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

    /// Builds the mixer at the builder's seed and path. Decay and convolution begin as in Mamba 2, whatever the distributions of
    /// the attention: rates of decay from 0 to 16, times their step, from 0.001 to 0.1.
    ///
    /// # Panics
    /// If a field does not fit, or one of the attention has no place in a recurrence.
    pub fn init_with(&self, attention: &AttentionConfig, params: &ParamBuilder) -> GatedDelta {
        expect_valid(self.validate(attention));
        let Sizes { n_key_heads, n_value_heads, d_key, d_value } = self.sizes(attention);
        let (d_model, keys, values) = (attention.d_model, n_key_heads * d_key, n_value_heads * d_value);
        let reading = |name: &str, d_out: usize| {
            let layer = LinearConfig::new(d_model, d_out).with_bias(attention.qkv_bias.unwrap_or(attention.bias));
            layer.with_init(attention.init).init_with(&params.scope(name))
        };
        let output = LinearConfig::new(values, d_model).with_bias(attention.bias).with_init(attention.output_init);
        GatedDelta {
            qkv: reading("qkv", 2 * keys + values),
            convolution: ShortConvolution::new(self.convolution, 2 * keys + values, &params.scope("convolution")),
            gate: reading("gate", values),
            strength: reading("strength", n_value_heads),
            step: reading("step", n_value_heads),
            step_bias: params.mapped("step_bias", [n_value_heads], inverse_softplus_of_step),
            log_rate: params.mapped("log_rate", [n_value_heads], |unit| (16.0 * unit).max(0.01).ln()),
            norm: NormConfig::Rms { epsilon: self.epsilon }.init_with(d_value, &params.scope("norm")),
            output: output.init_with(&params.scope("output")),
            n_key_heads,
            n_value_heads,
        }
    }
}

struct Sizes {
    n_key_heads: usize,
    n_value_heads: usize,
    d_key: usize,
    d_value: usize,
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
    use burn::tensor::Device;

    fn built(config: GatedDeltaConfig, attention: &AttentionConfig) -> GatedDelta {
        config.init_with(attention, &ParamBuilder::new(&Device::default(), 0))
    }

    #[test]
    fn parameters_are_counted_exactly() {
        // Two heads of 4 channels: 8 * 24 of queries, keys and values, 4 * 24 of the convolution, 8 * 8 of the gate and of the
        // output, 8 * 2 of strength and step, two numbers a head, and a gain of 4.
        let attention = AttentionConfig::new(8, 2).with_bias(false);
        let plain = GatedDeltaConfig::default();
        let parameters = 8 * 24 + 4 * 24 + 2 * 64 + 2 * 16 + 2 * 2 + 4;
        assert_eq!(built(plain, &attention).num_params(), parameters);
        // A bias for every number that a projection gives.
        assert_eq!(built(plain, &AttentionConfig::new(8, 2)).num_params(), parameters + 24 + 8 + 2 * 2 + 8);
        // One key head of 3 channels, two value heads of 5.
        let wide = plain.with_n_key_heads(1).with_n_value_heads(2).with_d_key(3).with_d_value(5).with_convolution(2);
        let parameters = 8 * 16 + 2 * 16 + 2 * 80 + 2 * 16 + 2 * 2 + 5;
        assert_eq!(built(wide, &attention).num_params(), parameters);
    }

    #[test]
    fn decays_begin_as_in_mamba() {
        let mixer = built(GatedDeltaConfig::default(), &AttentionConfig::new(256, 256));
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
        let config = GatedDeltaConfig::default().with_n_value_heads(4).with_d_value(0).with_convolution(1);
        let problems = config.with_epsilon(0.0).validate(&AttentionConfig::new(12, 3)).expect_err("four problems");
        assert_eq!(
            problems.problems(),
            [
                "mixer.d_value = 0 must be at least 1",
                "mixer.n_value_heads = 4 is not a multiple of n_key_heads = 3",
                "mixer.convolution = 1 must be from 2 to 64 tokens",
                "mixer.epsilon = 0 must be above 0",
            ]
        );
    }

    #[test]
    fn what_a_recurrence_has_no_use_for_is_refused() {
        let attention = AttentionConfig::new(8, 2).with_n_kv_heads(1).with_sinks(true).with_soft_cap(Some(5.0));
        let problems = GatedDeltaConfig::default().validate(&attention).expect_err("three problems");
        let refused = |key: &str| format!("{key} has no place in mixer = gated_delta: leave it out");
        assert_eq!(problems.problems(), ["n_kv_heads", "attention_soft_cap", "attention_sinks"].map(refused));
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
