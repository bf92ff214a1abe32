//! The search against what is known without it: greedy choice, every sequence there is, and a row alone.

use std::ops::ControlFlow;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::mock::{Pairs, Successor};
use crate::processors::{ContrastiveDecoding, Dry};
use crate::{GenerationOptions, Processing, StopReason, generate};

fn search(model: &Pairs, prompt: &[[u32; 2]], options: &BeamOptions) -> Vec<Vec<Hypothesis>> {
    beam_search(model, prompt.iter().map(|row| row.to_vec()).collect(), options).unwrap()
}

/// A random table for `vocab_size` ids.
fn tables(vocab_size: usize) -> impl Strategy<Value = Pairs> {
    let count = vocab_size * vocab_size * vocab_size;
    proptest::collection::vec(-3.0f32..3.0, count).prop_map(move |table| Pairs::new(vocab_size, table))
}

fn early_stopping() -> impl Strategy<Value = EarlyStopping> {
    prop_oneof![Just(EarlyStopping::Full), Just(EarlyStopping::Heuristic), Just(EarlyStopping::Never)]
}

/// Processors that look back, of which each beam has its own.
fn processing() -> impl Strategy<Value = Processing> {
    (1.0f64..2.0, 2usize..5, 0usize..4, any::<bool>()).prop_map(|(penalty, ngram, least, repeats)| Processing {
        repetition_penalty: penalty,
        no_repeat_ngram_size: ngram,
        min_new_tokens: least,
        dry: (!repeats).then(|| Dry { allowed: 1, ..Dry::default() }),
        ..Processing::default()
    })
}

/// The score of a hypothesis, recomputed from the model's table alone.
fn recomputed(model: &Pairs, prompt: [u32; 2], hypothesis: &Hypothesis, length_penalty: f64) -> f64 {
    let stop = if let StopReason::StopToken(id) = hypothesis.stop_reason { Some(id) } else { None };
    let new: Vec<u32> = hypothesis.ids.iter().copied().chain(stop).collect();
    let text = [prompt.to_vec(), new.clone()].concat();
    let log_probability: f64 = text.windows(3).map(|three| model.log_probability(three[0], three[1], three[2])).sum();
    log_probability / (new.len() as f64).powf(length_penalty)
}

