//! Objectives that make pairs out of plain text: noise is put on the ids of a text, and the model is to tell what was there.
//! [`SpanCorruption`] is T5's, [`BartNoise`] are BART's; [`Masking`] and [`SentencePairs`] are BERT's, and [`replaced_tokens`]
//! is ELECTRA's. All are functions of ids and a [`NoiseSeed`], so that every epoch has noise of its own and a resumed run goes
//! on with the same. A recipe names one of the first two as its [`Denoising`], which with a tokenizer becomes a [`Noise`].

mod bart;
mod masked;
mod noise;
mod pairs;
mod replaced;
mod spans;

pub use bart::{BartNoise, BartTokens};
pub use masked::{MaskUnit, MaskVocabulary, MaskedText, Masking};
pub use noise::{Denoising, Noise, Noises};
pub use pairs::{SentencePair, SentencePairs};
pub use replaced::{generator_draws, replaced_tokens};
pub use spans::SpanCorruption;

use crate::dice::Dice;

/// Where the noise of an item is drawn from: one seed, epoch and index give the same noise for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoiseSeed {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the epoch.
    pub epoch: u64,
    /// Number of the item.
    pub index: u64,
}

/// Keeps the numbers of noise apart from all others of a seed.
const STREAM: u64 = 0x6e6f697365;

impl NoiseSeed {
    fn dice(&self) -> Dice {
        Dice::of(&[self.seed, self.epoch, self.index, STREAM])
    }
}

/// `length` truth values, `count` of them true, in any order.
fn choose(dice: &mut Dice, length: usize, count: usize) -> Vec<bool> {
    let mut chosen: Vec<bool> = (0..length).map(|position| position < count).collect();
    dice.shuffle(&mut chosen);
    chosen
}

/// A share of a number of tokens, rounded to the nearest, halves to even.
fn share(ratio: f64, length: usize) -> usize {
    (ratio * length as f64).round_ties_even() as usize
}
