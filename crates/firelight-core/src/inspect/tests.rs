use super::*;
use crate::attention::Projection;
use crate::block::{NormPlacement, TransformerBlock};
use crate::context::LayerContext;
use crate::hooks::{Ablation, ActivationSlice, Hooks};
use crate::init::{ParamBuilder, WeightInit};
use crate::layer::FeedForwardNetwork;
use crate::linear::{Linear, LinearConfig};
use crate::mixer::Mixer;
use crate::norm::{Norm, NormConfig};
use crate::pass::{LayerPass, Pass};
use crate::position::PositionConfig;
use crate::transformer::{SequenceInput, Transformer, TransformerConfig};
use crate::weight::Weight;
use burn::module::{Module, Param};
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use firelight_kernels::{Difference, assert_close, assert_same_bits, is_gpu};

fn stack(config: TransformerConfig) -> Transformer {
    let config = config.with_max_seq_len(8).with_init(WeightInit::xavier());
    config.init_with(&ParamBuilder::new(&Device::default(), 0))
}

fn random(shape: [usize; 3]) -> Tensor<3> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Device::default())
}

fn head() -> Linear {
    LinearConfig::new(8, 11).init_with(&ParamBuilder::new(&Device::default(), 1))
}

fn run(model: &Transformer, x: &Tensor<3>, pass: &mut Pass) -> Tensor<3> {
    model.forward(x.clone(), &SequenceInput::default(), pass)
}

#[test]
fn the_lens_behind_the_last_layer_is_the_model() {
    let (model, x, head) = (stack(TransformerConfig::new(8, 2, 3)), random([2, 4, 8]), head());
    let logits = logit_lens(&model, |pass| run(&model, &x, pass), |hidden| head.forward(hidden)).expect("a pass");
    let expected = head.forward(run(&model, &x, &mut Pass::default()));
    assert_eq!(logits.len(), 4);
    assert_close(&logits[3], &expected, 1e-6);
    assert!((logits[2].clone() - expected).abs().max().into_scalar::<f32>() > 1e-3);
}

#[test]
fn parts_sum_to_the_difference_of_logits_and_heads_to_their_layer() {
    use NormPlacement::*;
    let (x, head) = (random([2, 5, 8]), head());
    let score = |hidden: Tensor<3>| {
        let logits = head.forward(hidden);
        (logits.clone().narrow(2, 3, 1) - logits.narrow(2, 7, 1)).squeeze_dim::<2>(2)
    };
    for placement in [Pre, Sandwich, Output, Parallel] {
        for norm in [NormConfig::layer(), NormConfig::rms(), NormConfig::None] {
            let config = TransformerConfig::new(8, 2, 2).with_norm_placement(placement).with_norm(norm);
            // Without biases of the output projection nothing of a layer is beside its heads.
            let config = config.with_attention_bias(false).with_residual_scale(0.5);
            let mut model = stack(config.each_layer(|layer| layer.block.layer_scale = Some(0.7)));
            if let Some(Norm::Layer(norm)) = &mut model.norm {
                norm.beta = Some(Param::from_tensor(Tensor::full([8], 0.3, &Device::default())));
            }
            let found = logit_attribution(&model, |pass| run(&model, &x, pass), score).expect("a sum");
            assert_close(&found.sum(), &found.total, 1e-4);
            assert_close(&found.total, &score(run(&model, &x, &mut Pass::default())), 1e-4);
            assert_eq!([found.heads.len(), found.attention.len()], [2, 2]);
            for (heads, attention) in found.heads.iter().zip(&found.attention) {
                let heads = heads.clone().expect("an attention with heads");
                assert_eq!(heads.dims(), [2, 2, 5]);
                assert_close(&heads.sum_dim(1).squeeze_dim::<2>(1), attention, 1e-4);
            }
        }
    }
    let post = stack(TransformerConfig::new(8, 2, 2).with_norm_placement(Post));
    let error = logit_attribution(&post, |pass| run(&post, &x, pass), score).expect_err("no sum");
    assert!(error.to_string().starts_with("`blocks.0.output`: norm_placement = post"), "{error}");
}

/// A feed-forward network that adds nothing.
#[derive(Module, Debug)]
struct Nothing {}

