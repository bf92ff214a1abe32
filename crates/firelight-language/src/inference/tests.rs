use std::ops::ControlFlow;

use super::*;
use crate::model::LanguageModelConfig;
use firelight_core::{
    AttentionMechanism, AttentionPattern, ParamBuilder, PositionConfig, RotaryConfig, RotaryScaling, TransformerConfig,
    WeightInit,
};
use firelight_generation::{GenerationOptions, generate};
use firelight_kernels::assert_close;

fn model(position: PositionConfig) -> LanguageModel {
    let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(8);
    let wide = firelight_core::WeightInit { weight: firelight_core::Init::Normal { std: 0.4 }, scale_residual: false };
    config
        .with_transformer(|stack| stack.with_position(position).with_init(wide))
        .init_with(&ParamBuilder::new(&Device::default(), 0))
}

fn uncached(model: &LanguageModel) -> WithCache<'_> {
    WithCache::new(model, CacheKind::None)
}

fn compressed(model: &LanguageModel, recent: usize, rate: usize) -> WithCache<'_> {
    WithCache::new(model, CacheKind::Compressed(Compression { recent, rate }))
}

fn greedy<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, prompt: &[&[u32]]) -> Vec<Vec<u32>> {
    let prompt = prompt.iter().map(|row| row.to_vec()).collect();
    let options = GenerationOptions::new(30).greedy();
    let rows = generate(model, prompt, &options, |_| ControlFlow::Continue(())).unwrap();
    rows.into_iter().map(|row| row.ids).collect()
}

/// Its frequencies are others from six tokens on.
fn by_length(scaling: RotaryScaling) -> PositionConfig {
    PositionConfig::Rotary(RotaryConfig::default().with_theta(100.0).with_scaling(scaling))
}

#[test]
fn the_cache_changes_no_text_even_far_beyond_the_context() {
    for position in [
        PositionConfig::None,
        PositionConfig::Learned,
        PositionConfig::Sinusoidal,
        PositionConfig::rotary(),
        by_length(RotaryScaling::Dynamic { factor: 4.0, original_max_seq_len: 5 }),
        by_length(RotaryScaling::LongRope {
            factor: 4.0,
            original_max_seq_len: 5,
            short_factor: vec![1.0; 4],
            long_factor: vec![2.0, 4.0, 6.0, 8.0],
            attention_factor: None,
        }),
        PositionConfig::Alibi,
        PositionConfig::t5(false),
        PositionConfig::shaw(),
    ] {
        let model = model(position.clone());
        assert_eq!(greedy(&model, &[&[1, 2, 3]]), greedy(&uncached(&model), &[&[1, 2, 3]]), "{position:?}");
    }
}

#[test]
fn a_window_decodes_as_far_as_it_forgets() {
    let window = AttentionPattern::SlidingWindow { left: 2, right: 0 };
    for patterns in [vec![window], vec![window, AttentionPattern::Causal]] {
        let stack = |stack: TransformerConfig| {
            let stack = stack.with_position(PositionConfig::rotary()).with_patterns(patterns.clone());
            stack.with_init(WeightInit::xavier())
        };
        let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(150).with_transformer(stack);
        let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        let prompt: Vec<u32> = (0..140).map(|i| i * i % 13).collect();
        let expected = greedy(&uncached(&model), &[&prompt, &prompt[60..]]);
        assert_eq!(greedy(&model, &[&prompt, &prompt[60..]]), expected, "{patterns:?}");
    }
}

#[test]
fn every_mechanism_decodes_alike_with_and_without_a_cache() {
    use AttentionMechanism::{Additive, Bilinear, Linear};
    for mechanism in [Additive, Bilinear, Linear] {
        let stack = |stack: TransformerConfig| {
            let stack = stack.with_position(PositionConfig::rotary()).with_attention_mechanism(mechanism);
            stack.with_init(WeightInit::xavier())
        };
        let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(16).with_transformer(stack);
        let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        let prompts: [&[u32]; 2] = [&[1, 2, 3, 4, 5], &[7, 8]];
        assert_eq!(greedy(&model, &prompts), greedy(&uncached(&model), &prompts), "{mechanism:?}");
    }
}

#[test]
fn a_row_decodes_in_company_as_it_does_alone() {
    let model = model(PositionConfig::Learned);
    let together = greedy(&model, &[&[1, 2, 3, 4, 5], &[7, 8]]);
    // Windows move for all rows at once, so they agree until the longest row fills the context.
    assert_eq!(together[0], greedy(&model, &[&[1, 2, 3, 4, 5]])[0]);
    assert_eq!(together[1][..4], greedy(&model, &[&[7, 8]])[0][..4]);
    assert_eq!(together, greedy(&uncached(&model), &[&[1, 2, 3, 4, 5], &[7, 8]]));
}

