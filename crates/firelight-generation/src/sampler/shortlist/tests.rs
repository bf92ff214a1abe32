//! Choices from shortlists against choices from all logits.

use burn::tensor::{Device, TensorData};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Sampler;
use crate::processors::{History, LogitsProcessor, MirostatOptions, Xtc};
use crate::sampler::{by_all, by_shortlists, few};
use crate::sequence::Sequence;

const VOCABULARY: usize = 12;

/// A choice of every kind that shortlists decide.
fn options() -> [GenerationOptions; 8] {
    let drawn = |top_k: usize, temperature| GenerationOptions::new(9).with_temperature(temperature).with_top_k(top_k);
    [
        drawn(1, 1.0),
        drawn(3, 0.7),
        drawn(7, 1.5).with_top_p(0.8),
        drawn(5, 0.3).with_random(|random| random.min_p = Some(0.2)),
        drawn(6, 2.0).with_random(|random| (random.typical_p, random.top_n_sigma) = (Some(0.7), Some(1.5))),
        drawn(8, 1.0).with_random(|random| random.xtc = Some(Xtc { probability: 0.5, threshold: 0.1 })),
        drawn(6, 1.5).with_random(|random| (random.epsilon_cutoff, random.eta_cutoff) = (Some(0.05), Some(0.2))),
        GenerationOptions::new(9).greedy(),
    ]
}

fn rows(step: usize) -> Vec<Sequence> {
    let row = |(number, options)| Sequence::new(&Sampler::new(options).unwrap(), Vec::new(), number).behind(step);
    options().iter().enumerate().map(row).collect()
}

fn logits(values: &[f32]) -> Tensor<2> {
    let shape = [values.len() / VOCABULARY, VOCABULARY];
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &Device::flex())
}

/// Numbers of which many are equal, hidden or zeros of either sign.
fn coarse() -> impl Strategy<Value = f32> {
    prop_oneof![
        12 => (-12i32..12).prop_map(|number| number as f32 / 4.0),
        2 => Just(f32::NEG_INFINITY),
        1 => Just(-0.0f32),
    ]
}

fn check(values: &[f32], step: usize) -> Result<(), TestCaseError> {
    let mut rows = rows(step);
    let few = few(&rows, VOCABULARY).unwrap();
    let expected = by_all(logits(values), &mut rows.clone());
    let found = by_shortlists(logits(values), &mut rows, &few);
    let [found, expected] =
        [found, expected].map(|sampled| sampled.map(|sampled| sampled.ids).map_err(|error| error.to_string()));
    prop_assert_eq!(found, expected);
    Ok(())
}

proptest! {
    #[test]
    fn the_best_of_the_device_give_the_tokens_of_the_host(values in vec(-6.0f32..6.0, 8 * VOCABULARY), step in 0usize..99) {
        check(&values, step)?;
    }

    #[test]
    fn so_they_do_where_logits_are_equal(values in vec(coarse(), 8 * VOCABULARY), step in 0usize..99) {
        check(&values, step)?;
    }
}

#[test]
fn rows_that_are_no_distribution_are_the_errors_of_the_host() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = vec![0.5; 8 * VOCABULARY];
        match bad == f32::NEG_INFINITY {
            true => values[2 * VOCABULARY..3 * VOCABULARY].fill(bad),
            false => values[2 * VOCABULARY + 5] = bad,
        }
        let mut rows = rows(4);
        let few = few(&rows, VOCABULARY).unwrap();
        let error = by_shortlists(logits(&values), &mut rows, &few).unwrap_err();
        assert!(matches!(error, GenerationError::NonFiniteLogits { step: 4, row: 2 }), "{bad}: {error}");
    }
}

#[test]
fn a_shortlist_is_what_decides_or_none() {
    let few = Few { count: 2, temperature: 0.5 };
    let of = |best: [f32; 3], ids: [i64; 3], sum| few.shortlist(&best, &ids, sum, 9);
    let ids = [7, 4, 5];
    assert_eq!(of([3.0, 2.0, 1.0], ids, 0.0), Some(vec![(4, 2.0), (7, 3.0)]));
    assert_eq!(of([2.0, 2.0, 1.0], ids, 0.0), Some(vec![(4, 2.0), (7, 2.0)]));
    assert_eq!(of([3.0, 2.0, 2.0], ids, 0.0), None, "4 and 5 are as probable");
    assert_eq!(of([1e20, 1.0, 0.5], ids, 0.0), None, "so far below the first they are as probable");
    let hidden = f32::NEG_INFINITY;
    assert_eq!(of([3.0, hidden, hidden], ids, hidden), Some(vec![(7, 3.0)]));
    assert_eq!(of([3.0, f32::MIN, f32::MIN], [7, i64::from(u32::MAX), -1], hidden), Some(vec![(7, 3.0)]));
    assert_eq!(of([hidden; 3], ids, hidden), None);
    for sum in [f32::NAN, f32::INFINITY] {
        assert_eq!(of([3.0, 2.0, 1.0], ids, sum), None);
    }
}

#[test]
fn options_that_may_look_at_any_token_have_no_shortlist() {
    let few = |options: &GenerationOptions| Sampler::new(options).unwrap().few;
    let top_k = GenerationOptions::new(9).with_temperature(0.5).with_top_k(3);
    assert_eq!(few(&top_k), Some(Few { count: 3, temperature: 0.5 }));
    assert_eq!(few(&GenerationOptions::new(9).greedy()), Some(Few { count: 1, temperature: 1.0 }));
    let penalty = Processing { repetition_penalty: 1.1, ..Processing::default() };
    let whole = [
        GenerationOptions::new(9),
        top_k.clone().with_logprobs(0),
        top_k.clone().with_processing(penalty),
        top_k.clone().with_random(|random| random.top_h = Some(0.5)),
        top_k.with_random(|random| random.mirostat = Some(MirostatOptions::default())),
    ];
    assert!(whole.iter().all(|options| few(options).is_none()));
}

/// Leaves the most probable tokens, whatever others hide.
#[derive(Clone, Debug)]
struct Best {
    takes_precedence: bool,
}

impl LogitsProcessor for Best {
    fn process(&mut self, _: &History<'_>, _: &mut [f64]) {}

    fn ignores_ids(&self) -> bool {
        true
    }

    fn takes_precedence(&self) -> bool {
        self.takes_precedence
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[test]
fn a_rule_with_precedence_has_no_shortlist_even_if_it_ignores_ids() {
    let few = |takes_precedence| {
        let mut processors = Processors::default();
        processors.push(Best { takes_precedence });
        Few::of(&GenerationOptions::new(9).greedy(), &processors)
    };
    assert_eq!(few(false), Some(Few { count: 1, temperature: 1.0 }));
    assert_eq!(few(true), None);
}

#[test]
fn shortlists_are_shorter_than_the_vocabulary_and_than_a_gpu_holds() {
    let fits = |count, vocab_size| Few { count, temperature: 1.0 }.fits(vocab_size);
    assert!(fits(3, 4) && !fits(4, 4));
    assert!(fits(MOST - 1, 50_257) && !fits(MOST, 50_257));
}
