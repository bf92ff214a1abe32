//! Gated DeltaNet: a recurrence whose state is a matrix for each head, a memory of values by their keys. A token lets it decay,
//! then exchanges a share of what it holds for the token's key for the token's value:
//!
//! ```text
//! S_t = exp(g_t) (I - beta_t k_t k_tᵀ) S_{t-1} + beta_t k_t v_tᵀ,     output_t = S_tᵀ q_t
//! beta = σ(x W_strength),     g = -exp(log_rate) softplus(x W_step + step_bias)
//! ```
//!
//! Time is linear in the length of the text; memory of the past does not grow with it.
//!
//! Source: Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule", eq. 10 and §3.4
//! (<https://arxiv.org/abs/2412.06464>), as Qwen3-Next has it: a key head serves several value heads, each of which has a state of
//! its own. Their `S` is the transpose of ours.

mod config;
mod convolution;
mod rule;
mod segment;
mod state;

pub use config::GatedDeltaConfig;
pub use convolution::ShortConvolution;
pub use state::GatedDeltaState;

use crate::context::{LayerContext, filled};
use crate::cost::Cost;
use crate::error::expect_valid;
use crate::layer::TokenMixer;
use crate::linear::Linear;
use crate::norm::Norm;
use crate::pass::LayerPass;
use crate::precision::widened;
use crate::state::State;
use burn::module::{Module, Param};
use burn::tensor::activation::{sigmoid, softplus};
use burn::tensor::{Bool, Tensor};
use convolution::SegmentTokens;
use firelight_kernels::{Gate, PairRule, gated, rms_norm, silu};
use rule::{Tokens, gated_delta_rule};
use segment::Segment;

/// Under the root of the length of queries and keys.
const EPSILON: f64 = 1e-6;

/// The logarithm of a decay to 0 that a sum of them does not make infinite.
const NOTHING_KEPT: f64 = -1e30;

/// Gated DeltaNet, a token mixer in linear time.
///
/// ```text
/// x -qkv-> -convolution, silu-> query, key of length 1, value -gated delta rule(strength, decay)-> -norm, silu(gate)-> -output->
/// ```
///
/// It has no attention weights: in a trace its layer is empty. Positions are not needed, and rotations not read.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{GatedDeltaConfig, MixerConfig, Pass, PositionConfig, SequenceInput, TransformerConfig};
///
/// let config = TransformerConfig::new(16, 2, 2).with_position(PositionConfig::None);
/// let stack = config.with_mixer(MixerConfig::GatedDelta(GatedDeltaConfig::default())).init(&Device::flex());
/// let x = Tensor::<3>::ones([1, 5, 16], &Device::flex());
/// assert_eq!(stack.forward(x, &SequenceInput::default(), &mut Pass::default()).dims(), [1, 5, 16]);
/// ```
#[doc(alias = "DeltaNet")]
#[doc(alias = "linear attention")]
#[derive(Module, Debug)]
pub struct GatedDelta {
    /// `[D, 2 G E + H W]`: queries and keys of `G` heads, values of `H`.
    pub qkv: Linear,
    /// Over queries, keys and values.
    pub convolution: ShortConvolution,
    /// `[D, H W]`, the gate of the output, `z` of Qwen3-Next.
    pub gate: Linear,
    /// `[D, H]`, how much of the state gives way, before the sigmoid: `b`.
    pub strength: Linear,
    /// `[D, H]`, the step by which the state decays: `a`.
    pub step: Linear,
    /// `[H]`, added to it: `dt_bias`.
    pub step_bias: Param<Tensor<1>>,
    /// `[H]`, the logarithm of the rate of decay: `A_log`.
    pub log_rate: Param<Tensor<1>>,
    /// Norm of what each head finds.
    pub norm: Norm,
    /// `[H W, D]`, from the heads back.
    pub output: Linear,
    n_key_heads: usize,
    n_value_heads: usize,
}

