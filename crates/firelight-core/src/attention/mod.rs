//! Multi-head attention: project, rotate, cache, attend, merge. Grouped-query and multi-query attention are the same
//! layer with fewer key/value heads.
//!
//! Sources: Vaswani et al. 2017, §3.2.2 (<https://arxiv.org/abs/1706.03762>); multi-query: Shazeer 2019, §3
//! (<https://arxiv.org/abs/1911.02150>); grouped-query: Ainslie et al. 2023
//! (<https://arxiv.org/abs/2305.13245>); norms of queries and keys: Henry et al. 2020, §3
//! (<https://arxiv.org/abs/2010.04245>). Differs from it: a trained RMS or layer norm before the rotation, of every head as
//! Qwen 3 or of all heads at once as OLMo 2, and the scores keep their scale. Attention sinks: gpt-oss (OpenAI 2025, §2,
//! <https://arxiv.org/abs/2508.10925>). Gates of the heads: Qiu et al. 2025, §2.2, position G1 (<https://arxiv.org/abs/2505.06708>), as
//! Qwen3-Next.

#[cfg(test)]
mod compression_tests;
mod config;
mod differential;
mod key_values;
mod latent;
mod linear;
mod mechanism;
mod pattern;
mod projection;
mod prune;
mod score;
mod stored;
#[cfg(test)]
mod stored_tests;

pub use config::{AttentionConfig, NormSpan};
pub use differential::{DifferentialAttention, DifferentialConfig};
pub use key_values::KeyValues;
pub use latent::{LatentAttention, LatentConfig};
pub use linear::LinearAttention;
pub use mechanism::{AttentionMechanism, DotProduct, Mechanism};
pub use pattern::AttentionPattern;
pub use projection::{FusedProjection, Projection, ProjectionKind, SeparateProjection};
pub use score::{AdditiveScore, BilinearScore, ScoreScale};

use crate::context::{AttentionContext, CrossKeyValues, EncoderOutput, LayerContext};
use crate::cost::{Cost, pairs_per_query};
use crate::dropout;
use crate::heads::{merge_heads, split_heads};
use crate::layer::TokenMixer;
use crate::linear::Linear;
use crate::norm::Norm;
use crate::pass::{LayerPass, WeightsTap};
use crate::state::{RecurrentState, State};
use burn::module::{Module, Param};
use burn::nn::Dropout;
use burn::tensor::Tensor;
use firelight_kernels::{
    AttentionMask, AttentionOptions, Gate, PairRule, attention, attention_from_scores, attention_with_weights, gated,
};

/// Multi-head attention.
///
/// ```text
/// x -projection-> query, key, value -norm-> -rotation-> -cache-> -attention(mask, bias)-> heads -merge-> -gate-> output
/// ```
#[doc(alias = "MultiHeadAttention")]
#[doc(alias = "MHA")]
#[derive(Module, Debug)]
pub struct Attention {
    /// From the residual stream to queries, keys and values.
    pub projection: Projection,
    /// Norm of every head's query.
    pub query_norm: Option<Norm>,
    /// Norm of every head's key.
    pub key_norm: Option<Norm>,
    /// How a query weighs the keys.
    pub mechanism: Mechanism,
    /// `[H]`, the attention sinks: a score of each head for a key without a value, which takes part in the softmax of every query.
    #[doc(alias = "s_aux")]
    pub sinks: Option<Param<Tensor<1>>>,
    /// `[D, H W]`, the gate of every channel of the heads before its sigmoid, where they have gates.
    pub gate: Option<Linear>,
    /// `[H W, D]`, from the heads back.
    pub output: Linear,
    dropout: Dropout,
    n_heads: usize,
    n_kv_heads: usize,
    #[module(skip)]
    norm_span: NormSpan,
    #[module(skip)]
    scale: ScoreScale,
    #[module(skip)]
    soft_cap: Option<f64>,
}

