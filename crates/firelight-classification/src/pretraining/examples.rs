//! Examples that an objective draws from texts, other ones in every epoch of a training, by its seed, and always the same in a
//! validation; and how they become batches.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_data::generator_draws;

use super::units::Units;
use crate::data::EncodedText;
use crate::masking::{Hiding, MaskedBatch, MaskedBatcher, MaskedExample};
use crate::objectives::PretrainingObjective;

/// The epoch whose examples a validation has, every time the same.
const FIXED_EPOCH: u64 = u64::MAX;

/// The largest number below 1 in single precision.
const BELOW_ONE: f32 = 1.0 - f32::EPSILON / 2.0;

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
#[derive(Debug, Clone, PartialEq)]
enum Beside {
    Nothing,
    /// Whether its second sentence follows the first.
    Order {
        is_next: bool,
    },
    /// Which tokens are replaced; these numbers decide by what.
    Replaced {
        draws: Vec<f64>,
    },
}

/// What one step of a pre-training reads.
#[derive(Debug, Clone)]
pub enum PretrainingBatch {
    /// Of a masked language model.
    Masked(MaskedBatch),
    /// Of one that reads pairs of sentences.
    NextSentence(NextSentenceBatch),
    /// Of one that tells which tokens are replaced.
    Replaced(ReplacedBatch),
}

/// Pairs of sentences with hidden tokens.
#[derive(Debug, Clone)]
pub struct NextSentenceBatch {
    /// The pairs, and the tokens that are asked about.
    pub masked: MaskedBatch,
    /// `[B]`, 0 where the second sentence follows the first, 1 where it does not.
    pub order: Tensor<1, Int>,
}

/// Texts with hidden tokens, and what decides about the generator's tokens in their places.
#[derive(Debug, Clone)]
pub struct ReplacedBatch {
    /// The texts, and the tokens that are asked about.
    pub masked: MaskedBatch,
    /// `[M]`, from 0 to below 1, a number for each of those tokens.
    pub draws: Tensor<1>,
}

/// Where examples are drawn from. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Examples {
    pub(super) units: Units,
    pub(super) hiding: Hiding,
    pub(super) objective: PretrainingObjective,
}

impl Examples {
    /// The example of this index that `epoch` draws.
    pub(super) fn draw(&self, epoch: u64, index: usize) -> PretrainingExample {
        match &self.units {
            Units::Texts(texts) => {
                let masked = self.hiding.hide(&texts[index], epoch, index);
                PretrainingExample { beside: self.beside(&masked, epoch, index), masked }
            }
            Units::Pairs(pairs) => {
                let (text, is_next) = pairs.draw(self.hiding.seed(epoch, index));
                let masked = self.hiding.hide(&text, epoch, index);
                PretrainingExample { masked, beside: Beside::Order { is_next } }
            }
        }
    }

    fn beside(&self, masked: &MaskedExample, epoch: u64, index: usize) -> Beside {
        match self.objective {
            PretrainingObjective::Replaced(_) => {
                Beside::Replaced { draws: generator_draws(self.hiding.seed(epoch, index), masked.hidden.len()) }
            }
            _ => Beside::Nothing,
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
            Some(Beside::Replaced { .. }) => {
                PretrainingBatch::Replaced(ReplacedBatch { masked, draws: draws_of(&beside, device) })
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

/// The draws of all rows; one more than there are hidden tokens where there are none, as in a [`MaskedBatch`].
fn draws_of(beside: &[Beside], device: &Device) -> Tensor<1> {
    let of_row = |beside: &Beside| match beside {
        Beside::Replaced { draws } => draws.iter().map(|&draw| (draw as f32).min(BELOW_ONE)).collect(),
        _ => Vec::new(),
    };
    let draws: Vec<f32> = beside.iter().flat_map(of_row).collect();
    let draws = if draws.is_empty() { vec![0.0] } else { draws };
    Tensor::from_floats(draws.as_slice(), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(beside: Beside) -> Option<PretrainingExample> {
        let text = EncodedText { ids: vec![6, 7], second_from: 2, is_cut: false };
        Some(PretrainingExample { masked: MaskedExample { text, hidden: Vec::new() }, beside })
    }

    #[test]
    fn class_0_is_the_sentence_that_follows() {
        let pairs = [true, false].map(|is_next| example(Beside::Order { is_next })).to_vec();
        let PretrainingBatch::NextSentence(batch) = PretrainingBatcher.batch(pairs, &Device::default()) else {
            panic!("pairs")
        };
        assert_eq!(batch.order.try_into_vec_as::<i64>().unwrap(), [0, 1]);
    }

    #[test]
    fn there_is_a_draw_below_one_for_every_place() {
        let batch = |draws: Vec<f64>| {
            let examples = vec![example(Beside::Replaced { draws })];
            match PretrainingBatcher.batch(examples, &Device::default()) {
                PretrainingBatch::Replaced(batch) => batch,
                other => panic!("{other:?}"),
            }
        };
        let nothing = batch(Vec::new());
        assert_eq!(nothing.draws.dims(), nothing.masked.places.dims());
        let draws: Vec<f32> = batch(vec![0.25, 1.0 - 1e-12]).draws.try_into_vec_as().unwrap();
        assert!(draws[0] == 0.25 && draws[1] < 1.0 && draws[1] > 0.999, "{draws:?}");
    }
}
