//! What a classifier is charged for on a [`TextBatch`]; as a [`ClassifierTask`] Burn's `Learner` trains it.

use firelight_core::{AuxiliaryLosses, Pass};
use firelight_training::{LossOutput, Objective, Switches, TrainLoss, Trainee};

use crate::data::TextBatch;
use crate::loss::SequenceLossConfig;
use crate::model::TextClassifier;

/// A classifier with its loss.
pub type ClassifierTask = Trainee<TextClassifier>;

impl Objective for TextClassifier {
    type Batch = TextBatch;
    type Loss = SequenceLossConfig;

    /// What is minimised is the loss of the texts and, with experts, their load balance; what is reported has neither class
    /// weights nor smoothing, so that training and evaluation report the same quantity.
    fn train_loss(&self, batch: TextBatch, loss: &SequenceLossConfig, switches: Switches) -> TrainLoss {
        let mut auxiliary = AuxiliaryLosses::default();
        let pass = Pass::default().with_precision(switches.dtype).with_recomputation(switches.recompute_blocks);
        let outputs = self.forward(&batch.input, &mut pass.with_losses(&mut auxiliary));
        let charged = loss.forward(outputs, batch.targets);
        let minimised = auxiliary.added_to(charged.mean(), loss.load_balance);
        TrainLoss { minimised, reported: LossOutput::new(charged.plain, charged.count) }
    }

    fn valid_loss(&self, batch: TextBatch, switches: Switches) -> LossOutput {
        let outputs = self.forward(&batch.input, &mut Pass::default().with_precision(switches.dtype));
        let charged = SequenceLossConfig::default().forward(outputs, batch.targets);
        LossOutput::new(charged.plain, charged.count)
    }
}
