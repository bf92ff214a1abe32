//! Differential attention: the difference of two softmax attentions over the same values, so that what both see in noise cancels.
//!
//! ```text
//! [Q_1; Q_2] = x W_Q    [K_1; K_2] = x W_K    V = x W_V
//! head = (softmax(Q_1 K_1ᵀ / sqrt(E)) - λ softmax(Q_2 K_2ᵀ / sqrt(E))) V
//! output = (1 - λ_init) norm(head) W_O      λ = exp(λ_q1 · λ_k1) - exp(λ_q2 · λ_k2) + λ_init
//! ```
//!
//! Source: Ye et al. 2024, §2.1, eqs. 1 to 3, and §2.2 (<https://arxiv.org/abs/2410.05258>). The heads of both attentions are counted
//! together, as in the DiffLlama of `transformers`: `n_heads` of width `E` are `n_heads / 2` of the paper's, the first half with `Q_1`, the
//! second with `Q_2`, and a head's values have width `2 E`: those of two value heads side by side.

use super::config::AttentionConfig;
use super::{KeyValues, attend, rotate};
use crate::context::LayerContext;
use crate::cost::{Cost, pairs_per_query};
use crate::error::ConfigError;
use crate::heads::{merge_heads, split_heads};
use crate::init::{Init, ParamBuilder};
use crate::layer::TokenMixer;
use crate::linear::{Linear, LinearConfig};
use crate::pass::LayerPass;
use crate::state::State;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use firelight_kernels::{PairRule, rms_norm};
use serde::{Deserialize, Serialize};

fn lambda_std() -> f64 {
    0.1
}

fn yes() -> bool {
    true
}

fn epsilon() -> f64 {
    1e-5
}

/// The settings of [`DifferentialAttention`] beside those of every attention.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DifferentialConfig {
    /// Where `λ` begins. Default: `0.8 - 0.6 exp(-0.3 l)` in layer `l`, from 0 (§2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda_init: Option<f64>,
    /// Standard deviation of the vectors that `λ` is made of. Default: 0.1.
    #[serde(default = "lambda_std")]
    pub lambda_std: f64,
    /// Added to the mean square of a head. Default: 1e-5.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Gives the norm of the heads trained factors, as the paper's code and unlike DiffLlama. Default: true.
    #[serde(default = "yes")]
    pub affine: bool,
}

impl Default for DifferentialConfig {
    fn default() -> Self {
        Self { lambda_init: None, lambda_std: lambda_std(), epsilon: epsilon(), affine: true }
    }
}

impl DifferentialConfig {
    /// The same in layer `index`, where `λ` begins by the depth.
    pub(crate) fn at(self, index: usize) -> Self {
        let by_depth = 0.8 - 0.6 * (-0.3 * index as f64).exp();
        Self { lambda_init: Some(self.lambda_init.unwrap_or(by_depth)), ..self }
    }

    /// What does not fit, or has no place beside differences, in the attention that is built by these.
    pub(crate) fn validate(&self, attention: &AttentionConfig) -> Result<(), ConfigError> {
        let (heads, groups) = (attention.n_heads, attention.n_kv_heads());
        // The two attentions have no dropout in common that the paper defines.
        let taken = ["n_kv_heads", "qkv_bias", "attention_scale", "attention_soft_cap"];
        attention
            .check_taken(&taken, "differential")
            .require(heads.is_multiple_of(2), || format!("n_heads = {heads} must be even in mixer = differential"))
            .require(groups.is_multiple_of(2), || format!("n_kv_heads = {groups} must be even in mixer = differential"))
            .require(self.lambda_init.is_none_or(|value| (0.0..1.0).contains(&value)), || {
                format!("mixer.lambda_init = {} must be in [0, 1)", self.lambda_init.unwrap_or_default())
            })
            .require(self.lambda_std > 0.0 && self.lambda_std.is_finite(), || {
                format!("mixer.lambda_std = {} must be above 0", self.lambda_std)
            })
            .require(self.epsilon > 0.0 && self.epsilon.is_finite(), || {
                format!("mixer.epsilon = {} must be above 0", self.epsilon)
            })
            .finish()
    }

