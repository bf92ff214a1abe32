//! The losses of a model on pairs of sentences: that of the tokens behind masks and, with the same weight, that of the
//! pair's order.
//!
//! Source: Devlin et al. 2019, §A.2 (<https://arxiv.org/abs/1810.04805>): "the training loss is the sum of the mean masked LM
//! likelihood and the mean next sentence prediction likelihood".

use burn::tensor::Tensor;
use firelight_core::{LossConfig, Pass, TokenLoss};
use firelight_tasks::{plain_pass, token_report, train_step};
use firelight_training::{LossOutput, Objective, Score, Switches, TrainLoss, ValidOutput};

use super::examples::NextSentenceBatch;
use crate::objectives::NextSentenceModel;

/// The losses of one batch.
struct Losses {
    tokens: TokenLoss,
    order: TokenLoss,
    /// How many answers about the order are right, `[1]`.
    right: Tensor<1>,
}

impl Losses {
    fn of(model: &NextSentenceModel, batch: NextSentenceBatch, loss: LossConfig, pass: &mut Pass) -> Self {
        let NextSentenceBatch { masked, order } = batch;
        let logits = model.forward_at(&masked.input, masked.places, pass);
        let right = logits.order.clone().argmax(1).squeeze_dim::<1>(1).equal(order.clone()).float().sum();
        Self {
            right,
            tokens: loss.init().forward(logits.tokens, masked.targets, masked.ignored),
            order: LossConfig::default().init().forward(logits.order.unsqueeze(), order.unsqueeze(), None), // [1, B, 2]
        }
    }

    /// Both means, `[1]`.
    fn sum(&self) -> Tensor<1> {
        self.tokens.mean() + self.order.mean()
    }

    /// The loss of the hidden tokens, as every masked language model reports it, and beside it the sum. Where several batches make
    /// a step, each weighs by its hidden tokens.
    fn report(self) -> LossOutput {
        let training_total = self.sum() * self.tokens.count.clone().clamp_min(1.0);
        token_report(self.tokens).with_training_total(Some(training_total))
    }
}

impl Objective for NextSentenceModel {
    type Batch = NextSentenceBatch;
    type Loss = LossConfig;
    /// The sums over a batch: losses and right answers about the order, and pairs; `[3]`.
    type Answers = Tensor<1>;

    /// What is minimised is the mean loss of the hidden tokens, that of the pairs' order and, with experts, the load balance.
    fn train_loss(&self, batch: NextSentenceBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[pass]| {
            let losses = Losses::of(self, batch, *loss, pass);
            (losses.sum(), losses.report())
        })
    }

    fn valid_step(&self, batch: NextSentenceBatch, switches: Switches) -> ValidOutput<Tensor<1>> {
        let Losses { tokens, order, right } = Losses::of(self, batch, LossConfig::default(), &mut plain_pass(switches));
        let sums = Tensor::cat(vec![order.total, right, order.count], 0);
        ValidOutput::new(token_report(tokens), sums)
    }
}

/// What a validation measures beside the loss.
pub(super) const SCORES: [Score; 2] = [Score::lower("next_sentence_loss"), Score::higher("next_sentence_accuracy")];