impl TokenMixer for GatedDelta {
    /// Reads the tokens of `x` in turn, from where the state has ended. Padding finds nothing and changes nothing for those behind it; a document
    /// begins with a state of zeros.
    ///
    /// # Panics
    /// If the mask hides more than the future, padding and other documents.
    fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
        expect_valid(GatedDeltaConfig::validate_rule(context.attention.mask.pair_rule()));
        assert!(
            context.attention.mask.hidden_pairs().is_none(),
            "a gated delta rule has no pairs that could be hidden"
        );
        let mut of_pass = GatedDeltaState::new(x.dims()[1]);
        let state = match pass.state() {
            Some(state) => state.expect_mut(),
            None => &mut of_pass,
        };
        state.extend(x.dims()[1]);
        let heads: Vec<_> = Segment::all(x, context).into_iter().map(|segment| self.read(segment, state)).collect();
        let heads = pass.activation_of_heads("attention.heads", Tensor::cat(heads, 1), self.n_value_heads);
        self.output.forward(heads)
    }

    fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
        expect_valid(GatedDeltaConfig::validate_rule(rule));
        Box::new(self.empty_state(capacity))
    }

    fn head_output(&self) -> Option<&Linear> {
        Some(&self.output)
    }

    /// In chunks of `C` tokens: the products of all pairs in them and the system that they make, and of every token with the state.
    fn cost(&self, _rule: &PairRule, length: usize) -> Cost {
        let part = |name: &str, layer: &Linear| Cost::of(layer).with_activations(layer.widths()[1]).named(name);
        let [_, mixed] = self.qkv.widths();
        let (values, d_key) = (self.output_width(), self.d_key());
        let d_value = values / self.n_value_heads;
        // What the nonlinearity reads of all, and the norms of queries and keys.
        let kept = mixed.saturating_add(mixed - values);
        let convolution = Cost::of(&self.convolution).with_activations(kept).named("convolution");
        let decay = Cost::of(&self.step_bias).without_flops().named("step_bias");
        let rate = Cost::of(&self.log_rate).without_flops().named("log_rate");
        let rule = self.n_value_heads as f64 * rule::flops_per_token(length, d_key, d_value);
        let kept = self.n_value_heads.saturating_mul(rule::activations_per_token(length, d_key, d_value));
        let parts = [
            part("qkv", &self.qkv),
            convolution,
            part("gate", &self.gate),
            part("strength", &self.strength),
            part("step", &self.step),
            decay,
            rate,
            Cost::default().with_flops(rule).with_activations(kept).named("rule"),
            self.norm.cost(values).named("norm"),
            Cost::of(&self.output).with_activations(values).named("output"),
        ];
        Cost::sum(parts).with_cache_of(&self.empty_state(length))
    }
}

impl GatedDelta {
    fn empty_state(&self, capacity: usize) -> GatedDeltaState {
        GatedDeltaState::new(capacity).with_sizes([
            ("mixer.n_key_heads", self.n_key_heads),
            ("mixer.n_value_heads", self.n_value_heads),
            ("mixer.d_key", self.d_key()),
            ("mixer.d_value", self.output_width() / self.n_value_heads),
            ("mixer.convolution", self.convolution.history_len() + 1),
        ])
    }

    /// What the heads find, `[B, T, D] -> [B, T, H W]`, from where the state has ended.
    fn read(&self, segment: Segment, state: &mut GatedDeltaState) -> Tensor<3> {
        let segment_tokens =
            SegmentTokens::new(self.queries_keys_values(&segment.x), self.convolution.history_len(), state, &segment);
        let Segment { x, padding, .. } = segment;
        // Padding finds nothing, whatever stands around it.
        let qkv = segment_tokens.convolved(&self.convolution).map(|x| filled(silu(x), &padding, 0.0));
        let tokens = self.tokens(&x, qkv, segment_tokens.starts(), &padding);
        let (found, final_state) = gated_delta_rule(tokens, state.matrices.take());
        state.matrices = Some(final_state);
        let found = self.norm.forward(found.cast(x.dtype()));
        let [batch, length, heads, width] = found.dims();
        let gate = self.gate.forward(x);
        gated(gate, found.reshape([batch, length, heads * width]), Gate::Silu)
    }

    /// `[B, T, D] -> [B, T, G E | G E | H W]`.
    fn queries_keys_values(&self, x: &Tensor<3>) -> [Tensor<3>; 3] {
        let [_, channels] = self.qkv.widths();
        let keys = (channels - self.output_width()) / 2;
        [(0, keys), (keys, 2 * keys), (2 * keys, channels)]
            .map(|(from, to)| self.qkv.forward_columns(x.clone(), from, to))
    }

