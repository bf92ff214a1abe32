//! DRY: a penalty for tokens that would continue a repetition, which grows with its length. Source: P. E. Weidmann 2024, DRY: a modern repetition penalty
//! (<https://github.com/oobabooga/text-generation-webui/pull/5637>).

use serde::{Deserialize, Serialize};

use super::{History, LogitsProcessor};

/// Subtracts `multiplier * base^(n - allowed)` from the logit of a token that would continue a repetition: the last `n` tokens of the history
/// occurred before, and this token followed. The longest `n` counts, if it is at least `allowed`. The prompt is part of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dry {
    /// The penalty of the shortest repetition, above 0. Default 0.8.
    pub multiplier: f64,
    /// The factor of the penalty for each further token, at least 1. Default 1.75.
    pub base: f64,
    /// The length of the shortest repetition that is penalised, at least 1. Default 2.
    pub allowed: usize,
    /// Tokens that end a repetition, such as line feeds and quotes. Default none.
    pub breakers: Vec<u32>,
    /// How many of the last tokens are searched. Default: all.
    pub range: Option<usize>,
}

impl Default for Dry {
    fn default() -> Self {
        Self { multiplier: 0.8, base: 1.75, allowed: 2, breakers: Vec::new(), range: None }
    }
}

/// The most tokens beyond `allowed` that count, so that the penalty stays finite.
const LONGEST: usize = 50;

impl Dry {
    /// How many tokens up to `place`, inclusive, equal the last tokens of the history.
    fn matching(&self, ids: &[u32], place: usize) -> usize {
        let pairs = ids[..=place].iter().rev().zip(ids.iter().rev());
        pairs
            .take(self.allowed.saturating_add(LONGEST))
            .take_while(|(earlier, last)| earlier == last && !self.breakers.contains(last))
            .count()
    }
}

impl LogitsProcessor for Dry {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let ids = history.ids();
        let ids = &ids[ids.len() - self.range.unwrap_or(ids.len()).min(ids.len())..];
        let mut repeated: Vec<(u32, usize)> = Vec::new();
        for place in 0..ids.len().saturating_sub(1) {
            let length = self.matching(ids, place);
            if length < self.allowed {
                continue;
            }
            let next = ids[place + 1];
            match repeated.iter_mut().find(|(id, _)| *id == next) {
                Some((_, longest)) => *longest = length.max(*longest),
                None => repeated.push((next, length)),
            }
        }
        for (id, length) in repeated.into_iter().filter(|(id, _)| !self.breakers.contains(id)) {
            let Some(logit) = logits.get_mut(id as usize) else { continue };
            *logit -= self.multiplier * self.base.powi((length - self.allowed) as i32);
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(dry: &Dry, written: &[u32]) -> [f64; 5] {
        let mut logits = [0.0; 5];
        dry.clone().process(&History::new(written, 0), &mut logits);
        logits.map(|logit| -logit)
    }

    #[test]
    fn longer_repetitions_cost_more() {
        let dry = Dry { multiplier: 1.0, base: 3.0, allowed: 2, ..Dry::default() };
        assert_eq!(prices(&dry, &[1, 2, 3, 1, 2]), [0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(prices(&dry, &[0, 1, 2, 3, 0, 1, 2]), [0.0, 0.0, 0.0, 3.0, 0.0]);
        assert_eq!(prices(&dry, &[1, 2, 3, 4, 2]), [0.0; 5], "one token may repeat");
        // After [1, 2] came 3, and after [0, 1, 2] came 4: the longest repetition counts for each.
        assert_eq!(prices(&dry, &[1, 2, 3, 0, 1, 2, 4, 0, 1, 2]), [0.0, 0.0, 0.0, 1.0, 3.0]);
    }

    #[test]
    fn breakers_and_distance_end_a_repetition() {
        let dry = Dry { multiplier: 1.0, base: 3.0, allowed: 2, ..Dry::default() };
        let broken = Dry { breakers: vec![1], ..dry.clone() };
        assert_eq!(prices(&broken, &[0, 1, 2, 3, 0, 1, 2]), [0.0; 5]);
        let near = Dry { range: Some(5), ..dry };
        assert_eq!(prices(&near, &[0, 1, 2, 3, 4, 0, 1, 2]), [0.0; 5]);
    }

    #[test]
    fn a_text_of_one_token_stays_finite() {
        let found = prices(&Dry::default(), &[3; 500]);
        assert!(found[3].is_finite() && found[3] > 1e6, "{found:?}");
        let long = Dry { multiplier: 1.0, allowed: 100, ..Dry::default() };
        assert_eq!((prices(&long, &[3; 100])[3], prices(&long, &[3; 101])[3]), (0.0, 1.0));
    }
}