impl FeedForwardNetwork for Nothing {
    fn forward(&self, x: Tensor<3>, _: &LayerContext, _: &mut LayerPass) -> Tensor<3> {
        x.zeros_like()
    }
}

/// Tokens, places, and where the stream keeps what: the token, its place, the token before, the answer.
const TOKENS: usize = 5;
const PLACES: usize = 8;
const PLACE: usize = TOKENS;
const BEFORE: usize = TOKENS + PLACES;
const ANSWER: usize = 2 * TOKENS + PLACES;
const WIDTH: usize = 3 * TOKENS + PLACES;
/// Where nothing precedes.
const BEGIN: u32 = 4;
/// Scores of a match: all others have `exp(-20)` of its weight.
const MATCH: f32 = 20.0;

type Planted = Transformer<TransformerBlock<Mixer, Nothing>>;

/// Ones that lead from input `from + i` to output `to + i`.
fn paths(shape: [usize; 2], count: usize, [from, to]: [usize; 2], value: f32) -> Weight {
    let mut numbers = vec![0.0; shape[0] * shape[1]];
    (0..count).for_each(|i| numbers[(from + i) * shape[1] + to + i] = value);
    Weight::of_map(Param::from_tensor(Tensor::<2>::from_data(TensorData::new(numbers, shape), &Device::default())))
}

/// Sets head 0 of a layer of two: which channels its query and key compare, and which its value copies where. Head 1 does nothing.
fn plant(attention: &mut Mixer, [query, key]: [[usize; 2]; 2], compared: usize, [value, output]: [usize; 2]) {
    let Mixer::Attention(attention) = attention else { panic!("an attention") };
    let Projection::Separate(parts) = &mut attention.projection else { panic!("three matrices") };
    let inner = 2 * PLACES;
    parts.query.weight = paths([WIDTH, inner], compared, query, MATCH);
    parts.key.weight = paths([WIDTH, inner], compared, key, (PLACES as f32).sqrt());
    parts.value.weight = paths([WIDTH, inner], TOKENS, [value, 0], 1.0);
    attention.output.weight = paths([inner, WIDTH], TOKENS, [0, output], 1.0);
}

/// Layer 0 writes the token before each, layer 1 finds the token that was behind an earlier one of the same kind, and answers by it.
fn planted() -> Planted {
    let config = TransformerConfig::new(WIDTH, 2, 2).with_position(PositionConfig::None).with_norm(NormConfig::None);
    let config = config.with_bias(false).each_layer(|layer| layer.block.attention.d_head = Some(PLACES));
    let params = ParamBuilder::new(&Device::default(), 0);
    let mut model = config.init_layers(&params, |_, block, params| {
        block.init_parts(params, |params| block.init_mixer(params), |_| Nothing {})
    });
    // The query at place p compares with the key of place p - 1.
    plant(&mut model.blocks[0].attention, [[PLACE + 1, 0], [PLACE, 0]], PLACES - 1, [0, BEFORE]);
    plant(&mut model.blocks[1].attention, [[0, 0], [BEFORE, 0]], TOKENS, [0, ANSWER]);
    model
}

/// One-hot tokens and places, `[1, T, D]`.
fn embedded(ids: &[u32]) -> Tensor<3> {
    let mut numbers = vec![0f32; ids.len() * WIDTH];
    for (place, id) in ids.iter().enumerate() {
        numbers[place * WIDTH + *id as usize] = 1.0;
        numbers[place * WIDTH + PLACE + place] = 1.0;
    }
    Tensor::from_data(TensorData::new(numbers, [1, ids.len(), WIDTH]), &Device::default())
}

fn answers(model: &Planted, ids: &[u32], pass: &mut Pass) -> Tensor<3> {
    model.forward(embedded(ids), &SequenceInput::default(), pass).narrow(2, ANSWER, TOKENS)
}

fn numbers(scores: Tensor<1>) -> Vec<f32> {
    scores.into_data().iter().collect()
}

