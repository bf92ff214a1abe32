//! What a model is charged for on a [`PairBatch`]; as a [`Seq2SeqTask`] Burn's `Learner` trains it.

use firelight_core::{AuxiliaryLosses, LossConfig, Pass, SequenceInput, TokenLoss};
use firelight_training::{LossOutput, Objective, Switches, TrainLoss, Trainee};

use crate::data::PairBatch;
use crate::model::Seq2SeqModel;

/// An encoder-decoder with its loss.
pub type Seq2SeqTask = Trainee<Seq2SeqModel>;

/// A pass as the switches ask for it.
fn pass<'a>(switches: Switches, recompute: bool) -> Pass<'a> {
    Pass::default().with_precision(switches.dtype).with_recomputation(recompute && switches.recompute_blocks)
}

fn charge(
    model: &Seq2SeqModel,
    batch: PairBatch,
    loss: LossConfig,
    encoder: &mut Pass,
    decoder: &mut Pass,
) -> TokenLoss {
    let memory = model.encode(batch.source, batch.source_padding, encoder);
    let hidden = model.decode(batch.inputs, memory, &SequenceInput::default(), decoder);
    loss.forward_head(hidden, model.head_weight(), batch.targets, batch.padding)
}

/// The plain cross-entropy, without smoothing, so that training and evaluation report the same quantity.
fn report(loss: TokenLoss) -> LossOutput {
    LossOutput::new(loss.cross_entropy, loss.count)
}

impl Objective for Seq2SeqModel {
    type Batch = PairBatch;
    type Loss = LossConfig;

    /// What is minimised is the loss of the target's tokens and, with experts, the load balance of both stacks.
    fn train_loss(&self, batch: PairBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        let [mut encoder, mut decoder] = [AuxiliaryLosses::default(), AuxiliaryLosses::default()];
        let charged = charge(
            self,
            batch,
            *loss,
            &mut pass(switches, true).with_losses(&mut encoder),
            &mut pass(switches, true).with_losses(&mut decoder),
        );
        let balances = [encoder, decoder].into_iter().filter_map(|losses| losses.load_balance());
        let minimised = balances.fold(charged.mean(), |sum, balance| sum + balance * loss.load_balance);
        TrainLoss { minimised, reported: report(charged) }
    }

    fn valid_loss(&self, batch: PairBatch, switches: Switches) -> LossOutput {
        let [mut encoder, mut decoder] = [pass(switches, false), pass(switches, false)];
        report(charge(self, batch, LossConfig::default(), &mut encoder, &mut decoder))
    }
}