    /// Builds the layer of an attention's heads, widths and distributions at the builder's seed and path.
    pub(crate) fn init_with(&self, attention: &AttentionConfig, params: &ParamBuilder) -> DifferentialAttention {
        let (n_heads, n_kv_heads, d_head) = (attention.n_heads, attention.n_kv_heads(), attention.d_head());
        let (d_model, bias) = (attention.d_model, attention.qkv_bias.unwrap_or(attention.bias));
        let linear = |name: &str, d_out: usize| {
            let layer = LinearConfig::new(d_model, d_out).with_bias(bias).with_init(attention.init);
            layer.init_with(&params.scope(name))
        };
        let output = LinearConfig::new(n_heads * d_head, d_model).with_bias(attention.bias);
        let lambda = |name: &str| params.param(name, [d_head], Init::Normal { std: self.lambda_std });
        DifferentialAttention {
            query: linear("query", n_heads * d_head),
            key: linear("key", n_kv_heads * d_head),
            value: linear("value", n_kv_heads * d_head),
            output: output.with_init(attention.output_init).init_with(&params.scope("output")),
            lambda_query_1: lambda("lambda_query_1"),
            lambda_key_1: lambda("lambda_key_1"),
            lambda_query_2: lambda("lambda_query_2"),
            lambda_key_2: lambda("lambda_key_2"),
            gamma: self.affine.then(|| params.param("gamma", [2 * d_head], Init::Ones)),
            n_heads,
            n_kv_heads,
            lambda_init: self.at(0).lambda_init.unwrap_or_default(),
            epsilon: self.epsilon,
            scale: attention.scale.value(d_head),
            soft_cap: attention.soft_cap,
        }
    }
}

/// The difference of two attentions over the same values.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{DifferentialConfig, MixerConfig, Pass, SequenceInput, TransformerConfig};
///
/// let mixer = MixerConfig::Differential(DifferentialConfig::default());
/// let model = TransformerConfig::new(16, 4, 2).with_mixer(mixer).init(&Device::flex());
/// let y = model.forward(Tensor::ones([1, 5, 16], &Device::flex()), &SequenceInput::default(), &mut Pass::default());
/// assert_eq!(y.dims(), [1, 5, 16]);
/// ```
#[doc(alias = "Diff Transformer")]
#[derive(Module, Debug)]
pub struct DifferentialAttention {
    /// `[D, H E]`: the queries of the first attention, then those of the second.
    pub query: Linear,
    /// `[D, G E]`: the keys of the first attention, then those of the second.
    pub key: Linear,
    /// `[D, G E]`: the first halves of all heads' values, then the second ones.
    pub value: Linear,
    /// `[H E, D]`, from the heads back.
    pub output: Linear,
    /// `[E]`.
    pub lambda_query_1: Param<Tensor<1>>,
    /// `[E]`.
    pub lambda_key_1: Param<Tensor<1>>,
    /// `[E]`.
    pub lambda_query_2: Param<Tensor<1>>,
    /// `[E]`.
    pub lambda_key_2: Param<Tensor<1>>,
    /// `[2 E]`, the factors of the heads' norm, where it has some.
    pub gamma: Option<Param<Tensor<1>>>,
    n_heads: usize,
    n_kv_heads: usize,
    lambda_init: f64,
    epsilon: f64,
    scale: f64,
    #[module(skip)]
    soft_cap: Option<f64>,
}

impl DifferentialAttention {
    /// By what the second attention is multiplied: `[1, 1, 1, 1]`.
    fn lambda(&self) -> Tensor<4> {
        let exponent = |query: &Param<Tensor<1>>, key: &Param<Tensor<1>>| (query.val() * key.val()).sum().exp();
        let first = exponent(&self.lambda_query_1, &self.lambda_key_1);
        let second = exponent(&self.lambda_query_2, &self.lambda_key_2);
        (first - second + self.lambda_init).reshape([1, 1, 1, 1])
    }

