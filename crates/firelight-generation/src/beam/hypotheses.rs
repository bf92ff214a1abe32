//! The finished hypotheses of one row.

use crate::{StopReason, TokenScore};

/// A continuation that a beam search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hypothesis {
    /// The new ids, without the prompt and without the stop token.
    pub ids: Vec<u32>,
    /// `log P / length^p`: the logarithm of the probability of the new tokens in nats, the stop token's included, over their
    /// number to the power of [`BeamOptions::length_penalty`](crate::BeamOptions::length_penalty).
    pub score: f64,
    /// The scores of the ids, if [`BeamOptions::logprobs`](crate::BeamOptions::logprobs) asks for them; else empty.
    pub scores: Vec<TokenScore>,
    /// Why it ended.
    #[doc(alias = "stopped")]
    #[doc(alias = "finish_reason")]
    pub stop_reason: StopReason,
}

/// The best finished hypotheses of a row so far: at most as many as it has beams, best first, the earlier first among
/// equals.
#[derive(Clone, Debug)]
pub(super) struct Hypotheses {
    capacity: usize,
    best: Vec<Hypothesis>,
}

impl Hypotheses {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, best: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.best.is_empty()
    }

    /// Adds a hypothesis if it is among the best.
    pub(super) fn offer(&mut self, hypothesis: Hypothesis) {
        let place = self.best.partition_point(|kept| kept.score >= hypothesis.score);
        self.best.insert(place, hypothesis);
        self.best.truncate(self.capacity);
    }

    /// The score that a new hypothesis has to exceed; none while there is a free place.
    pub(super) fn worst_score(&self) -> Option<f64> {
        self.best.get(self.capacity - 1).map(|hypothesis| hypothesis.score)
    }

    /// The best `count`.
    pub(super) fn into_best(mut self, count: usize) -> Vec<Hypothesis> {
        self.best.truncate(count);
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_stay_and_the_earlier_among_equals() {
        let mut hypotheses = Hypotheses::new(2);
        let offer = |hypotheses: &mut Hypotheses, id, score| {
            let (ids, scores, stop_reason) = (vec![id], Vec::new(), StopReason::MaxNewTokens);
            hypotheses.offer(Hypothesis { ids, score, scores, stop_reason });
        };
        offer(&mut hypotheses, 0, -3.0);
        assert_eq!(hypotheses.worst_score(), None);
        offer(&mut hypotheses, 1, -1.0);
        assert_eq!(hypotheses.worst_score(), Some(-3.0));
        offer(&mut hypotheses, 2, -1.0);
        offer(&mut hypotheses, 3, -1.0);
        offer(&mut hypotheses, 4, -2.0);
        let ids: Vec<u32> = hypotheses.into_best(2).into_iter().flat_map(|hypothesis| hypothesis.ids).collect();
        assert_eq!(ids, [1, 2]);
    }
}
