//! BERT's masking: some tokens of a text are chosen, and most of them hidden behind the mask; the model is to tell what each
//! of the chosen ones was. The choice is drawn anew every epoch (Liu et al. 2019, RoBERTa, section 4.1), whole words at a
//! time if asked for.
//!
//! Source: Devlin et al. 2019, BERT, section 3.1, task 1 (<https://arxiv.org/abs/1810.04805>); how many are chosen, and
//! how words are, is `create_masked_lm_predictions` of the paper's code. Differences: the share counts the tokens that may be
//! chosen, without special ones, and no random token is a special one.

use serde::{Deserialize, Serialize};

use super::{NoiseSeed, share};
use firelight_storage::InputError;

use crate::dice::Dice;
use crate::{DataError, SpecialRole, Tokenizer};

/// What is chosen together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MaskUnit {
    /// Each token for itself.
    #[default]
    Token,
    /// All tokens of a word, as [`Tokenizer::continues_word`] tells it.
    WholeWord,
}

/// How much of a text is chosen, and what stands in its place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Masking {
    /// Share of the tokens that are chosen, above 0 and at most 1; one at least. Default: 0.15.
    pub ratio: f64,
    /// Share of the chosen ones that become the mask. Default: 0.8.
    pub masked: f64,
    /// Share of the chosen ones that become any other token; what is left stays as it is. Default: 0.1.
    pub random: f64,
    /// What is chosen together. Default: single tokens.
    pub unit: MaskUnit,
}

impl Default for Masking {
    fn default() -> Self {
        Self { ratio: 0.15, masked: 0.8, random: 0.1, unit: MaskUnit::Token }
    }
}

/// What masking has to know of a vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskVocabulary {
    mask: u32,
    /// The tokens that stand for text, from which random ones are drawn: neither special nor unknown.
    ordinary: Vec<u32>,
    /// Which tokens may be chosen, by id.
    is_ordinary: Vec<bool>,
    /// Which go on with a word, by id.
    continues: Vec<bool>,
}

/// A text with its mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedText {
    /// What the model reads.
    pub inputs: Vec<u32>,
    /// Which tokens it has to tell.
    pub chosen: Vec<bool>,
}

impl MaskVocabulary {
    /// The vocabulary of a tokenizer with a mask.
    ///
    /// # Errors
    /// Fails if it has no special token of that role.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, DataError> {
        let mask = tokenizer.need(SpecialRole::Mask)?;
        let ids = 0..tokenizer.vocab_size() as u32;
        let unknown = tokenizer.role(SpecialRole::Unknown);
        let is_token = |id| tokenizer.token(id).is_some();
        let is_ordinary = ids.clone().map(|id| is_token(id) && !tokenizer.is_special(id) && Some(id) != unknown);
        let is_ordinary: Vec<bool> = is_ordinary.collect();
        Ok(Self {
            mask,
            ordinary: ids.clone().filter(|&id| is_ordinary[id as usize]).collect(),
            is_ordinary,
            continues: ids.map(|id| tokenizer.continues_word(id)).collect(),
        })
    }

    fn may_be_chosen(&self, id: u32) -> bool {
        self.is_ordinary.get(id as usize).is_some_and(|is_ordinary| *is_ordinary)
    }

    fn continues(&self, id: u32) -> bool {
        self.continues.get(id as usize).is_some_and(|continues| *continues)
    }
}

impl Masking {
    /// ELECTRA's generator: everything that is chosen becomes the mask (Clark et al. 2020, section 2).
    pub fn electra() -> Self {
        Self { masked: 1.0, random: 0.0, ..Self::default() }
    }

    /// # Errors
    /// Lists every number that is out of its range.
    pub fn validate(&self) -> Result<(), DataError> {
        let mut problems = Vec::new();
        if !(self.ratio > 0.0 && self.ratio <= 1.0) {
            problems.push(format!("masking.ratio = {} must be above 0 and at most 1", self.ratio));
        }
        for (key, share) in [("masked", self.masked), ("random", self.random)] {
            if !(0.0..=1.0).contains(&share) {
                problems.push(format!("masking.{key} = {share} must be from 0 to 1"));
            }
        }
        if self.masked + self.random > 1.0 + 1e-9 {
            problems.push(format!("masking.masked + masking.random = {} must be at most 1", self.masked + self.random));
        }
        Ok(InputError::of_all(&problems)?)
    }

