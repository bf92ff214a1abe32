//! How probable given tokens are to a model: log-probabilities from its own logits, before any processor or sampler changes them. The task
//! crates read a text and compute its logits; here logits become scores, and scores a [`TextScore`].

mod text;

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor};
use firelight_kernels::{CrossEntropyOptions, cross_entropy};
use firelight_storage::TaskError;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;

pub use text::{ScoredToken, TextScore};

use crate::distribution::{by_rank, log_sum_exp};

/// The most logits that [`score_tokens_in_chunks`] holds at once: 64 MiB in single precision.
const LOGITS: usize = 1 << 24;

/// The probability of a token after those before it, among all ids of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The token.
    pub id: u32,
    /// Its log-probability in nats.
    pub log_probability: f64,
    /// Its place among all tokens: 1 for the most probable one, the lower id first among equals. None if only log-probabilities were asked
    /// for.
    pub rank: Option<usize>,
    /// The most probable tokens with their log-probabilities, best first, the lower id first among equals. Tokens of probability 0 are left
    /// out.
    pub top: Vec<(u32, f64)>,
}

impl TokenScore {
    /// The score of `id` from the logits `[V]` of its place, in double precision, with its rank and the `top` most probable tokens. The
    /// log-probability is not finite if the logits are no distribution.
    ///
    /// ```
    /// use firelight_generation::TokenScore;
    ///
    /// let logits = [1f32, 2.0, 1.0].map(f32::ln); // probabilities 1/4, 1/2, 1/4
    /// let score = TokenScore::of(&logits, 2, 1);
    /// assert!((score.log_probability - 0.25f64.ln()).abs() < 1e-6);
    /// assert_eq!((score.rank, score.top[0].0), (Some(3), 1));
    /// ```
    ///
    /// # Panics
    /// If there is no logit of `id`.
    pub fn of(logits: &[f32], id: u32, top: usize) -> Self {
        let (total, rank, place) = (log_sum_exp(logits), by_rank(logits), id as usize);
        let log_probability = |id: usize| f64::from(logits[id]) - total;
        let before = (0..logits.len()).filter(|other| rank(other, &place).is_lt()).count();
        let top = best(logits, top).into_iter().map(|id| (id as u32, log_probability(id))).collect();
        Self { id, log_probability: log_probability(place), rank: Some(before + 1), top }
    }
}

/// The `count` most probable ids, best first; fewer if the others have the probability 0.
fn best(logits: &[f32], count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    let mut ids: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > f32::NEG_INFINITY).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count, by_rank(logits));
        ids.truncate(count);
    }
    ids.sort_unstable_by(by_rank(logits));
    ids
}

/// The scores of `targets` from the logits of their places.
///
/// If `top` is 0, the device computes the log-probabilities in single precision, by the cross-entropy that models are trained with, and the
/// host reads them alone. Otherwise the host reads all logits, and every score has its rank and the `top` most probable tokens.
///
/// # Shapes
/// - `logits`: `[T, V]`; `targets`: `[T]`; output: `[T]`
///
/// # Errors
/// If a log-probability is not finite, or the device fails.
///
/// # Panics
/// If there are not as many targets as rows, or one is no id of the model.
pub fn score_tokens(logits: Tensor<2>, targets: &[u32], top: usize) -> Result<Vec<TokenScore>, TaskError> {
    let [rows, vocab_size] = logits.dims();
    assert_eq!(targets.len(), rows, "targets and rows of logits [{rows}, {vocab_size}] are not as many");
    if let Some(id) = targets.iter().find(|id| **id as usize >= vocab_size) {
        panic!("target {id} is no id of logits [{rows}, {vocab_size}]");
    }
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    let logits = logits.cast(DType::F32);
    let scores = if top == 0 { on_device(logits, targets)? } else { on_host(logits, targets, top)? };
    TaskError::require_finite(scores.iter().all(|score| score.log_probability.is_finite()))?;
    Ok(scores)
}

