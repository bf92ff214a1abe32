//! Pairs that a seed generates: small tasks with one right answer, so that a model of sequences can be trained and judged in
//! minutes and without a file. Every source occurs once, so that no part of the data holds a source of another.

mod addition;
mod calendar;
mod dates;
mod letters;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use firelight_storage::InputError;

use crate::dice::Dice;
use crate::{DataError, Pair};

/// No task gives more pairs: they are held in memory.
const MAX_PAIRS: usize = 5_000_000;

/// A task with more sources than these gives nine tenths of them at most. Pairs are drawn until a new one comes, and the last
/// ones of many would not come in hours.
const MANY_SOURCES: u128 = 100_000;

/// A generated task. In a recipe: `{ kind = "copy" }`, `{ kind = "addition", digits = 3 }`, `{ kind = "dates" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Toy {
    /// Letters, to be written as they are: `hzqa` is `hzqa`.
    Copy {
        /// Letters of a source at least. Default: 1.
        #[serde(default = "letters::min_length")]
        min_length: usize,
        /// Letters of a source at most. Default: 16.
        #[serde(default = "letters::max_length")]
        max_length: usize,
        /// How many letters there are, from `a` on, at most 26. Default: 26.
        #[serde(default = "letters::alphabet")]
        alphabet: usize,
    },
    /// Letters, to be written backwards: `hzqa` is `aqzh`.
    Reverse {
        /// As of `Copy`.
        #[serde(default = "letters::min_length")]
        min_length: usize,
        /// As of `Copy`.
        #[serde(default = "letters::max_length")]
        max_length: usize,
        /// As of `Copy`.
        #[serde(default = "letters::alphabet")]
        alphabet: usize,
    },
    /// Two numbers, to be added: `47+385` is `432`.
    Addition {
        /// Digits of a number at most, from 1 to 18. Default: 3.
        #[serde(default = "addition::digits")]
        digits: usize,
        /// Whether the sum is written from its last digit to the first, the order in which people add: `47+385` is `234`. A model
        /// then knows every carry when it needs it, and learns from fewer pairs (Lee et al. 2023, Teaching arithmetic to small
        /// transformers, <https://arxiv.org/abs/2307.03381>). Default: false.
        #[serde(default)]
        reversed: bool,
    },
    /// A day as people write it, to be written by ISO 8601: `3rd of March 1997` is `1997-03-03`. Years from 1900 to 2099; in
    /// a day with dots, `12.11.1985`, the day comes first.
    Dates,
}

/// The parts of a task, without a source in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToySplits {
    /// Pairs to train on.
    pub training: Vec<Pair>,
    /// Pairs to validate on.
    pub validation: Vec<Pair>,
    /// Pairs to test on.
    pub test: Vec<Pair>,
}

impl Toy {
    /// # Errors
    /// Lists every number that is out of its range.
    pub fn validate(&self) -> Result<(), DataError> {
        let problems = match *self {
            Self::Copy { min_length, max_length, alphabet } | Self::Reverse { min_length, max_length, alphabet } => {
                letters::problems(min_length, max_length, alphabet)
            }
            Self::Addition { digits, .. } => addition::problems(digits),
            Self::Dates => vec![],
        };
        Ok(InputError::of_all(&problems)?)
    }

    /// `count` pairs with different sources, at most 5,000,000. More pairs of a seed begin with the fewer.
    ///
    /// # Errors
    /// Fails if a number is out of its range or there are not so many sources, of which more than 100,000 give nine tenths.
    pub fn pairs(&self, seed: u64, count: usize) -> Result<Vec<Pair>, DataError> {
        self.validate()?;
        if count > MAX_PAIRS {
            let problem = format!("{count} generated pairs are above the limit of {MAX_PAIRS}");
            return Err(InputError::new(problem).into());
        }
        let available = self.available();
        if count as u128 > available {
            let problem = format!(
                "the task gives at most {available} pairs of different sources, but {count} were asked for: give fewer, or \
                 longer sources from more letters or digits"
            );
            return Err(InputError::new(problem).into());
        }
        let mut dice = Dice::of(&[seed, STREAM]);
        let mut seen = HashSet::new();
        let pairs = std::iter::repeat_with(|| self.pair(&mut dice)).filter(|pair| seen.insert(pair.source.clone()));
        Ok(pairs.take(count).collect())
    }

    /// Parts of these sizes. Those to validate and to test on are the same for every size of the part to train on.
    ///
    /// # Errors
    /// As [`pairs`](Self::pairs), of all parts together.
    pub fn splits(&self, seed: u64, training: usize, validation: usize, test: usize) -> Result<ToySplits, DataError> {
        let all = training.saturating_add(validation).saturating_add(test);
        let mut test_pairs = self.pairs(seed, all)?;
        let mut validation_pairs = test_pairs.split_off(test);
        let training = validation_pairs.split_off(validation);
        Ok(ToySplits { training, validation: validation_pairs, test: test_pairs })
    }

    /// One pair, as likely as any other of its length or form.
    fn pair(&self, dice: &mut Dice) -> Pair {
        match *self {
            Self::Copy { min_length, max_length, alphabet } => letters::copy(dice, min_length..=max_length, alphabet),
            Self::Reverse { min_length, max_length, alphabet } => {
                letters::reverse(dice, min_length..=max_length, alphabet)
            }
            Self::Addition { digits, reversed } => addition::pair(dice, digits, reversed),
            Self::Dates => dates::pair(dice),
        }
    }