#[test]
fn rows_of_padded_prompts_branch_and_go_on() {
    let model = model(PositionConfig::Learned);
    let token = |ids: &[i64]| Tensor::<1, Int>::from_ints(ids, &Device::default());
    let (_, mut state) = model.prefill(vec![vec![1, 2, 3, 4], vec![7, 8]]).unwrap();
    let (_, mut anew) = uncached(&model).prefill(vec![vec![1, 2, 3, 4], vec![7, 8]]).unwrap();
    let (_, mut alone) = model.prefill(vec![vec![7, 8]]).unwrap();
    [&mut state, &mut anew].into_iter().for_each(|state| state.select_rows(&[1, 1]));
    let found = model.step(token(&[9, 5]), &mut state);
    assert_close(&found, &uncached(&model).step(token(&[9, 5]), &mut anew), 1e-4);
    assert_close(&found.narrow(0, 0, 1), &model.step(token(&[9]), &mut alone), 1e-4);
}

#[test]
fn the_start_moves_by_half_a_context() {
    let model = model(PositionConfig::Learned);
    let (_, mut state) = model.prefill(vec![(0..8).collect()]).unwrap();
    let token = || Tensor::<2, Int>::from_ints([[9]], &Device::default());
    assert_eq!(state.push(token(), |_, _| true).0.try_to_vec_as::<i64>().unwrap(), [4, 5, 6, 7, 9]);
    assert_eq!(state.push(token(), |_, _| true).0.dims(), [1, 1]);
    assert_eq!(state.len(), 10);
}

#[test]
fn bad_prompts_are_refused() {
    let model = model(PositionConfig::Learned);
    let refuse = |prompt: Vec<u32>| model.prefill(vec![prompt]).err().unwrap().to_string();
    assert!(refuse(vec![]).contains("empty"));
    assert!(refuse(vec![0; 9]).contains("the prompt has 9 tokens"));
    assert!(refuse(vec![13]).contains("token id 13"));
}

fn stack(change: impl FnOnce(TransformerConfig) -> TransformerConfig) -> LanguageModel {
    let config = LanguageModelConfig::new(13, 16, 2, 2).with_max_seq_len(150);
    let config = config.with_transformer(|stack| change(stack.with_init(WeightInit::xavier())));
    config.init_with(&ParamBuilder::new(&Device::default(), 0))
}

/// Stacks that keep all tokens, the last ones, and sums.
fn stacks() -> Vec<LanguageModel> {
    let window = AttentionPattern::SlidingWindow { left: 2, right: 0 };
    vec![
        stack(|stack| stack.with_position(PositionConfig::Learned)),
        stack(|stack| {
            stack.with_position(PositionConfig::rotary()).with_patterns(vec![window, AttentionPattern::Causal])
        }),
        stack(|stack| stack.with_position(PositionConfig::Alibi)),
        stack(|stack| stack.with_attention_mechanism(AttentionMechanism::Linear)),
        stack(|stack| stack.with_position(long_rope(30))),
    ]
}

/// Its frequencies are others from so many tokens on.
fn long_rope(length: usize) -> PositionConfig {
    by_length(RotaryScaling::LongRope {
        factor: 4.0,
        original_max_seq_len: length,
        short_factor: vec![1.0; 4],
        long_factor: vec![2.0, 4.0, 6.0, 8.0],
        attention_factor: None,
    })
}

#[test]
fn a_text_that_goes_back_behind_a_change_of_frequencies_is_read_anew() {
    let model = stack(|stack| stack.with_position(long_rope(30)));
    let (_, mut state) = model.prefill(vec![ids(60)]).unwrap();
    state.truncate(9);
    let (found, _) = model.prefill_rest(vec![ids(12)], state).unwrap();
    assert_close(&found, &model.prefill(vec![ids(12)]).unwrap().0, 1e-4);
    let (_, near) = model.prefill(vec![ids(28)]).unwrap();
    assert_eq!(model.room(&near), 0, "guesses would cross the change");
}

fn ids(count: u32) -> Vec<u32> {
    (0..count).map(|i| i * i % 13).collect()
}