impl Attention {
    /// Attends from every token of `x` to `x` itself and, with a cache, to everything before it.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    ///
    /// # Panics
    /// If the cache keeps sums of the past and the layer needs its keys: any layer but a linear one, and a linear one
    /// whose mask hides single pairs.
    pub fn forward(&self, x: Tensor<3>, context: &AttentionContext, pass: &mut LayerPass) -> Tensor<3> {
        let gate = self.gate.as_ref().map(|gate| gate.forward(x.clone()));
        let [query, key, value] = self.projection.project(x);
        let query = pass.activation("attention.query", rotate(self.queries(query), context)); // [B, H, T, E]
        let key = pass.activation("attention.key", rotate(self.keys(key), context)); // [B, G, T, E]
        let value = pass.activation("attention.value", split_heads(value, self.n_kv_heads)); // [B, G, T, W]
        let (state, weights) = pass.self_attention();
        let heads = match state {
            Some(state) if state.is::<RecurrentState<4>>() => {
                let sums = state.expect_mut::<RecurrentState<4>>().extend(key.dims()[2]);
                linear_heads(self.linear(), [query, key, value], context, Some(sums), weights)
            }
            Some(state) => {
                let state = state.expect_mut::<KeyValues>();
                let (key, value) = match self.mechanism {
                    Mechanism::DotProduct(_) | Mechanism::Bilinear(_) => state.append_narrow(key, value),
                    _ => state.append(key, value),
                }; // [B, G, K, E | W]
                self.heads([query, key, value], context, weights)
            }
            None => self.heads([query, key, value], context, weights),
        };
        self.written(heads, gate, (pass, "attention.heads"))
    }

    /// Attends from every token of `x` to the `encoder_output`. With a cache its keys and values are computed once, and it is not
    /// read again.
    ///
    /// # Shapes
    /// - `x`: `[B, T, D]`, `encoder_output`: `[B, S, D]`; output: `[B, T, D]`
    ///
    /// # Panics
    /// If the encoder's output does not fit `x`.
    pub fn forward_cross(&self, x: Tensor<3>, encoder_output: &EncoderOutput, pass: &mut LayerPass) -> Tensor<3> {
        let shape = x.dims();
        let gate = self.gate.as_ref().map(|gate| gate.forward(x.clone()));
        let query = self.queries(self.projection.queries(x)); // [B, H, T, E]
        let CrossKeyValues { key, value, padding } = pass.cross(|| {
            encoder_output.check(shape);
            let [key, value] = self.projection.keys_and_values(encoder_output.hidden.clone());
            let (key, value) = (self.keys(key), split_heads(value, self.n_kv_heads)); // [B, G, S, E | W]
            CrossKeyValues { key, value, padding: encoder_output.padding.clone() }
        });
        let mask = padding.map_or(AttentionMask::none(), AttentionMask::padding);
        let heads = self.heads([query, key, value], &AttentionContext::masked(mask), pass.cross_attention());
        self.written(heads, gate, (pass, "cross_attention.heads"))
    }

    /// What the heads write into the residual stream: `[B, H, T, W] -> [B, T, D]`.
    fn written(&self, heads: Tensor<4>, gate: Option<Tensor<3>>, (pass, name): (&mut LayerPass, &str)) -> Tensor<3> {
        let heads = merge_heads(heads);
        let heads = match gate {
            Some(gate) => gated(gate, heads, Gate::Sigmoid),
            None => heads,
        };
        self.output.forward(pass.activation_of_heads(name, heads, self.n_heads))
    }

    /// What attention to an encoder's output of `length` tokens costs, whose keys and values are cached.
    pub(crate) fn cross_cost(&self, length: usize) -> Cost {
        let cost = self.cost_of_pairs(length as f64).with_cache_of(&*self.full_state(length));
        cost.with_scores(self.scored_heads(), length)
    }

    /// Heads that score every query and key; linear attention has none.
    fn scored_heads(&self) -> usize {
        if matches!(self.mechanism, Mechanism::Linear(_)) { 0 } else { self.n_heads }
    }

    /// What it costs a token whose queries see `pairs` keys each. It keeps what the heads give.
    fn cost_of_pairs(&self, pairs: f64) -> Cost {
        let [query, key, value] = self.projection.widths();
        let norm = |name: &str, norm: &Option<Norm>, width| Some(norm.as_ref()?.cost(width).named(name));
        let norms = [norm("query_norm", &self.query_norm, query), norm("key_norm", &self.key_norm, key)];
        let pairs = self.mechanism.flops(pairs, [query / self.n_heads, value / self.n_kv_heads]);
        let scores = Cost::of(&self.mechanism).with_flops(self.n_heads as f64 * pairs).named("scores");
        let heads = self.output.widths()[0];
        let output = Cost::of(&self.output).with_activations(heads).named("output");
        let sinks = self.sinks.as_ref().map(|sinks| Cost::of(sinks).named("sinks"));
        let gate = self.gate.as_ref().map(|gate| Cost::of(gate).with_activations(2 * heads).named("gate"));
        let parts = self.projection.costs().into_iter().chain(norms.into_iter().flatten()).chain(sinks).chain(gate);
        Cost::sum(parts.chain([scores, output]))
    }