/// The scores of the sums.
pub(super) fn scores(sums: &[f64]) -> Vec<f64> {
    let [losses, right, pairs] = *sums else { panic!("three sums, not {}", sums.len()) };
    vec![losses / pairs, right / pairs]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masking::MaskedBatch;
    use crate::{PretrainingConfig, PretrainingModel, PretrainingObjective, TextEncoderConfig, TextInput};
    use burn::tensor::{Bool, Device, Int, TensorData};
    use firelight_core::ParamBuilder;
    use firelight_kernels::assert_close;
    use firelight_training::{OptimizerConfig, ScheduleConfig, ScheduleKind, Trainer, TrainingModule};

    /// Sums of a few logarithms in single precision.
    const TOLERANCE: f64 = 1e-5;

    fn model(device: &Device) -> NextSentenceModel {
        let encoder = TextEncoderConfig::bert(9, 8, 2, 1).with_stack(|stack| stack.with_dropout(0.0));
        let config = PretrainingConfig::new(encoder, PretrainingObjective::MaskedAndNextSentence);
        match config.init_with(&ParamBuilder::new(device, 0)) {
            PretrainingModel::NextSentence(model) => model,
            other => panic!("{other}"),
        }
    }

    /// Two pairs, the second one shorter and, if asked for, with more padding.
    fn batch(padding: usize, device: &Device) -> NextSentenceBatch {
        let row = |row: &[i32]| [row, &vec![0; 6 + padding - row.len()]].concat();
        let ints = |rows: [&[i32]; 2]| -> Tensor<2, Int> {
            let values = rows.map(row).concat();
            Tensor::from_data(TensorData::new(values, [2, 6 + padding]), device)
        };
        let flags = [6, 5].map(|length| (0..6 + padding).map(|t| t >= length).collect::<Vec<_>>()).concat();
        let flags: Tensor<2, Bool> = Tensor::from_bool(TensorData::new(flags, [2, 6 + padding]), device);
        let input = TextInput::new(ints([&[6, 2, 8, 7, 3, 7], &[6, 8, 7, 4, 7]]))
            .with_segments(ints([&[0, 0, 0, 0, 1, 1], &[0, 0, 0, 1, 1]]))
            .with_padding(flags);
        let places = Tensor::from_data(TensorData::from([2_i64, 6 + padding as i64 + 1]), device);
        let masked = MaskedBatch { input, places, targets: Tensor::from_ints([[5, 1]], device), ignored: None };
        NextSentenceBatch { masked, order: Tensor::from_ints([0, 1], device) }
    }

    /// `-log softmax(logits)[target]`.
    fn cross_entropy(logits: &[f64], target: usize) -> f64 {
        logits.iter().map(|logit| logit.exp()).sum::<f64>().ln() - logits[target]
    }

    #[test]
    fn the_loss_is_the_sum_of_both_means() {
        let device = Device::default().autodiff();
        let model = model(&device);
        let NextSentenceBatch { masked, .. } = batch(0, &device);
        let logits = model.forward_at(&masked.input, masked.places, &mut Pass::default());
        let tokens: Vec<f64> = logits.tokens.try_into_vec_as().unwrap();
        let order: Vec<f64> = logits.order.try_into_vec_as().unwrap();
        let tokens = cross_entropy(&tokens[..9], 5) + cross_entropy(&tokens[9..], 1);
        let order = cross_entropy(&order[..2], 0) + cross_entropy(&order[2..], 1);

        let TrainLoss { minimised, reported } =
            model.train_loss(batch(0, &device), &LossConfig::default(), Switches::default());
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < TOLERANCE, "{found} {expected}");
        near(minimised.into_scalar::<f64>(), tokens / 2.0 + order / 2.0);
        let (total, count) = reported.read().unwrap();
        near(total, tokens);
        near(count, 2.0);
        near(reported.training_total.unwrap().into_scalar::<f64>(), tokens + order);
        let found = model.valid_step(batch(0, &device), Switches::default());
        near(found.losses.read().unwrap().0, tokens);
        let sums: Vec<f64> = found.answers.try_into_vec_as().unwrap();
        near(sums[0], order);
        near(scores(&[3.0, 1.0, 4.0])[1], 0.25);
    }

    #[test]
    fn padding_changes_nothing() {
        let device = Device::default();
        let model = model(&device);
        let logits = |padding| {
            let NextSentenceBatch { masked, .. } = batch(padding, &device);
            let logits = model.forward_at(&masked.input, masked.places, &mut Pass::default());
            [logits.tokens.flatten::<1>(0, 2).into_data(), logits.order.flatten::<1>(0, 1).into_data()]
        };
        for (found, expected) in logits(3).iter().zip(logits(0)) {
            assert_close(&found, &expected, 1e-5);
        }
    }

    #[test]
    fn one_batch_is_overfitted() {
        let device = Device::default().autodiff();
        let optimizer = OptimizerConfig { learning_rate: 1e-2, weight_decay: 0.0, ..OptimizerConfig::default() };
        let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
        let mut trainer =
            Trainer::new(TrainingModule::new(model(&device), LossConfig::default()), optimizer, schedule, 0);
        let losses: Vec<f64> =
            (0..80).map(|_| trainer.step(batch(0, &device)).unwrap().training_loss.unwrap()).collect();
        assert!(losses[0] > 2.0 && losses[79] < 2e-2, "{losses:?}");
        let found = trainer.model().model.valid_step(batch(0, &device), Switches::default());
        let sums: Vec<f64> = found.answers.try_into_vec_as().unwrap();
        assert_eq!(sums[1..], [2.0, 2.0], "both pairs are classified correctly");
    }
}