    /// `[B, T, G E] -> [B, G / 2, T, 2 E]`.
    fn values(&self, value: Tensor<3>) -> Tensor<4> {
        let [first, second] = halves(split_heads(value, self.n_kv_heads));
        Tensor::cat(vec![first, second], 3)
    }

    /// `[B, H, T, 2 E] -> [B, H / 2, T, 2 E]`: the difference, normed.
    fn difference(&self, heads: Tensor<4>) -> Tensor<4> {
        let [first, second] = halves(heads);
        let heads = first - second * self.lambda();
        let width = heads.dims()[3];
        let gamma =
            self.gamma.as_ref().map_or_else(|| Tensor::ones([width], (&heads.device(), heads.dtype())), Param::val);
        rms_norm(heads, gamma, self.epsilon) * (1.0 - self.lambda_init)
    }
}

impl TokenMixer for DifferentialAttention {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        let context = &context.attention;
        let query = rotate(split_heads(self.query.forward(x.clone()), self.n_heads), context);
        let key = rotate(split_heads(self.key.forward(x.clone()), self.n_kv_heads), context);
        let value = self.values(self.value.forward(x));
        let (state, tap) = pass.self_attention();
        let (key, value) = match state {
            Some(state) => state.expect_mut::<KeyValues>().append(key, value),
            None => (key, value),
        };
        let options = context.options(&query, self.scale).with_scale(Some(self.scale)).with_soft_cap(self.soft_cap);
        let value = Tensor::cat(vec![value.clone(), value], 1); // Both attentions read the same.
        let heads = merge_heads(self.difference(attend([query, key, value], &options, tap)));
        self.output.forward(pass.activation_of_heads("attention.heads", heads, self.n_heads / 2))
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        let d_head = self.key.widths()[1] / self.n_kv_heads;
        let sizes = [("n_kv_heads", self.n_kv_heads), ("d_head", d_head), ("d_value", 2 * d_head)];
        let state = KeyValues::new(rule.max_lookback(), capacity).with_sizes(sizes);
        Box::new(state.with_value_heads(self.n_kv_heads / 2))
    }

    fn head_output(&self) -> Option<&Linear> {
        Some(&self.output)
    }

    fn cost(&self, rule: &PairRule, length: usize) -> Cost {
        let part = |name: &str, layer: &Linear| Cost::of(layer).with_activations(layer.widths()[1]).named(name);
        let [d_heads, _] = self.output.widths();
        // A query and a key of width E, values of width 2 E.
        let pairs = pairs_per_query(rule, length) * 3.0 * d_heads as f64;
        let lambdas = [&self.lambda_query_1, &self.lambda_key_1, &self.lambda_query_2, &self.lambda_key_2];
        let gamma = self.gamma.as_ref().map(|gamma| Cost::of(gamma).named("gamma"));
        let parts = [
            part("query", &self.query),
            part("key", &self.key),
            part("value", &self.value).with_activations(self.value.widths()[1]), // A copy for each attention.
            Cost::sum(lambdas.map(Cost::of)).with_flops(2.0 * pairs).named("difference"),
            // Both attentions' heads, of twice the width, and their difference before and after the norm.
            Cost::of(&self.output).with_activations(4 * d_heads).named("output"),
        ];
        let cost = Cost::sum(parts.into_iter().chain(gamma)).with_cache_of(&*self.state(rule, length));
        cost.with_scores(self.n_heads, length)
    }
}

