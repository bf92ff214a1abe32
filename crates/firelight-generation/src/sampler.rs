//! From logits to one token per row, called once per step by [`TokenStream`](crate::TokenStream).
//!
//! Greedy choice without processors is an argmax on the device. All else reads the logits `[B, V]` to the host, changes each row there in f64
//! by its processors, and takes the best or draws at a place of a stream of numbers that is fixed by (seed, step, row).

use burn::tensor::{Int, Tensor, TensorData};

use crate::draw::Draw;
use crate::processors::{HIDDEN, History, Processors, softmax};
use crate::{GenerationError, GenerationOptions, Sampling};

/// Chooses the next token of every row.
#[derive(Clone, Debug)]
pub struct Sampler {
    processors: Processors,
    is_greedy: bool,
    seed: u64,
}

/// One row: what was written, and what its processors know of it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    ids: Vec<u32>,
    prompt: usize,
    processors: Processors,
    /// By which it draws.
    number: usize,
}

impl Row {
    /// By which it draws: its place among all rows and samples.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Adds a token that was chosen.
    pub(crate) fn accept(&mut self, id: u32) {
        self.ids.push(id);
        self.processors.accept(id);
    }
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
        let is_greedy = options.sampling == Sampling::Greedy;
        Ok(Self { processors: options.processors(), is_greedy, seed: options.seed })
    }

    /// A row that continues a prompt and draws by a number.
    pub(crate) fn row(&self, prompt: Vec<u32>, number: usize) -> Row {
        Row { prompt: prompt.len(), ids: prompt, processors: self.processors.clone(), number }
    }

    /// Chooses new token number `step` (0-based) for every row of `logits` `[B, V]`, of whose history nothing is known.
    ///
    /// # Errors
    /// [`GenerationError::NonFiniteLogits`] if a row is no distribution: it holds NaN or plus infinity, or minus infinity
    /// only. [`GenerationError::NothingLeft`] if the processors hide all of a row. [`GenerationError::Device`] if the logits cannot be read.
    pub fn sample(&self, logits: Tensor<2>, step: usize) -> Result<Sampled, GenerationError> {
        let mut rows: Vec<Row> = (0..logits.dims()[0]).map(|number| self.row(Vec::new(), number)).collect();
        self.choose(logits, &mut rows, step)
    }

    /// The same for rows with a history, which is not yet told what was chosen.
    pub(crate) fn choose(&self, logits: Tensor<2>, rows: &mut [Row], step: usize) -> Result<Sampled, GenerationError> {
        if self.is_greedy && self.processors.is_empty() {
            return greedy(logits, step);
        }
        let ([batch_size, vocab_size], device) = (logits.dims(), logits.device());
        let logits = host(logits)?;
        let each = logits.chunks_exact(vocab_size).zip(rows).enumerate();
        let ids = each.map(|(place, (logits, row))| self.choose_one(logits, row, (step, place)));
        let ids = ids.collect::<Result<Vec<u32>, _>>()?;
        let tokens = Tensor::from_data(TensorData::new(ids.clone(), [batch_size]), &device);
        Ok(Sampled { ids, tokens })
    }

    fn choose_one(&self, logits: &[f32], row: &mut Row, (step, place): (usize, usize)) -> Result<u32, GenerationError> {
        let mut logits: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
        if !is_distribution(&logits) {
            return Err(GenerationError::NonFiniteLogits { step, row: place });
        }
        let history = History::new(&row.ids, row.prompt).with_draw(self.seed, row.number, step);
        row.processors.process(&history, &mut logits);
        if !is_distribution(&logits) {
            return Err(GenerationError::NothingLeft { step, row: place });
        }
        Ok(match self.is_greedy {
            true => best(&logits),
            false => pick(&softmax(&logits), Draw { seed: self.seed, row: row.number, step }.token()),
        })
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

/// The most probable token, the lowest id among equals.
fn best(logits: &[f64]) -> u32 {
    let better = |best: (usize, f64), (id, &logit): (usize, &f64)| if logit > best.1 { (id, logit) } else { best };
    logits.iter().enumerate().fold((0, HIDDEN), better).0 as u32
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
pub(crate) fn is_distribution(logits: &[f64]) -> bool {
    let sound = logits.iter().all(|logit| !logit.is_nan() && *logit != f64::INFINITY);
    sound && logits.iter().any(|logit| logit.is_finite())
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
    use crate::Processing;

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
        let mut last: Vec<Row> = (10..30).map(|number| sampler.row(vec![1], number)).collect();
        let last = sampler.choose(logits(rows[10..].to_vec()), &mut last, 3).unwrap().ids;
        assert_eq!(last, all[10..]);
        assert_ne!(last, all[..20], "other rows draw other numbers");
    }

    #[test]
    fn greedy_choice_obeys_processors_and_histories() {
        let processing = Processing { no_repeat_ngram_size: 2, ..Processing::default() };
        let sampler = sampler(GenerationOptions::new(5).greedy().with_processing(processing));
        let mut rows = vec![sampler.row(vec![0, 1, 0], 0), sampler.row(vec![0, 2, 0], 1)];
        let sampled = sampler.choose(logits(vec![[0.0, 3.0, 3.0]; 2]), &mut rows, 0).unwrap();
        assert_eq!(sampled.ids, [2, 1]);
        rows[0].accept(2);
        rows[0].accept(0);
        assert_eq!(sampler.choose(logits(vec![[0.0, 3.0, 3.0]]), &mut rows[..1], 2).unwrap().ids, [0]);
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
}