#[test]
fn a_guess_that_is_taken_back_leaves_no_trace() {
    let [one, three] =
        [&[4][..], &[4, 9, 2]].map(|ids| Tensor::<1, Int>::from_ints(ids, &Device::default()).unsqueeze::<2>());
    for (number, model) in stacks().into_iter().enumerate() {
        for prompt in [vec![ids(5)], vec![ids(140)], vec![ids(9), ids(4)]] {
            let (_, mut state) = model.prefill(prompt.clone()).unwrap();
            if model.room(&state) == 0 {
                assert!(number == 3 || (number == 4 && state.window() < 30), "sums do not go back");
                continue;
            }
            assert_eq!(model.room(&state), 64.min(150 - state.window()));
            let (mut untouched, rows) = (state.clone(), prompt.len());
            let [one, three] = [&one, &three].map(|tokens| tokens.clone().repeat(&[rows, 1]));
            let found = model.extend(three.clone(), &mut state);
            // At once and one by one.
            assert_close(&found, &extend_by_steps(&model, three, &mut untouched.clone()), 1e-4);
            let read = state.len() - 3;
            assert!(state.can_truncate(read) && !state.can_truncate(0));
            state.truncate(read);
            assert_eq!((state.len(), state.window()), (untouched.len(), untouched.window()));
            let again = [&mut state, &mut untouched].map(|state| model.extend(one.clone(), state).into_data());
            again[0].assert_eq(&again[1], true);
        }
    }
}

/// Every cache goes back to nothing, those that keep sums too.
#[test]
fn behind_a_prompt_of_one_token_sums_have_no_room_for_guesses() {
    for model in stacks() {
        let (_, mut state) = model.prefill(vec![vec![3]]).unwrap();
        let room = model.room(&state);
        model.extend(Tensor::from_ints([[4, 9]], &Device::default()), &mut state);
        assert!(room == 0 || state.can_truncate(2));
    }
}

#[test]
fn more_tokens_than_fit_are_read_one_by_one_and_a_moved_window_does_not_go_back() {
    let model = model(PositionConfig::Learned);
    let (_, state) = model.prefill(vec![ids(6)]).unwrap();
    let tokens = Tensor::<2, Int>::from_ints([[1, 2, 3, 4]], &Device::default());
    let mut states = [state.clone(), state];
    let found = model.extend(tokens.clone(), &mut states[0]);
    assert_close(&found, &extend_by_steps(&model, tokens, &mut states[1]), 1e-5);
    assert_eq!((states[0].len(), states[0].window()), (10, 6));
    assert!(states[0].can_truncate(9) && !states[0].can_truncate(8), "the window moved for the ninth");
}

#[test]
fn a_prompt_that_begins_alike_is_read_from_where_it_differs() {
    for model in stacks() {
        let (_, mut state) = model.prefill(vec![ids(60)]).unwrap();
        let longer = [ids(60), vec![7; 20]].concat();
        let (expected, _) = model.prefill(vec![longer.clone()]).unwrap();
        let (found, after) = model.prefill_rest(vec![longer.clone()], state.clone()).unwrap();
        assert_close(&found, &expected, 1e-4);
        assert_eq!(after.len(), 80);
        if !state.can_truncate(59) {
            continue;
        }
        state.truncate(59);
        let (found, _) = model.prefill_rest(vec![ids(60)], state.clone()).unwrap();
        assert_close(&found, &model.prefill(vec![ids(60)]).unwrap().0, 1e-4);
        let refused = model.prefill_rest(vec![vec![99; 60]], state.clone()).err().unwrap().to_string();
        assert!(refused.contains("token id 99"), "{refused}");
        assert!(model.prefill_rest(vec![ids(151)], state).is_err());
    }
}

#[test]
fn a_prompt_that_goes_on_keeps_what_its_own_decoder_keeps() {
    let model = model(PositionConfig::Learned);
    let keeping = |tokens| WithCache::new(&model, CacheKind::Plain).keeping(tokens);
    let (_, state) = keeping(3).prefill(vec![vec![1, 2, 3, 4]]).unwrap();
    assert_eq!(state.keep, 3);
    let prompt = vec![vec![1, 2, 3, 4, 5, 6]];
    assert_eq!(keeping(1).prefill_rest(prompt.clone(), state.clone()).unwrap().1.keep, 1);
    assert_eq!(model.prefill_rest(prompt, state).unwrap().1.keep, 0);
}

#[test]
fn rows_that_join_go_on_as_they_would_alone() {
    let token = |ids: &[i32]| Tensor::<1, Int>::from_ints(ids, &Device::default());
    // Frequencies that depend on the length are those of the longest row.
    for model in stacks().into_iter().take(4) {
        for prompts in [[ids(9), ids(4)], [ids(4), ids(9)], [ids(140), ids(70)], [ids(6), ids(6)]] {
            let mut alone = prompts.map(|prompt| model.prefill(vec![prompt]).unwrap().1);
            let mut joined = alone[0].clone();
            joined.join(alone[1].clone());
            for step in [[3, 8], [1, 5]] {
                let found = model.step(token(&step), &mut joined);
                for (row, state) in alone.iter_mut().enumerate() {
                    let expected = model.step(token(&step[row..=row]), state);
                    assert_close(&found.clone().narrow(0, row, 1), &expected, 1e-4);
                }
            }
            joined.select_rows(&[1]);
            let [found, expected] = [&mut joined, &mut alone[1]].map(|state| model.step(token(&[2]), state));
            assert_close(&found, &expected, 1e-4);
        }
    }
}

