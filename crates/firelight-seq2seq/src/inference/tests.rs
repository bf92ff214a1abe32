use std::ops::ControlFlow;

use super::*;
use crate::model::{Seq2SeqConfig, Tying};
use burn::tensor::Device;
use firelight_core::{
    AttentionMechanism, AttentionPattern, ParamBuilder, PositionConfig, RotaryConfig, RotaryScaling, TransformerConfig,
    WeightInit,
};
use firelight_generation::{
    BeamOptions, GenerationOptions, Prefix, PromptLookup, TokenStream, WithVocabulary, beam_search, generate,
};
use firelight_kernels::{Difference, assert_close};
use proptest::prelude::*;

const END: u32 = 12;

fn model(position: PositionConfig) -> Seq2SeqModel {
    model_of(20, |stack| stack.with_position(position.clone()), |decoder| decoder)
}

/// A model whose stacks are changed alike, and then the decoder alone.
fn model_of(
    max_seq_len: usize,
    both: impl Fn(TransformerConfig) -> TransformerConfig,
    decoder: impl FnOnce(TransformerConfig) -> TransformerConfig,
) -> Seq2SeqModel {
    let wide = WeightInit { weight: firelight_core::Init::Normal { std: 0.5 }, scale_residual: false };
    let config = Seq2SeqConfig { start_token: 11, ..Seq2SeqConfig::new(13, 16, 2, 2) }.with_tying(Tying::Target);
    let config = config.with_max_seq_len(max_seq_len);
    let mut config = config.with_both(|stack| both(stack.with_init(wide).with_n_kv_heads(1)));
    config.stacks.decoder = decoder(config.stacks.decoder);
    config.init_with(&ParamBuilder::new(&Device::default(), 0))
}

/// Its frequencies are others from four tokens on.
fn dynamic() -> PositionConfig {
    let scaling = RotaryScaling::Dynamic { factor: 4.0, original_max_seq_len: 3 };
    PositionConfig::Rotary(RotaryConfig::default().with_theta(100.0).with_scaling(scaling))
}

const SOURCES: [&[u32]; 3] = [&[1, 2, 3, 4, 5, END], &[7, 8, END], &[9, 1, 1, END]];

fn rows(sources: &[&[u32]]) -> Vec<Vec<u32>> {
    sources.iter().map(|row| row.to_vec()).collect()
}

fn greedy<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, sources: &[&[u32]]) -> Vec<Vec<u32>> {
    let options = GenerationOptions::new(12).greedy().with_stop_tokens([END]);
    let found = generate(model, rows(sources), &options, |_| ControlFlow::Continue(())).unwrap();
    found.into_iter().map(|row| row.ids).collect()
}

fn beams<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, sources: &[&[u32]], beams: usize) -> Vec<Vec<u32>> {
    let options = BeamOptions::new(12).with_beams(beams).with_stop_tokens([END]);
    let found = beam_search(model, rows(sources), &options).unwrap();
    found.into_iter().map(|mut row| row.remove(0).ids).collect()
}

#[test]
fn the_cache_changes_no_translation_greedy_or_by_beams() {
    for position in [PositionConfig::Learned, PositionConfig::Sinusoidal, PositionConfig::rotary(), dynamic()] {
        let model = model(position.clone());
        assert_eq!(greedy(&model, &SOURCES), greedy(&Uncached(&model), &SOURCES), "{position:?}");
        assert_eq!(beams(&model, &SOURCES, 3), beams(&Uncached(&model), &SOURCES, 3), "{position:?}");
    }
}

#[test]
fn joined_batches_of_sources_of_unequal_length_go_on_as_each_would_alone() {
    let model = model(PositionConfig::Learned);
    // Sources of 3 tokens beside those of 6, and targets of 3 beside those of 1.
    let read = |sources: &[&[u32]], tokens: &[i32]| {
        let (_, mut state) = model.prefill(rows(sources)).unwrap();
        let token = |id: i32| Tensor::full([sources.len()], id, &model.embedding.weight.device());
        tokens.iter().for_each(|&id| drop(model.step(token(id), &mut state)));
        state
    };
    let (mut short, mut long) = (read(&SOURCES[1..2], &[3, 4]), read(&SOURCES, &[]));
    let next = |rows: usize| Tensor::<2, Int>::full([rows, 1], 5, &model.embedding.weight.device());
    let encoder_output = short.encoder_output.clone().join(long.encoder_output.clone());
    let mut joined = short.cache.clone().expect("a cache");
    joined.join(long.cache.clone().expect("a cache"));
    let found = model.decode(next(4), encoder_output, &SequenceInput::default(), &mut Pass::cached(&mut joined));
    let expected = vec![short.read(&model, next(1)), long.read(&model, next(3))];
    let difference = Difference::between(&model.logits(found), &Tensor::cat(expected, 0));
    assert!(difference.absolute <= 1e-4, "{difference:?}");
}

