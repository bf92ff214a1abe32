use burn::tensor::Device;
use proptest::prelude::*;

use super::*;
use crate::Processing;
use crate::mock::chi_squared;

fn sampler(options: GenerationOptions) -> Sampler {
    Sampler::new(&options).unwrap()
}

fn logits<const V: usize>(rows: Vec<[f32; V]>) -> Tensor<2> {
    let batch_size = rows.len();
    Tensor::from_data(TensorData::new(rows.concat(), [batch_size, V]), &Device::default())
}

#[test]
fn pick_walks_the_running_sum_and_skips_zeros() {
    let probabilities = [0.0, 0.25, 0.0, 0.5, 0.25, 0.0]; // sums 0, 0.25, 0.25, 0.75, 1, 1
    let picked = [0.0, 0.2499, 0.25, 0.7499, 0.75, 0.9999].map(|draw| pick(&probabilities, draw));
    assert_eq!(picked, [1, 1, 3, 3, 4, 4]);
    assert_eq!(pick(&[0.5, 0.4999, 0.0], 0.99999), 1); // the sum fell short of the draw
}

#[test]
fn greedy_takes_the_lowest_id_among_equals() {
    let sampled = sampler(GenerationOptions::new(1).greedy())
        .sample(logits(vec![[0.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]]), 0)
        .unwrap();
    assert_eq!(sampled.ids, [1, 0]);
    assert_eq!(sampled.tokens.dims(), [2]);
    assert_eq!(sampled.tokens.try_into_vec_as::<i64>().unwrap(), [1, 0]);
}

#[test]
fn a_row_draws_the_same_with_and_without_batch_mates() {
    let row = [0.3, 0.1, 0.2, 0.4];
    let sampler = sampler(GenerationOptions::new(1).with_temperature(1.0).with_seed(5));
    for step in 0..20 {
        let alone = sampler.sample(logits(vec![row]), step).unwrap().ids;
        let together = sampler.sample(logits(vec![row, [9.0, 0.0, 0.0, 0.0]]), step).unwrap().ids;
        assert_eq!(alone[0], together[0]);
    }
}

#[test]
fn rows_draw_by_their_numbers() {
    let rows = vec![[0.3, 0.1, 0.2, 0.4]; 30];
    let sampler = sampler(GenerationOptions::new(1).with_temperature(1.0).with_seed(5));
    let all = sampler.sample(logits(rows.clone()), 3).unwrap().ids;
    let mut last: Vec<Sequence> = (10..30).map(|number| Sequence::new(&sampler, vec![1], number).behind(3)).collect();
    let last = choose(logits(rows[10..].to_vec()), &mut last).unwrap().ids;
    assert_eq!(last, all[10..]);
    assert_ne!(last, all[..20], "other rows draw other numbers");
}

#[test]
fn draws_have_the_distribution_of_the_logits() {
    let expected = [0.3, 0.25, 0.2, 0.15, 0.06, 0.04];
    let row = expected.map(|p: f64| p.ln() as f32);
    let sampler = sampler(GenerationOptions::new(1).with_temperature(1.0).with_seed(1));
    let found = sampler.sample(logits(vec![row; 10_000]), 0).unwrap().ids;
    assert!(chi_squared(&found, &expected) < 20.5, "{}", chi_squared(&found, &expected));
    // Others are told apart.
    assert!(chi_squared(&found, &[0.3, 0.25, 0.2, 0.15, 0.04, 0.06]) > 100.0);
    // So are the draws of one row at its places.
    let found: Vec<u32> = (0..10_000).map(|step| sampler.sample(logits(vec![row]), step).unwrap().ids[0]).collect();
    assert!(chi_squared(&found, &expected) < 20.5, "{}", chi_squared(&found, &expected));
}