/// The first half of the heads and the second.
fn halves(heads: Tensor<4>) -> [Tensor<4>; 2] {
    let half = heads.dims()[1] / 2;
    [heads.clone().narrow(1, 0, half), heads.narrow(1, half, half)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::AttentionMechanism;
    use crate::{Mixer, MixerConfig, TransformerConfig};
    use burn::tensor::{Device, TensorData};
    use firelight_kernels::assert_close;

    fn layer(config: DifferentialConfig, attention: &AttentionConfig) -> DifferentialAttention {
        config.init_with(attention, &ParamBuilder::new(&Device::default(), 0))
    }

    #[test]
    fn what_both_attentions_see_is_taken_away() {
        let device = Device::default();
        let config = DifferentialConfig { lambda_init: Some(0.5), epsilon: 1e-12, ..DifferentialConfig::default() };
        let mut layer = layer(config, &AttentionConfig::new(2, 2).with_bias(false));
        let diagonal =
            |factor: f32| Param::from_tensor(Tensor::<2>::from_floats([[factor, 0.0], [0.0, factor]], &device));
        for (linear, factor) in
            [(&mut layer.query, 1.0), (&mut layer.key, 3f32.ln()), (&mut layer.value, 1.0), (&mut layer.output, 1.0)]
        {
            linear.weight = diagonal(factor).into();
        }
        let one = |number: f32| Param::from_tensor(Tensor::<1>::from_floats([number], &device));
        (layer.lambda_query_1, layer.lambda_query_2) = (one(0.0), one(2.0));
        (layer.lambda_key_1, layer.lambda_key_2) = (one(5.0), one(0.0)); // Both exponents are 0.
        let x = Tensor::<3>::from_floats([[[1.0, 0.0], [0.0, 1.0]]], &device);
        let y = layer.forward(x, &LayerContext::default(), &mut LayerPass::default());
        // Each attention sees one channel: a score of ln 3 of its token with itself, so weights of 3/4 and 1/4, or 1/2 each.
        // First token: (3/4, 1/4) - (1/2, 1/2) / 2 = (1/2, 0). Second: (1/2, 1/2) - (1/4, 3/4) / 2 = (3/8, 1/8). Their root mean
        // squares are sqrt(1/8) and sqrt(5/64), and 1 - lambda_init is 1/2.
        let [first, second] = [0.5f32.sqrt(), 0.45f32.sqrt()];
        assert_close(&y.into_data(), &TensorData::from([[[first, 0.0], [second, second / 3.0]]]), 1e-5);
    }

    #[test]
    fn lambda_begins_by_the_depth() {
        let mixer = MixerConfig::Differential(DifferentialConfig::default());
        let stack =
            TransformerConfig::new(8, 2, 3).with_mixer(mixer).init_with(&ParamBuilder::new(&Device::default(), 0));
        let begins = stack.blocks.iter().map(|block| match &block.attention {
            Mixer::Differential(layer) => layer.lambda_init,
            other => panic!("{other:?}"),
        });
        assert_eq!(begins.len(), 3);
        // 0.8 - 0.6 exp(-0.3 l).
        for (found, expected) in begins.zip([0.2, 0.355509, 0.470713]) {
            assert!((found - expected).abs() < 1e-6, "{found}");
        }
    }

    #[test]
    fn bad_fields_and_what_has_no_place_are_listed() {
        let config = DifferentialConfig { lambda_init: Some(1.0), lambda_std: 0.0, epsilon: -1.0, affine: true };
        let attention = AttentionConfig::new(9, 3).with_mechanism(AttentionMechanism::Linear).with_sinks(true);
        assert_eq!(
            config.validate(&attention).expect_err("seven problems").problems(),
            [
                "attention_mechanism has no place in mixer = differential: leave it out",
                "attention_sinks has no place in mixer = differential: leave it out",
                "n_heads = 3 must be even in mixer = differential",
                "n_kv_heads = 3 must be even in mixer = differential",
                "mixer.lambda_init = 1 must be in [0, 1)",
                "mixer.lambda_std = 0 must be above 0",
                "mixer.epsilon = -1 must be above 0",
            ]
        );
    }
}
