//! XTC, exclude top choices: now and then hides all probable tokens except the least probable of them. Source: P. E. Weidmann 2024, Exclude top
//! choices (<https://github.com/oobabooga/text-generation-webui/pull/6335>).

use serde::{Deserialize, Serialize};

use super::{HIDDEN, History, LogitsProcessor, hide};
use crate::distribution::{by_rank, softmax};

/// At each step, with the given probability: hides all tokens that are at least as probable as the threshold, except the least probable of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Xtc {
    /// The probability of doing so at a step, from 0 to 1. Default 0.5.
    pub probability: f64,
    /// The probability from which on a token is a top choice, above 0. Above 0.5 nothing happens: there is never more than one. Default 0.1.
    pub threshold: f64,
}

impl Default for Xtc {
    fn default() -> Self {
        Self { probability: 0.5, threshold: 0.1 }
    }
}

impl LogitsProcessor for Xtc {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        if history.uniform() >= self.probability {
            return;
        }
        let probabilities = softmax(logits);
        let is_top = |&id: &usize| logits[id] > HIDDEN && probabilities[id] >= self.threshold;
        let mut top: Vec<usize> = (0..logits.len()).filter(is_top).collect();
        top.sort_by(by_rank(logits));
        top.pop();
        hide(logits, &top);
    }

    fn ignores_ids(&self) -> bool {
        true
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::kept;
    use super::*;

    #[test]
    fn the_least_of_the_top_stays() {
        let probabilities = [0.4, 0.05, 0.3, 0.15, 0.1];
        let always = |threshold| Xtc { probability: 1.0, threshold };
        assert_eq!(kept(always(0.12), &probabilities), [1, 3, 4]);
        assert_eq!(kept(always(0.2), &probabilities), [1, 2, 3, 4]);
        assert_eq!(kept(always(0.35), &probabilities), [0, 1, 2, 3, 4], "there is one alone");
        assert_eq!(kept(always(0.5), &probabilities), [0, 1, 2, 3, 4]);
        assert_eq!(kept(Xtc { probability: 0.0, threshold: 0.12 }, &probabilities), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn it_happens_as_often_as_it_is_asked_to() {
        let mut xtc = Xtc { probability: 0.3, threshold: 0.1 };
        let happened = (0..1000).filter(|&step| {
            let mut logits = [0.0; 3];
            xtc.process(&History::default().with_draw(7, 0, step), &mut logits);
            logits != [0.0; 3]
        });
        let count = happened.count();
        // Four standard deviations of 1,000 draws are 58.
        assert!(count.abs_diff(300) < 58, "{count}");
    }
}
