//! Examples that an objective draws from texts, other ones in every epoch of a training, by its seed, and always the same in a
//! validation; and how they become batches.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::units::Units;
use crate::data::EncodedText;
use crate::masking::{Hiding, MaskedBatch, MaskedBatcher, MaskedExample};

/// The epoch whose examples a validation has, every time the same.
const FIXED_EPOCH: u64 = u64::MAX;

/// A text with hidden tokens, and what else is asked about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PretrainingExample {
    masked: MaskedExample,
    beside: Beside,
}

impl PretrainingExample {
    /// The text as the model reads it.
    pub(super) fn into_text(self) -> EncodedText {
        self.masked.text
    }
}

/// What is asked about a text beside its hidden tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// Whether its second sentence follows the first.
    Order {
        is_next: bool,
    },
}

/// What one step of a pre-training reads.
#[derive(Debug, Clone)]
pub enum PretrainingBatch {
    /// Of a masked language model.
    Masked(MaskedBatch),
    /// Of one that reads pairs of sentences.
    NextSentence(NextSentenceBatch),
}

/// Pairs of sentences with hidden tokens.
#[derive(Debug, Clone)]
pub struct NextSentenceBatch {
    /// The pairs, and the tokens that are asked about.
    pub masked: MaskedBatch,
    /// `[B]`, 0 where the second sentence follows the first, 1 where it does not.
    pub order: Tensor<1, Int>,
}

/// Where examples are drawn from. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Examples {
    pub(super) units: Units,
    pub(super) hiding: Hiding,
}

impl Examples {
    /// The example of this index that `epoch` draws.
    pub(super) fn draw(&self, epoch: u64, index: usize) -> PretrainingExample {
        match &self.units {
            Units::Texts(texts) => {
                let masked = self.hiding.hide(&texts[index], epoch, index);
                PretrainingExample { masked, beside: Beside::Nothing }
            }
            Units::Pairs(pairs) => {
                let (text, is_next) = pairs.draw(self.hiding.seed(epoch, index));
                let masked = self.hiding.hide(&text, epoch, index);
                PretrainingExample { masked, beside: Beside::Order { is_next } }
            }
        }
    }

    /// The example of this index of a validation.
    pub(super) fn fixed(&self, index: usize) -> PretrainingExample {
        self.draw(FIXED_EPOCH, index)
    }
}

/// Examples by their numbers: of a validation as they are, of a training none, which the loader draws, because it knows the epoch.
#[derive(Debug, Clone)]
pub(super) struct ExampleDataset {
    pub(super) examples: Examples,
    pub(super) is_fixed: bool,
}

impl Dataset<Option<PretrainingExample>> for ExampleDataset {
    fn get(&self, index: usize) -> Result<Option<PretrainingExample>, DatasetError> {
        Ok(self.is_fixed.then(|| self.examples.fixed(index)))
    }

    fn len(&self) -> usize {
        self.examples.units.len()
    }
}

/// Stacks examples of one objective.
#[derive(Debug, Clone, Copy)]
pub(super) struct PretrainingBatcher;

impl Batcher<Option<PretrainingExample>, PretrainingBatch> for PretrainingBatcher {
    fn batch(&self, examples: Vec<Option<PretrainingExample>>, device: &Device) -> PretrainingBatch {
        let (masked, beside): (Vec<_>, Vec<_>) =
            examples.into_iter().flatten().map(|example| (example.masked, example.beside)).unzip();
        let masked = MaskedBatcher.batch(masked, device);
        match beside.first() {
            Some(Beside::Order { .. }) => {
                PretrainingBatch::NextSentence(NextSentenceBatch { masked, order: order_of(&beside, device) })
            }
            Some(Beside::Nothing) | None => PretrainingBatch::Masked(masked),
        }
    }
}

fn order_of(beside: &[Beside], device: &Device) -> Tensor<1, Int> {
    let class = |beside: &Beside| i32::from(*beside != Beside::Order { is_next: true });
    let classes: Vec<i32> = beside.iter().map(class).collect();
    let count = classes.len();
    Tensor::from_data(TensorData::new(classes, [count]), device)
}