    /// The sizes of what a cache keeps of a token.
    fn sizes(&self) -> [(&'static str, usize); 3] {
        let [_, key, value] = self.projection.widths();
        let heads = self.n_kv_heads;
        [("n_kv_heads", heads), ("d_head", key / heads), ("d_value", value / heads)]
    }

    /// The sizes of what it keeps of all tokens, where the past is sums: those of the values, and of their weights.
    fn sums_sizes(&self) -> [(&'static str, usize); 3] {
        let [heads, (_, d_head), (_, d_value)] = self.sizes();
        [heads, ("features", self.linear().features(d_head)), ("d_value + 1", d_value + 1)]
    }

    /// Whether the past is sums: of linear attention, where no pair is hidden that sums could not leave out.
    fn keeps_sums(&self, rule: &PairRule) -> bool {
        matches!((&self.mechanism, rule), (Mechanism::Linear(_), PairRule::Full | PairRule::Causal))
    }

    /// `[B, T, H E] -> [B, H, T, E]`, all but turned.
    fn queries(&self, query: Tensor<3>) -> Tensor<4> {
        self.mechanism.query(self.normed_heads(&self.query_norm, query, self.n_heads))
    }

    /// `[B, T, G E] -> [B, G, T, E]`, all but turned.
    fn keys(&self, key: Tensor<3>) -> Tensor<4> {
        self.mechanism.key(self.normed_heads(&self.key_norm, key, self.n_kv_heads))
    }

    /// `[B, T, H E] -> [B, H, T, E]`, each head normed by itself or all at once.
    fn normed_heads(&self, norm: &Option<Norm>, x: Tensor<3>, heads: usize) -> Tensor<4> {
        match (norm, self.norm_span) {
            (None, _) => split_heads(x, heads),
            (Some(norm), NormSpan::Head) => norm.forward(split_heads(x, heads)),
            (Some(norm), NormSpan::AllHeads) => split_heads(norm.forward(x), heads),
        }
    }

    /// The heads, `[B, H, Q, W]`. The weights are kept where somebody wants them.
    fn heads(&self, qkv: [Tensor<4>; 3], context: &AttentionContext, weights: Option<WeightsTap>) -> Tensor<4> {
        match &self.mechanism {
            Mechanism::Linear(linear) => linear_heads(linear, qkv, context, None, weights),
            _ => self.softmax_heads(qkv, context, weights),
        }
    }

    fn linear(&self) -> &LinearAttention {
        let Mechanism::Linear(linear) = &self.mechanism else {
            panic!("a cache that keeps sums of the past serves linear attention alone");
        };
        linear
    }

    fn softmax_heads(
        &self,
        [query, key, value]: [Tensor<4>; 3],
        context: &AttentionContext,
        tap: Option<WeightsTap>,
    ) -> Tensor<4> {
        let scale = self.scale.value(query.dims()[3]);
        let options = context
            .options(&query, scale)
            .with_scale(self.scale.factor())
            .with_soft_cap(self.soft_cap)
            .with_sinks(self.sinks.as_ref().map(Param::val))
            .with_dropout(dropout::rate(&self.dropout, &query.device()));
        let Mechanism::Additive(score) = &self.mechanism else { return attend([query, key, value], &options, tap) };
        let (heads, weights) = attention_from_scores(score.scores(query, key), value.clone(), &options);
        match tap {
            Some(tap) => tap.read(heads, weights, value),
            None => heads,
        }
    }
}

impl TokenMixer for Attention {
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        self.forward(x, &context.attention, pass)
    }

    /// The keys and values that the queries can see, or sums of them in linear attention.
    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        match self.keeps_sums(rule) {
            true => Box::new(RecurrentState::<4>::new(capacity).with_sizes(self.sums_sizes())),
            false => Box::new(KeyValues::new(rule.max_lookback(), capacity).with_sizes(self.sizes())),
        }
    }