#[test]
fn log_probabilities_are_those_of_the_model_whatever_processors_do() {
    let processing = Processing { banned: vec![vec![1]], ..Processing::default() };
    let options = GenerationOptions::new(1).greedy().with_processing(processing);
    let rows = || logits(vec![[1f32, 6.0, 1.0].map(f32::ln), [2f32, 1.0, 1.0].map(f32::ln)]);
    assert_eq!(sampler(options.clone()).sample(rows(), 0).unwrap().scores, [None, None]);
    let found = sampler(options.with_logprobs(2)).sample(rows(), 0).unwrap();
    let scores: Vec<TokenScore> = found.scores.into_iter().flatten().collect();
    let numbers: Vec<f64> = scores.iter().map(|score| score.log_probability).collect();
    firelight_kernels::assert_close(&numbers, &[0.125f64.ln(), 0.5f64.ln()], 1e-6);
    assert_eq!(scores[0].top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 0]);
    assert_eq!((scores[0].rank, scores[1].rank), (Some(2), Some(1)));
}

#[test]
fn greedy_choice_obeys_processors_and_histories() {
    let processing = Processing { no_repeat_ngram_size: 2, ..Processing::default() };
    let sampler = sampler(GenerationOptions::new(5).greedy().with_processing(processing));
    let mut rows = vec![Sequence::new(&sampler, vec![0, 1, 0], 0), Sequence::new(&sampler, vec![0, 2, 0], 1)];
    let sampled = choose(logits(vec![[0.0, 3.0, 3.0]; 2]), &mut rows).unwrap();
    assert_eq!(sampled.ids, [2, 1]);
    rows[0].accept(2);
    rows[0].accept(0);
    assert_eq!(choose(logits(vec![[0.0, 3.0, 3.0]]), &mut rows[..1]).unwrap().ids, [0]);
}

#[test]
fn a_row_of_which_nothing_is_left_is_an_error() {
    let banned = Processing { banned: vec![vec![0], vec![1]], ..Processing::default() };
    for options in [GenerationOptions::new(1), GenerationOptions::new(1).greedy()] {
        let sampler = sampler(options.with_processing(banned.clone()));
        let error = sampler.sample(logits(vec![[0.0, 1.0, 0.0], [0.0, 1.0, f32::NEG_INFINITY]]), 4).unwrap_err();
        assert!(matches!(error, GenerationError::NothingLeft { step: 4, row: 1 }), "{error}");
        assert!(error.is_user_error());
    }
}

#[test]
fn draws_follow_the_distribution() {
    let probabilities = [0.5f32, 0.3, 0.2];
    let rows = vec![probabilities.map(f32::ln); 100];
    let sampler = sampler(GenerationOptions::new(1).with_temperature(1.0).with_seed(3));
    let mut counts = [0.0; 3];
    for step in 0..100 {
        for id in sampler.sample(logits(rows.clone()), step).unwrap().ids {
            counts[id as usize] += 1.0;
        }
    }
    for (count, probability) in counts.iter().zip(probabilities) {
        // Four standard deviations of a share of 10,000 draws are at most 0.02.
        assert!((count / 1e4 - f64::from(probability)).abs() < 0.02, "{counts:?}");
    }
}

#[test]
fn one_token_left_is_the_token_drawn() {
    let sampler = sampler(GenerationOptions::new(1).with_top_k(1));
    let sampled = sampler.sample(logits(vec![[1.0, 1.0, 5.0]; 4]), 9).unwrap();
    assert_eq!(sampled.ids, [2; 4]);
}

#[test]
fn rows_that_are_no_distribution_are_errors() {
    let bad = [[0.0, f32::NAN, 1.0], [0.0, f32::INFINITY, 0.0], [f32::NEG_INFINITY; 3]];
    for options in [GenerationOptions::new(1), GenerationOptions::new(1).greedy()] {
        for row in bad {
            let error = sampler(options.clone()).sample(logits(vec![[0.0; 3], row]), 4).unwrap_err();
            assert!(matches!(error, GenerationError::NonFiniteLogits { step: 4, row: 1 }), "{row:?}: {error}");
        }
    }
}

proptest! {
    #[test]
    fn a_pick_is_always_possible(weights in proptest::collection::vec(0.0f64..1.0, 1..50), draw in 0.0f64..1.0) {
        let total: f64 = weights.iter().sum();
        prop_assume!(total > 0.0);
        let probabilities: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        prop_assert!(probabilities[pick(&probabilities, draw) as usize] > 0.0);
    }
}
