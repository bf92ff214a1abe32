//! Min-p: tokens that are much less probable than the best take no part. Source: Nguyen et al. 2024, Turning up the heat:
//! min-p sampling, §3 (<https://arxiv.org/abs/2407.01082>).

use super::{History, LogitsProcessor, hide_below};
use crate::distribution::largest;

/// Keeps the tokens whose probability is at least this share, from 0 to 1, of that of the most probable one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinP(pub f64);

impl LogitsProcessor for MinP {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        let least = largest(logits) + self.0.ln();
        hide_below(logits, least);
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
    fn a_share_of_the_best_is_enough() {
        let probabilities = [0.1, 0.5, 0.05, 0.35];
        assert_eq!(kept(MinP(0.19), &probabilities), [0, 1, 3]);
        assert_eq!(kept(MinP(0.5), &probabilities), [1, 3]);
        assert_eq!(kept(MinP(1.0), &probabilities), [1]);
        assert_eq!(kept(MinP(0.0), &probabilities), [0, 1, 2, 3]);
    }
}
