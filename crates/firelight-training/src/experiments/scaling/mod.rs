//! Scaling laws: how the loss falls with parameters and tokens, and which sizes a budget of arithmetic is best spent on.
//!
//! The law is `L(N, D) = E + A / N^alpha + B / D^beta` (Hoffmann et al. 2022, Training Compute-Optimal Large Language Models, section
//! 3.3, eq. 2, <https://arxiv.org/abs/2203.15556>); where all runs read as many tokens, its last term is part of `E`, and what is left
//! is the law of Kaplan et al. 2020 (Scaling Laws for Neural Language Models, eq. 1.1, <https://arxiv.org/abs/2001.08361>) above a floor. Unlike
//! Hoffmann et al., who minimise a Huber loss of `log L` from a grid of starts, squares of relative errors are minimised, for which
//! `separable.rs` needs no starts.

mod charts;
mod law;
mod separable;

use std::collections::BTreeSet;

use firelight_storage::InputError;
use serde::Serialize;

pub use charts::scaling_charts;
pub use law::{ComputeOptimum, PowerTerm, ScalingLaw};
use separable::{Observation, Solution, TERMS, fit, fit_from};

/// Different sizes that a term needs: two parameters of it, the floor, and one more that tells the error.
const SIZES: usize = 4;

/// Different numbers of tokens that a term of tokens needs beside those.
const TOKENS: usize = 3;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 400;

/// The share of the resamples that lies within an interval.
const WITHIN: f64 = 0.95;

/// One training, as a scaling law sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalingRun {
    /// Numbers that the model has.
    pub parameters: f64,
    /// Tokens that it was trained on, those of every step.
    pub tokens: f64,
    /// Floating point operations of its training.
    pub flops: f64,
    /// The loss that it reached, in nats per token.
    pub loss: f64,
}

/// A number of a law with the interval that holds 95 % of its bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimated {
    /// `E`, `A`, `alpha`, `B` or `beta`.
    pub name: &'static str,
    /// The fitted value.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A law and how well it is known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingFit {
    /// The law.
    pub law: ScalingLaw,
    /// Its numbers with their intervals.
    pub estimates: Vec<Estimated>,
    /// The root of the mean square of the relative errors.
    pub relative_error: f64,
    /// Operations of a token for each parameter: the geometric mean of the runs.
    pub flops_per_parameter: f64,
}

impl ScalingFit {
    /// Fits the law to trainings. A term of tokens is part of it where they were varied.
    ///
    /// The intervals are those of a bootstrap of the relative errors (Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter
    /// 9) with a seed of its own, so that the same runs give the same numbers.
    ///
    /// # Errors
    /// If there are too few different sizes, a number is not above 0, or the loss does not fall with the size.
    ///
    /// # Example
    ///
    /// ```
    /// use firelight_training::experiments::{ScalingFit, ScalingRun};
    ///
    /// let run = |parameters: f64| ScalingRun { parameters, tokens: 1e6, flops: 6e6 * parameters, loss: 2.0 + 5.0 * parameters.powf(-0.3) };
    /// let fit = ScalingFit::of(&[1e3, 1e4, 1e5, 1e6, 1e7].map(run)).unwrap();
    /// assert!((fit.law.parameters.exponent - 0.3).abs() < 1e-3);
    /// ```
    pub fn of(runs: &[ScalingRun]) -> Result<Self, InputError> {
        let terms = terms(runs)?;
        let scales = [mean_size(runs, |run| run.parameters), mean_size(runs, |run| run.tokens)];
        let observe = |run: &ScalingRun| {
            let sizes = [run.parameters / scales[0], run.tokens / scales[1]];
            Observation { sizes, loss: run.loss }
        };
        let observations: Vec<Observation> = runs.iter().map(observe).collect();
        let solution = fit(&observations, terms);
        let law = law_of(&solution, terms, scales);
        if law.parameters.coefficient <= 0.0 {
            let text = "the loss does not fall with the number of parameters, so there is no power law of it: train longer, or vary sizes \
                        further apart";
            return Err(InputError::new(text));
        }
        if law.tokens.is_some_and(|term| term.coefficient <= 0.0) {
            let text = "the loss does not fall with the number of tokens, so there is no power law of them: vary them further apart";
            return Err(InputError::new(text));
        }
        let resampled = bootstrap(&observations, terms, &solution);
        let resampled: Vec<ScalingLaw> = resampled.iter().map(|solution| law_of(solution, terms, scales)).collect();
        let relative_error = (solution.error / runs.len() as f64).sqrt();
        let flops_per_parameter = mean_size(runs, |run| run.flops / (run.parameters * run.tokens));
        Ok(Self { law, estimates: estimates(&law, &resampled), relative_error, flops_per_parameter })
    }

