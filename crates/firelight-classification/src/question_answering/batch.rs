//! Questions with their texts become batches. The loss of a model on them is that of the answer's first and last token.
//!
//! Source: Devlin et al. 2019, §4.2 and 4.3 (<https://arxiv.org/abs/1810.04805>): where a window has no answer, both are the class
//! token.

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_core::ConfigError;
use firelight_tasks::{plain_pass, train_step};
use firelight_training::{LossOutput, Objective, Switches, TrainLoss, TrainingModule, ValidOutput};
use serde::{Deserialize, Serialize};

use crate::data::{EncodedText, QuestionWindow, input_of};
use crate::encoder::TextInput;
use crate::heads::SpanLogits;
use crate::model::SpanReader;

/// A question with a window on its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanExample {
    /// Its place among all that were read.
    pub number: usize,
    /// The place of its question among all that were read.
    pub question: usize,
    /// The tokens.
    pub window: QuestionWindow,
    /// The places of the answer's first and last token; twice that of the class token, where the window has none.
    pub target: [usize; 2],
}

/// What one step of a reader reads.
#[derive(Debug, Clone)]
pub struct SpanBatch {
    /// The [numbers](SpanExample::number) of the windows.
    pub numbers: Vec<usize>,
    /// The questions with their texts.
    pub input: TextInput,
    /// `[B]`, the first token of each answer.
    pub starts: Tensor<1, Int>,
    /// `[B]`, the last token of each answer.
    pub ends: Tensor<1, Int>,
}

/// Stacks windows.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpanBatcher;

impl Batcher<SpanExample, SpanBatch> for SpanBatcher {
    fn batch(&self, examples: Vec<SpanExample>, device: &Device) -> SpanBatch {
        let texts: Vec<&EncodedText> = examples.iter().map(|example| &example.window.text).collect();
        let side = |side: usize| -> Tensor<1, Int> {
            let places: Vec<i32> = examples.iter().map(|example| example.target[side] as i32).collect();
            Tensor::from_data(TensorData::new(places, [examples.len()]), device)
        };
        let numbers = examples.iter().map(|example| example.number).collect();
        SpanBatch { numbers, input: input_of(&texts, device), starts: side(0), ends: side(1) }
    }
}

/// The `[loss]` section: the mean of two cross-entropies has no settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpanLossConfig {
    /// Weight of the [load balance](firelight_core::AuxiliaryLosses::load_balance) of encoders with experts. Default: 0.01.
    pub load_balance: f64,
}

impl Default for SpanLossConfig {
    fn default() -> Self {
        Self { load_balance: 0.01 }
    }
}

impl SpanLossConfig {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let balance = self.load_balance;
        let is_wrong = !(balance >= 0.0 && balance.is_finite());
        ConfigError::collect([], [is_wrong.then(|| format!("loss.load_balance = {balance} must be at least 0"))])
    }
}

/// A reader with its loss.
pub type SpanTask = TrainingModule<SpanReader>;

/// What an evaluation reads of a batch of windows.
#[derive(Debug, Clone)]
pub struct SpanAnswers {
    /// The [numbers](SpanExample::number) of the windows.
    pub numbers: Vec<usize>,
    /// The scores of all tokens as the first and as the last of an answer.
    pub logits: SpanLogits,
}

/// The mean loss over the windows, and the loss as a sum with their number.
fn compute_loss(logits: &SpanLogits, batch: (Tensor<1, Int>, Tensor<1, Int>)) -> (Tensor<1>, LossOutput) {
    let rows = logits.start.dims()[0] as f64;
    let mean = logits.loss(batch.0, batch.1);
    let count = Tensor::full([1], rows, &mean.device());
    let reported = LossOutput::new(mean.clone().without_autodiff() * rows, count);
    (mean, reported)
}

impl Objective for SpanReader {
    type Batch = SpanBatch;
    type Loss = SpanLossConfig;
    type Answers = SpanAnswers;

    /// What is minimised is the loss of the windows and, with experts, the load balance.
    fn train_loss(&self, batch: SpanBatch, loss: &SpanLossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[pass]| {
            compute_loss(&self.forward(&batch.input, pass), (batch.starts, batch.ends))
        })
    }

    fn valid_step(&self, batch: SpanBatch, switches: Switches) -> ValidOutput<SpanAnswers> {
        let logits = self.forward(&batch.input, &mut plain_pass(switches));
        let (_, losses) = compute_loss(&logits, (batch.starts, batch.ends));
        ValidOutput::new(losses, SpanAnswers { numbers: batch.numbers, logits })
    }
}
