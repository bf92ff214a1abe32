//! Multi-head latent attention: the keys and values of all heads come from one short vector per token, the latent. A cache keeps
//! that latent and one key that all heads share, which carries the positions.
//!
//! ```text
//! c = norm(x W_DKV)    k_R = rotate(x W_KR)                      what a cache keeps, [C] and [R] a token
//! k_h = [c W_UK_h; k_R]    v_h = c W_UV_h                        of head h
//! q_h = [c' W_UQ_h; rotate(c' W_QR_h)]    c' = norm(x W_DQ), or x
//! ```
//!
//! Source: DeepSeek-AI 2024, DeepSeek-V2, §2.1.2 and §2.1.3, eqs. 9 to 19 (<https://arxiv.org/abs/2405.04434>); the norms of the
//! latents as in their published code. Our `C` is their `d_c`, `R` their `d_h^R`, and `up` holds `W_UK` and `W_UV` head by head.

use super::config::AttentionConfig;
use super::{KeyValues, attend, rotate};
use crate::context::{AttentionContext, LayerContext};
use crate::cost::{Cost, pairs_per_query};
use crate::dropout;
use crate::error::ConfigError;
use crate::heads::{merge_heads, split_heads};
use crate::init::ParamBuilder;
use crate::layer::TokenMixer;
use crate::linear::{Linear, LinearConfig};
use crate::norm::{Norm, NormConfig};
use crate::pass::LayerPass;
use crate::state::State;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::Tensor;
use firelight_kernels::PairRule;
use serde::{Deserialize, Serialize};

/// The sizes of [`LatentAttention`] beside those of every attention: `d_head` is the part of a head's query and key that is not
/// turned, `d_value` the width of its values.
#[doc(alias = "MLA")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentConfig {
    /// Width `C` of the latent of keys and values.
    pub d_latent: usize,
    /// Width `R` of the part of a query and a key that is turned by its position.
    pub d_rotary: usize,
    /// Width of the latent of queries. Default: queries come from `x` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_query_latent: Option<usize>,
}

impl LatentConfig {
    /// Queries from `x` itself.
    pub fn new(d_latent: usize, d_rotary: usize) -> Self {
        Self { d_latent, d_rotary, d_query_latent: None }
    }

    /// Sets the width of the latent of queries.
    pub fn with_d_query_latent(mut self, d_query_latent: usize) -> Self {
        self.d_query_latent = Some(d_query_latent);
        self
    }

    /// What does not fit, or has no place beside latents, in the attention that is built by these.
    pub(crate) fn validate(&self, attention: &AttentionConfig) -> Result<(), ConfigError> {
        let taken = ["d_value", "attention_scale", "attention_soft_cap", "attention_dropout"];
        attention
            .check_taken(&taken, "latent")
            .size("mixer.d_latent", self.d_latent)
            .size("mixer.d_rotary", self.d_rotary)
            .size("mixer.d_query_latent", self.d_query_latent.unwrap_or(1))
            .require(self.d_rotary.is_multiple_of(2), || {
                format!("mixer.d_rotary = {} must be even: channels turn in pairs", self.d_rotary)
            })
            .finish()
    }

    /// Builds the layer of an attention's heads, widths and distributions at the builder's seed and path.
    pub(crate) fn init_with(&self, attention: &AttentionConfig, params: &ParamBuilder) -> LatentAttention {
        let (n_heads, d_head, d_value) = (attention.n_heads, attention.d_head(), attention.d_value());
        let linear = |name: &str, d_in: usize, d_out: usize, bias: bool| {
            let layer = LinearConfig::new(d_in, d_out).with_bias(bias).with_init(attention.init);
            layer.init_with(&params.scope(name))
        };
        let (d_model, bias) = (attention.d_model, attention.bias);
        let norm = |name: &str, width: usize| NormConfig::rms().init_with(width, &params.scope(name));
        let output = LinearConfig::new(n_heads * d_value, d_model).with_bias(bias).with_init(attention.output_init);
        LatentAttention {
            query_down: self.d_query_latent.map(|width| linear("query_down", d_model, width, bias)),
            query_norm: self.d_query_latent.map(|width| norm("query_norm", width)),
            query: linear("query", self.d_query_latent.unwrap_or(d_model), n_heads * (d_head + self.d_rotary), false),
            down: linear("down", d_model, self.d_latent + self.d_rotary, bias),
            latent_norm: norm("latent_norm", self.d_latent),
            up: linear("up", self.d_latent, n_heads * (d_head + d_value), false),
            output: output.init_with(&params.scope("output")),
            dropout: DropoutConfig::new(attention.dropout).init(),
            n_heads,
            d_head,
            d_rotary: self.d_rotary,
            scale: attention.scale.value(d_head + self.d_rotary),
            soft_cap: attention.soft_cap,
        }
    }
}