    /// What a budget is best spent on, by the law and by what the runs cost; none without a term of tokens.
    pub fn optimum(&self, flops: f64) -> Option<ComputeOptimum> {
        self.law.optimum(flops, self.flops_per_parameter)
    }
}

/// How many terms the runs tell apart.
fn terms(runs: &[ScalingRun]) -> Result<usize, InputError> {
    let is_fit =
        |run: &ScalingRun| [run.parameters, run.tokens, run.flops, run.loss].iter().all(|x| x.is_finite() && *x > 0.0);
    if !runs.iter().all(is_fit) {
        return Err(InputError::new("a scaling law is of parameters, tokens, operations and losses above 0"));
    }
    let different =
        |size: fn(&ScalingRun) -> f64| runs.iter().map(|run| size(run).to_bits()).collect::<BTreeSet<_>>().len();
    let (sizes, tokens) = (different(|run| run.parameters), different(|run| run.tokens));
    if sizes < SIZES {
        let text =
            format!("a power law takes {SIZES} different numbers of parameters or more, and the runs have {sizes}");
        return Err(InputError::new(text).advise("vary more sizes, such as model.d_model=32..512:5"));
    }
    match tokens {
        1 => Ok(1),
        TOKENS.. if runs.len() > SIZES + 1 => Ok(TERMS),
        _ => {
            let text =
                format!("{tokens} different numbers of tokens in {} runs are too few for a term of them", runs.len());
            Err(InputError::new(text).advise("train all sizes on as many tokens, or on 3 different numbers or more"))
        }
    }
}

/// The geometric mean, beside which sizes are near to 1.
fn mean_size(runs: &[ScalingRun], size: impl Fn(&ScalingRun) -> f64) -> f64 {
    (runs.iter().map(|run| size(run).ln()).sum::<f64>() / runs.len() as f64).exp()
}

/// The law in parameters and tokens, of which the solution has multiples.
fn law_of(solution: &Solution, terms: usize, scales: [f64; TERMS]) -> ScalingLaw {
    let term = |index: usize| {
        let exponent = solution.exponents[index];
        PowerTerm { coefficient: solution.coefficients[index + 1] * scales[index].powf(exponent), exponent }
    };
    let tokens = (terms == TERMS).then(|| term(1));
    ScalingLaw { irreducible: solution.coefficients[0], parameters: term(0), tokens }
}

/// The laws of losses whose relative errors are drawn from those of the fit. Errors of a fit are smaller than those of the truth, by as
/// much as it has numbers of its own.
fn bootstrap(observations: &[Observation], terms: usize, solution: &Solution) -> Vec<Solution> {
    let (count, own) = (observations.len(), 2 * terms + 1);
    let spread = (count as f64 / count.saturating_sub(own).max(1) as f64).sqrt();
    let predicted: Vec<f64> = observations.iter().map(|observation| solution.predict(&observation.sizes)).collect();
    let error = |(observation, predicted): (&Observation, &f64)| spread * (observation.loss / predicted - 1.0);
    let errors: Vec<f64> = observations.iter().zip(&predicted).map(error).collect();
    let mut dice = Dice(0);
    let mut resample = || {
        let mut drawn = observations.to_vec();
        for (observation, predicted) in drawn.iter_mut().zip(&predicted) {
            observation.loss = (predicted * (1.0 + errors[dice.below(count)])).max(f64::MIN_POSITIVE);
        }
        fit_from(&drawn, terms, solution)
    };
    (0..RESAMPLES).map(|_| resample()).collect()
}