    /// What the recurrence reads of the tokens `x`, `[B, T, D]`, with their queries, keys and values, `[B, T, G E | G E | H W]`. Padding
    /// writes nothing and lets the state as it is; the first token of a document keeps nothing of it.
    fn tokens(
        &self,
        x: &Tensor<3>,
        [query, key, value]: [Tensor<3>; 3],
        starts: Option<Tensor<2, Bool>>,
        padding: &Option<Tensor<2, Bool>>,
    ) -> Tokens {
        let d_key = query.dims()[2] / self.n_key_heads;
        let heads = |x: Tensor<3>, heads: usize| {
            let [batch, length, width] = x.dims();
            widened(x).reshape([batch, length, heads, width / heads])
        };
        let step = widened(self.step.forward(x.clone())) + widened(self.step_bias.val()).unsqueeze::<3>();
        let log_decay = softplus(step, 1.0) * widened(self.log_rate.val()).exp().neg().unsqueeze::<3>();
        Tokens {
            query: self.shared(unit(heads(query, self.n_key_heads), (d_key as f64).sqrt().recip())),
            key: self.shared(unit(heads(key, self.n_key_heads), 1.0)),
            value: heads(value, self.n_value_heads),
            strength: filled(sigmoid(widened(self.strength.forward(x.clone()))), padding, 0.0),
            log_decay: filled(filled(log_decay, &starts, NOTHING_KEPT), padding, 0.0),
        }
    }

    /// Width of a head's query or key.
    fn d_key(&self) -> usize {
        let [_, mixed] = self.qkv.widths();
        (mixed - self.output_width()) / 2 / self.n_key_heads
    }

    /// Width of all heads of values.
    fn output_width(&self) -> usize {
        self.output.weight.dims()[0]
    }

    /// A key head for each value head: `[B, T, G, E] -> [B, T, H, E]`.
    fn shared(&self, x: Tensor<4>) -> Tensor<4> {
        let [batch, length, groups, d_key] = x.dims();
        if groups == self.n_value_heads {
            return x;
        }
        let x = x.unsqueeze_dim::<5>(3).expand([batch, length, groups, self.n_value_heads / groups, d_key]);
        x.reshape([batch, length, self.n_value_heads, d_key])
    }
}

/// Rows of a length, `length x / sqrt(x xᵀ + 1e-6)`: an RMS norm with one gain.
fn unit(x: Tensor<4>, length: f64) -> Tensor<4> {
    let width = x.dims()[3];
    let gain = Tensor::full([width], length / (width as f64).sqrt(), (&x.device(), x.dtype()));
    rms_norm(x, gain, EPSILON / width as f64)
}

