//! Mirostat 2: truncates the distribution so that the surprise of the text stays near a target. Source: Basu et al. 2021, Mirostat, §4, algorithm 1 with the
//! cut by surprise of the authors' second version (<https://arxiv.org/abs/2007.14966>, <https://github.com/basusourya/mirostat>).

use serde::{Deserialize, Serialize};

use super::{HIDDEN, History, LogitsProcessor};
use crate::distribution::softmax;

/// Keeps the tokens whose surprise `-log2 p` is at most `μ`, or the best one; `μ` begins at `2 τ`, and after each choice falls by
/// `η (s - τ)`, where `s` is the surprise of the choice among those that were kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MirostatOptions {
    /// The target `τ`, in bits, above 0. Default 5.
    pub tau: f64,
    /// The learning rate `η`, above 0. Default 0.1.
    pub eta: f64,
}

impl Default for MirostatOptions {
    fn default() -> Self {
        Self { tau: 5.0, eta: 0.1 }
    }
}

/// Mirostat with its state in a row. It must be the last processor of its list: it measures the surprise of the choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirostat {
    options: MirostatOptions,
    mu: f64,
    /// The surprises of the last step, in bits.
    surprises: Vec<f64>,
}

impl Mirostat {
    /// Before the first token.
    pub fn new(options: MirostatOptions) -> Self {
        Self { options, mu: 2.0 * options.tau, surprises: Vec::new() }
    }
}

fn surprises(logits: &[f64]) -> impl Iterator<Item = f64> {
    softmax(logits).into_iter().map(|probability| -probability.log2())
}

impl LogitsProcessor for Mirostat {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        let before: Vec<f64> = surprises(logits).collect();
        let least = before.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.mu.max(least);
        logits.iter_mut().zip(before).filter(|(_, surprise)| *surprise > most).for_each(|(logit, _)| *logit = HIDDEN);
        self.surprises.clear();
        self.surprises.extend(surprises(logits));
    }

    fn accept(&mut self, chosen: u32) {
        if let Some(surprise) = self.surprises.get(chosen as usize).filter(|surprise| surprise.is_finite()) {
            self.mu -= self.options.eta * (surprise - self.options.tau);
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::kept;
    use super::*;

    /// Surprises of 1, 2, 3 and 3 bits.
    const PROBABILITIES: [f64; 4] = [0.5, 0.25, 0.125, 0.125];

    #[test]
    fn two_steps_by_hand() {
        let mut mirostat = Mirostat::new(MirostatOptions { tau: 1.0, eta: 0.5 });
        let mut step = |chosen| {
            let mut logits = PROBABILITIES.map(f64::ln);
            mirostat.process(&History::default(), &mut logits);
            mirostat.accept(chosen);
            let kept = (0..4).filter(|&id| logits[id] > HIDDEN).count();
            (kept, mirostat.mu)
        };
        // Up to 2 bits are kept; id 1 has 1/3 of what is left, log2 3 = 1.585 bits.
        let (kept, mu) = step(1);
        assert!(kept == 2 && (mu - (2.0 - 0.5 * 0.584_962_5)).abs() < 1e-6, "{kept} {mu}");
        // Up to 1.7 bits: one token, without surprise.
        let (kept, mu) = step(0);
        assert!(kept == 1 && (mu - (2.0 - 0.5 * 0.584_962_5 + 0.5)).abs() < 1e-6, "{kept} {mu}");
    }

    #[test]
    fn the_best_stays_whatever_the_target() {
        assert_eq!(kept(Mirostat::new(MirostatOptions { tau: 0.01, eta: 0.1 }), &PROBABILITIES), [0]);
        assert_eq!(kept(Mirostat::new(MirostatOptions { tau: 3.0, eta: 0.1 }), &PROBABILITIES), [0, 1, 2, 3]);
    }

    #[test]
    fn the_surprise_of_a_long_text_is_the_target() {
        // 64 tokens, each less probable than the one before: Zipf's law.
        let logits: Vec<f64> = (1..=64).map(|rank| -f64::from(rank).ln()).collect();
        let mut mirostat = Mirostat::new(MirostatOptions { tau: 3.0, eta: 0.1 });
        let mut total = 0.0;
        for step in 0..2000 {
            let mut logits = logits.clone();
            mirostat.process(&History::default(), &mut logits);
            let mut draw = History::default().with_draw(3, 0, step).uniform();
            let probabilities = softmax(&logits);
            let chosen = probabilities.iter().position(|probability| {
                draw -= probability;
                draw < 0.0
            });
            let chosen = chosen.unwrap_or(0);
            total += -probabilities[chosen].log2();
            mirostat.accept(chosen as u32);
        }
        assert!((total / 2000.0 - 3.0).abs() < 0.1, "{}", total / 2000.0);
    }
}
