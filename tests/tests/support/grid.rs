//! The variants that properties and round trips run over. A new variant is one word here, a new choice one line; the rows
//! are laid out by `covering`, so that any two values of any two choices meet.

use firelight::language::LanguageModelConfig;
use firelight::nn::{
    Activation, AttentionMechanism, AttentionPattern, DifferentialConfig, EmbeddingProjectionConfig, EmbeddingScale,
    ExpertsConfig, GatedDeltaConfig, HeadOptions, LatentConfig, LayerConfig, MixerConfig, NormConfig, NormPlacement,
    NormSpan, PositionConfig, ProjectionKind, ProjectionPlacement, RotaryAxes, RotaryConfig, RotaryLayout,
    RotaryScaling, RouterScores, ScoreScale, TransformerConfig, WeightInit,
};

use super::covering::covering;
use super::is_gpu;

/// With the value `full` a GPU gets all rows, too.
const SWITCH: &str = "FIRELIGHT_TEST_GRID";

/// Of this many rows a GPU gets one: it compiles every new shape.
const PART: usize = 8;

/// How a query weighs the keys. Each has rows of its own, of those values that it goes with.
const MECHANISMS: [AttentionMechanism; 5] = [
    AttentionMechanism::DotProduct,
    AttentionMechanism::Bilinear,
    AttentionMechanism::Additive,
    AttentionMechanism::Linear,
    AttentionMechanism::Performer { features: 6 },
];

/// Of the norms of heads: what a head finds may be small, and a norm makes the roundings of it large.
const EPSILON: f64 = 1e-2;

/// What stands in the place of attention with queries, keys and values, alike.
const MIXERS: [MixerConfig; 5] = [
    MixerConfig::Differential(DifferentialConfig {
        lambda_init: None,
        lambda_std: 0.5,
        epsilon: EPSILON,
        affine: true,
    }),
    MixerConfig::Differential(DifferentialConfig {
        lambda_init: Some(0.4),
        lambda_std: 0.5,
        epsilon: EPSILON,
        affine: false,
    }),
    MixerConfig::GatedDelta(GatedDeltaConfig {
        n_key_heads: Some(2),
        n_value_heads: Some(4),
        d_key: Some(3),
        d_value: Some(5),
        convolution: 3,
        epsilon: EPSILON,
    }),
    MixerConfig::Latent(LatentConfig { d_latent: 6, d_rotary: 4, d_query_latent: None }),
    MixerConfig::Latent(LatentConfig { d_latent: 3, d_rotary: 2, d_query_latent: Some(5) }),
];

/// How many choices, the first ones, are crossed in full in [`decoders`], with the first mechanism.
const CROSSED: usize = 4;

/// One choice: its values, each as the change that it makes to a configuration.
type Choice = Vec<Change>;

type Change = Box<dyn Fn(TransformerConfig) -> TransformerConfig>;

fn choice<T: Clone + 'static>(
    values: impl IntoIterator<Item = T>,
    set: impl Fn(TransformerConfig, T) -> TransformerConfig + Copy + 'static,
) -> Choice {
    let change = |value: T| -> Change { Box::new(move |config| set(config, value.clone())) };
    values.into_iter().map(change).collect()
}

