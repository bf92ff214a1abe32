//! Images with captions become batches, and batches a loss. Burn's `Learner` trains the model as a
//! [`TrainingModule`](firelight_training::TrainingModule).

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_core::{LossConfig, Pass, SequenceInput};
use firelight_data::ImageShape;
use firelight_tasks::{plain_pass, train_step};
use firelight_training::{Objective, Switches, TrainLoss, ValidOutput};

use super::model::CaptionModel;
use crate::data::{right_padded, shifted};
use crate::inference::TargetDecoder;
use crate::training::{TargetAnswers, target_step, valid_output};

/// What one step of a model reads.
#[derive(Debug, Clone)]
pub struct CaptionBatch {
    /// `[B, C, H, W]`, normalised.
    pub images: Tensor<4>,
    /// `[B, T]`, each caption with the start token in front.
    pub inputs: Tensor<2, Int>,
    /// `[B, T]`, each caption with the end token behind it.
    pub targets: Tensor<2, Int>,
    /// `[B, T]`, true where a caption has ended; none while all are equally long.
    pub padding: Option<Tensor<2, Bool>>,
}

/// An image with its caption, as a model reads them.
#[derive(Debug, Clone)]
pub(super) struct CaptionSample {
    /// Normalised, `[C, H, W]`.
    pub(super) pixels: Vec<f32>,
    /// Without the tokens around it.
    pub(super) ids: Vec<u32>,
}

/// Stacks images of one shape with their captions, the shorter ones padded on the right.
#[derive(Debug, Clone, Copy)]
pub(super) struct CaptionBatcher {
    pub(super) shape: ImageShape,
    /// The tokens in front of and behind captions.
    pub(super) ends: [u32; 2],
}

impl Batcher<CaptionSample, CaptionBatch> for CaptionBatcher {
    fn batch(&self, samples: Vec<CaptionSample>, device: &Device) -> CaptionBatch {
        let ImageShape { channels, height, width } = self.shape;
        let shape = [samples.len(), channels, height, width];
        let [inputs, targets] = shifted(samples.iter().map(|sample| &sample.ids[..]), self.ends);
        let (inputs, padding) = right_padded(&inputs, device);
        let (targets, _) = right_padded(&targets, device);
        let pixels: Vec<f32> = samples.into_iter().flat_map(|sample| sample.pixels).collect();
        CaptionBatch { images: Tensor::from_data(TensorData::new(pixels, shape), device), inputs, targets, padding }
    }
}

/// The vectors of the captions' tokens.
fn hidden(model: &CaptionModel, batch: &CaptionBatch, image: &mut Pass, text: &mut Pass) -> Tensor<3> {
    let read = model.read(batch.images.clone(), image);
    model.decode(batch.inputs.clone(), read, &SequenceInput::default(), text)
}

impl Objective for CaptionModel {
    type Batch = CaptionBatch;
    type Loss = LossConfig;
    type Answers = TargetAnswers;

    fn train_loss(&self, batch: CaptionBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[image, text]| {
            let hidden = hidden(self, &batch, image, text);
            target_step(self.lazy_logits(hidden), (batch.targets, batch.padding), loss)
        })
    }

    fn valid_step(&self, batch: CaptionBatch, switches: Switches) -> ValidOutput<TargetAnswers> {
        let hidden = hidden(self, &batch, &mut plain_pass(switches), &mut plain_pass(switches));
        valid_output(self.logits(hidden), (batch.targets, batch.padding))
    }
}