#[test]
fn planted_heads_are_found_by_their_scores() {
    let (model, ids) = (planted(), [BEGIN, 0, 1, 2, 3, 0, 1, 2]);
    let mut hooks = Hooks::new().record("blocks.*.attention.weights");
    let (answers, found) = hooks.run(|pass| answers(&model, &ids, pass)).expect("two layers");
    // Behind the second 0, 1 and 2 the model says 1, 2 and 3.
    let said: Vec<i64> = answers.narrow(1, 5, 3).argmax(2).into_data().iter().collect();
    assert_eq!(said, [1, 2, 3]);
    let weights = |layer: usize| found.get::<4>(&format!("blocks.{layer}.attention.weights")).expect("weights");
    let rows = [ids.to_vec()];

    let previous = numbers(heads::at_distance(weights(0), -1));
    assert!(previous[0] > 0.999 && previous[1] < 0.5, "{previous:?}");
    let induction = numbers(heads::induction(weights(1), &rows));
    assert!(induction[0] > 0.999 && induction[1] < 0.2, "{induction:?}");
    assert!(numbers(heads::induction(weights(0), &rows))[0] < 0.01, "the other head is none");
    assert!(numbers(heads::at_distance(weights(1), -1))[0] < 0.5);
    let [entropy, confidence] = [heads::entropy, heads::confidence].map(|score| numbers(score(weights(0))));
    assert!(entropy[0] < 0.01 && entropy[1] > 1.0, "{entropy:?}");
    assert!(confidence[0] > 0.999 && confidence[1] < 0.5, "{confidence:?}");

    // Head 1 sees all t + 1 tokens alike: of the first token it has the mean of 1/2 to 1/8, of the query's own earlier one 1/6, 1/7 and 1/8.
    let mean = |ones: std::ops::RangeInclusive<u32>| {
        let count = ones.clone().count() as f32;
        ones.map(|number| 1.0 / number as f32).sum::<f32>() / count
    };
    assert_close(&[numbers(heads::first_token(weights(0)))[1]], &[mean(2..=8)], 1e-5);
    assert_close(&[numbers(heads::same_token(weights(0), &rows))[1]], &[mean(6..=8)], 1e-5);
    assert_close(&[numbers(heads::on_tokens(weights(0), &rows, &[BEGIN]))[1]], &[mean(1..=8)], 1e-5);
    assert!(numbers(heads::at_distance(weights(0), 1))[0] < 1e-6, "the future is hidden");
}