/// Attention whose cache keeps a latent of every token in the place of its keys and values.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{LatentConfig, MixerConfig, Pass, PositionConfig, SequenceInput, TransformerConfig};
///
/// let config = TransformerConfig::new(32, 4, 2).with_position(PositionConfig::rotary());
/// let model = config.with_mixer(MixerConfig::Latent(LatentConfig::new(6, 2))).init(&Device::flex());
/// let mut cache = model.cache(16);
/// let x = Tensor::<3>::ones([1, 16, 32], &Device::flex());
/// model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
/// // In 2 layers 6 numbers of the latent and 2 of the key, of 4 bytes; keys and values of 4 heads of 8 would be 64.
/// assert_eq!(cache.bytes(), 16 * 2 * (6 + 2) * 4);
/// ```
#[doc(alias = "MLA")]
#[derive(Module, Debug)]
pub struct LatentAttention {
    /// `[D, C']`, from the residual stream to the latent of queries, where they have one.
    pub query_down: Option<Linear>,
    /// The norm of that latent.
    pub query_norm: Option<Norm>,
    /// `[C', H (E + R)]`, or `[D, H (E + R)]`: of every head first what is not turned.
    pub query: Linear,
    /// `[D, C + R]`, from the residual stream to the latent and the key that all heads share.
    pub down: Linear,
    /// The norm of the latent.
    pub latent_norm: Norm,
    /// `[C, H (E + W)]`, from the latent to keys and values: of every head first the key.
    pub up: Linear,
    /// `[H W, D]`, from the heads back.
    pub output: Linear,
    dropout: Dropout,
    n_heads: usize,
    d_head: usize,
    d_rotary: usize,
    scale: f64,
    #[module(skip)]
    soft_cap: Option<f64>,
}

impl LatentAttention {
    /// `[B, H, T, E + R]`, the last `R` channels turned.
    fn queries(&self, x: Tensor<3>, context: &AttentionContext) -> Tensor<4> {
        let x = match (&self.query_down, &self.query_norm) {
            (Some(down), Some(norm)) => norm.forward(down.forward(x)),
            _ => x,
        };
        let query = split_heads(self.query.forward(x), self.n_heads);
        let (plain, turned) = parts(query, self.d_head);
        Tensor::cat(vec![plain, rotate(turned, context)], 3)
    }

    /// What a cache keeps: the latents `[B, 1, T, C]` and the shared keys `[B, 1, T, R]`, turned.
    fn latents(&self, x: Tensor<3>, context: &AttentionContext) -> (Tensor<4>, Tensor<4>) {
        let down = self.down.forward(x).unsqueeze_dim::<4>(1);
        let d_latent = down.dims()[3] - self.d_rotary;
        let (latent, key) = parts(down, d_latent);
        (self.latent_norm.forward(latent), rotate(key, context))
    }

    /// The heads `[B, H, Q, W]`, with keys and values of every head: the least work where there are as many queries as keys.
    fn expanded(&self, query: Tensor<4>, latent: Tensor<4>, key: Tensor<4>, attend: Attend) -> Tensor<4> {
        let [batch, _, length, _] = latent.dims();
        let (own, value) = parts(split_heads(self.up.forward(latent.squeeze_dim::<3>(1)), self.n_heads), self.d_head);
        let shared = key.expand([batch, self.n_heads, length, self.d_rotary]);
        attend([query, Tensor::cat(vec![own, shared], 3), value])
    }