    /// How many pairs can be drawn.
    fn available(&self) -> u128 {
        match self.sources() {
            few @ ..=MANY_SOURCES => few,
            many => many / 10 * 9,
        }
    }

    /// How many sources there are at least.
    fn sources(&self) -> u128 {
        match *self {
            Self::Copy { min_length, max_length, alphabet } | Self::Reverse { min_length, max_length, alphabet } => {
                letters::sources(min_length..=max_length, alphabet)
            }
            Self::Addition { digits, .. } => addition::sources(digits),
            Self::Dates => dates::sources(),
        }
    }
}

/// Keeps the numbers of these tasks apart from all others of a seed.
const STREAM: u64 = 0x746f79;

#[cfg(test)]
mod tests {
    use super::*;

    const TOYS: [Toy; 4] = [
        Toy::Copy { min_length: 2, max_length: 6, alphabet: 5 },
        Toy::Reverse { min_length: 1, max_length: 12, alphabet: 26 },
        Toy::Addition { digits: 3, reversed: false },
        Toy::Dates,
    ];

    #[test]
    fn a_seed_always_gives_the_same_pairs() {
        let pairs = |toy: Toy, seed| toy.pairs(seed, 3).unwrap().into_iter().map(|pair| (pair.source, pair.target));
        let found: Vec<_> = TOYS.into_iter().flat_map(|toy| pairs(toy, 7)).collect();
        assert_eq!(found, EXPECTED.map(|(source, target)| (source.to_owned(), target.to_owned())));
        assert!(TOYS.into_iter().all(|toy| pairs(toy, 7).ne(pairs(toy, 8))));
    }

    const EXPECTED: [(&str, &str); 12] = [
        ("edee", "edee"),
        ("cdbc", "cdbc"),
        ("deaabe", "deaabe"),
        ("yuxzlpo", "oplzxuy"),
        ("ldw", "wdl"),
        ("ceizsmwhqhn", "nhqhwmsziec"),
        ("77+591", "668"),
        ("45+846", "891"),
        ("9+28", "37"),
        ("30-Oct-2010", "2010-10-30"),
        ("4. March 2008", "2008-03-04"),
        ("28.2.2069", "2069-02-28"),
    ];

    #[test]
    fn no_source_of_a_part_is_in_another() {
        for toy in TOYS {
            let parts = toy.splits(3, 2_000, 500, 500).unwrap();
            let sizes = [parts.training.len(), parts.validation.len(), parts.test.len()];
            assert_eq!(sizes, [2_000, 500, 500]);
            let all = [parts.training.clone(), parts.validation.clone(), parts.test.clone()].concat();
            let sources: HashSet<&str> = all.iter().map(|pair| pair.source.as_str()).collect();
            assert_eq!(sources.len(), 3_000, "{toy:?}");
            let smaller = toy.splits(3, 10, 500, 500).unwrap();
            assert_eq!((smaller.validation, smaller.test), (parts.validation, parts.test));
            assert_eq!(smaller.training, parts.training[..10]);
        }
    }

    #[test]
    fn all_sources_can_be_asked_for_and_no_more() {
        // 2 + 4 + 8 of letters; 10 * 10 of digits.
        let letters = Toy::Copy { min_length: 1, max_length: 3, alphabet: 2 };
        for (toy, all) in [(letters, 14), (Toy::Addition { digits: 1, reversed: true }, 100)] {
            assert_eq!(toy.pairs(0, all).unwrap().len(), all);
            let error = toy.pairs(0, all + 1).unwrap_err();
            assert!(error.to_string().contains(&format!("gives at most {all} pairs of different sources")), "{error}");
        }
    }

    #[test]
    fn more_than_can_be_drawn_or_held_in_memory_is_refused_at_once() {
        let error = |toy: Toy, count| {
            let error = toy.pairs(0, count).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        // All of a million sums: the last of them would have to be drawn.
        let sums = Toy::Addition { digits: 3, reversed: false };
        assert!(error(sums, 1_000_000).starts_with("the task gives at most 900000 pairs of different sources"));
        let letters = Toy::Copy { min_length: 1, max_length: 99, alphabet: 26 };
        assert_eq!(error(letters, 5_000_001), "5000001 generated pairs are above the limit of 5000000");
        assert!(sums.splits(0, usize::MAX, 1, 1).is_err());
    }

    #[test]
    fn numbers_out_of_range_are_all_listed() {
        let error = Toy::Reverse { min_length: 0, max_length: 0, alphabet: 27 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "toy.min_length = 0 must be at least 1; toy.alphabet = 27 must be from 1 to 26");
        assert!(Toy::Copy { min_length: 3, max_length: 2, alphabet: 1 }.validate().is_err());
        assert!(Toy::Addition { digits: 19, reversed: false }.pairs(0, 1).unwrap_err().is_user_error());
    }

    #[test]
    fn a_recipe_names_a_task() {
        let read = |json: &str| serde_json::from_str::<Toy>(json).unwrap();
        assert_eq!(read(r#"{"kind": "copy"}"#), Toy::Copy { min_length: 1, max_length: 16, alphabet: 26 });
        assert_eq!(read(r#"{"kind": "addition"}"#), Toy::Addition { digits: 3, reversed: false });
        assert_eq!(read(r#"{"kind": "dates"}"#), Toy::Dates);
        assert!(serde_json::from_str::<Toy>(r#"{"kind": "addition", "alphabet": 3}"#).is_err());
    }
}