#[test]
fn patching_finds_the_token_and_the_head_that_carry_the_answer() {
    let model = planted();
    // Behind 0 stood 1 in the clean text, and 2 in the other.
    let difference = |ids: &[u32], pass: &mut Pass| {
        let last = answers(&model, ids, pass).narrow(1, 5, 1);
        (last.clone().narrow(2, 1, 1) - last.narrow(2, 2, 1)).reshape([1])
    };
    let [clean, corrupted] = [[BEGIN, 0, 1, 2, 3, 0], [BEGIN, 0, 2, 1, 3, 0]];
    let restored = |pattern: &str, columns| {
        let clean = |pass: &mut Pass| difference(&clean, pass);
        patching_effects(pattern, columns, clean, |pass| difference(&corrupted, pass)).expect("two different answers")
    };
    let close = |grid: &Grid, expected: [&[f64]; 2]| {
        let found: Vec<f64> = grid.values.iter().flatten().copied().collect();
        assert_close(&found, &expected.concat(), 1e-4);
    };
    let by_token = restored("blocks.*.output", Columns::Positions);
    assert_eq!(by_token.paths, ["blocks.0.output", "blocks.1.output"]);
    close(&by_token, [&[0.0, 0.0, 1.0, 0.0, 0.0, 0.0], &[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]);
    close(&restored("blocks.*.attention.heads", Columns::Heads), [&[0.0, 0.0], &[1.0, 0.0]]);

    let forward = |pass: &mut Pass| difference(&clean, pass);
    let effects = ablation_effects("blocks.*.attention.heads", Columns::Heads, Ablation::Zero, forward);
    let effects = effects.expect("heads");
    // Without layer 0 the query matches nothing: of six tokens alike one is a 1 and one a 2.
    close(&effects, [&[-1.0, 0.0], &[-1.0, 0.0]]);
    let alike =
        patching_effects("blocks.0.output", Columns::Positions, forward, forward).expect_err("nothing to restore");
    assert!(alike.to_string().contains("nothing is to be restored"), "{alike}");
}

#[test]
fn the_planted_answer_is_attributed_to_its_head() {
    let (model, ids) = (planted(), [BEGIN, 0, 1, 2, 3, 0]);
    let score = |hidden: Tensor<3>| hidden.narrow(2, ANSWER + 1, 1).squeeze_dim::<2>(2);
    let forward = |pass: &mut Pass| model.forward(embedded(&ids), &SequenceInput::default(), pass);
    let parts = logit_attribution(&model, forward, score).expect("a sum");
    let of_head = |layer: usize| parts.heads[layer].clone().expect("heads").narrow(2, 5, 1);
    assert_close(&of_head(1), &[1.0, 0.0], 1e-4);
    assert_close(&of_head(0), &[0.0, 0.0], 1e-6);
    assert_close(&parts.total.clone().narrow(1, 5, 1), &[1.0], 1e-4);
    assert_same_bits(&parts.embedding.clone().into_data(), &parts.embedding.zeros_like().into_data());
}

#[test]
fn the_head_that_answers_by_what_it_sees_copies() {
    let (model, ids) = (planted(), [3, 1, 0]);
    let single = ids.iter().map(|id| embedded(&[*id])).collect();
    let x = Tensor::cat(single, 0); // [3, 1, D]
    let score = |layer: usize| {
        let forward = |pass: &mut Pass| model.forward(x.clone(), &SequenceInput::default(), pass);
        let head = |written: Tensor<3>| written.narrow(2, ANSWER, TOKENS);
        copying(&model, layer, forward, head, (&ids, 1)).expect("heads")
    };
    assert_eq!([score(0), score(1)], [[0.0, 0.0], [1.0, 0.0]]);
}

#[cfg(feature = "autodiff")]
#[test]
fn the_gate_of_a_head_has_the_slope_of_its_ablation_where_the_loss_is_linear() {
    let device = Device::default().autodiff();
    let config = TransformerConfig::new(8, 2, 1).with_max_seq_len(8).with_norm(NormConfig::None);
    let config = config.with_init(WeightInit::xavier());
    let model = config.init_layers(&ParamBuilder::new(&device, 0), |_, block, params| {
        block.init_parts(params, |params| block.init_mixer(params), |_| Nothing {})
    });
    let x = Tensor::<3>::random([1, 4, 8], Distribution::Normal(0.0, 1.0), &device);
    let loss = |pass: &mut Pass| model.forward(x.clone(), &SequenceInput::default(), pass).narrow(2, 0, 1).sum();
    let grid = head_sensitivity("blocks.*.attention.heads", loss).expect("heads");
    let effects = ablation_effects("blocks.*.attention.heads", Columns::Heads, Ablation::Zero, loss).expect("heads");
    let expected: Vec<f64> = effects.values[0].iter().map(|effect| effect.abs()).collect();
    assert_close(&grid.values[0], &expected, 1e-4);
    assert!(expected.iter().all(|effect| *effect > 1e-5), "{expected:?}");
}

#[test]
fn a_probe_reads_the_token_before_behind_the_first_layer_alone() {
    let model = planted();
    let ids: Vec<u32> = vec![BEGIN, 0, 1, 2, 3, 1, 0, 2];
    let before: Vec<usize> = ids[..7].iter().map(|id| *id as usize).collect();
    let mut hooks = Hooks::new().record("embedding").record("blocks.0.output");
    let (_, found) = hooks.run(|pass| answers(&model, &ids, pass)).expect("two layers");
    // Without the places, by which a few rows could be learned by heart.
    let features = |path: &str| {
        let stream = found.get::<3>(path).expect("recorded").narrow(1, 1, 7);
        Tensor::cat(vec![stream.clone().narrow(2, 0, TOKENS), stream.narrow(2, BEFORE, TOKENS)], 2).squeeze_dim::<2>(0)
    };
    let accuracy = |path: &str| {
        let probe = LinearProbe::ridge(features(path), &before, 0.01).expect("it fits");
        probe.accuracy(features(path), &before)
    };
    assert_eq!(accuracy("blocks.0.output"), 1.0);
    assert!(accuracy("embedding") < 1.0, "1 and 0 and 2 each stand behind two kinds of tokens");
}

#[test]
fn places_of_a_grid_need_their_dimension() {
    let (model, x) = (stack(TransformerConfig::new(8, 2, 1)), random([1, 3, 8]));
    let number = |pass: &mut Pass| run(&model, &x, pass).narrow(2, 0, 1).mean();
    let error = ablation_effects("blocks.0.output", Columns::Heads, Ablation::Mean, number).expect_err("no heads");
    assert_eq!(error.to_string(), "`blocks.0.output`: it has the shape [1, 3, 8], which has no heads");
    let by_token = ablation_effects("blocks.0.output", Columns::Positions, Ablation::Zero, number).expect("tokens");
    assert_eq!(by_token.values[0].len(), 3);
    let slice = ActivationSlice::positions([0]);
    let mut hooks = Hooks::new().ablate("blocks.0.output", Ablation::Zero, slice);
    let (alone, _) = hooks.run(number).expect("a token");
    let plain = number(&mut Pass::default());
    assert_close(&[by_token.values[0][0]], &[(alone - plain).into_scalar::<f64>()], 1e-6);
}

#[test]
fn a_pruned_stack_is_the_masked_one_and_smaller() {
    let x = random([2, 5, 8]);
    let base = || TransformerConfig::new(8, 4, 2).with_position(PositionConfig::rotary()).with_d_head(4);
    let fused = base().with_projection(crate::ProjectionKind::Fused).with_attention_gate(true);
    let configs = [
        (base(), [vec![1], vec![0, 3]]),
        (fused.with_attention_sinks(true), [vec![], vec![0, 1, 2]]),
        (base().with_n_kv_heads(2), [vec![2, 3], vec![]]),
        (
            base().with_position(PositionConfig::Learned).with_norm_placement(NormPlacement::Sandwich),
            [vec![3], vec![0]],
        ),
    ];
    for (config, pruned) in configs {
        let config = config.with_max_seq_len(8).with_init(WeightInit::xavier());
        let whole = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        let off = |hooks: Hooks, (layer, heads): (usize, &Vec<usize>)| {
            let path = format!("blocks.{layer}.attention.heads");
            hooks.ablate(path, Ablation::Zero, ActivationSlice::heads(heads.iter().copied()))
        };
        let mut hooks = pruned.iter().enumerate().fold(Hooks::new(), off);
        let (masked, _) = hooks.run(|pass| run(&whole, &x, pass)).expect("heads of both layers");
        let parameters = whole.num_params();
        let (small, config) = prune_heads(whole, &config, &pruned).expect("heads that can go");
        // The heads that are left compute the same bits. The output projection sums fewer terms, in another order; the zeros of the others
        // add nothing.
        let difference = Difference::between(&run(&small, &x, &mut Pass::default()), &masked);
        let limit = if is_gpu(&x.device()) { 1e-5 } else { 1e-6 };
        assert!(difference.relative(1.0) <= limit, "{difference:?}");
        assert!(small.num_params() < parameters);
        let built = config.init_with(&ParamBuilder::new(&Device::default(), 1));
        let entries = |stack: &Transformer| crate::ParameterReport::of(stack).entries().to_vec();
        assert_eq!(entries(&built), entries(&small), "the configuration builds the same parameters");
        let mut cache = small.cache(8);
        let cached = small.forward(x.clone(), &SequenceInput::default(), &mut Pass::cached(&mut cache));
        assert_close(&cached, &masked, 1e-5);
    }
}

#[test]
fn heads_that_cannot_go_are_told_by_their_layers() {
    let refused = |config: TransformerConfig, pruned: [Vec<usize>; 2]| {
        let stack = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        prune_heads(stack, &config, &pruned).expect_err("heads that stay").to_string()
    };
    let base = || TransformerConfig::new(8, 4, 2);
    let told = refused(base(), [vec![4], vec![0, 1, 2, 3]]);
    assert_eq!(told, "layers.0: of n_heads = 4 there are not all of [4]; layers.1: no head would be left: keep one");
    let told = refused(base().with_n_kv_heads(2), [vec![], vec![1]]);
    assert!(told.starts_with("layers.1: groups of 2 heads share their keys and values"), "{told}");
    let told = refused(base().with_position(PositionConfig::Alibi), [vec![1], vec![]]);
    assert!(told.starts_with("layers.0: positions that add to the scores"), "{told}");
}
