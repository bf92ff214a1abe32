//! The loss of a classifier on a [`TextBatch`]. Burn's `Learner` trains the classifier as a [`ClassifierTask`].

use burn::tensor::Tensor;
use firelight_tasks::{plain_pass, train_step};
use firelight_training::{LossOutput, Objective, Switches, TrainLoss, TrainingModule, ValidOutput};

use crate::data::TextBatch;
use crate::loss::{SequenceLossConfig, SequenceTargets};
use crate::model::TextClassifier;

/// A classifier with its loss.
pub type ClassifierTask = TrainingModule<TextClassifier>;

/// What an evaluation reads of a batch of texts.
#[derive(Debug, Clone)]
pub struct TextAnswers {
    /// `[B, C]`, the logits of classes, or numbers.
    pub outputs: Tensor<2>,
    /// What is true of the texts.
    pub targets: SequenceTargets,
}

impl Objective for TextClassifier {
    type Batch = TextBatch;
    type Loss = SequenceLossConfig;
    type Answers = TextAnswers;

    /// What is minimised is the loss of the texts and, with experts, their load balance; what is reported has neither class
    /// weights nor smoothing, so that training and evaluation report the same quantity.
    fn train_loss(&self, batch: TextBatch, loss: &SequenceLossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[pass]| {
            let found = loss.init().forward(self.forward(&batch.input, pass), batch.targets);
            let (mean, count) = (found.mean(), found.count);
            let training_total = (!loss.is_plain()).then(|| mean.clone() * count.clone());
            (mean, LossOutput::new(found.plain, count).with_training_total(training_total))
        })
    }

    fn valid_step(&self, batch: TextBatch, switches: Switches) -> ValidOutput<TextAnswers> {
        let outputs = self.forward(&batch.input, &mut plain_pass(switches));
        let loss = SequenceLossConfig::default().init().forward(outputs.clone(), batch.targets.clone());
        ValidOutput::new(LossOutput::new(loss.plain, loss.count), TextAnswers { outputs, targets: batch.targets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{EncodedText, Example, Target, TextBatcher};
    use crate::loss::ClassWeights;
    use crate::{TextClassifierConfig, TextEncoderConfig};
    use burn::data::dataloader::batcher::Batcher;
    use burn::tensor::Device;
    use firelight_core::ParamBuilder;

    #[test]
    fn what_a_step_minimises_stands_beside_the_plain_loss_where_it_is_another_one() {
        let device = Device::default().autodiff();
        let model = TextClassifierConfig::new(TextEncoderConfig::bert(10, 8, 2, 1), ["no", "yes"])
            .init_with(&ParamBuilder::new(&device, 0));
        let example = |ids: [u32; 3], class: usize| Example {
            text: EncodedText { ids: ids.into(), second_from: 3, is_cut: false },
            target: Target::Class(class),
        };
        let batch = TextBatcher.batch(vec![example([1, 2, 3], 0), example([4, 5, 6], 1)], &device);
        let step = |loss: SequenceLossConfig| {
            let TrainLoss { minimised, reported } = model.train_loss(batch.clone(), &loss, Switches::default());
            (minimised.into_scalar::<f64>(), reported.training_total.map(|total| total.into_scalar::<f64>() / 2.0))
        };
        let class_weights = ClassWeights::Given(vec![1.0, 3.0]);
        for loss in [
            SequenceLossConfig { class_weights, ..SequenceLossConfig::default() },
            SequenceLossConfig { label_smoothing: 0.3, ..SequenceLossConfig::default() },
        ] {
            let (minimised, reported) = step(loss);
            assert!((reported.expect("not the plain loss") - minimised).abs() < 1e-6, "{reported:?} and {minimised}");
        }
        assert_eq!(step(SequenceLossConfig::default()).1, None);
    }
}