/// Every hypothesis of at most `len` tokens with its score, best first.
fn every(model: &Pairs, prompt: [u32; 2], stop: u32, len: usize, length_penalty: f64) -> Vec<Hypothesis> {
    let mut open = vec![Vec::new()];
    let mut found = Vec::new();
    for length in 1..=len {
        let longer = open.iter().flat_map(|ids: &Vec<u32>| {
            (0..model.vocab_size() as u32).map(|id| ids.iter().copied().chain([id]).collect::<Vec<u32>>())
        });
        let (stopped, rest): (Vec<_>, Vec<_>) = longer.partition(|ids| ids.last() == Some(&stop));
        let stopped = stopped.into_iter().map(|ids| (ids[..length - 1].to_vec(), StopReason::StopToken(stop)));
        found.extend(stopped);
        open = rest;
    }
    found.extend(open.into_iter().map(|ids| (ids, StopReason::MaxNewTokens)));
    let mut found: Vec<Hypothesis> = found
        .into_iter()
        .map(|(ids, stop_reason)| Hypothesis { ids, score: 0.0, scores: Vec::new(), stop_reason })
        .collect();
    for hypothesis in &mut found {
        hypothesis.score = recomputed(model, prompt, hypothesis, length_penalty);
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found
}

#[test]
fn a_beam_finds_what_greedy_choice_misses() {
    // After [0, 0] comes 1 with 0.6 or 2 with 0.4. After 1 all three are alike, after 2 another 2 is certain.
    let model = Pairs::from_probabilities(3, |_, last| match last {
        0 => [1e-9, 0.6, 0.4],
        1 => [0.34, 0.33, 0.33],
        _ => [1e-9, 1e-9, 1.0],
    });
    let options = BeamOptions::new(2).with_length_penalty(0.0);
    let greedy = &search(&model, &[[0, 0]], &options.clone().with_beams(1))[0];
    let beams = &search(&model, &[[0, 0]], &options.with_beams(2).with_n_best(2))[0];
    assert_eq!(greedy[0].ids, [1, 0]); // 0.204
    assert_eq!(beams[0].ids, [2, 2]); // 0.4
    assert!((beams[0].score - 0.4f64.ln()).abs() < 1e-6);
    assert_eq!(beams[1].ids, [1, 0]);
}

#[test]
fn the_state_follows_the_beams() {
    // The token before the last decides: a state whose rows were not reordered would go on with another.
    let model = Pairs::from_probabilities(4, |before, last| match (before, last) {
        (0, 0) => [1e-9, 0.4, 0.35, 0.25],
        (0, _) => [1e-9, 0.3, 0.3, 0.4],
        (1, 3) => [1e-9, 1.0, 1e-9, 1e-9],
        (2, 3) => [1e-9, 1e-9, 1.0, 1e-9],
        (3, 3) => [1e-9, 1e-9, 1e-9, 1.0],
        _ => [0.25; 4],
    });
    let options = BeamOptions::new(3).with_beams(3).with_n_best(3).with_length_penalty(0.0);
    let ids: Vec<Vec<u32>> = search(&model, &[[0, 0]], &options)[0].iter().map(|found| found.ids.clone()).collect();
    assert_eq!(ids, [[1, 3, 1], [2, 3, 2], [1, 1, 0]]); // 0.16, 0.14, 0.03
}

#[test]
fn ended_rows_cost_nothing() {
    // Row 0 stops at once, row 1 never does: from the second step on the model holds the beams of row 1 alone.
    let model = Pairs::from_probabilities(3, |_, last| if last == 0 { [1e-9, 1e-9, 1.0] } else { [0.4, 0.6, 1e-9] });
    let options = BeamOptions::new(4).with_beams(1).with_stop_tokens([2]);
    let found = search(&model, &[[0, 0], [1, 1]], &options);
    assert_eq!(found[0][0], Hypothesis { stop_reason: StopReason::StopToken(2), ids: vec![], ..found[0][0].clone() });
    assert_eq!(
        found[1][0],
        Hypothesis { stop_reason: StopReason::MaxNewTokens, ids: vec![1; 4], ..found[1][0].clone() }
    );
    assert_eq!(model.rows_read(), [2, 1, 1, 1]);
}

#[test]
fn the_last_token_is_not_stepped() {
    let model = Successor::new(8);
    let found = beam_search(&model, vec![vec![2]], &BeamOptions::new(3)).unwrap();
    assert_eq!(found[0][0].ids, [3, 4, 5]);
    assert_eq!(model.steps(), 2);
}

#[test]
fn a_small_vocabulary_has_as_many_hypotheses_as_there_are() {
    let model = Pairs::from_probabilities(2, |_, _| [0.5, 0.5]);
    let options = BeamOptions::new(2).with_beams(9).with_n_best(9);
    assert_eq!(search(&model, &[[0, 0]], &options)[0].len(), 4);
}

#[test]
fn refused_prompts_bad_options_and_broken_logits_are_errors() {
    let model = Successor::new(8).broken_after(2);
    let error = |prompt, options: &BeamOptions| beam_search(&model, prompt, options).unwrap_err();
    assert!(error(vec![vec![]], &BeamOptions::new(3)).to_string().starts_with("the prompt is empty"));
    assert!(matches!(error(vec![vec![1]], &BeamOptions::new(0)), GenerationError::InvalidOptions { .. }));
    let broken = error(vec![vec![1], vec![2]], &BeamOptions::new(9));
    assert!(broken.to_string().starts_with("the model's logits for new token 2 are not finite (row 0)"), "{broken}");
}

#[test]
fn an_error_returns_what_was_found_before_it() {
    let written = |options: &BeamOptions| {
        let model = Successor::new(8).broken_after(2);
        let error = beam_search(&model, vec![vec![1], vec![4]], options).unwrap_err();
        error.texts().iter().map(|row| (row.ids.clone(), row.stop_reason)).collect::<Vec<_>>()
    };
    let options = BeamOptions::new(9).with_beams(2);
    assert_eq!(written(&options), [(vec![2, 3], StopReason::Failed), (vec![5, 6], StopReason::Failed)]);
    let finished = (Vec::new(), StopReason::StopToken(5));
    assert_eq!(written(&options.with_stop_tokens([5])), [(vec![2, 3], StopReason::Failed), finished]);
}

#[test]
fn beams_that_no_token_continues_are_what_was_written() {
    // Of three ids the prompt has two, and none may come again.
    let model = Pairs::from_probabilities(3, |_, _| [0.5, 0.3, 0.2]);
    let processing = Processing { no_repeat_ngram_size: 1, ..Processing::default() };
    let options = BeamOptions::new(9).with_beams(1).with_processing(processing);
    let error = beam_search(&model, vec![vec![2, 0]], &options).unwrap_err();
    assert!(error.to_string().starts_with("no token is left to choose as new token 1 (row 0)"), "{error}");
    assert_eq!((&error.texts()[0].ids[..], error.texts()[0].stop_reason), (&[1][..], StopReason::Failed));
}

/// Why a generation ended, whatever was written before.
fn cause(error: &GenerationError) -> &GenerationError {
    if let GenerationError::Unfinished { cause, .. } = error { cause } else { error }
}

proptest! {
    #[test]
    fn one_beam_is_greedy_choice(
        model in tables(5), first in 0u32..5, full in any::<bool>(), length_penalty in -1.0f64..2.0,
    ) {
        let early_stopping = if full { EarlyStopping::Full } else { EarlyStopping::Heuristic };
        let options = BeamOptions::new(6).with_beams(1).with_stop_tokens([4]).with_early_stopping(early_stopping);
        let found = search(&model, &[[0, first]], &options.with_length_penalty(length_penalty));
        let greedy = GenerationOptions::new(6).greedy().with_stop_tokens([4]);
        let greedy = generate(&model, vec![vec![0, first]], &greedy, |_| ControlFlow::Continue(())).unwrap();
        prop_assert_eq!(&found[0][0].ids, &greedy[0].ids);
        prop_assert_eq!(found[0][0].stop_reason, greedy[0].stop_reason);
    }

    #[test]
    fn one_beam_is_greedy_choice_with_processors_too(
        model in tables(5), first in 0u32..5, ngram in 1usize..4, banned in 0u32..4, least in 0usize..4,
    ) {
        let processing = Processing {
            no_repeat_ngram_size: ngram,
            banned: vec![vec![banned], vec![3, 2]],
            min_new_tokens: least,
            forced_last: vec![4],
            ..Processing::default()
        };
        let options = BeamOptions::new(4).with_beams(1).with_stop_tokens([4]).with_processing(processing.clone());
        let options = options.with_early_stopping(EarlyStopping::Full);
        let prompt = vec![vec![0, first]];
        let greedy = GenerationOptions::new(4).greedy().with_stop_tokens([4]).with_processing(processing);
        match generate(&model, prompt.clone(), &greedy, |_| ControlFlow::Continue(())) {
            Ok(greedy) => {
                let found = search(&model, &[[0, first]], &options).remove(0).remove(0);
                prop_assert_eq!((&found.ids, found.stop_reason), (&greedy[0].ids, greedy[0].stop_reason));
            }
            Err(error) => {
                prop_assert!(matches!(cause(&error), GenerationError::NothingLeft { .. }), "{error}");
                let error = beam_search(&model, vec![vec![0, first]], &options).unwrap_err();
                prop_assert!(matches!(cause(&error), GenerationError::NothingLeft { row: 0, .. }), "{error}");
            }
        }
    }

    #[test]
    fn no_beam_writes_an_ngram_twice(model in tables(4), first in 0u32..4, beams in 1usize..4) {
        let processing = Processing { no_repeat_ngram_size: 2, ..Processing::default() };
        let options = BeamOptions::new(8).with_beams(beams).with_n_best(beams).with_processing(processing);
        // With four ids a text comes to where every pair is taken.
        let found = beam_search(&model, vec![vec![1, first]], &options);
        let is_end = |error: &GenerationError| error.to_string().starts_with("no token is left to choose");
        let found = found.or_else(|error| if is_end(&error) { Ok(vec![Vec::new()]) } else { Err(error) });
        for hypothesis in &found.unwrap()[0] {
            let text = [&[1, first], &hypothesis.ids[..]].concat();
            let pairs: Vec<&[u32]> = text.windows(2).collect();
            prop_assert!((1..pairs.len()).all(|place| !pairs[..place].contains(&pairs[place])), "{text:?}");
        }
    }

    #[test]
    fn scores_fall_and_are_those_of_the_model(
        model in tables(6), first in 0u32..6, beams in 1usize..6, early_stopping in early_stopping(),
        length_penalty in -1.0f64..2.0,
    ) {
        let options = BeamOptions::new(7).with_beams(beams).with_n_best(beams).with_early_stopping(early_stopping);
        let options = options.with_length_penalty(length_penalty).with_stop_tokens([5, 2]);
        let found = &search(&model, &[[1, first]], &options)[0];
        prop_assert!(!found.is_empty());
        prop_assert!(found.windows(2).all(|two| two[0].score >= two[1].score));
        for (i, hypothesis) in found.iter().enumerate() {
            let expected = recomputed(&model, [1, first], hypothesis, length_penalty);
            prop_assert!((hypothesis.score - expected).abs() < 1e-9 * expected.abs(), "{hypothesis:?} {expected}");
            prop_assert!(found[..i].iter().all(|other| (&other.ids, other.stop_reason) != (&hypothesis.ids, hypothesis.stop_reason)));
            prop_assert!(!hypothesis.ids.contains(&5) && !hypothesis.ids.contains(&2));
        }
    }

    #[test]
    fn each_token_has_the_score_of_the_model(model in tables(6), first in 0u32..6, processing in processing()) {
        let options = BeamOptions::new(5).with_beams(3).with_n_best(3).with_stop_tokens([5]).with_logprobs(2);
        for found in &search(&model, &[[1, first]], &options.with_processing(processing))[0] {
            let text = [&[1, first], &found.ids[..]].concat();
            prop_assert_eq!(found.scores.len(), found.ids.len());
            for (score, three) in found.scores.iter().zip(text.windows(3)) {
                let expected = model.log_probability(three[0], three[1], three[2]);
                prop_assert_eq!((score.id, score.top.len()), (three[2], 2));
                prop_assert!((score.log_probability - expected).abs() < 1e-6, "{:?} {}", score, expected);
            }
        }
    }

    #[test]
    fn enough_beams_find_the_best_of_all_sequences(
        model in tables(3), first in 0u32..3, length_penalty in 0.0f64..2.0,
    ) {
        let options = BeamOptions::new(4).with_beams(81).with_n_best(81).with_early_stopping(EarlyStopping::Never);
        let options = options.with_length_penalty(length_penalty).with_stop_tokens([2]);
        let found = &search(&model, &[[0, first]], &options)[0];
        let expected = every(&model, [0, first], 2, 4, length_penalty);
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found.score - expected.score).abs() < 1e-9, "{found:?} {expected:?}");
        }
        // Of several that are equally good any may be the first.
        let is_best = |other: &Hypothesis| other.ids == found[0].ids && (other.score - expected[0].score).abs() < 1e-9;
        prop_assert!(expected.iter().any(is_best), "{found:?} {expected:?}");
    }

    #[test]
    fn a_row_is_searched_in_company_as_it_is_alone(
        (model, amateur) in (tables(6), tables(6)), firsts in proptest::collection::vec(0u32..6, 1..5),
        early_stopping in early_stopping(), length_penalty in -1.0f64..2.0,
        groups in proptest::sample::select(vec![(1usize, 0.0f64), (2, 0.7), (4, 2.5)]), processing in processing(),
        asks_amateur in any::<bool>(),
    ) {
        let options = BeamOptions::new(6).with_beams(4).with_n_best(4).with_early_stopping(early_stopping);
        let options = options.with_length_penalty(length_penalty).with_stop_tokens([5]).with_groups(groups.0, groups.1);
        let mut options = options.with_processing(processing);
        if asks_amateur {
            options = options.with_processor(ContrastiveDecoding::new(Arc::new(amateur)));
        }
        let prompts: Vec<[u32; 2]> = firsts.iter().map(|&first| [2, first]).collect();
        let together = search(&model, &prompts, &options);
        prop_assert_eq!(together.len(), prompts.len());
        for (row, prompt) in together.iter().zip(prompts) {
            prop_assert_eq!(row, &search(&model, &[prompt], &options)[0]);
        }
    }

    #[test]
    fn searching_on_never_finds_less(model in tables(5), first in 0u32..5, length_penalty in 0.0f64..2.0) {
        let best = |early_stopping| {
            let options = BeamOptions::new(6).with_beams(2).with_early_stopping(early_stopping).with_stop_tokens([4]);
            search(&model, &[[0, first]], &options.with_length_penalty(length_penalty))[0][0].score
        };
        let [full, heuristic, never] =
            [EarlyStopping::Full, EarlyStopping::Heuristic, EarlyStopping::Never].map(best);
        prop_assert!(full <= heuristic && heuristic <= never);
    }
}