    /// The same, where every query is brought to the latents and meets them, and the values are made of what it found: the least
    /// work where few queries meet many keys, as in decoding. DeepSeek-V2, §2.1.2: `W_UK` is absorbed into the queries.
    fn absorbed(&self, query: Tensor<4>, latent: Tensor<4>, key: Tensor<4>, attend: Attend) -> Tensor<4> {
        let [_, _, _, d_latent] = latent.dims();
        let up = self.up.merged_weight();
        let width = up.dims()[1] / self.n_heads;
        let up = up.reshape([d_latent, self.n_heads, width]).swap_dims(0, 1).unsqueeze::<4>(); // [1, H, C, E + W]
        let (to_key, to_value) = parts(up, self.d_head);
        let (plain, turned) = parts(query, self.d_head);
        let query = Tensor::cat(vec![plain.matmul(to_key.swap_dims(2, 3)), turned], 3); // [B, H, Q, C + R]
        let found = attend([query, Tensor::cat(vec![latent.clone(), key], 3), latent]); // [B, H, Q, C]
        found.matmul(to_value)
    }

    /// Whether queries meet latents: behind a cache, where that is less work. Never in training, in which `up` may have an adapter
    /// with dropout.
    fn absorbs(&self, queries: usize, keys: usize) -> bool {
        let ([d_latent, both], d_turned) = (self.up.widths(), self.d_rotary);
        let (all, one) = (both / self.n_heads, self.d_head + d_turned);
        let d_value = all - self.d_head;
        let expanded = keys * d_latent * all + queries * keys * (one + d_value);
        let absorbed = queries * d_latent * all + queries * keys * (2 * d_latent + d_turned);
        queries < keys && absorbed < expanded
    }
}

/// Queries, keys and values become heads.
type Attend<'a> = Box<dyn FnOnce([Tensor<4>; 3]) -> Tensor<4> + 'a>;

impl TokenMixer for LatentAttention {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        let context = &context.attention;
        let query = self.queries(x.clone(), context);
        let (latent, key) = self.latents(x, context);
        let (state, tap) = pass.self_attention();
        let (latent, key) = match state {
            Some(state) => state.expect_mut::<KeyValues>().append(latent, key),
            None => (latent, key),
        };
        let rate = dropout::rate(&self.dropout, &query.device());
        let options = context.options(&query, self.scale).with_scale(Some(self.scale));
        let options = options.with_soft_cap(self.soft_cap).with_dropout(rate);
        let attend: Attend = Box::new(|qkv| attend(qkv, &options, tap));
        let heads = match self.absorbs(query.dims()[2], latent.dims()[2]) {
            true => self.absorbed(query, latent, key, attend),
            false => self.expanded(query, latent, key, attend),
        };
        self.output.forward(pass.activation_of_heads("attention.heads", merge_heads(heads), self.n_heads))
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        let sizes = [("n_kv_heads", 1), ("mixer.d_latent", self.up.widths()[0]), ("mixer.d_rotary", self.d_rotary)];
        Box::new(KeyValues::new(rule.max_lookback(), capacity).with_sizes(sizes))
    }

    fn head_output(&self) -> Option<&Linear> {
        Some(&self.output)
    }

    /// As in training, where keys and values of every head are made.
    fn cost(&self, rule: &PairRule, length: usize) -> Cost {
        let part = |name: &str, layer: &Linear| Cost::of(layer).with_activations(layer.widths()[1]).named(name);
        let norm = |name: &str, norm: &Norm, width: usize| norm.cost(width).named(name);
        let queries = self.query_down.as_ref().zip(self.query_norm.as_ref());
        let queries =
            queries.map(|(down, normed)| [part("query_down", down), norm("query_norm", normed, down.widths()[1])]);
        let ([d_latent, both], heads) = (self.up.widths(), self.output.widths()[0]);
        let pairs = pairs_per_query(rule, length) * (both + self.n_heads * self.d_rotary) as f64;
        let others = [
            part("query", &self.query),
            part("down", &self.down),
            norm("latent_norm", &self.latent_norm, d_latent),
            part("up", &self.up),
            // Every head's key is its own part beside a copy of the shared one.
            Cost::default().with_flops(2.0 * pairs).with_activations(self.query.widths()[1]).named("scores"),
            Cost::of(&self.output).with_activations(heads).named("output"),
        ];
        let cost = Cost::sum(queries.into_iter().flatten().chain(others)).with_cache_of(&*self.state(rule, length));
        cost.with_scores(self.n_heads, length)
    }
}

