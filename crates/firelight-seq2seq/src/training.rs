//! The loss of a model on a [`PairBatch`]. Burn's `Learner` trains the model as a [`Seq2SeqTask`].

use burn::tensor::{Bool, Int, Tensor};
use firelight_core::{LazyLogits, LossConfig, Pass, SequenceInput};
use firelight_tasks::{plain_pass, token_report, token_step, train_step};
use firelight_training::{LossOutput, Objective, Switches, TrainLoss, TrainingModule, ValidOutput};

use crate::data::PairBatch;
use crate::model::Seq2SeqModel;

/// An encoder-decoder with its loss.
pub type Seq2SeqTask = TrainingModule<Seq2SeqModel>;

/// What an evaluation reads of a batch of targets.
#[derive(Debug, Clone)]
pub struct TargetAnswers {
    /// How many tokens of the targets, their ends included, are the likeliest ones to the model after the true ones before them, and
    /// how many there are: `[2]`.
    pub predicted: Tensor<1, Int>,
}

/// The vectors of the targets' tokens.
fn hidden(model: &Seq2SeqModel, batch: &PairBatch, encoder: &mut Pass, decoder: &mut Pass) -> Tensor<3> {
    let memory = model.encode(batch.source.clone(), batch.source_padding.clone(), encoder);
    model.decode(batch.inputs.clone(), memory, &SequenceInput::default(), decoder)
}

/// How many tokens `logits` predict, and how many there are, `[2]`.
fn predicted(logits: Tensor<3>, targets: Tensor<2, Int>, padding: Option<Tensor<2, Bool>>) -> Tensor<1, Int> {
    let is_right = logits.argmax(2).squeeze_dim::<2>(2).equal(targets);
    let is_token = padding.map_or_else(|| is_right.clone().equal(is_right.clone()), |padding| padding.bool_not());
    Tensor::cat([is_right.bool_and(is_token.clone()), is_token].map(|flags| flags.int().sum()).into(), 0)
}

/// The loss of the targets' tokens in a training step.
pub(crate) fn target_step(
    logits: LazyLogits,
    (targets, padding): (Tensor<2, Int>, Option<Tensor<2, Bool>>),
    loss: &LossConfig,
) -> (Tensor<1>, LossOutput) {
    token_step(loss.init().forward_head(logits, targets, padding), loss)
}

/// The plain loss and the answers, made of the same logits.
pub(crate) fn valid_output(
    logits: Tensor<3>,
    (targets, padding): (Tensor<2, Int>, Option<Tensor<2, Bool>>),
) -> ValidOutput<TargetAnswers> {
    let loss = LossConfig::default().init().forward(logits.clone(), targets.clone(), padding.clone());
    ValidOutput::new(token_report(loss), TargetAnswers { predicted: predicted(logits, targets, padding) })
}

impl Objective for Seq2SeqModel {
    type Batch = PairBatch;
    type Loss = LossConfig;
    type Answers = TargetAnswers;

    fn train_loss(&self, batch: PairBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[encoder, decoder]| {
            let hidden = hidden(self, &batch, encoder, decoder);
            target_step(self.lazy_logits(hidden), (batch.targets, batch.padding), loss)
        })
    }

    /// All logits are held at once, because both the loss and the answers are made from them.
    fn valid_step(&self, batch: PairBatch, switches: Switches) -> ValidOutput<TargetAnswers> {
        let [mut encoder, mut decoder] = [plain_pass(switches), plain_pass(switches)];
        let logits = self.logits(hidden(self, &batch, &mut encoder, &mut decoder));
        valid_output(logits, (batch.targets, batch.padding))
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
    use firelight_core::{ParamBuilder, Trace};
    use firelight_data::EncodedPair;
    use firelight_kernels::assert_close;
    use firelight_tasks::train_pass;
    use firelight_training::{OptimizerConfig, Precision, Recompute, ScheduleConfig, Trainer};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn batch(device: &Device) -> PairBatch {
        let pair = |source: &[u32], target: &[u32]| EncodedPair { source: source.into(), target: target.into() };
        PairBatcher::new(7, 8, 8).batch(vec![pair(&[1, 2, 3], &[4]), pair(&[5], &[6, 4])], device)
    }

    #[test]
    fn tokens_are_counted_by_hand() {
        let device = Device::default();
        let model = Seq2SeqConfig::new(9, 8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let pairs = [(vec![1, 2, 3], vec![4]), (vec![5], vec![6, 4, 2])];
        let pairs = pairs.map(|(source, target)| EncodedPair { source, target });
        let batch: PairBatch = PairBatcher::new(7, 8, 8).batch(pairs.to_vec(), &device);
        let counts = |batch: PairBatch| {
            let found = model.valid_step(batch, Switches::default()).answers.predicted;
            found.try_into_vec_as::<i64>().unwrap()
        };
        // The first row is two tokens and two of padding, the second is full.
        let likeliest =
            model.forward(batch.source.clone(), batch.source_padding.clone(), batch.inputs.clone()).argmax(2);
        let likeliest = likeliest.try_into_vec_as::<i64>().unwrap();
        let expect = |likeliest: &[i64]| {
            let pairs = [(0, 4), (1, 8), (4, 6), (5, 4), (6, 2), (7, 8)];
            pairs.iter().filter(|(place, token)| likeliest[*place] == *token).count() as i64
        };
        assert_eq!(counts(batch.clone()), [expect(&likeliest), 6]);
        // Where the targets are what the model says, all are right, with padding and without.
        let targets =
            Tensor::from_data([&likeliest[..4], &likeliest[4..]].map(|row| [0, 1, 2, 3].map(|t| row[t])), &device);
        let said = PairBatch { targets, ..batch };
        assert_eq!(counts(said.clone()), [6, 6]);
        assert_eq!(counts(PairBatch { padding: None, ..said }), [8, 8]);
    }

    #[test]
    fn the_plain_loss_is_reported_beside_the_smoothed_one() {
        let device = Device::default().autodiff();
        let model = Seq2SeqConfig::new(9, 8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let report = |smoothing: f64| {
            let task = Seq2SeqTask::new(model.clone(), LossConfig::default().with_label_smoothing(smoothing));
            let evaluated = InferenceStep::step(&task.valid(), batch(&device.clone().inner())).losses.mean();
            let (optimizer, schedule) = (OptimizerConfig::default(), ScheduleConfig::default());
            let step = Trainer::new(task, optimizer, schedule, 0).step(batch(&device)).unwrap();
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
        [TrainStep::step(&task, batch.clone()).item, InferenceStep::step(&task, batch).losses].map(|output| {
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
            let mut trace = Trace::default();
            let pass = if is_step { train_pass } else { plain_pass };
            let mut pass = pass(Switches { recompute_blocks, dtype: None }).with_trace(&mut trace);
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
            let steps = (0..3).map(|_| trainer.step(batch(&device)).unwrap());
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