    /// The keys and values of all tokens.
    fn full_state(&self, capacity: usize) -> Box<dyn State> {
        Box::new(KeyValues::new(None, capacity).with_sizes(self.sizes()))
    }

    fn head_output(&self) -> Option<&Linear> {
        Some(&self.output)
    }

    fn cost(&self, rule: &PairRule, length: usize) -> Cost {
        let cost = self.cost_of_pairs(pairs_per_query(rule, length)).with_cache_of(&*self.state(rule, length));
        cost.with_scores(self.scored_heads(), length)
    }
}

/// The heads of softmax attention, `[B, H, Q, W]`. The weights are formed where somebody wants them.
fn attend([query, key, value]: [Tensor<4>; 3], options: &AttentionOptions, tap: Option<WeightsTap>) -> Tensor<4> {
    let Some(tap) = tap else { return attention(query, key, value, options) };
    let (heads, weights) = attention_with_weights(query, key, value.clone(), options);
    tap.read(heads, weights, value)
}

fn linear_heads(
    linear: &LinearAttention,
    qkv: [Tensor<4>; 3],
    context: &AttentionContext,
    sums: Option<&mut Option<Tensor<4>>>,
    tap: Option<WeightsTap>,
) -> Tensor<4> {
    assert!(context.bias.is_none(), "linear attention has no scores that positions could be added to");
    let Some(tap) = tap else { return linear.forward(qkv, &context.mask, sums) };
    let past = sums.as_deref().and_then(Option::as_ref);
    let [query, key, value] = qkv.clone();
    let weights = linear.weights([query, key], &context.mask, past);
    tap.read(linear.forward(qkv, &context.mask, sums), weights, value)
}