    /// Chooses tokens of a text and puts what stands in their place. Special tokens are never chosen.
    pub fn apply(&self, ids: &[u32], vocabulary: &MaskVocabulary, seed: NoiseSeed) -> MaskedText {
        let dice = &mut seed.dice();
        let chosen = self.choose(ids, vocabulary, dice);
        let replace =
            |(&id, &is_chosen): (&u32, &bool)| if is_chosen { self.replace(id, vocabulary, dice) } else { id };
        MaskedText { inputs: ids.iter().zip(&chosen).map(replace).collect(), chosen }
    }

    /// Takes the units in any order, and leaves out those with more tokens than are still wanted.
    fn choose(&self, ids: &[u32], vocabulary: &MaskVocabulary, dice: &mut Dice) -> Vec<bool> {
        let mut units = self.units(ids, vocabulary);
        let tokens = units.iter().map(Vec::len).sum();
        let mut wanted = share(self.ratio, tokens).max(1);
        dice.shuffle(&mut units);
        let mut chosen = vec![false; ids.len()];
        for unit in units {
            if unit.len() <= wanted {
                unit.iter().for_each(|&position| chosen[position] = true);
                wanted -= unit.len();
            }
        }
        chosen
    }

    /// The places of the tokens that are chosen together.
    fn units(&self, ids: &[u32], vocabulary: &MaskVocabulary) -> Vec<Vec<usize>> {
        let mut units: Vec<Vec<usize>> = Vec::new();
        let mut in_word = false;
        for (position, &id) in ids.iter().enumerate() {
            let joins = in_word && self.unit == MaskUnit::WholeWord && vocabulary.continues(id);
            in_word = vocabulary.may_be_chosen(id);
            match units.last_mut() {
                _ if !in_word => {}
                Some(word) if joins => word.push(position),
                _ => units.push(vec![position]),
            }
        }
        units
    }