/// The numbers of a law with their intervals.
fn estimates(law: &ScalingLaw, resampled: &[ScalingLaw]) -> Vec<Estimated> {
    let all: Vec<Vec<(&'static str, f64)>> = resampled.iter().map(ScalingLaw::numbers).collect();
    let estimate = |(index, (name, value)): (usize, (&'static str, f64))| {
        let mut values: Vec<f64> = all.iter().map(|numbers| numbers[index].1).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        Estimated { name, value, low: at((1.0 - WITHIN) / 2.0), high: at((1.0 + WITHIN) / 2.0) }
    };
    law.numbers().into_iter().enumerate().map(estimate).collect()
}

/// SplitMix64 (Steele et al. 2014, Fast splittable pseudorandom number generators, <https://doi.org/10.1145/2660193.2660195>): a bootstrap
/// needs no better one, and its numbers never change.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.05
    }

    /// Relative errors up to 0.2 %, of no draw.
    fn noise(index: usize) -> f64 {
        1.0 + 0.002 * (7.3 * index as f64).sin()
    }

    #[test]
    fn a_law_of_sizes_is_recovered_from_noisy_runs() {
        let run = |index: usize| {
            let parameters = 1e4 * 1.6_f64.powi(index as i32);
            ScalingRun {
                parameters,
                tokens: 1e7,
                flops: 6e7 * parameters,
                loss: noise(index) * (1.7 + 40.0 * parameters.powf(-0.35)),
            }
        };
        let fit = ScalingFit::of(&(0..16).map(run).collect::<Vec<_>>()).unwrap();
        assert!(near(fit.law.irreducible, 1.7) && near(fit.law.parameters.exponent, 0.35), "{fit:?}");
        assert_eq!(fit.law.tokens, None);
        assert!(fit.relative_error > 0.0 && fit.relative_error < 0.002);
        let exponent = fit.estimates.iter().find(|number| number.name == "alpha").unwrap();
        assert!(exponent.low < 0.35 && 0.35 < exponent.high && exponent.high - exponent.low < 0.2, "{exponent:?}");
    }

    #[test]
    fn a_law_of_sizes_and_tokens_is_recovered_and_tells_the_optimum() {
        let truth = ScalingLaw {
            irreducible: 1.7,
            parameters: PowerTerm { coefficient: 40.0, exponent: 0.35 },
            tokens: Some(PowerTerm { coefficient: 100.0, exponent: 0.3 }),
        };
        let run = |index: usize| {
            let (parameters, tokens) = (1e4 * 4_f64.powi((index / 5) as i32), 1e5 * 6_f64.powi((index % 5) as i32));
            ScalingRun {
                parameters,
                tokens,
                flops: 5.0 * parameters * tokens,
                loss: noise(index) * truth.loss(parameters, tokens),
            }
        };
        let runs: Vec<ScalingRun> = (0..25).map(run).collect();
        let fit = ScalingFit::of(&runs).unwrap();
        let names: Vec<&str> = fit.estimates.iter().map(|number| number.name).collect();
        assert_eq!(names, ["E", "A", "alpha", "B", "beta"]);
        for (found, (_, expected)) in fit.estimates.iter().zip(truth.numbers()).filter(|(_, (name, _))| name.len() > 1)
        {
            assert!(near(found.value, expected), "{found:?} for {expected}");
        }
        assert!(near(fit.law.irreducible, 1.7), "{fit:?}");
        assert!(
            near(fit.flops_per_parameter, 5.0) && fit.optimum(1e15) == fit.law.optimum(1e15, fit.flops_per_parameter)
        );
        let best = truth.optimum(6e15, 6.0).unwrap();
        assert!((best.parameters * best.tokens / 1e15 - 1.0).abs() < 1e-9);
        for factor in [0.9, 1.1] {
            let other = truth.loss(best.parameters * factor, best.tokens / factor);
            assert!(other > best.loss, "{other} at {factor}");
        }
    }

    #[test]
    fn the_interval_of_runs_without_noise_is_narrow() {
        let run = |parameters: f64| ScalingRun {
            parameters,
            tokens: 1e6,
            flops: 6e6 * parameters,
            loss: 2.0 + 5.0 * parameters.powf(-0.3),
        };
        let runs = [1e3, 1e4, 1e5, 1e6, 1e7].map(run);
        let fit = ScalingFit::of(&runs).unwrap();
        assert_eq!(ScalingFit::of(&runs).unwrap(), fit, "the same runs give the same numbers");
        assert!(fit.estimates.iter().all(|number| near(number.low, number.value) && near(number.high, number.value)));
        assert!(fit.law.to_string().starts_with("L = 2.0000 + 5.00"), "{}", fit.law);
        assert_eq!(fit.law.optimum(1e12, 6.0), None);
    }

    #[test]
    fn too_few_sizes_and_losses_that_do_not_fall_are_refused() {
        let message = |runs: &[(f64, f64, f64)]| {
            let run =
                |&(parameters, tokens, loss): &(f64, f64, f64)| ScalingRun { parameters, tokens, flops: 1e9, loss };
            ScalingFit::of(&runs.iter().map(run).collect::<Vec<_>>()).unwrap_err().to_string()
        };
        let three = message(&[(1e3, 1e6, 3.0), (1e4, 1e6, 2.5), (1e5, 1e6, 2.2), (1e5, 1e6, 2.1)]);
        assert!(three.contains("4 different numbers of parameters or more, and the runs have 3"), "{three}");
        let two = message(&[(1e3, 1e6, 3.0), (1e4, 2e6, 2.5), (1e5, 1e6, 2.2), (1e6, 2e6, 2.1)]);
        assert!(two.contains("2 different numbers of tokens in 4 runs are too few"), "{two}");
        let rising = message(&[(1e3, 1e6, 2.0), (1e4, 1e6, 2.1), (1e5, 1e6, 2.2), (1e6, 1e6, 2.3)]);
        assert!(rising.contains("does not fall"), "{rising}");
        let bad = message(&[(1e3, 1e6, f64::NAN); 4]);
        assert!(bad.contains("above 0"), "{bad}");
    }
}