/// Whether `rule` hides nothing but the future and other documents.
fn rule_is_kept(rule: &PairRule) -> bool {
    match rule {
        PairRule::Causal => true,
        PairRule::And(rules) => {
            let kept = |rule: &PairRule| matches!(rule, PairRule::Documents(_)) || rule_is_kept(rule);
            rules.iter().all(kept) && rule.is_causal()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::stack;
    use crate::{
        AttentionConfig, AttentionContext, Cache, Init, MixerConfig, ParamBuilder, Pass, PositionConfig, SequenceInput,
        Trace, Transformer, TransformerConfig, WeightInit,
    };
    use burn::tensor::{Device, FloatDType, Int, TensorData};
    use firelight_kernels::{AttentionMask, assert_close};

    fn noise(shape: [usize; 3], stream: usize, device: &Device) -> Tensor<3> {
        let number = |i: usize| (i as f32 * 1.7 + (i * i) as f32 * 0.013 + stream as f32).sin();
        let numbers: Vec<f32> = (0..shape.iter().product()).map(number).collect();
        Tensor::from_data(TensorData::new(numbers, shape), device)
    }

    fn delta() -> GatedDeltaConfig {
        GatedDeltaConfig::default().with_n_value_heads(4).with_d_key(3).with_d_value(2)
    }

    fn mixer(device: &Device) -> GatedDelta {
        delta().init_with(&AttentionConfig::new(8, 2).with_bias(false), &ParamBuilder::new(device, 0))
    }

    /// Gated DeltaNet in all layers but the second. Weights far from 0, so that what a layer reads shows.
    fn hybrid(device: &Device) -> Transformer {
        let config = TransformerConfig::new(8, 2, 3).with_position(PositionConfig::rotary());
        let config = config
            .with_bias(false)
            .with_init(WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false })
            .with_mixer(MixerConfig::GatedDelta(delta()));
        let mut layers = vec![config.first().clone(); 3];
        layers[1].block.mixer = MixerConfig::Attention;
        config.with_layers(layers).init_with(&ParamBuilder::new(device, 5))
    }

    fn whole(x: Tensor<3>, input: &SequenceInput) -> Tensor<3> {
        hybrid(&x.device()).forward(x, input, &mut Pass::default())
    }

    fn flags<const T: usize>(flags: [bool; T], device: &Device) -> Tensor<2, Bool> {
        Tensor::from_bool(TensorData::new(flags.to_vec(), [1, T]), device)
    }

    #[test]
    fn a_hybrid_stack_holds() {
        let device = Device::flex();
        let outcome = stack(&hybrid(&device), &PairRule::Full, noise([2, 9, 8], 1, &device), 1e-4);
        assert_eq!(outcome.map_err(|violation| violation.to_string()), Ok(()));
    }

    #[test]
    fn a_text_longer_than_a_chunk_in_parts_is_the_whole() {
        let device = Device::default();
        let (model, x) = (hybrid(&device), noise([2, 150, 8], 2, &device));
        let expected = whole(x.clone(), &SequenceInput::default());
        let mut cache = model.cache(150);
        for (start, length) in [(0, 1), (1, 70), (71, 64), (135, 2), (137, 13)] {
            let part = x.clone().narrow(1, start, length);
            let found = model.forward(part, &SequenceInput::default(), &mut Pass::cached(&mut cache));
            assert_close(&found, &expected.clone().narrow(1, start, length), 1e-4);
        }
    }

    /// Texts cut elsewhere than segments are, with documents and padding across the cuts.
    #[test]
    fn a_text_longer_than_a_segment_in_parts_is_the_whole() {
        let device = Device::default();
        let (length, mixer, x) = (2100, mixer(&device), noise([1, 2100, 8], 6, &device));
        let every = |n: usize| (0..length).map(move |t| t % n);
        let documents = TensorData::new(every(length).map(|t| t as i64 / 700).collect(), [1, length]);
        let padding = TensorData::new(every(5).map(|t| t == 0).collect(), [1, length]);
        let context = |start, length| LayerContext {
            attention: AttentionContext::masked(AttentionMask::causal()),
            padding: Some(Tensor::<2, Bool>::from_bool(padding.clone(), &device).narrow(1, start, length)),
            documents: Some(Tensor::<2, Int>::from_data(documents.clone(), &device).narrow(1, start, length)),
            ..LayerContext::default()
        };
        let whole = mixer.forward(x.clone(), &context(0, length), &mut Pass::default().layer(0));
        let mut cache = Cache::new([mixer.state(&PairRule::Causal, length)], length);
        for (start, length) in [(0, 1000), (1000, 100), (1100, 1000)] {
            let (part, context) = (x.clone().narrow(1, start, length), context(start, length));
            let found = mixer.forward(part, &context, &mut Pass::cached(&mut cache).layer(0));
            assert_close(&found, &whole.clone().narrow(1, start, length), 1e-4);
        }
    }

    #[test]
    fn padding_between_tokens_changes_nothing() {
        let device = Device::default();
        let x = noise([1, 6, 8], 3, &device);
        let tokens = [1, 2, 5].map(|place| x.clone().narrow(1, place, 1));
        let alone = whole(Tensor::cat(tokens.to_vec(), 1), &SequenceInput::default());
        let padding = [true, false, false, true, true, false];
        let found =
            |output: Tensor<3>| Tensor::cat([1, 2, 5].map(|place| output.clone().narrow(1, place, 1)).to_vec(), 1);
        let input = SequenceInput::default().with_padding(flags(padding, &device));
        assert_close(&found(whole(x.clone(), &input)), &alone, 1e-5);
        let (model, mut cache) = (hybrid(&device), hybrid(&device).cache(6));
        let steps = (0..6).map(|t| {
            let input = SequenceInput::default().with_padding(flags([padding[t]], &device));
            model.forward(x.clone().narrow(1, t, 1), &input, &mut Pass::cached(&mut cache))
        });
        assert_close(&found(Tensor::cat(steps.collect(), 1)), &alone, 1e-5);
    }

    /// The last text of 5 tokens is cut by padding and ends in it.
    #[test]
    fn documents_begin_anew() {
        let device = Device::default();
        let x = noise([1, 12, 8], 4, &device);
        let names = Tensor::<2, Int>::from_ints([[7, 7, 7, 3, 4, 4, 4, 4, 9, 4, 4, 9]], &device);
        let padding = [8, 11].map(|pad| (0..12).map(|t| t == pad).collect::<Vec<_>>());
        let padding: Vec<bool> = padding[0].iter().zip(&padding[1]).map(|(a, b)| *a || *b).collect();
        let padding = Tensor::<2, Bool>::from_bool(TensorData::new(padding, [1, 12]), &device);
        let input = |start, length| {
            let part = |flags: &Tensor<2, Bool>| flags.clone().narrow(1, start, length);
            SequenceInput::default().with_documents(names.clone().narrow(1, start, length)).with_padding(part(&padding))
        };
        let places: [&[usize]; 3] = [&[0, 1, 2], &[3], &[4, 5, 6, 7, 9, 10]];
        let pick = |x: &Tensor<3>, places: &[usize]| {
            Tensor::cat(places.iter().map(|place| x.clone().narrow(1, *place, 1)).collect(), 1)
        };
        let packed = whole(x.clone(), &input(0, 12));
        let model = hybrid(&device);
        let mut cache = model.cache(12);
        let parts = [(0, 2), (2, 1), (3, 3), (6, 4), (10, 2)].map(|(start, length)| {
            let part = x.clone().narrow(1, start, length);
            model.forward(part, &input(start, length), &mut Pass::cached(&mut cache))
        });
        let parts = Tensor::cat(parts.to_vec(), 1);
        for places in places {
            let alone = whole(pick(&x, places), &SequenceInput::default());
            assert_close(&pick(&packed, places), &alone, 1e-5);
            assert_close(&pick(&parts, places), &alone, 1e-5);
        }
    }

    #[test]
    fn tokens_that_name_no_document_belong_to_the_last() {
        let device = Device::default();
        let (model, x) = (hybrid(&device), noise([1, 5, 8], 6, &device));
        let names = Tensor::<2, Int>::from_ints([[1, 2, 2, 2, 2]], &device);
        let expected = whole(x.clone(), &SequenceInput::default().with_documents(names.clone()));
        let mut cache = model.cache(5);
        let begin = SequenceInput::default().with_documents(names.narrow(1, 0, 2));
        model.forward(x.clone().narrow(1, 0, 2), &begin, &mut Pass::cached(&mut cache));
        let rest = model.forward(x.narrow(1, 2, 3), &SequenceInput::default(), &mut Pass::cached(&mut cache));
        assert_close(&rest, &expected.narrow(1, 2, 3), 1e-5);
    }

    #[test]
    fn half_precision_is_near_single_precision() {
        let device = Device::flex(); // Not every backend has 16 bits.
        let (model, x) = (hybrid(&device), noise([1, 70, 8], 7, &device));
        let run = |precision| {
            let mut cache = model.cache(70);
            let mut pass = Pass::cached(&mut cache).with_precision(precision);
            let output = model.forward(x.clone(), &SequenceInput::default(), &mut pass);
            (output, cache.bytes())
        };
        let (single, bytes) = run(None);
        let (half, half_bytes) = run(Some(FloatDType::BF16));
        let square = |x: Tensor<3>| x.square().sum().into_scalar::<f32>();
        let error = square(half - single.clone()) / square(single);
        assert!((1e-9..0.1).contains(&error), "a share of {error}");
        // Keys and values of 70 tokens in a buffer of 128, and the three tokens before the convolution, take a half.
        assert!(half_bytes < bytes, "{half_bytes} of {bytes} bytes");
    }

    #[test]
    fn a_state_does_not_grow() {
        let device = Device::default();
        let mixer = mixer(&device);
        let attention = AttentionContext::masked(AttentionMask::causal());
        let context = LayerContext { attention, ..LayerContext::default() };
        let mut cache = Cache::new([mixer.state(&PairRule::Causal, 1000)], 1000);
        let mut read = |length| {
            mixer.forward(noise([1, length, 8], 8, &device), &context, &mut Pass::cached(&mut cache).layer(0));
            cache.bytes()
        };
        let sizes = [1, 1, 500, 498].map(&mut read);
        assert_eq!(sizes, [4 * (4 * 3 * 2 + 3 * 20); 4]);
        assert!(cache.can_truncate(0) && !cache.can_truncate(999));
        cache.truncate(0);
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    #[test]
    fn its_layer_of_a_trace_is_empty() {
        let device = Device::default();
        let mut trace = Trace::default();
        let mut pass = Pass::default().with_trace(&mut trace);
        hybrid(&device).forward(noise([1, 4, 8], 9, &device), &SequenceInput::default(), &mut pass);
        assert_eq!(
            trace.layers.iter().map(|layer| layer.attention.is_some()).collect::<Vec<_>>(),
            [false, true, false]
        );
    }

    #[test]
    #[should_panic(expected = "its pattern and the pass's rule must be causal")]
    fn a_mask_that_shows_the_future_is_refused() {
        let x = noise([1, 4, 8], 9, &Device::default());
        mixer(&x.device()).forward(x, &LayerContext::default(), &mut LayerPass::default());
    }

    #[test]
    #[should_panic(expected = "must be causal, without a window")]
    fn a_state_for_a_window_is_refused() {
        mixer(&Device::default()).state(&PairRule::window(2, 0), 8);
    }
}
