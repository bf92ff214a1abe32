//! What is left of a row of logits. Once most tokens are hidden it is a list of the others, so that the filters behind need not pass over the
//! vocabulary again.

use super::HIDDEN;

/// A row becomes a list where at most one token in so many is not hidden.
const FEW: usize = 4;

/// A row of logits `[V]`, or a list of those that are not hidden. Its memory serves one token after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left<R> {
    /// Out of date while there is a list.
    row: R,
    is_list: bool,
    list: List,
    /// The row before the first processor, where one that takes precedence may ask for it.
    given: Vec<f64>,
}

/// Tokens in the order of their ids. All others are hidden.
#[derive(Clone, Debug, Default)]
struct List {
    ids: Vec<u32>,
    logits: Vec<f64>,
}

impl List {
    fn fill(&mut self, tokens: impl Iterator<Item = (u32, f64)>) {
        self.ids.clear();
        self.logits.clear();
        for (id, logit) in tokens {
            self.ids.push(id);
            self.logits.push(logit);
        }
    }

    /// Leaves out what is hidden.
    fn compact(&mut self) {
        let mut kept = 0;
        for place in 0..self.ids.len() {
            if self.logits[place] != HIDDEN {
                (self.ids[kept], self.logits[kept]) = (self.ids[place], self.logits[place]);
                kept += 1;
            }
        }
        self.ids.truncate(kept);
        self.logits.truncate(kept);
    }
}

impl Left<Vec<f64>> {
    /// Starts with the logits `[V]` of all tokens.
    pub(super) fn fill(&mut self, logits: &[f32]) {
        self.is_list = false;
        self.row.clear();
        self.row.extend(logits.iter().map(|&logit| f64::from(logit)));
    }

    /// Starts with a list of tokens in the order of their ids, for processors that ignore ids: there is no row.
    pub(crate) fn fill_list(&mut self, tokens: &[(u32, f64)]) {
        self.is_list = true;
        self.row.clear();
        self.list.fill(tokens.iter().copied());
    }

    /// Where its memory lies.
    #[cfg(test)]
    pub(crate) fn addresses(&self) -> [*const f64; 3] {
        [&self.row, &self.list.logits, &self.given].map(|memory| memory.as_ptr())
    }
}

impl<R: AsRef<[f64]> + AsMut<[f64]>> Left<R> {
    pub(crate) fn of(row: R) -> Self {
        Self { row, is_list: false, list: List::default(), given: Vec::new() }
    }

    /// The logits of the list if there is one, else of the row. Both are in the order of the ids.
    pub(crate) fn logits(&self) -> &[f64] {
        if self.is_list { &self.list.logits } else { self.row.as_ref() }
    }

    fn logits_mut(&mut self) -> &mut [f64] {
        if self.is_list { &mut self.list.logits } else { self.row.as_mut() }
    }

    /// Whether there is no token that can be chosen.
    pub(super) fn is_empty(&self) -> bool {
        !self.logits().iter().any(|logit| logit.is_finite())
    }

    /// Keeps the logits of all tokens for [`restore`](Self::restore).
    pub(super) fn remember(&mut self) {
        self.widen();
        self.given.clear();
        self.given.extend_from_slice(self.row.as_ref());
    }

    /// Starts again with the logits that were remembered.
    pub(super) fn restore(&mut self) {
        self.is_list = false;
        self.row.as_mut().copy_from_slice(&self.given);
    }

    /// Whose logit stands at a place of [`logits`](Self::logits).
    pub(crate) fn id(&self, place: usize) -> u32 {
        if self.is_list { self.list.ids[place] } else { place as u32 }
    }

    /// Hides the token at a place of [`logits`](Self::logits).
    pub(crate) fn hide(&mut self, place: usize) {
        self.logits_mut()[place] = HIDDEN;
    }

    /// Makes a list of the tokens that are not hidden if they are few, and returns the logits.
    pub(super) fn narrow(&mut self) -> &mut [f64] {
        let logits = self.logits();
        let count = logits.iter().filter(|logit| **logit != HIDDEN).count();
        match (1..=logits.len() / FEW).contains(&count) {
            true if self.is_list => self.list.compact(),
            true => {
                let row = self.row.as_ref().iter().enumerate().map(|(id, &logit)| (id as u32, logit));
                self.list.fill(row.filter(|(_, logit)| *logit != HIDDEN));
                self.is_list = true;
            }
            false => {}
        }
        self.logits_mut()
    }