/// All that a stack can be made of. Position, pattern, placement and key/value heads come first.
fn choices(causal: bool) -> Vec<Choice> {
    use Activation::*;
    use NormPlacement::*;
    vec![
        choice(positions(causal), TransformerConfig::with_position),
        choice(patterns(causal), TransformerConfig::with_patterns),
        choice([Pre, Post, Sandwich, Output, Parallel, ParallelTwoNorms], TransformerConfig::with_norm_placement),
        choice([4, 2, 1], TransformerConfig::with_n_kv_heads),
        choice(
            [Relu, Gelu, GeluTanh, QuickGelu, Silu, SquaredRelu, SwiGlu, GeGlu, GeGluTanh, ReGlu, ClampedSwiGlu],
            TransformerConfig::with_activation,
        ),
        choice(
            [
                NormConfig::layer(),
                NormConfig::Layer { epsilon: 1e-5, bias: false },
                NormConfig::rms(),
                NormConfig::None,
            ],
            TransformerConfig::with_norm,
        ),
        choice([ProjectionKind::Separate, ProjectionKind::Fused], TransformerConfig::with_projection),
        choice(
            [
                None,
                Some(NormConfig::rms()),
                Some(NormConfig::layer()),
                Some(NormConfig::Layer { epsilon: 1e-5, bias: false }),
            ],
            TransformerConfig::with_query_key_norm,
        ),
        choice(
            [ScoreScale::InverseSqrt, ScoreScale::Constant(0.2), ScoreScale::None],
            TransformerConfig::with_attention_scale,
        ),
        choice([None, Some(5.0)], TransformerConfig::with_attention_soft_cap),
        choice([false, true], TransformerConfig::with_attention_sinks),
        choice([false, true], TransformerConfig::with_attention_gate),
        choice([true, false], TransformerConfig::with_bias),
        choice([true, false], TransformerConfig::with_attention_bias),
        choice([NormSpan::Head, NormSpan::AllHeads], TransformerConfig::with_query_key_norm_span),
        choice([None, Some(true), Some(false)], |config, bias| {
            config.each_layer(|layer| layer.block.attention.qkv_bias = bias)
        }),
        choice([None, Some(8)], |config, width| config.each_layer(|layer| layer.block.attention.d_head = width)),
        choice([None, Some(6)], |config, width| config.each_layer(|layer| layer.block.attention.d_value = width)),
        choice(experts(), |config, experts| config.each_layer(|layer| layer.block.experts = experts)),
        choice([None, Some(0.5)], |config, scale| config.each_layer(|layer| layer.block.layer_scale = scale)),
        choice([1.0, 0.5], TransformerConfig::with_residual_scale),
        choice([false, true], TransformerConfig::with_embedding_norm),
        choice(projections(), TransformerConfig::with_embedding_projection),
        choice([false, true], TransformerConfig::with_share_layers),
        choice(
            [None, Some(Other::NoPositions), Some(Other::OwnPositions), Some(Other::PlainAttention)],
            |config, other| match other {
                Some(other) => with_another_layer(config, other),
                None => config,
            },
        ),
        // Also where the placement of the norms says otherwise.
        choice([None, Some(false), Some(true)], TransformerConfig::with_final_norm),
    ]
}

/// What every second layer has of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Other {
    /// No positions, another inner width and another norm.
    NoPositions,
    /// Rotary positions, another inner width and another norm.
    OwnPositions,
    /// Dot products in the place of the stack's mixer and mechanism, and another inner width.
    PlainAttention,
}

fn with_another_layer(config: TransformerConfig, other: Other) -> TransformerConfig {
    let first = config.first().clone();
    let other = match other {
        Other::PlainAttention => with_plain_attention(first.clone()),
        _ => with_other_positions(first.clone(), other == Other::OwnPositions),
    };
    config.with_layers(vec![first, other])
}

fn with_plain_attention(mut layer: LayerConfig) -> LayerConfig {
    layer.block.mixer = MixerConfig::Attention;
    layer.block.attention.mechanism = AttentionMechanism::DotProduct;
    layer.block.feed_forward.d_ff = Some(28);
    layer
}

fn with_other_positions(layer: LayerConfig, turns: bool) -> LayerConfig {
    let rotary = |theta| PositionConfig::Rotary(RotaryConfig::default().with_theta(theta));
    let mut other = layer.with_position(if turns { rotary(50.0) } else { PositionConfig::None });
    other.block.feed_forward.d_ff = Some(if turns { 20 } else { 12 });
    other.block.norm = NormConfig::Layer { epsilon: 1e-5, bias: turns };
    if turns && other.block.norm_placement != NormPlacement::Output {
        other.block.attention_norm = Some(NormConfig::None); // As the first layer of ModernBERT.
    }
    other
}

/// Embeddings of the width of the stack, so that all rows read the same inputs.
fn projections() -> [Option<EmbeddingProjectionConfig>; 3] {
    let of = EmbeddingProjectionConfig::new(16);
    [None, Some(of), Some(of.with_bias(false).with_placement(ProjectionPlacement::BeforePositions))]
}