#[test]
fn a_head_that_is_tied_to_the_source_decodes_by_it() {
    let config = Seq2SeqConfig { start_token: 11, ..Seq2SeqConfig::new(13, 16, 2, 2) }.with_tying(Tying::Source);
    let model = config.with_max_seq_len(20).init_with(&ParamBuilder::new(&Device::default(), 0));
    let (found, _) = model.prefill(rows(&SOURCES[..1])).unwrap();
    let (source, padding) = right_padded(&rows(&SOURCES[..1]), &Device::default());
    let start = Tensor::<2, Int>::full([1, 1], 11, &Device::default());
    assert_close(&found, &model.forward(source, padding, start).squeeze_dim::<2>(1), 1e-5);
}

#[test]
fn one_beam_is_greedy() {
    let model = model(PositionConfig::rotary());
    assert_eq!(beams(&model, &SOURCES, 1), greedy(&model, &SOURCES));
}

#[test]
fn company_and_order_change_no_translation() {
    let model = model(PositionConfig::Learned);
    let together = beams(&model, &SOURCES, 4);
    assert_eq!(together.len(), SOURCES.len());
    for (source, found) in SOURCES.iter().zip(&together) {
        assert_eq!(&beams(&model, &[source], 4)[0], found);
    }
    let reversed: Vec<&[u32]> = SOURCES.iter().rev().copied().collect();
    let mut found = beams(&model, &reversed, 4);
    found.reverse();
    assert_eq!(found, together);
}

/// The logits after a target, of a source alone, by the pass of a training.
fn alone(model: &Seq2SeqModel, source: &[u32], target: &[u32]) -> Vec<f32> {
    let device = Device::default();
    let [(source, _), (target, _)] = [source, target].map(|ids| right_padded(&[ids.to_vec()], &device));
    let last = target.dims()[1] - 1;
    model.forward(source, None, target).narrow(1, last, 1).try_into_vec_as().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn rows_that_change_places_branch_and_end_go_on_reading_their_source(
        steps in prop::collection::vec(prop::collection::vec((any::<usize>(), 0_u32..10), 1..6), 1..5),
    ) {
        let model = model(PositionConfig::rotary());
        let (_, mut state) = model.prefill(rows(&SOURCES)).unwrap();
        let mut held: Vec<(usize, Vec<u32>)> = (0..3).map(|source| (source, vec![11])).collect();
        for step in steps {
            let chosen: Vec<usize> = step.iter().map(|(row, _)| row % held.len()).collect();
            let written = |(&row, (_, token)): (&usize, &(usize, u32))| (held[row].0, [&held[row].1[..], &[*token]].concat());
            held = chosen.iter().zip(&step).map(written).collect();
            state.select_rows(&chosen);
            let tokens: Vec<usize> = step.iter().map(|(_, token)| *token as usize).collect();
            let logits = model.step(row_indices(&tokens, &Device::default()), &mut state);
            let logits: Vec<f32> = logits.try_into_vec_as().unwrap();
            prop_assert_eq!(logits.len(), 13 * held.len());
            for (found, (source, target)) in logits.chunks(13).zip(&held) {
                let difference = Difference::between(found, &alone(&model, SOURCES[*source], target));
                prop_assert!(difference.absolute < 1e-3, "{difference:?}");
            }
        }
    }
}

#[test]
fn bad_sources_are_refused() {
    let model = model(PositionConfig::Learned);
    let refuse = |source: Vec<u32>| model.prefill(vec![source]).err().unwrap().to_string();
    assert!(refuse(vec![]).contains("empty"));
    assert!(refuse(vec![0; 21]).contains("21 tokens"));
    assert!(refuse(vec![13]).contains("token id 13"));
}

/// Models whose decoders keep all tokens, the last ones, and sums, and one whose frequencies change with the length.
fn decoders() -> Vec<Seq2SeqModel> {
    let window = AttentionPattern::SlidingWindow { left: 2, right: 0 };
    let of = |decoder: &dyn Fn(TransformerConfig) -> TransformerConfig| model_of(150, |stack| stack, decoder);
    vec![
        of(&|stack| stack.with_position(PositionConfig::Learned)),
        of(&|stack| {
            stack.with_position(PositionConfig::rotary()).with_patterns(vec![window, AttentionPattern::Causal])
        }),
        of(&|stack| stack.with_n_kv_heads(2).with_attention_mechanism(AttentionMechanism::Linear)),
        of(&|stack| stack.with_position(dynamic())),
    ]
}

/// Tokens for each row, `[B, T]`.
fn tokens(ids: &[i32], rows: usize) -> Tensor<2, Int> {
    Tensor::<1, Int>::from_ints(ids, &Device::default()).unsqueeze::<2>().repeat(&[rows, 1])
}

/// A state after the start token and so many others.
fn written(model: &Seq2SeqModel, sources: &[&[u32]], length: i32) -> Seq2SeqState {
    let (_, mut state) = model.prefill(rows(sources)).unwrap();
    if length > 0 {
        let ids: Vec<i32> = (0..length).map(|place| place * place % 11).collect();
        model.extend(tokens(&ids, sources.len()), &mut state);
    }
    state
}