    /// Writes a list back into its row, and returns the logits of all tokens.
    pub(super) fn widen(&mut self) -> &mut [f64] {
        let row = self.row.as_mut();
        if self.is_list {
            self.is_list = false;
            row.fill(HIDDEN);
            self.list.ids.iter().zip(&self.list.logits).for_each(|(&id, &logit)| row[id as usize] = logit);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::*;
    use super::*;
    use crate::sampler::Choice;

    #[test]
    fn a_list_knows_its_ids() {
        let row = [HIDDEN, 1.0, HIDDEN, HIDDEN, 3.0, HIDDEN, HIDDEN, HIDDEN, HIDDEN];
        let mut left = Left::of(row);
        assert_eq!((left.logits(), left.id(4)), (&row[..], 4));
        assert_eq!(left.narrow(), [1.0, 3.0]);
        assert_eq!((left.id(0), left.id(1)), (1, 4));
        left.hide(0);
        assert_eq!(left.narrow(), [HIDDEN, 3.0], "half of a list is not few");
        let expected = [HIDDEN, HIDDEN, HIDDEN, HIDDEN, 3.0, HIDDEN, HIDDEN, HIDDEN, HIDDEN];
        assert_eq!(left.widen(), expected);
        assert_eq!((left.logits(), left.id(4)), (&expected[..], 4));
    }

    #[test]
    fn many_tokens_and_none_are_no_list() {
        assert_eq!(Left::of([HIDDEN, 1.0, 2.0, HIDDEN]).narrow().len(), 4);
        assert_eq!(Left::of([HIDDEN; 9]).narrow().len(), 9);
        assert_eq!(Left::of([f64::NAN, 1.0, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN]).narrow().len(), 2);
    }

    /// A processor of each kind, with a number between 0 and 1.
    fn processor(kind: usize, number: f64) -> Box<dyn LogitsProcessor> {
        match kind {
            0 => Box::new(Temperature(0.2 + number)),
            1 => Box::new(TopK(1 + (30.0 * number) as usize)),
            2 => Box::new(TopP(number)),
            3 => Box::new(MinP(number)),
            4 => Box::new(Typical(number)),
            5 => Box::new(TopNSigma(0.1 + 3.0 * number)),
            6 => Box::new(Xtc { probability: 1.0, threshold: number / 5.0 }),
            7 => Box::new(RepetitionPenalty(1.0 + number)),
            8 => Box::new(FrequencyPenalty { frequency: number, presence: 0.5 }),
            9 => Box::new(NoRepeatNgram(1 + (3.0 * number) as usize)),
            10 => Box::new(Dry { multiplier: number, allowed: 1, ..Dry::default() }),
            11 => Box::new(TopH(number)),
            12 => Box::new(EpsilonCutoff(number / 4.0)),
            13 => Box::new(EtaCutoff(number)),
            14 => Box::new(BannedSequences(vec![vec![(100.0 * number) as u32]])),
            _ => Box::new(Mirostat::new(MirostatOptions { tau: 5.0 * number, eta: 0.1 })),
        }
    }

    fn bits(logits: &[f64]) -> Vec<u64> {
        logits.iter().map(|logit| logit.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn a_list_changes_no_bit(
            row in vec(prop_oneof![4 => -8.0f64..8.0, 1 => Just(HIDDEN), 1 => Just(0.5)], 1..160),
            kinds in vec((0usize..16, 0.01f64..1.0), 0..9), ids in vec(0u32..160, 0..20), step in 0usize..9,
        ) {
            let mut list = Processors::default();
            list.extend(kinds.into_iter().map(|(kind, number)| processor(kind, number)));
            let history = History::new(&ids, ids.len() / 2).with_draw(3, 0, step);
            let mut plain = row.clone();
            list.clone().0.iter_mut().for_each(|processor| processor.process(&history, &mut plain));

            let mut left = Left::of(row.clone());
            list.clone().run(&history, &mut left);
            left.narrow();
            if is_distribution(&plain) {
                prop_assert!(is_distribution(left.logits()));
                for choice in [Choice::Best, Choice::Draw] {
                    let place = choice.of(left.logits(), history.draw());
                    prop_assert_eq!(left.id(place as usize), choice.of(&plain, history.draw()));
                }
            }
            prop_assert_eq!(bits(left.widen()), bits(&plain));

            let mut written = row;
            list.process(&history, &mut written);
            prop_assert_eq!(bits(&written), bits(&plain));
        }
    }
}