fn experts() -> [Option<ExpertsConfig>; 6] {
    let of = ExpertsConfig::new;
    let divided = |renormalise| Some(of(3).with_renormalise(renormalise));
    let grouped = of(4).with_scores(RouterScores::Sigmoid).with_correction(true).with_groups(2, 1);
    let grouped = grouped.with_shared(1).with_scale(1.5).with_router_bias(true);
    [None, Some(of(3)), Some(of(2).with_top_k(1)), divided(false), divided(true), Some(grouped)]
}

fn positions(causal: bool) -> Vec<PositionConfig> {
    let base = || RotaryConfig::default().with_theta(100.0);
    let rotary = |scaling| PositionConfig::Rotary(base().with_scaling(scaling));
    let yarn = |truncate| RotaryScaling::Yarn {
        factor: 4.0,
        original_max_seq_len: 16,
        beta_fast: 8.0,
        beta_slow: 0.5,
        truncate,
        attention_factor: (!truncate).then_some(1.5),
    };
    let longrope = RotaryScaling::LongRope {
        factor: 4.0,
        original_max_seq_len: 512,
        short_factor: vec![1.5, 2.0],
        long_factor: vec![2.0, 4.0],
        attention_factor: None,
    };
    let llama3 =
        RotaryScaling::Llama3 { factor: 4.0, original_max_seq_len: 64, low_freq_factor: 1.0, high_freq_factor: 4.0 };
    vec![
        PositionConfig::None,
        PositionConfig::Learned,
        PositionConfig::Sinusoidal,
        PositionConfig::SinusoidalHalves,
        PositionConfig::rotary(),
        rotary(RotaryScaling::Linear { factor: 2.0 }),
        rotary(RotaryScaling::Ntk { factor: 2.0 }),
        rotary(llama3),
        // Within the original length: what happens beyond it is in the tests of the stack.
        PositionConfig::Rotary(
            base()
                .with_width(4)
                .with_scaling(RotaryScaling::Dynamic { factor: 2.0, original_max_seq_len: 512 })
                .with_axes(RotaryAxes::Sections { sections: vec![1, 1] }),
        ),
        PositionConfig::Rotary(
            base().with_width(4).with_scaling(longrope).with_axes(RotaryAxes::Interleaved { sections: vec![1, 1] }),
        ),
        PositionConfig::Rotary(base().with_axes(RotaryAxes::axial())),
        rotary(yarn(true)),
        PositionConfig::Rotary(base().with_layout(RotaryLayout::Interleaved).with_width(2).with_scaling(yarn(false))),
        PositionConfig::Alibi,
        PositionConfig::T5 { n_buckets: 4, max_distance: 5, bidirectional: !causal },
        PositionConfig::Shaw { max_distance: 3 },
    ]
}

/// Every pattern in every layer, and two in turn.
fn patterns(causal: bool) -> Vec<Vec<AttentionPattern>> {
    let plain = if causal { AttentionPattern::Causal } else { AttentionPattern::Full };
    let window = AttentionPattern::SlidingWindow { left: 2, right: if causal { 0 } else { 1 } };
    vec![
        vec![plain],
        vec![window],
        vec![window, plain],
        vec![AttentionPattern::Chunked { size: 3, causal }],
        vec![AttentionPattern::Strided { stride: 2, causal }],
        vec![AttentionPattern::LocalGlobal { window: 1, global: 2, causal }],
        vec![AttentionPattern::BigBird { window: 1, global: 1, random: 1, block: 2, seed: 1, causal }],
    ]
}

/// Causal stacks: position x pattern x placement x key/value heads, and any two values of any two choices.
pub(crate) fn decoders() -> Vec<TransformerConfig> {
    if takes_a_part() { decoder_pairs() } else { rows(true, CROSSED) }
}

/// Causal stacks in which any two values of any two choices meet, as few as that takes.
pub(crate) fn decoder_pairs() -> Vec<TransformerConfig> {
    for_device(rows(true, 0))
}

/// The same for stacks that see their future.
pub(crate) fn encoder_pairs() -> Vec<TransformerConfig> {
    for_device(rows(false, 0))
}

/// Decoders, encoders and decoders with cross-attention, on every device.
pub(crate) fn all_pairs() -> [Vec<TransformerConfig>; 3] {
    [rows(true, 0), rows(false, 0), with_memory(rows(true, 0))]
}