#[test]
fn a_past_that_is_never_old_is_the_plain_cache_even_far_beyond_the_context() {
    for position in
        [PositionConfig::Learned, PositionConfig::rotary(), PositionConfig::Alibi, PositionConfig::t5(false)]
    {
        let model = model(position.clone());
        let prompts: [&[u32]; 2] = [&[1, 2, 3], &[4, 5, 6]];
        assert_eq!(greedy(&compressed(&model, 8, 4), &prompts), greedy(&model, &prompts), "{position:?}");
    }
}

#[test]
fn steps_with_a_compressed_past_take_less_memory_and_go_on_beyond_the_context() {
    let mut tried = 0;
    for model in stacks().into_iter().filter(|model| model.compressed_cache(Compression { recent: 9, rate: 4 }).is_ok())
    {
        let decoder = compressed(&model, 9, 4);
        let [mut small, mut full] =
            [decoder.prefill(vec![ids(100)]), model.prefill(vec![ids(100)])].map(|read| read.unwrap().1);
        let token = |place: u32| Tensor::<1, Int>::from_ints([(place % 13) as i32], &Device::default());
        for place in 0..60 {
            let logits = decoder.step(token(place), &mut small);
            assert!(logits.max().into_scalar::<f32>().is_finite());
            model.step(token(place), &mut full);
        }
        assert_eq!(small.window(), full.window());
        let bytes = [&small, &full].map(|state| state.cache.as_ref().map_or(0, Cache::bytes));
        assert!(bytes[0] < bytes[1], "{bytes:?}");
        tried += 1;
    }
    assert!(tried > 0);
}

#[test]
fn guesses_up_to_the_next_compression_are_read_as_steps_are() {
    let model = stack(|stack| stack.with_position(PositionConfig::rotary()));
    let decoder = compressed(&model, 9, 4);
    let tokens = Tensor::<1, Int>::from_ints([4, 9, 2, 7], &Device::default()).unsqueeze::<2>();
    for length in 20..28 {
        let (_, state) = decoder.prefill(vec![ids(length)]).unwrap();
        let room = decoder.room(&state);
        assert_eq!(room, 4 - (length as usize - 9) % 4);
        let (tokens, mut states) = (tokens.clone().narrow(1, 0, room), [state.clone(), state.clone(), state]);
        let found = decoder.extend(tokens.clone(), &mut states[0]);
        assert_close(&found, &extend_by_steps(&decoder, tokens.clone(), &mut states[1]), 1e-4);
        states[0].truncate(length as usize);
        let again = decoder.extend(tokens.clone(), &mut states[0]);
        again.into_data().assert_eq(&decoder.extend(tokens, &mut states[2]).into_data(), true);
    }
}

#[test]
fn a_compressed_past_takes_rows_of_one_length_and_refuses_others() {
    let model = stack(|stack| stack.with_position(PositionConfig::rotary()));
    let decoder = compressed(&model, 9, 4);
    let token = |ids: &[i32]| Tensor::<1, Int>::from_ints(ids, &Device::default());
    let other: Vec<u32> = ids(30).into_iter().rev().collect();
    let (_, mut together) = decoder.prefill(vec![ids(30), other.clone()]).unwrap();
    let mut alone = [ids(30), other].map(|prompt| decoder.prefill(vec![prompt]).unwrap().1);
    let mut joined = alone[0].clone();
    joined.join(alone[1].clone());
    for _ in 0..6 {
        let found = [&mut together, &mut joined].map(|state| decoder.step(token(&[3, 8]), state));
        for (row, state) in alone.iter_mut().enumerate() {
            let expected = decoder.step(token(&[[3, 8][row]]), state);
            found.iter().for_each(|found| assert_close(&found.clone().narrow(0, row, 1), &expected, 1e-4));
        }
    }
    let error = decoder.prefill(vec![ids(5), ids(7)]).err().unwrap();
    assert!(error.is_user_error() && error.to_string().starts_with("the prompts have 5 to 7 tokens"), "{error}");
    let (_, longer) = decoder.prefill(vec![ids(40)]).unwrap();
    let join = std::panic::AssertUnwindSafe(|| alone[0].clone().join(longer));
    assert!(std::panic::catch_unwind(join).is_err());
}

#[test]
fn a_compression_that_is_impossible_is_refused() {
    let linear = stack(|stack| stack.with_attention_mechanism(AttentionMechanism::Linear));
    for (model, rate, problem) in
        [(linear, 4, "compression needs a layer"), (model(PositionConfig::None), 0, "compression.rate = 0")]
    {
        let error = compressed(&model, 9, rate).prefill(vec![vec![1]]).err().unwrap();
        assert!(error.is_user_error() && error.to_string().contains(problem), "{error}");
    }
}