/// [`score_tokens`] for many targets, in chunks whose logits take 64 MiB at most, or one target at a time. `logits` computes the logits of
/// a range of the targets, `[T', V]`.
///
/// # Errors
/// As [`score_tokens`].
///
/// # Panics
/// As [`score_tokens`].
pub fn score_tokens_in_chunks(
    targets: &[u32],
    vocab_size: usize,
    top: usize,
    logits: impl Fn(Range<usize>) -> Tensor<2>,
) -> Result<Vec<TokenScore>, TaskError> {
    let rows = (LOGITS / vocab_size.max(1)).max(1);
    let parts = (0..targets.len()).step_by(rows).map(|start| {
        let part = start..targets.len().min(start + rows);
        score_tokens(logits(part.clone()), &targets[part], top)
    });
    Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The log-probabilities are the losses in nats, negated.
fn on_device(logits: Tensor<2>, targets: &[u32]) -> Result<Vec<TokenScore>, TaskError> {
    let ids: Vec<i32> = targets.iter().map(|&id| id as i32).collect();
    let targets_there = Tensor::<1, Int>::from_ints(ids.as_slice(), &logits.device());
    let losses = cross_entropy(logits, targets_there, &CrossEntropyOptions::default()); // [T]
    let losses = losses.try_into_vec_as::<f32>().map_err(TaskError::device("the log-probabilities of a text"))?;
    // A difference from 0, so that there is no minus 0.
    let score = |(&id, loss): (&u32, f32)| TokenScore {
        id,
        log_probability: 0.0 - f64::from(loss),
        rank: None,
        top: Vec::new(),
    };
    Ok(targets.iter().zip(losses).map(score).collect())
}

fn on_host(logits: Tensor<2>, targets: &[u32], top: usize) -> Result<Vec<TokenScore>, TaskError> {
    let [_, vocab_size] = logits.dims();
    let logits = logits.try_into_vec_as::<f32>().map_err(TaskError::device("the logits of a text"))?;
    let rows = logits.par_chunks_exact(vocab_size).zip(targets);
    Ok(rows.map(|(row, &id)| TokenScore::of(row, id, top)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution};
    use firelight_kernels::assert_close;

    /// Two places: probabilities of 1/2, 1/8, 1/4, 1/8 and of 1/3, 1/3, 0, 1/3.
    fn logits() -> Tensor<2> {
        let ln = |weights: [f32; 4]| weights.map(f32::ln);
        Tensor::from_floats([ln([4.0, 1.0, 2.0, 1.0]), ln([5.0, 5.0, 0.0, 5.0])], &Device::default())
    }

    fn log_probabilities(scores: &[TokenScore]) -> Vec<f64> {
        scores.iter().map(|score| score.log_probability).collect()
    }

    #[test]
    fn log_probabilities_and_ranks_by_hand() {
        let plain = score_tokens(logits(), &[3, 1], 0).unwrap();
        let expected = [0.125f64.ln(), (1.0f64 / 3.0).ln()];
        assert_close(&log_probabilities(&plain), &expected, 1e-5);
        assert!(plain.iter().all(|score| score.rank.is_none() && score.top.is_empty()));

        let ranked = score_tokens(logits(), &[3, 1], 9).unwrap();
        assert_close(&log_probabilities(&ranked), &expected, 1e-5);
        assert_eq!((ranked[0].rank, ranked[1].rank), (Some(4), Some(2)), "equals rank by their ids");
        let ids = |score: &TokenScore| score.top.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(
            (ids(&ranked[0]), ids(&ranked[1])),
            (vec![0, 2, 1, 3], vec![0, 1, 3]),
            "what cannot come is left out"
        );
        let numbers: Vec<f64> = ranked[0].top.iter().map(|(_, log_probability)| *log_probability).collect();
        assert_close(&numbers, &[0.5f64, 0.25, 0.125, 0.125].map(f64::ln), 1e-5);
        assert_eq!(ids(&score_tokens(logits(), &[3, 1], 3).unwrap()[0]), [0, 2, 1]);
    }

    #[test]
    fn device_and_host_agree_even_where_exponentials_overflow() {
        let device = Device::default();
        let logits = Tensor::<2>::random([5, 33], Distribution::Normal(0.0, 4.0), &device);
        let targets = [0, 32, 7, 7, 19];
        for offset in [0.0, 1000.0, -1000.0] {
            let logits = logits.clone() + offset;
            let [found, expected] = [0, 1].map(|top| score_tokens(logits.clone(), &targets, top).unwrap());
            assert_close(&log_probabilities(&found), &log_probabilities(&expected), 1e-3);
        }
    }

    #[test]
    fn parts_are_the_whole() {
        let (targets, whole) = ([3, 1], score_tokens(logits(), &[3, 1], 2).unwrap());
        let part = |rows: Range<usize>| logits().narrow(0, rows.start, rows.len());
        // With a vocabulary of the limit, a part is one row.
        for vocab_size in [4, LOGITS] {
            assert_eq!(score_tokens_in_chunks(&targets, vocab_size, 2, part).unwrap(), whole);
        }
        assert!(score_tokens_in_chunks(&[], 4, 2, part).unwrap().is_empty());
    }

    #[test]
    fn numbers_that_are_no_distribution_are_refused() {
        let device = Device::default();
        for bad in [f32::NAN, f32::INFINITY] {
            let logits = Tensor::<2>::from_floats([[0.0, bad, 1.0]], &device);
            for top in [0, 2] {
                let error = score_tokens(logits.clone(), &[0], top).unwrap_err().to_string();
                assert!(error.starts_with("the model answers with numbers that are not finite"), "{error}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "target 4 is no id of logits [2, 4]")]
    fn an_id_that_the_model_lacks_panics() {
        let _ = score_tokens(logits(), &[3, 4], 0);
    }
}