/// The first `width` channels and the others.
fn parts(x: Tensor<4>, width: usize) -> (Tensor<4>, Tensor<4>) {
    let whole = x.dims()[3];
    (x.clone().narrow(3, 0, width), x.narrow(3, width, whole - width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::ScoreScale;
    use crate::mixer::MixerConfig;
    use crate::position::PositionConfig;
    use crate::transformer::TransformerConfig;
    use burn::module::Param;
    use burn::tensor::{Device, Distribution, TensorData};
    use firelight_kernels::{AttentionMask, AttentionOptions, assert_close};

    fn layer(config: LatentConfig, attention: &AttentionConfig, device: &Device) -> LatentAttention {
        config.init_with(attention, &ParamBuilder::new(device, 3))
    }

    fn matrix<const I: usize, const O: usize>(rows: [[f32; O]; I]) -> Linear {
        let weight = Param::from_tensor(Tensor::<2>::from_floats(rows, &Device::default()));
        Linear { weight: weight.into(), bias: None, adapter: None }
    }

    #[test]
    fn two_tokens_by_hand() {
        let device = Device::default();
        let attention = AttentionConfig::new(2, 1).with_d_head(1).with_d_value(1).with_bias(false);
        let attention = attention.with_scale(ScoreScale::None);
        let mut layer = layer(LatentConfig::new(2, 2), &attention, &device);
        // Latents (1, 1) and (1, -1), whose root mean square is 1; the shared keys (0, 0) and (1, 0).
        layer.down = matrix([[1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 1.0, 0.0]]);
        // Keys 1 and 0, values 4 and 2.
        layer.up = matrix([[0.5, 3.0], [0.5, 1.0]]);
        // The second query: ln 9 for the head's own key, ln 3 for the shared one.
        layer.query = matrix([[0.0, 0.0, 0.0], [9f32.ln(), 3f32.ln(), 0.0]]);
        layer.output = matrix([[1.0, 10.0]]);
        let context =
            LayerContext { attention: AttentionContext::masked(AttentionMask::causal()), ..LayerContext::default() };
        let x = Tensor::<3>::from_floats([[[1.0, 0.0], [0.0, 1.0]]], &device);
        let y = TokenMixer::forward(&layer, x, &context, &mut LayerPass::default());
        // Scores ln 9 and ln 3: weights 3/4 and 1/4 of 4 and 2. The norm's epsilon takes a millionth.
        assert_close(&y.into_data(), &TensorData::from([[[4.0f32, 40.0], [3.5, 35.0]]]), 1e-4);
    }

    #[test]
    fn queries_that_meet_latents_find_what_those_that_meet_keys_do() {
        let device = Device::default().autodiff();
        for (queries, keys, heads) in [(1, 9, 3), (4, 4, 2), (2, 7, 1)] {
            let attention = AttentionConfig::new(12, heads).with_d_head(4).with_d_value(5).with_soft_cap(Some(3.0));
            let layer = layer(LatentConfig::new(6, 2), &attention, &device);
            let random =
                |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), &device).require_grad();
            let inputs = [random([2, heads, queries, 6]), random([2, 1, keys, 6]), random([2, 1, keys, 2])];
            let options = AttentionOptions::default().with_mask(AttentionMask::causal()).with_scale(Some(layer.scale));
            let run = |absorbed: bool| {
                let [query, latent, key] = inputs.clone();
                let attend: Attend = Box::new(|qkv| attend(qkv, &options, None));
                let heads = match absorbed {
                    true => layer.absorbed(query, latent, key, attend),
                    false => layer.expanded(query, latent, key, attend),
                };
                let gradients = heads.clone().powi_scalar(2).sum().backward();
                let of_inputs = inputs.clone().map(|input| input.grad(&gradients).expect("a gradient").into_data());
                let of_up = layer.up.weight.val().grad(&gradients).expect("a gradient").into_data();
                (heads.into_data(), of_inputs, of_up)
            };
            let (expected, found) = (run(false), run(true));
            assert_close(&found.0, &expected.0, 1e-5);
            assert_close(&found.2, &expected.2, 1e-4);
            found.1.iter().zip(&expected.1).for_each(|(found, expected)| assert_close(found, expected, 1e-4));
        }
    }

    #[test]
    fn one_query_of_a_long_text_meets_latents_and_those_of_a_training_meet_keys() {
        // As wide as DeepSeek-V3, which is not drawn for it.
        let attention = AttentionConfig::new(7168, 128).with_d_head(128).with_d_value(128).with_bias(false);
        let layer = layer(LatentConfig::new(512, 64).with_d_query_latent(1536), &attention, &Device::flex());
        assert!(layer.absorbs(1, 4096) && layer.absorbs(8, 4096));
        assert!(!layer.absorbs(4096, 4096) && !layer.absorbs(2048, 4096));
        // The projections of a layer, by the technical report of DeepSeek-V3: 187.1 million.
        assert_eq!(layer.cost(&PairRule::Causal, 1).parameters, 187_107_328);
        assert_eq!(layer.cost(&PairRule::Causal, 1000).cache_bytes, 1000 * (512 + 64) * 4);
        assert_eq!(layer.cost(&PairRule::Causal, 1000).score_bytes, 128 * 1000 * 1000 * 4);
    }

    #[test]
    fn what_has_no_place_beside_latents_is_listed() {
        let mixer = MixerConfig::Latent(LatentConfig::new(0, 3).with_d_query_latent(0));
        let config = TransformerConfig::new(8, 4, 1).with_mixer(mixer).with_n_kv_heads(2).with_qkv_bias(true);
        let error = config.validate().expect_err("five problems");
        assert_eq!(
            error.problems(),
            [
                "n_kv_heads has no place in mixer = latent: leave it out",
                "qkv_bias has no place in mixer = latent: leave it out",
                "mixer.d_latent = 0 must be at least 1",
                "mixer.d_query_latent = 0 must be at least 1",
                "mixer.d_rotary = 3 must be even: channels turn in pairs",
            ]
        );
        let latent = TransformerConfig::new(8, 4, 1).with_mixer(MixerConfig::Latent(LatentConfig::new(4, 2)));
        let error = latent.with_position(PositionConfig::shaw()).validate().expect_err("no keys of one width");
        assert!(error.to_string().contains("has no place in mixer = latent: use rotary, alibi or t5"), "{error}");
    }

    #[test]
    fn a_file_names_the_mixer_of_a_layer() {
        let text = "d_model = 8\nn_heads = 2\nn_layers = 2\nposition = \"rotary\"\nlayers = [{}, {mixer = {kind = \"latent\", \
                    d_latent = 4, d_rotary = 2}}]";
        let config: TransformerConfig = toml::from_str(text).expect("a configuration");
        config.validate().expect("a model");
        let mixers: Vec<_> = config.layers.iter().map(|layer| layer.block.mixer).collect();
        assert_eq!(mixers, [MixerConfig::Attention, MixerConfig::Latent(LatentConfig::new(4, 2))]);
        let error = toml::from_str::<TransformerConfig>(&text.replace("d_rotary", "d_rot")).expect_err("no such key");
        assert!(error.message().contains("d_rot"), "{error}");
    }
}
