//! The loss of a model on a [`PairBatch`]. Burn's `Learner` trains the model as a [`Seq2SeqTask`].

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

fn compute_loss(
    model: &Seq2SeqModel,
    batch: PairBatch,
    loss: LossConfig,
    encoder: &mut Pass,
    decoder: &mut Pass,
) -> TokenLoss {
    let memory = model.encode(batch.source, batch.source_padding, encoder);
    let hidden = model.decode(batch.inputs, memory, &SequenceInput::default(), decoder);
    loss.init().forward_head(model.lazy_logits(hidden), batch.targets, batch.padding)
}

/// The plain cross-entropy, so that training and evaluation report the same quantity, and beside it the loss that
/// `config` minimises, where that is another one.
fn report(loss: TokenLoss, config: &LossConfig) -> LossOutput {
    let training_total = (!config.is_plain()).then_some(loss.total);
    LossOutput::new(loss.cross_entropy, loss.count).with_training_total(training_total)
}

impl Objective for Seq2SeqModel {
    type Batch = PairBatch;
    type Loss = LossConfig;

    /// What is minimised is the loss of the target's tokens and, with experts, the load balance of both stacks.
    fn train_loss(&self, batch: PairBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        let [mut encoder, mut decoder] = [AuxiliaryLosses::default(), AuxiliaryLosses::default()];
        let token_loss = compute_loss(
            self,
            batch,
            *loss,
            &mut pass(switches, true).with_losses(&mut encoder),
            &mut pass(switches, true).with_losses(&mut decoder),
        );
        let sides = [encoder, decoder];
        let minimised = sides.iter().fold(token_loss.mean(), |sum, side| side.added_to(sum, loss.load_balance));
        TrainLoss { minimised, reported: report(token_loss, loss) }
    }

