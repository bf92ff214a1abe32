//! From logits to one token per row, called once per step by [`TokenStream`](crate::TokenStream).
//!
//! Greedy choice is an argmax on the device. Random choice reads the logits `[B, V]` to the host and draws there in f64,
//! from ChaCha8 (Bernstein 2008) at a place of its stream that is fixed by (seed, step, row): a draw depends neither on
//! the backend, nor on the batch-mates, nor on what was drawn before.

use burn::tensor::{Int, Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::processors::softmax;
use crate::{GenerationError, GenerationOptions, Processor, Sampling};

/// Chooses the next token of every row.
#[derive(Clone, Debug)]
pub struct Sampler {
    choice: Choice,
    first_row: usize,
}

#[derive(Clone, Debug)]
enum Choice {
    Greedy,
    Random { processors: Vec<Processor>, seed: u64 },
}

/// One token per row, where each side needs it.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The ids on the host, for stop criteria and text: `B` of them.
    pub ids: Vec<u32>,
    /// The same ids on the model's device, for the next step: `[B]`.
    pub tokens: Tensor<1, Int>,
}

impl Sampler {
    /// The sampler that the options ask for.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`], see [`GenerationOptions::validate`].
    pub fn new(options: &GenerationOptions) -> Result<Self, GenerationError> {
        options.validate()?;
        let choice = match &options.sampling {
            Sampling::Greedy => Choice::Greedy,
            Sampling::Random(random) => Choice::Random { processors: random.processors(), seed: options.seed },
        };
        Ok(Self { choice, first_row: 0 })
    }

    /// The sampler of rows before which there are `rows` others: row 0 draws what row `rows` would.
    #[must_use]
    pub fn after(mut self, rows: usize) -> Self {
        self.first_row = rows;
        self
    }

    /// Chooses new token number `step` (0-based) for every row of `logits` `[B, V]`.
    ///
    /// # Errors
    /// [`GenerationError::NonFiniteLogits`] if a row is no distribution: it holds NaN or plus infinity, or minus infinity
    /// only. [`GenerationError::Device`] if the logits cannot be read.
    pub fn sample(&self, logits: Tensor<2>, step: usize) -> Result<Sampled, GenerationError> {
        match &self.choice {
            Choice::Greedy => greedy(logits, step),
            Choice::Random { processors, seed } => {
                let [batch_size, _] = logits.dims();
                let device = logits.device();
                let draw = |row: usize| uniform(*seed, step, self.first_row + row);
                let ids = random(logits, processors, step, draw)?;
                let tokens = Tensor::from_data(TensorData::new(ids.clone(), [batch_size]), &device);
                Ok(Sampled { ids, tokens })
            }
        }
    }
}

fn greedy(logits: Tensor<2>, step: usize) -> Result<Sampled, GenerationError> {
    let [batch_size, _] = logits.dims();
    let best = logits.clone().argmax(1); // [B, 1]
    // Burn's argmax prefers NaN to any number, so the chosen logits tell whether the whole rows are sound.
    let chosen = host(logits.gather(1, best.clone()))?;
    if let Some(row) = chosen.iter().position(|logit| !logit.is_finite()) {
        return Err(GenerationError::NonFiniteLogits { step, row });
    }
    let tokens = best.reshape([batch_size]);
    let ids = tokens.clone().try_into_vec_as::<u32>().map_err(unreadable)?;
    Ok(Sampled { ids, tokens })
}

fn random(
    logits: Tensor<2>,
    processors: &[Processor],
    step: usize,
    draw: impl Fn(usize) -> f64,
) -> Result<Vec<u32>, GenerationError> {
    let [_, vocab_size] = logits.dims();
    let logits = host(logits)?;
    let rows = logits.chunks_exact(vocab_size).enumerate();
    rows.map(|(row, logits)| {
        let mut logits: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
        if !is_distribution(&logits) {
            return Err(GenerationError::NonFiniteLogits { step, row });
        }
        processors.iter().for_each(|processor| processor.apply(&mut logits));
        Ok(pick(&softmax(&logits), draw(row)))
    })
    .collect()
}

/// Reads the logits `[R, V]` from their device.
pub(crate) fn host(logits: Tensor<2>) -> Result<Vec<f32>, GenerationError> {
    logits.try_into_vec_as::<f32>().map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> GenerationError {
    // Backends append stack traces to their first line.
    let reason = error.to_string().lines().next().unwrap_or("no reason given").to_string();
    GenerationError::Device { reason }
}

/// Hidden tokens (minus infinity) are fine as long as one is left.
fn is_distribution(logits: &[f64]) -> bool {
    let sound = logits.iter().all(|logit| !logit.is_nan() && *logit != f64::INFINITY);
    sound && logits.iter().any(|logit| logit.is_finite())
}

/// A number in `[0, 1)` with 53 random bits: two words of the stream of this row, at the place of this step.
fn uniform(seed: u64, step: usize, row: usize) -> f64 {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut stream = ChaCha8Rng::from_seed(key);
    stream.set_stream(row as u64);
    stream.set_word_pos(2 * step as u128);
    (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The token at which the running sum of the probabilities passes `draw`; never one of probability 0.
fn pick(probabilities: &[f64], draw: f64) -> u32 {
    let mut total = 0.0;
    let mut last = 0;
    for (id, &probability) in probabilities.iter().enumerate().filter(|(_, probability)| **probability > 0.0) {
        total += probability;
        last = id;
        if draw < total {
            break;
        }
    }
    // If rounding left the sum below the draw, `last` is the last token that can be drawn.
    last as u32
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use proptest::prelude::*;

    use super::*;

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
    fn the_stream_of_draws_never_changes() {
        // Computed by an independent ChaCha8 (key seed, counter and nonce from step and row): a change here would change
        // every text that users generated with a seed.
        assert_eq!(uniform(0, 0, 0), 0.8369197568826472);
        assert_eq!(uniform(7, 0, 0), 0.764109042047738);
        assert_eq!(uniform(7, 9, 0), 0.9525841410603305);
        assert_eq!(uniform(7, 0, 1), 0.934366023437627);
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
    fn rows_after_others_draw_what_they_would_draw_behind_them() {
        let rows = vec![[0.3, 0.1, 0.2, 0.4]; 30];
        let sampler = sampler(GenerationOptions::new(1).with_temperature(1.0).with_seed(5));
        let all = sampler.sample(logits(rows.clone()), 3).unwrap().ids;
        let last = sampler.clone().after(10).sample(logits(rows[10..].to_vec()), 3).unwrap().ids;
        assert_eq!(last, all[10..]);
        assert_ne!(last, all[..20], "other rows draw other numbers");
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
}
