//! What programs that compare models have in common: a text in characters, one way to train all of them, and their flags.

use std::sync::Arc;

use anyhow::Result;
use burn::data::dataloader::DataLoader;
use burn::prelude::*;
use firelight::data::{StepLoader, Tokenizer, TokenizerConfig, Tokens, WindowDataset, read_text, stories};
use firelight::language::{LmBatch, LmBatcher};
use firelight::nn::TokenLoss;
use firelight::training::{
    FitInput, LossOutput, Objective, OptimizerConfig, ScheduleConfig, TrainLoss, TrainingConfig, TrainingModule,
    ValidOutput, fit,
};

/// Windows of a training batch, as in nanoGPT's recipe for a CPU.
const WINDOWS: usize = 12;

/// Tokens of a validation batch.
const EVALUATED: usize = 4096;

/// Batches of a training or of an evaluation.
pub type Batches<B> = Arc<dyn DataLoader<B>>;

/// The ids of a text in characters: the last tenth is measured on, the others are trained on.
pub struct Characters {
    /// Different characters.
    pub vocab_size: usize,
    training: Tokens,
    validation: Tokens,
}

impl Characters {
    /// Reads a text file, or makes up stories of so many characters.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: Option<&String>, generated: usize) -> Result<Self> {
        let text = match path {
            Some(path) => read_text(path)?,
            None => stories(1, generated),
        };
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &text)?;
        let ids = tokenizer.encode(&text)?;
        let count = ids.len() - ids.len() / 10;
        let (training, validation) = Tokens::from(ids).split(count);
        Ok(Self { vocab_size: tokenizer.vocab_size(), training, validation })
    }

    /// Shuffled windows of `length` tokens for so many steps.
    ///
    /// # Errors
    /// If the text is shorter than a window.
    pub fn training(&self, length: usize, steps: usize, device: &Device) -> Result<Batches<LmBatch>> {
        let windows = WindowDataset::for_training(self.training.clone(), length)?;
        Ok(Arc::new(StepLoader::new(windows, LmBatcher, WINDOWS, device).shuffled(1, 0..steps)))
    }

    /// The tokens to measure on in windows of `length`, side by side.
    ///
    /// # Errors
    /// If there are fewer than a window.
    pub fn validation(&self, length: usize, device: &Device) -> Result<Batches<LmBatch>> {
        let windows = WindowDataset::for_evaluation(self.validation.clone(), length)?;
        Ok(Arc::new(StepLoader::new(windows, LmBatcher, (EVALUATED / length).max(1), device)))
    }
}

/// Trains a model by AdamW on the first of the loaders, which has a batch for each step, with a tenth of the steps for the warm-up and a cosine
/// behind it. The second one is evaluated once, at the end.
///
/// # Errors
/// If the data cannot be loaded or the training diverges.
pub fn fitted<O: Objective>(
    task: TrainingModule<O>,
    [training, validation]: [Batches<O::Batch>; 2],
    steps: usize,
    learning_rate: f64,
) -> Result<TrainingModule<O>> {
    let input = FitInput {
        training: TrainingConfig { steps, evaluate_every: 0, ..TrainingConfig::default() },
        optimizer: OptimizerConfig { learning_rate, ..OptimizerConfig::default() },
        schedule: ScheduleConfig { warmup_steps: steps / 10, ..ScheduleConfig::default() },
        ..FitInput::new(training, validation)
    };
    Ok(fit(task, input)?.model)
}

/// The answer of [`Objective::train_loss`] where the mean loss of the targets is all that is minimised.
pub fn minimised(loss: TokenLoss) -> TrainLoss {
    TrainLoss { minimised: loss.mean(), reported: LossOutput::new(loss.cross_entropy, loss.count) }
}

/// The answer of [`Objective::valid_step`] where nothing but the loss is asked for.
pub fn measured(loss: TokenLoss) -> ValidOutput<()> {
    LossOutput::new(loss.cross_entropy, loss.count).into()
}

/// How many of the rows of logits, `[B, C]`, are largest at their targets, `[B]`.
pub fn right(logits: Tensor<2>, targets: Tensor<1, Int>) -> i64 {
    let named = logits.argmax(1).squeeze_dim::<1>(1);
    named.equal(targets).int().sum().into_scalar::<i64>()
}

/// Whether the flag `--toy` is given, and the other words of the command line.
pub fn toy_or_words() -> (bool, Vec<String>) {
    let (flags, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word == "--toy");
    (!flags.is_empty(), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_nine_parts_and_one() {
        let text = Characters::read(None, 1_000).unwrap();
        let (all, held_back) = (text.training.len() + text.validation.len(), text.validation.len());
        assert_eq!(held_back, all / 10);
        let windows = text.validation(9, &Device::flex()).unwrap();
        assert_eq!(windows.num_items(), (held_back - 1).div_ceil(9));
    }

    #[test]
    fn rows_that_are_largest_at_their_targets_are_counted() {
        let device = Device::flex();
        let logits = Tensor::<2>::from_floats([[0.0, 1.0], [2.0, 1.0], [3.0, 4.0]], &device);
        assert_eq!(right(logits, Tensor::from_ints([1, 1, 1], &device)), 2);
    }
}