    fn valid_loss(&self, batch: PairBatch, switches: Switches) -> LossOutput {
        let [mut encoder, mut decoder] = [pass(switches, false), pass(switches, false)];
        let plain = LossConfig::default();
        report(compute_loss(self, batch, plain, &mut encoder, &mut decoder), &plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::PairBatcher;
    use crate::model::Seq2SeqConfig;
    use burn::data::dataloader::batcher::Batcher;
    use burn::module::Module;
    use burn::tensor::Device;
    use burn::tensor::activation::log_softmax;
    use burn::train::{InferenceStep, TrainStep};
    use firelight_core::{AttentionTrace, ParamBuilder};
    use firelight_data::EncodedPair;
    use firelight_kernels::assert_close;
    use firelight_training::{OptimizerConfig, Precision, Recompute, ScheduleConfig, Trainer};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn batch(device: &Device) -> PairBatch {
        let pair = |source: &[u32], target: &[u32]| EncodedPair { source: source.into(), target: target.into() };
        PairBatcher::new(7, 8, 8).batch(vec![pair(&[1, 2, 3], &[4]), pair(&[5], &[6, 4])], device)
    }

    #[test]
    fn the_plain_loss_is_reported_beside_the_smoothed_one() {
        let device = Device::default().autodiff();
        let model = Seq2SeqConfig::new(9, 8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let report = |smoothing: f64| {
            let task = Seq2SeqTask::new(model.clone(), LossConfig::default().with_label_smoothing(smoothing));
            let evaluated = InferenceStep::step(&task.valid(), batch(&device.clone().inner())).mean();
            let (optimizer, schedule) = (OptimizerConfig::default(), ScheduleConfig::default());
            let (_, step) = Trainer::new(task, optimizer, schedule, 0).step(batch(&device)).unwrap();
            assert!((step.loss - evaluated.into_scalar::<f64>()).abs() < 1e-6, "{step:?}");
            step.training_loss
        };
        assert_eq!(report(0.0), None);
        // Szegedy et al. 2016, §7: a share of the loss is the mean of -ln p over all tokens.
        let PairBatch { source, source_padding, inputs, padding, .. } = batch(&device);
        let spread = -log_softmax(model.forward(source, source_padding, inputs), 2).mean_dim(2).squeeze_dim::<2>(2);
        let counted = padding.unwrap().bool_not().float();
        let spread = (spread * counted.clone()).sum().into_scalar::<f64>() / counted.sum().into_scalar::<f64>();
        let task = Seq2SeqTask::new(model.clone(), LossConfig::default());
        let plain = TrainStep::step(&task, batch(&device)).item.mean().into_scalar::<f64>();
        let smoothed = report(0.4).unwrap();
        assert!((smoothed - (0.6 * plain + 0.4 * spread)).abs() < 1e-5, "{smoothed} of {plain} and {spread}");
    }

    /// The losses of a training step and of an evaluation.
    fn losses(device: &Device, change: impl FnOnce(Seq2SeqTask) -> Seq2SeqTask) -> [f64; 2] {
        let device = device.clone().autodiff();
        let pairs = vec![EncodedPair { source: vec![2, 3, 4], target: vec![4, 3, 2] }];
        let batch: PairBatch = PairBatcher::new(0, 1, 1).batch(pairs, &device);
        let model = Seq2SeqConfig::new(7, 8, 2, 1).with_max_seq_len(8).init_with(&ParamBuilder::new(&device, 0));
        let task = change(Seq2SeqTask::new(model, LossConfig::default()));
        [TrainStep::step(&task, batch.clone()).item, InferenceStep::step(&task, batch)].map(|output| {
            let (total, count) = output.read().unwrap();
            total / count
        })
    }

    #[test]
    fn a_step_recomputes_the_blocks_where_it_is_to_and_an_evaluation_never() {
        let device = Device::flex().autodiff();
        let model = Seq2SeqConfig::new(9, 8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        // A pass that recomputes its blocks refuses a trace, on every device; one that does not fills it.
        let traced = |recompute_blocks: bool, is_step: bool| {
            let mut trace = AttentionTrace::default();
            let mut pass = pass(Switches { recompute_blocks, dtype: None }, is_step).with_trace(&mut trace);
            let PairBatch { source, source_padding, .. } = batch(&device);
            catch_unwind(AssertUnwindSafe(|| model.encode(source, source_padding, &mut pass)))
                .map(|_| trace.layers.len())
        };
        for plain in [(false, true), (true, false), (false, false)] {
            assert_eq!(traced(plain.0, plain.1).expect("a plain pass is traced"), 1, "{plain:?}");
        }
        let panic = traced(true, true).expect_err("the blocks were recomputed");
        let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(text.starts_with("a pass that recomputes its blocks"), "{text}");
    }

    /// The gradient of the encoder's output is a sum over the blocks of the decoder, which are added in another order, so that the last bit
    /// may differ.
    #[test]
    fn recomputed_blocks_learn_the_same() {
        let steps = |recompute: Recompute| {
            let device = Device::flex().autodiff();
            let model = Seq2SeqConfig::new(9, 8, 2, 2).init_with(&ParamBuilder::new(&device, 0));
            let task = Seq2SeqTask::new(model, LossConfig::default()).with_recompute(recompute);
            let mut trainer = Trainer::new(task, OptimizerConfig::default(), ScheduleConfig::default(), 0);
            let steps = (0..3).map(|_| trainer.step(batch(&device)).unwrap().1);
            steps.flat_map(|step| [step.loss, step.gradient_norm]).collect::<Vec<f64>>()
        };
        let (found, expected) = (steps(Recompute::Blocks), steps(Recompute::None));
        assert!(expected.iter().all(|number| *number > 1e-2), "{expected:?}");
        assert_close(&found, &expected, 1e-5);
    }

    #[test]
    fn steps_and_evaluations_compute_in_the_precision_that_they_are_to() {
        let found = [Precision::F32, Precision::Bf16, Precision::F16]
            .map(|precision| losses(&Device::flex(), |task| task.with_precision(precision)));
        for [single, brain, half] in [0, 1].map(|of| found.map(|losses| losses[of])) {
            assert!((single - brain).abs() < 0.05 && (single - half).abs() < 0.05, "{single}, {brain}, {half}");
            assert!(single != brain && single != half && brain != half, "{single}, {brain}, {half}");
        }
    }
}