fn rotate(x: Tensor<4>, context: &AttentionContext) -> Tensor<4> {
    match &context.rotation {
        Some(rotation) => rotation.apply(x),
        None => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::{Init, ParamBuilder};
    use crate::weight::Weight;
    use burn::tensor::{Device, Distribution, TensorData};
    use firelight_kernels::assert_close;

    #[test]
    fn one_fused_matrix_equals_three_side_by_side() {
        let device = Device::default();
        let config = AttentionConfig::new(12, 3).with_n_kv_heads(1);
        let separate = config.init_with(&ParamBuilder::new(&device, 0));
        let mut fused = config.clone().with_projection(ProjectionKind::Fused).init_with(&ParamBuilder::new(&device, 0));
        let (Projection::Separate(parts), Projection::Fused(whole)) = (&separate.projection, &mut fused.projection)
        else {
            panic!("the kinds asked for");
        };
        let layers = [&parts.query, &parts.key, &parts.value];
        let weights = layers.map(|layer| layer.weight.val()).to_vec();
        whole.qkv.weight = Param::from_tensor(Tensor::cat(weights, 1)).into();
        let x = Tensor::<3>::random([2, 4, 12], Distribution::Default, &device);
        let memory = EncoderOutput::new(Tensor::<3>::random([2, 5, 12], Distribution::Default, &device));
        let context = AttentionContext::masked(AttentionMask::causal());
        let run = |layer: &Attention| {
            let own = layer.forward(x.clone(), &context, &mut LayerPass::default());
            layer.forward_cross(own, &memory, &mut LayerPass::default()).into_data()
        };
        assert_close(&run(&fused), &run(&separate), 1e-6);
    }

    #[test]
    fn an_open_gate_lets_all_through_and_one_of_zeros_a_half() {
        let device = Device::default();
        let config = AttentionConfig::new(8, 2).with_bias(false).with_gate(true);
        let x = Tensor::<3>::random([2, 4, 8], Distribution::Default, &device);
        let memory = EncoderOutput::new(Tensor::<3>::random([2, 5, 8], Distribution::Default, &device));
        let run = |layer: &Attention| {
            let own = layer.forward(x.clone(), &AttentionContext::default(), &mut LayerPass::default());
            Tensor::cat(vec![own, layer.forward_cross(x.clone(), &memory, &mut LayerPass::default())], 1)
        };
        let plain = run(&Attention { gate: None, ..config.init_with(&ParamBuilder::new(&device, 0)) });
        for (weight, share) in [(0.0, 0.5), (1e3, 1.0)] {
            let mut layer = config.init_with(&ParamBuilder::new(&device, 0));
            let gate = layer.gate.as_mut().expect("a gate");
            gate.weight = Weight::of_map(Param::from_tensor(Tensor::full([8, 8], weight, &device))); // All of x is above 0.
            assert_close(&run(&layer), &(plain.clone() * share), 1e-6);
        }
    }

    #[test]
    fn the_bank_and_the_loan() {
        // W_Q = I, W_K swaps the channels, W_V = 2 I; x0 = [1, .5], x1 = [.2, .9]. Keys [.5, 1] and [.9, .2]; the scores
        // of x0 are 1 and 1, so that both weigh a half: z0 = ([2, 1] + [.4, 1.8]) / 2 = [1.2, 1.4].
        let device = Device::default();
        let mut layer = AttentionConfig::new(2, 1).with_bias(false).init_with(&ParamBuilder::new(&device, 0));
        let matrix = |rows: [[f32; 2]; 2]| Weight::of_map(Param::from_tensor(Tensor::from_floats(rows, &device)));
        let Projection::Separate(parts) = &mut layer.projection else { panic!("three matrices") };
        parts.query.weight = matrix([[1.0, 0.0], [0.0, 1.0]]);
        parts.key.weight = matrix([[0.0, 1.0], [1.0, 0.0]]);
        parts.value.weight = matrix([[2.0, 0.0], [0.0, 2.0]]);
        layer.output.weight = matrix([[1.0, 0.0], [0.0, 1.0]]);
        let x = Tensor::<3>::from_floats([[[1.0, 0.5], [0.2, 0.9]]], &device);
        let z0 = layer.forward(x, &AttentionContext::default(), &mut LayerPass::default()).narrow(1, 0, 1);
        assert_close(&z0, &TensorData::from([[[1.2f32, 1.4]]]), 1e-5);
    }

    #[test]
    fn a_sink_takes_its_share_of_every_query_of_both_attentions() {
        // Equal values v and zero scores: n keys beside a sink of ln 2 have n / (n + 2) of the weight, so that of one token
        // the output is v / 3, of the second of two v / 2, and of an encoder's output of six 3/4 v.
        let device = Device::default();
        let mut layer =
            AttentionConfig::new(2, 1).with_bias(false).with_sinks(true).init_with(&ParamBuilder::new(&device, 0));
        let matrix = |number: f32| Weight::of_map(Param::from_tensor(Tensor::<2>::eye(2, &device) * number));
        let Projection::Separate(parts) = &mut layer.projection else { panic!("three matrices") };
        (parts.query.weight, parts.key.weight, parts.value.weight) = (matrix(0.0), matrix(0.0), matrix(1.0));
        layer.output.weight = matrix(1.0);
        layer.sinks = Some(Param::from_tensor(Tensor::from_floats([2f32.ln()], &device)));
        let context = AttentionContext::masked(AttentionMask::causal());
        let x = Tensor::<3>::ones([1, 2, 2], &device) * 6;
        let own = layer.forward(x.clone(), &context, &mut LayerPass::default());
        assert_close(&own, &[2.0, 2.0, 3.0, 3.0], 1e-5);
        let memory = EncoderOutput::new(Tensor::ones([1, 6, 2], &device) * 8);
        let crossed = layer.forward_cross(x, &memory, &mut LayerPass::default());
        assert_close(&crossed, &[6.0; 4], 1e-5);
    }

    #[test]
    fn a_bilinear_layer_of_unit_matrices_is_one_of_dot_products() {
        let device = Device::default();
        let config = AttentionConfig::new(12, 3).with_init(Init::XavierUniform, Init::XavierUniform);
        let mut bilinear =
            config.clone().with_mechanism(AttentionMechanism::Bilinear).init_with(&ParamBuilder::new(&device, 0));
        let Mechanism::Bilinear(score) = &mut bilinear.mechanism else { panic!("the mechanism asked for") };
        let x = Tensor::<3>::random([2, 4, 12], Distribution::Default, &device);
        let run = |layer: &Attention| {
            layer.forward(x.clone(), &AttentionContext::default(), &mut LayerPass::default()).into_data()
        };
        score.weight = Param::from_tensor(Tensor::<2>::eye(4, &device).repeat_dim(1, 3));
        assert_close(&run(&bilinear), &run(&config.init_with(&ParamBuilder::new(&device, 0))), 1e-6);
    }
}
