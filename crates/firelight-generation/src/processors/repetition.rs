//! Penalties for tokens that were written before: a factor, or an amount for each time.

use super::{History, LogitsProcessor};

/// Makes the tokens of the history, the prompt included, less probable: divides positive logits by this number, above 0, and multiplies
/// negative ones by it.
///
/// Source: Keskar et al. 2019, CTRL, §4.1 (<https://arxiv.org/abs/1909.05858>); the rule for negative logits is that of
/// `RepetitionPenaltyLogitsProcessor` of transformers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepetitionPenalty(pub f64);

impl LogitsProcessor for RepetitionPenalty {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        for (id, _) in counted(history.ids()) {
            let Some(logit) = logits.get_mut(id as usize) else { continue };
            *logit = if *logit < 0.0 { *logit * self.0 } else { *logit / self.0 };
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(*self)
    }
}

/// Subtracts `frequency` from a token's logit for each time it was written, and `presence` once.
///
/// Source: the parameters `frequency_penalty` and `presence_penalty` of OpenAI's interface; the prompt does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrequencyPenalty {
    /// Subtracted for each time.
    pub frequency: f64,
    /// Subtracted once.
    pub presence: f64,
}

impl LogitsProcessor for FrequencyPenalty {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        for (id, count) in counted(history.new_ids()) {
            let Some(logit) = logits.get_mut(id as usize) else { continue };
            *logit -= self.frequency * count as f64 + self.presence;
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(*self)
    }
}

/// Every id that occurs, with the number of times.
fn counted(ids: &[u32]) -> Vec<(u32, usize)> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|same| (same[0], same.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::HIDDEN;
    use super::*;

    /// The prompt is 0, 1, and 2, 2 are new.
    const WRITTEN: [u32; 4] = [0, 1, 2, 2];

    fn changed(mut processor: impl LogitsProcessor, mut logits: [f64; 5]) -> [f64; 5] {
        processor.process(&History::new(&WRITTEN, 2), &mut logits);
        logits
    }

    #[test]
    fn a_factor_counts_once_and_for_the_prompt_too() {
        assert_eq!(changed(RepetitionPenalty(2.0), [3.0, -3.0, 0.5, 1.0, -1.0]), [1.5, -6.0, 0.25, 1.0, -1.0]);
        assert_eq!(changed(RepetitionPenalty(2.0), [HIDDEN; 5]), [HIDDEN; 5]);
    }

    #[test]
    fn a_price_is_paid_for_each_time_and_for_new_tokens_alone() {
        let processor = FrequencyPenalty { frequency: 0.5, presence: 0.25 };
        assert_eq!(changed(processor, [1.0, 1.0, 1.0, 1.0, HIDDEN]), [1.0, 1.0, -0.25, 1.0, HIDDEN]);
    }
}
