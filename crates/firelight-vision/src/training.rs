//! The loss of a model on an [`ImageBatch`]. Burn's `Learner` trains the model as a [`VisionTask`].

use burn::tensor::{Int, Tensor};
use firelight_core::{LossConfig, TokenLoss};
use firelight_tasks::{plain_pass, token_report, token_step, train_step};
use firelight_training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput};

use crate::data::{ImageBatch, Partners};
use crate::model::VisionModel;

/// A vision transformer with its loss.
pub type VisionTask = TrainingModule<VisionModel>;

/// What an evaluation reads of a batch of images.
#[derive(Debug, Clone)]
pub struct ImageAnswers {
    /// `[B, classes]`.
    pub logits: Tensor<2>,
    /// `[B]`, the class of each image.
    pub targets: Tensor<1, Int>,
}

/// The loss of a batch. Mixed images have mixed targets, whose cross-entropy is the weighted sum of that of both.
fn compute_loss(logits: Tensor<2>, targets: Tensor<1, Int>, partners: Option<Partners>, loss: LossConfig) -> TokenLoss {
    let logits = logits.unsqueeze_dim::<3>(1); // [B, 1, classes]
    let against = |targets: Tensor<1, Int>| loss.init().forward(logits.clone(), targets.unsqueeze_dim(1), None);
    match partners {
        None => against(targets),
        Some(partners) => weighted(against(targets), against(partners.targets), partners.share),
    }
}

fn weighted(own: TokenLoss, other: TokenLoss, share: f64) -> TokenLoss {
    TokenLoss {
        total: own.total * share + other.total * (1.0 - share),
        cross_entropy: own.cross_entropy * share + other.cross_entropy * (1.0 - share),
        count: own.count,
    }
}

impl Objective for VisionModel {
    type Batch = ImageBatch;
    type Loss = LossConfig;
    type Answers = ImageAnswers;

    /// What is minimised is the loss of the images and, with experts, their load balance.
    fn train_loss(&self, batch: ImageBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[pass]| {
            let logits = self.logits(batch.images, pass);
            token_step(compute_loss(logits, batch.targets, batch.partners, *loss), loss)
        })
    }

    fn valid_step(&self, batch: ImageBatch, switches: Switches) -> ValidOutput<ImageAnswers> {
        let logits = self.logits(batch.images, &mut plain_pass(switches));
        let targets = batch.targets;
        let loss = compute_loss(logits.clone(), targets.clone(), batch.partners, LossConfig::default());
        ValidOutput::new(token_report(loss), ImageAnswers { logits, targets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{VisionConfig, VitSize};
    use burn::module::Module;
    use burn::tensor::{Device, Distribution};
    use burn::train::{InferenceStep, TrainStep};
    use firelight_core::{ParamBuilder, TransformerConfig};
    use firelight_kernels::assert_close;
    use firelight_training::{OptimizerConfig, ScheduleConfig, ScheduleKind, Trainer};

    fn model(device: &Device) -> VisionModel {
        let names = (0..5).map(|class| class.to_string()).collect();
        let config = VisionConfig::of_small_images(VitSize::Tiny, names, 1, [8, 8]);
        config.with_stack(|_| TransformerConfig::encoder(16, 2, 2)).init_with(&ParamBuilder::new(device, 0))
    }

    fn batch(device: &Device, partners: Option<([i32; 4], f64)>) -> ImageBatch {
        ImageBatch {
            images: Tensor::random([4, 1, 8, 8], Distribution::Normal(0.0, 1.0), device),
            targets: Tensor::from_ints([0, 3, 1, 4], device),
            partners: partners.map(|(targets, share)| Partners { targets: Tensor::from_ints(targets, device), share }),
        }
    }

    #[test]
    fn training_reports_what_evaluation_does_whatever_it_minimises() {
        let device = Device::default().autodiff();
        let task = VisionTask::new(model(&device), LossConfig::default().with_label_smoothing(0.3).with_z_loss(0.1));
        let trained = batch(&device, None);
        let evaluated = ImageBatch { images: trained.images.clone().inner(), ..batch(&device.clone().inner(), None) };
        let item = TrainStep::step(&task, trained).item;
        let smoothed = item.training_total.clone().expect("smoothed").into_scalar::<f64>() / 4.0;
        let trained = item.mean().into_scalar::<f64>();
        let evaluated = InferenceStep::step(&task.valid(), evaluated).losses.mean().into_scalar::<f64>();
        assert!((trained - evaluated).abs() < 1e-6, "{trained} and {evaluated}");
        assert!(smoothed > trained + 0.1, "z-loss alone is 0.1 ln² 5 = 0.26 at first: {smoothed} and {trained}");
    }

    #[test]
    fn mixed_images_have_the_loss_of_mixed_targets() {
        // The cross-entropy with the targets 0.7 of one class and 0.3 of another, smoothed by 0.2 over five classes, by hand.
        let device = Device::default();
        let model = model(&device);
        let batch = batch(&device, Some(([2, 3, 0, 1], 0.7)));
        let logits: Vec<f64> = model.forward(batch.images.clone()).try_into_vec_as().unwrap();
        let loss = LossConfig::default().with_label_smoothing(0.2);
        let found = compute_loss(model.forward(batch.images), batch.targets, batch.partners, loss);
        let (mut smooth, mut plain) = (0.0, 0.0);
        for (row, (own, other)) in logits.chunks(5).zip([(0, 2), (3, 3), (1, 0), (4, 1)]) {
            let normalizer = row.iter().map(|logit| logit.exp()).sum::<f64>().ln();
            for (class, logit) in row.iter().enumerate() {
                let mixed = 0.7 * f64::from(class == own) + 0.3 * f64::from(class == other);
                smooth += (0.8 * mixed + 0.2 / 5.0) * (normalizer - logit);
                plain += mixed * (normalizer - logit);
            }
        }
        let [total, cross_entropy, count] =
            [found.total, found.cross_entropy, found.count].map(|sum| sum.into_scalar::<f64>());
        assert_eq!(logits.len(), 4 * 5);
        assert_close(&[total, cross_entropy, count], &[smooth, plain, 4.0], 1e-5);
    }

    #[test]
    fn one_batch_is_learnt_to_zero_loss() {
        let device = Device::default().autodiff();
        let task = VisionTask::new(model(&device), LossConfig::default());
        let optimizer = OptimizerConfig { learning_rate: 3e-3, weight_decay: 0.0, ..OptimizerConfig::default() };
        let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 10, ..ScheduleConfig::default() };
        let mut trainer = Trainer::new(task, optimizer, schedule, 0);
        let batch = batch(&device, None);
        let losses: Vec<f64> = (0..250).map(|_| trainer.step(batch.clone()).unwrap().loss).collect();
        assert!(losses[0] > 1.0 && losses[249] < 1e-2, "{} to {}", losses[0], losses[249]);
    }
}