#[test]
fn a_guess_that_is_taken_back_leaves_no_trace() {
    for (number, model) in decoders().into_iter().enumerate() {
        for (sources, length) in [(&SOURCES[..1], 4), (&SOURCES[..], 4), (&SOURCES[..2], 140)] {
            let mut state = written(&model, sources, length);
            if number >= 2 {
                assert_eq!(model.room(&state), 0, "sums do not go back, and guesses would cross a change");
                break;
            }
            assert_eq!(model.room(&state), 64.min(150 - state.len()));
            let (mut untouched, three) = (state.clone(), tokens(&[4, 9, 2], sources.len()));
            let found = model.extend(three.clone(), &mut state);
            // At once and one by one.
            assert_close(&found, &extend_by_steps(&model, three, &mut untouched.clone()), 1e-4);
            assert!(state.can_truncate(untouched.len()) && !state.can_truncate(0));
            state.truncate(untouched.len());
            assert_eq!(state.len(), untouched.len());
            let one = tokens(&[4], sources.len());
            let again = [&mut state, &mut untouched].map(|state| model.extend(one.clone(), state).into_data());
            again[0].assert_eq(&again[1], true);
        }
    }
}

#[test]
fn several_tokens_are_read_as_one_by_one_with_and_without_a_cache() {
    let ids = tokens(&[1, 5, 3, 7, 2], 3);
    for model in decoders() {
        let (_, mut state) = model.prefill(rows(&SOURCES)).unwrap();
        let (_, mut uncached) = Uncached(&model).prefill(rows(&SOURCES)).unwrap();
        let expected = extend_by_steps(&model, ids.clone(), &mut state.clone());
        assert_close(&model.extend(ids.clone(), &mut state), &expected, 1e-4);
        assert_close(&Uncached(&model).extend(ids.clone(), &mut uncached), &expected, 1e-4);
        assert_eq!((state.len(), uncached.len()), (6, 6));
    }
}

#[test]
fn a_target_that_goes_back_behind_a_change_of_frequencies_is_read_anew() {
    let long_rope = RotaryScaling::LongRope {
        factor: 4.0,
        original_max_seq_len: 7,
        short_factor: vec![1.0; 4],
        long_factor: vec![2.0, 4.0, 6.0, 8.0],
        attention_factor: None,
    };
    let model = model(PositionConfig::Rotary(RotaryConfig::default().with_theta(100.0).with_scaling(long_rope)));
    let (mut state, mut expected) = (written(&model, &SOURCES, 9), written(&model, &SOURCES, 4));
    state.truncate(5);
    let found = model.extend(tokens(&[6], 3), &mut state);
    assert_close(&found, &model.extend(tokens(&[6], 3), &mut expected), 1e-4);
}

#[test]
fn there_is_no_room_behind_the_start_token_or_at_the_longest_target() {
    let model = model(PositionConfig::Learned);
    assert_eq!([0, 1, 15, 19].map(|length| model.room(&written(&model, &SOURCES, length))), [0, 18, 4, 0]);
}

/// The target of one source, by a stream that guesses or not.
fn drawn(model: &Seq2SeqModel, source: &[u32], options: &GenerationOptions, guesses: bool) -> Vec<u32> {
    let model = WithVocabulary::new(model, 13);
    let tokens = TokenStream::new(&model, rows(&[source]), options).unwrap();
    let tokens = if guesses { tokens.with_drafter(PromptLookup::default()) } else { tokens };
    tokens.filter_map(|step| step.unwrap()[0]).collect()
}

#[test]
fn guesses_change_no_translation() {
    let greedy = GenerationOptions::new(19).greedy();
    let random = |seed| GenerationOptions::new(19).with_temperature(0.7).with_seed(seed);
    let mut repeats = 0;
    for options in [greedy, random(1), random(2), random(3)] {
        for position in [PositionConfig::Learned, PositionConfig::rotary(), dynamic()] {
            for source in SOURCES {
                let model = model(position.clone());
                let found = drawn(&model, source, &options, true);
                assert_eq!(found, drawn(&model, source, &options, false), "{position:?}");
                repeats += (1..found.len()).filter(|&place| found[..place].contains(&found[place])).count();
            }
        }
    }
    assert!(repeats > 0, "nothing was there to be guessed");
}

#[test]
fn a_source_is_read_whole_whatever_was_read_before() {
    let (model, options) = (model(PositionConfig::rotary()), GenerationOptions::new(8).greedy());
    let mut prefix = Prefix::default();
    // The last begins as every target does.
    for source in [SOURCES[0], SOURCES[1], SOURCES[0], &[11, 4, END]] {
        let mut tokens = TokenStream::after(&model, &mut prefix, source.to_vec(), &options).unwrap();
        let found: Vec<u32> = tokens.by_ref().filter_map(|step| step.unwrap()[0]).collect();
        assert_eq!(found, drawn(&model, source, &options, false));
        prefix = tokens.into_prefix();
    }
}