/// What a GPU gets of them.
pub(crate) fn parts_of_pairs() -> [Vec<TransformerConfig>; 3] {
    [part(rows(true, 0)), part(rows(false, 0)), with_memory(part(rows(true, 0)))]
}

fn for_device(rows: Vec<TransformerConfig>) -> Vec<TransformerConfig> {
    if takes_a_part() { part(rows) } else { rows }
}

fn part(rows: Vec<TransformerConfig>) -> Vec<TransformerConfig> {
    rows.into_iter().step_by(PART).collect()
}

fn takes_a_part() -> bool {
    match std::env::var(SWITCH).as_deref() {
        Err(_) => is_gpu(),
        Ok("full") => false,
        Ok(other) => panic!("{SWITCH}={other}: the only value is `full`, which gives a GPU all rows of the grid"),
    }
}

/// Decoders with cross-attention.
pub(crate) fn cross_decoder_pairs() -> Vec<TransformerConfig> {
    with_memory(decoder_pairs())
}

/// All but parallel blocks, which have no place for cross-attention.
fn with_memory(rows: Vec<TransformerConfig>) -> Vec<TransformerConfig> {
    let possible = |config: &TransformerConfig| !config.first().block.norm_placement.is_parallel();
    rows.into_iter().filter(possible).map(|config| config.with_cross_attention(true)).collect()
}

fn rows(causal: bool, crossed: usize) -> Vec<TransformerConfig> {
    let of = |(index, base): (usize, TransformerConfig)| {
        let crossed = if index == 0 { crossed } else { 0 };
        let possible = |change: &Change| change(base.clone()).validate().is_ok();
        let choices = choices(causal).into_iter().map(|choice| choice.into_iter().filter(possible).collect());
        let choices: Vec<Choice> = choices.collect();
        let sizes: Vec<usize> = choices.iter().map(Vec::len).collect();
        let config = |row: Vec<usize>| {
            row.iter().zip(&choices).fold(base.clone(), |config, (value, choice)| choice[*value](config))
        };
        covering(&sizes, crossed).into_iter().map(config).collect::<Vec<_>>()
    };
    let mechanisms = MECHANISMS.map(|mechanism| base().with_attention_mechanism(mechanism));
    let mixers = MIXERS.map(|mixer| base().with_mixer(mixer)).into_iter().filter(|base| causal || !recurs(base));
    mechanisms.into_iter().chain(mixers).enumerate().flat_map(of).collect()
}

/// Whether its layers read the tokens in turn, so that none sees what follows.
fn recurs(config: &TransformerConfig) -> bool {
    matches!(config.first().block.mixer, MixerConfig::GatedDelta(_))
}

/// Language models of one layer in which any two values of any two choices beside the stack meet: the factor of the embeddings, the
/// options of the head, whether it is tied, and embeddings of another width.
pub(crate) fn language_models() -> Vec<LanguageModelConfig> {
    let scales = [EmbeddingScale::None, EmbeddingScale::SqrtWidth, EmbeddingScale::Constant(3.0)];
    let narrow = EmbeddingProjectionConfig::new(6);
    let placed = narrow.with_bias(false).with_placement(ProjectionPlacement::BeforePositions);
    let projections = [None, Some(narrow), Some(placed)];
    let of = |row: Vec<usize>| {
        let head = HeadOptions::default().with_bias([false, true][row[1]]).with_scale([1.0, 0.5][row[2]]);
        LanguageModelConfig::new(8, 16, 4, 1)
            .with_scale_embedding(scales[row[0]])
            .with_head(head.with_soft_cap([None, Some(5.0)][row[3]]))
            .with_tied([false, true][row[4]])
            .with_transformer(|_| {
                TransformerConfig { n_layers: 1, ..base() }.with_embedding_projection(projections[row[5]])
            })
    };
    covering(&[scales.len(), 2, 2, 2, 2, projections.len()], 0).into_iter().map(of).collect()
}

/// Two small layers. Weights as wide as those of a trained model, so that no defect hides behind small numbers.
fn base() -> TransformerConfig {
    TransformerConfig::new(16, 4, 2).with_max_seq_len(16).with_d_ff(24).with_init(WeightInit::xavier())
}
