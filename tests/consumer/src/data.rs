//! Sequences of eight letters with one marker among them; the class is the letter after the marker.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// Letters, which are the classes.
pub const LETTERS: usize = 4;
/// The letters, and the marker after them.
pub const VOCABULARY: usize = LETTERS + 1;
/// Tokens of a sequence.
pub const LENGTH: usize = 8;

/// One sequence.
#[derive(Debug, Clone)]
pub struct Item {
    tokens: [u8; LENGTH],
    class: u8,
}

/// Several sequences.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[B, LENGTH]`.
    pub tokens: Tensor<2, Int>,
    /// `[B]`.
    pub classes: Tensor<1, Int>,
}

/// `n` sequences, the same ones at every call with the same seed.
pub fn items(n: usize, seed: u64) -> Vec<Item> {
    let mut state = seed;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut item = || {
        let mut tokens = [0; LENGTH].map(|_: u8| below(LETTERS) as u8);
        let marker = below(LENGTH - 1);
        tokens[marker] = LETTERS as u8;
        Item { tokens, class: tokens[marker + 1] }
    };
    (0..n).map(|_| item()).collect()
}

/// Puts sequences on a device.
#[derive(Debug, Clone)]
pub struct Sequences;

impl Batcher<Item, Batch> for Sequences {
    fn batch(&self, items: Vec<Item>, device: &Device) -> Batch {
        let tokens: Vec<i64> = items.iter().flat_map(|item| item.tokens.map(i64::from)).collect();
        let classes: Vec<i64> = items.iter().map(|item| item.class.into()).collect();
        Batch {
            tokens: Tensor::from_data(TensorData::new(tokens, [items.len(), LENGTH]), device),
            classes: Tensor::from_data(TensorData::new(classes, [items.len()]), device),
        }
    }
}