    fn replace(&self, id: u32, vocabulary: &MaskVocabulary, dice: &mut Dice) -> u32 {
        match dice.fraction() {
            fraction if fraction < self.masked => vocabulary.mask,
            fraction if fraction < self.masked + self.random => dice.pick(&vocabulary.ordinary),
            _ => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;
    use proptest::prelude::*;

    /// Ids: 0 to 4 special (4 the mask), then pieces; the odd ones go on with a word.
    fn vocabulary() -> MaskVocabulary {
        MaskVocabulary {
            mask: 4,
            ordinary: (5..1_000).collect(),
            is_ordinary: (0..1_000).map(|id| id > 4).collect(),
            continues: (0..1_000).map(|id| id > 4 && id % 2 == 1).collect(),
        }
    }

    fn seed(index: u64) -> NoiseSeed {
        NoiseSeed { seed: 3, epoch: 0, index }
    }

    #[test]
    fn eight_of_ten_chosen_are_masked_one_is_random_and_one_stays() {
        let ids: Vec<u32> = (0..100).map(|position| 10 + 2 * position).collect();
        let (mut masked, mut random, mut kept) = (0, 0, 0);
        for index in 0..2_000 {
            let text = Masking::default().apply(&ids, &vocabulary(), seed(index));
            assert_eq!(text.chosen.iter().filter(|chosen| **chosen).count(), 15);
            for ((&input, &id), _) in text.inputs.iter().zip(&ids).zip(&text.chosen).filter(|(_, chosen)| **chosen) {
                *if input == 4 {
                    &mut masked
                } else if input == id {
                    &mut kept
                } else {
                    &mut random
                } += 1;
            }
        }
        // Of 30,000: 24,000, 3,000 and 3,000 but for the few random ones that are the same; standard deviations 69 and 52.
        assert!((23_700..24_300).contains(&masked), "{masked}");
        assert!((2_780..3_220).contains(&random) && (2_780..3_220).contains(&kept), "{random} {kept}");
    }

    #[test]
    fn every_place_is_about_as_likely() {
        let mut counts = [0; 20];
        for index in 0..4_000 {
            let text = Masking::default().apply(&[50; 20], &vocabulary(), seed(index));
            text.chosen.iter().zip(&mut counts).for_each(|(chosen, count)| *count += i32::from(*chosen));
        }
        // 3 of 20 each time: 600 expected, standard deviation 23.
        assert!(counts.iter().all(|count| (470..730).contains(count)), "{counts:?}");
    }

    #[test]
    fn epochs_and_items_have_masks_of_their_own() {
        let at =
            |epoch, index| Masking::default().apply(&[50; 100], &vocabulary(), NoiseSeed { seed: 1, epoch, index });
        assert_eq!(at(0, 0), at(0, 0));
        assert!(at(0, 0) != at(1, 0) && at(0, 0) != at(0, 1) && at(0, 1) != at(1, 0));
    }

    #[test]
    fn words_are_pieces_with_what_goes_on_behind_them() {
        let whole = Masking { unit: MaskUnit::WholeWord, ..Masking::default() };
        // [CLS] 10 ##11 ##13 | 12 [SEP] ##15 | 14 ##17 [PAD]: a piece behind a special token begins a word.
        let ids = [2, 10, 11, 13, 12, 3, 15, 14, 17, 0];
        let words: [&[usize]; 4] = [&[1, 2, 3], &[4], &[6], &[7, 8]];
        assert_eq!(whole.units(&ids, &vocabulary()), words);
        assert_eq!(Masking::default().units(&ids, &vocabulary()).concat(), words.concat());
    }

    #[test]
    fn byte_level_words_begin_with_a_space() {
        let text = "Once there was a little lantern that nobody lit";
        let tokenizer = Tokenizer::train(&TokenizerConfig::Bpe { vocab_size: 258 }, text).unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["<mask>"]).unwrap();
        let vocabulary = MaskVocabulary::of(&tokenizer).unwrap();
        let whole = Masking { ratio: 0.3, masked: 1.0, random: 0.0, unit: MaskUnit::WholeWord };
        let ids = tokenizer.encode(text).unwrap();
        for index in 0..20 {
            let masked = whole.apply(&ids, &vocabulary, seed(index));
            let kept: Vec<u32> = masked.inputs.into_iter().filter(|id| *id != vocabulary.mask).collect();
            let kept = tokenizer.decode(&kept);
            assert!(kept.split_whitespace().all(|word| text.split(' ').any(|other| other == word)), "{kept}");
            assert!(!kept.is_empty() && kept.len() < text.len(), "{kept}");
        }
        let plain = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        assert!(MaskVocabulary::of(&plain).unwrap_err().to_string().contains("has no mask token"));
    }

    #[test]
    fn unknown_words_are_neither_chosen_nor_drawn() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Word { min_frequency: 1 }, "one two").unwrap();
        let tokenizer = tokenizer.with_special_tokens(&["[MASK]"]).unwrap();
        let ids = tokenizer.encode("one never two").unwrap();
        assert_eq!(Some(ids[1]), tokenizer.role(SpecialRole::Unknown));
        let vocabulary = MaskVocabulary::of(&tokenizer).unwrap();
        assert!(!vocabulary.may_be_chosen(ids[1]) && !vocabulary.ordinary.contains(&ids[1]));
        assert_eq!(vocabulary.ordinary.len(), 2);
    }

    #[test]
    fn numbers_out_of_range_are_all_listed() {
        let masking: Masking =
            serde_json::from_str(r#"{"ratio": 0, "masked": 0.9, "random": 1.5, "unit": "whole_word"}"#).unwrap();
        assert_eq!(
            masking.validate().unwrap_err().to_string(),
            "masking.ratio = 0 must be above 0 and at most 1; masking.random = 1.5 must be from 0 to 1; \
             masking.masked + masking.random = 2.4 must be at most 1"
        );
        assert!(Masking::default().validate().is_ok() && Masking::electra().validate().is_ok());
    }

    proptest! {
        #[test]
        fn special_tokens_are_neither_chosen_nor_drawn(
            ids in prop::collection::vec(0_u32..40, 0..60), ratio in 0.01_f64..=1.0, number: u64,
        ) {
            for unit in [MaskUnit::Token, MaskUnit::WholeWord] {
                let masking = Masking { ratio, masked: 0.4, random: 0.4, unit };
                let text = masking.apply(&ids, &vocabulary(), seed(number));
                prop_assert_eq!([text.inputs.len(), text.chosen.len()], [ids.len(); 2]);
                let mut count = 0;
                for ((&id, &input), &chosen) in ids.iter().zip(&text.inputs).zip(&text.chosen) {
                    prop_assert!(chosen || input == id);
                    prop_assert!(!chosen || (id > 4 && input >= 4));
                    count += usize::from(chosen);
                }
                let tokens = ids.iter().filter(|id| **id > 4).count();
                let wanted = share(ratio, tokens).max(1).min(tokens);
                prop_assert!(count <= wanted && (unit == MaskUnit::WholeWord || count == wanted));
            }
        }
    }
}
