//! The losses of a generator and a discriminator: the generator predicts the tokens behind masks, the discriminator
//! says of every token whether the generator has replaced it.
//!
//! Source: Clark et al. 2020, ELECTRA, §2 (<https://arxiv.org/abs/2003.10555>): `L_MLM(θ_G) + λ L_Disc(θ_D)`, both means. Nothing
//! flows back through the sampling: the generator is not trained to deceive. A token that it got right is the text's own.

use burn::tensor::activation::{log_sigmoid, softmax};
use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor};
use firelight_core::{LossConfig, Pass, TokenLoss};
use firelight_tasks::{plain_pass, train_step};
use firelight_training::{LossOutput, Objective, Score, Switches, TrainLoss, ValidOutput};

use super::examples::ReplacedBatch;
use crate::encoder::TextInput;
use crate::masking::MaskedBatch;
use crate::objectives::ReplacedTokenModel;

/// Texts with the generator's tokens.
struct Corrupted {
    input: TextInput,
    /// `[B, T]`, 1 where a token is not the text's own.
    is_replaced: Tensor<2, Int>,
}

impl Corrupted {
    /// Puts what is drawn from the generator's `logits`, `[1, M, V]`, into the chosen places.
    fn of(batch: &ReplacedBatch, logits: Tensor<3>) -> Self {
        let MaskedBatch { input, places, targets, ignored } = &batch.masked;
        let shape = input.tokens.dims();
        let tokens: Tensor<1, Int> = input.tokens.clone().flatten(0, 1); // [B T]
        let seen = tokens.clone().select(0, places.clone()); // [M]
        let drawn = sample(logits.detach().squeeze_dim(0), batch.draws.clone());
        let is_other = drawn.clone().not_equal(targets.clone().squeeze_dim(0)).int();
        let (change, is_other) = match ignored.clone().map(|ignored| ignored.squeeze_dim::<1>(0)) {
            Some(ignored) => ((drawn - seen).mask_fill(ignored.clone(), 0), is_other.mask_fill(ignored, 0)),
            None => (drawn - seen, is_other),
        };
        let is_replaced = tokens.zeros_like().select_assign(0, places.clone(), is_other, IndexingUpdateOp::Add);
        let tokens = tokens.select_assign(0, places.clone(), change, IndexingUpdateOp::Add).reshape(shape);
        Self { input: TextInput { tokens, ..input.clone() }, is_replaced: is_replaced.reshape(shape) }
    }
}

/// A token of each row of `logits`, `[M, V]`, as likely as they say, decided by a number from 0 to below 1, `[M]`: the first with
/// which the sum of the probabilities is above it.
fn sample(logits: Tensor<2>, draws: Tensor<1>) -> Tensor<1, Int> {
    let last = logits.dims()[1] - 1;
    let sums = softmax(logits, 1).cumsum(1); // [M, V]
    let bounds = draws.unsqueeze_dim::<2>(1) * sums.clone().narrow(1, last, 1); // [M, 1]
    let passed = (sums - bounds).lower_equal_elem(0.0).int().sum_dim(1);
    passed.squeeze_dim::<1>(1).clamp_max(last as i64)
}

/// What the discriminator says of the tokens that are not padding.
struct Verdict {
    /// `[B, T]`, above 0 where a token is taken for a replaced one.
    logits: Tensor<2>,
    is_replaced: Tensor<2, Int>,
    padding: Option<Tensor<2, Bool>>,
}

impl Verdict {
    /// `values` of all tokens that count, summed, `[1]`.
    fn sum(&self, values: Tensor<2>) -> Tensor<1> {
        match &self.padding {
            Some(padding) => values.mask_fill(padding.clone(), 0.0).sum(),
            None => values.sum(),
        }
    }

    /// How many tokens count, `[1]`.
    fn count(&self) -> Tensor<1> {
        self.sum(self.logits.clone().detach().ones_like())
    }

    /// The binary cross-entropy, summed, `[1]`.
    fn loss(&self) -> Tensor<1> {
        let is_replaced = self.is_replaced.clone().float();
        let yes = log_sigmoid(self.logits.clone()) * is_replaced.clone();
        let no = log_sigmoid(self.logits.clone().neg()) * (is_replaced.neg() + 1.0);
        self.sum((yes + no).neg())
    }

    /// How many tokens are classified correctly, replaced ones that are found, tokens taken for replaced ones, and
    /// replaced ones: `[4]`.
    fn answers(&self) -> Tensor<1> {
        let is_replaced = self.is_replaced.clone();
        let said = self.logits.clone().greater_elem(0.0).int();
        let right = said.clone().equal(is_replaced.clone()).float();
        let found = (said.clone() * is_replaced.clone()).float();
        Tensor::cat([right, found, said.float(), is_replaced.float()].map(|values| self.sum(values)).into(), 0)
    }
}

/// The losses of one batch.
struct Losses {
    tokens: TokenLoss,
    verdict: Verdict,
    lambda: f64,
}

impl Losses {
    fn of(
        model: &ReplacedTokenModel,
        batch: ReplacedBatch,
        loss: LossConfig,
        [generator, discriminator]: [&mut Pass; 2],
    ) -> Self {
        let logits = model.generate_at(&batch.masked.input, batch.masked.places.clone(), generator);
        let Corrupted { input, is_replaced } = Corrupted::of(&batch, logits.clone());
        let tokens = loss.init().forward(logits, batch.masked.targets, batch.masked.ignored);
        let logits = model.forward(&input, discriminator);
        let verdict = Verdict { logits, is_replaced, padding: input.padding };
        Self { tokens, verdict, lambda: model.lambda() }
    }

    /// The generator's mean and the discriminator's, weighted, `[1]`.
    fn sum(&self) -> Tensor<1> {
        self.tokens.mean() + self.verdict.loss() / self.verdict.count() * self.lambda
    }

    /// The loss of the discriminator, which is what is kept, and beside it the sum. Where several batches make a step, each weighs
    /// by its tokens.
    fn report(&self) -> LossOutput {
        let count = self.verdict.count();
        let training_total = self.sum() * count.clone();
        LossOutput::new(self.verdict.loss().without_autodiff(), count).with_training_total(Some(training_total))
    }
}

impl Objective for ReplacedTokenModel {
    type Batch = ReplacedBatch;
    type Loss = LossConfig;
    /// The sums over a batch: the generator's losses and hidden tokens, all tokens, those that are classified correctly, replaced ones
    /// that are found, tokens taken for replaced ones, and replaced ones; `[7]`.
    type Answers = Tensor<1>;

    /// What is minimised is the mean loss of the generator's tokens, `λ` times that of the discriminator's and, with experts, the
    /// load balance of both stacks.
    fn train_loss(&self, batch: ReplacedBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |passes| {
            let losses = Losses::of(self, batch, *loss, passes);
            (losses.sum(), losses.report())
        })
    }

    fn valid_step(&self, batch: ReplacedBatch, switches: Switches) -> ValidOutput<Tensor<1>> {
        let [mut generator, mut discriminator] = [plain_pass(switches), plain_pass(switches)];
        let passes = [&mut generator, &mut discriminator];
        let Losses { tokens, verdict, .. } = Losses::of(self, batch, LossConfig::default(), passes);
        let sums = Tensor::cat(vec![tokens.cross_entropy, tokens.count, verdict.count(), verdict.answers()], 0);
        ValidOutput::new(LossOutput::new(verdict.loss(), verdict.count()), sums)
    }
}

/// What a validation measures beside the loss.
pub(super) const SCORES: [Score; 3] =
    [Score::lower("generator_loss"), Score::higher("replaced_accuracy"), Score::higher("replaced_f1")];

/// The scores of the sums. Where nothing is replaced and nothing taken for it, F1 is 0.
pub(super) fn scores(sums: &[f64]) -> Vec<f64> {
    let [losses, hidden, tokens, right, found, said, replaced] = *sums else {
        panic!("seven sums, not {}", sums.len())
    };
    vec![losses / hidden.max(1.0), right / tokens, 2.0 * found / (said + replaced).max(1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PretrainingConfig, PretrainingModel, PretrainingObjective, ReplacedTokens, TextEncoderConfig};
    use burn::module::Module;
    use burn::tensor::{Device, TensorData};
    use firelight_core::ParamBuilder;
    use firelight_data::{MaskedText, replaced_tokens};
    use firelight_kernels::assert_close;
    use firelight_training::{OptimizerConfig, ScheduleConfig, ScheduleKind, Trainer, TrainingModule};

    /// Sums of a few logarithms in single precision.
    const TOLERANCE: f64 = 1e-5;

    /// Two texts and their masked forms, the second one shorter: 6 begins, 7 ends, 8 is the mask.
    const TEXTS: [[u32; 6]; 2] = [[6, 1, 2, 3, 4, 7], [6, 5, 5, 7, 0, 0]];
    const HIDDEN: [(usize, usize); 3] = [(0, 1), (0, 3), (1, 2)];

    fn model(device: &Device) -> ReplacedTokenModel {
        let encoder = TextEncoderConfig::bert(9, 16, 2, 1).with_stack(|stack| stack.with_dropout(0.0));
        let replaced = ReplacedTokens { generator_size: 0.5, ..ReplacedTokens::default() };
        match PretrainingConfig::new(encoder, PretrainingObjective::Replaced(replaced))
            .init_with(&ParamBuilder::new(device, 0))
        {
            PretrainingModel::Replaced(model) => model,
            other => panic!("{other}"),
        }
    }

    /// The texts with so many tokens of padding behind the longest.
    fn batch(padding: usize, device: &Device) -> ReplacedBatch {
        let length = 6 + padding;
        let is_hidden = |row, t| HIDDEN.contains(&(row, t));
        let token = |row: usize, t: usize| match is_hidden(row, t) {
            true => 8,
            false => TEXTS[row].get(t).map_or(0, |&id| id as i32),
        };
        let tokens: Vec<i32> = (0..2).flat_map(|row| (0..length).map(move |t| token(row, t))).collect();
        let flags: Vec<bool> = [6, 4].iter().flat_map(|&end| (0..length).map(move |t| t >= end)).collect();
        let input = TextInput::new(Tensor::from_data(TensorData::new(tokens, [2, length]), device))
            .with_padding(Tensor::from_bool(TensorData::new(flags, [2, length]), device));
        let places = HIDDEN.map(|(row, t)| (row * length + t) as i32);
        let targets = HIDDEN.map(|(row, t)| TEXTS[row][t] as i32);
        let masked = MaskedBatch {
            input,
            places: Tensor::from_ints(places, device),
            targets: Tensor::from_ints([targets], device),
            ignored: None,
        };
        ReplacedBatch { masked, draws: Tensor::from_floats([0.1, 0.5, 0.9], device) }
    }

    fn ids<const D: usize>(tensor: Tensor<D, Int>) -> Vec<i64> {
        tensor.try_into_vec_as().unwrap()
    }

    #[test]
    fn a_token_is_drawn_where_the_sum_of_probabilities_passes_the_number() {
        let device = Device::default();
        // Probabilities 0.2, 0, 0.5 and 0.3: sums 0.2, 0.2, 0.7 and 1.
        let logits = [0.2_f32.ln(), -1e9, 0.5_f32.ln(), 0.3_f32.ln()];
        let draws = [0.0, 0.19, 0.21, 0.69, 0.71, 1.0 - f32::EPSILON / 2.0];
        let logits = Tensor::<2>::from_floats([logits; 6], &device);
        assert_eq!(ids(sample(logits, Tensor::from_floats(draws, &device))), [0, 0, 2, 2, 3, 3]);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let device = Device::default();
        let logits = Tensor::<2>::from_floats([[0.0, 1.0, 2.0]], &device).expand([3000, 3]);
        let draws: Vec<f32> = (0..3000).map(|i| (i as f32 + 0.5) / 3000.0).collect();
        let found = ids(sample(logits, Tensor::from_floats(draws.as_slice(), &device)));
        let share = |token| found.iter().filter(|&&id| id == token).count() as f64 / 3000.0;
        let weights = [0.0_f64, 1.0, 2.0].map(f64::exp);
        for (token, weight) in weights.iter().enumerate() {
            assert!((share(token as i64) - weight / weights.iter().sum::<f64>()).abs() < 1e-3);
        }
    }

    #[test]
    fn the_texts_are_those_of_the_data_crate() {
        let device = Device::default();
        // The generator is sure of 1 (right), 0 (wrong) and 5 (right).
        let sure = [1, 0, 5].map(|token| std::array::from_fn::<f32, 9, _>(|id| if id == token { 50.0 } else { 0.0 }));
        for padding in [0, 2] {
            let corrupted = Corrupted::of(&batch(padding, &device), Tensor::from_floats([sure], &device));
            let (tokens, flags) = (ids(corrupted.input.tokens), ids(corrupted.is_replaced));
            for (row, text) in TEXTS.iter().enumerate() {
                let chosen: Vec<bool> = (0..6).map(|t| HIDDEN.contains(&(row, t))).collect();
                let sampled: &[u32] = if row == 0 { &[1, 0] } else { &[5] };
                let (expected, replaced) =
                    replaced_tokens(text, &MaskedText { inputs: text.to_vec(), chosen }, sampled);
                let start = row * (6 + padding);
                let row = start..start + text.len();
                assert_eq!(expected.iter().map(|id| i64::from(*id)).collect::<Vec<_>>(), tokens[row.clone()]);
                assert_eq!(replaced.iter().map(|flag| i64::from(*flag)).collect::<Vec<_>>(), flags[row]);
            }
            assert_eq!(flags.iter().sum::<i64>(), 1);
        }
    }

    #[test]
    fn a_batch_that_hides_nothing_stays_as_it_is() {
        let device = Device::default();
        let mut nothing = batch(0, &device);
        nothing.masked.places = Tensor::from_ints([0], &device);
        nothing.masked.targets = Tensor::from_ints([[0]], &device);
        nothing.masked.ignored = Some(Tensor::from_bool(TensorData::from([[true]]), &device));
        nothing.draws = Tensor::from_floats([0.5], &device);
        let before = ids(nothing.masked.input.tokens.clone());
        let corrupted = Corrupted::of(&nothing, Tensor::zeros([1, 1, 9], &device));
        assert_eq!(ids(corrupted.input.tokens), before);
        assert_eq!(ids(corrupted.is_replaced).iter().sum::<i64>(), 0);
        assert!(model(&device).valid_step(nothing, Switches::default()).losses.read().unwrap().0.is_finite());
    }

    #[test]
    fn the_loss_is_the_generators_mean_and_fifty_times_the_discriminators() {
        let device = Device::default().autodiff();
        let model = model(&device);
        let read = |tensor: Tensor<1>| tensor.try_into_vec_as::<f64>().unwrap();
        let masked = batch(0, &device).masked;
        let logits = model.generate_at(&masked.input, masked.places, &mut Pass::default());
        let corrupted = Corrupted::of(&batch(0, &device), logits.clone());
        let said = read(model.forward(&corrupted.input, &mut Pass::default()).flatten(0, 1));
        let (logits, flags) = (read(logits.flatten(0, 2)), ids(corrupted.is_replaced));
        let target = |place: usize| TEXTS[HIDDEN[place].0][HIDDEN[place].1] as usize;
        let of_place = |place: usize| {
            let row = &logits[9 * place..9 * (place + 1)];
            row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[target(place)]
        };
        let tokens: f64 = (0..3).map(of_place).sum();
        // Ten tokens count: the last two of the second row are padding.
        let chance = |t: usize| 1.0 / (1.0 + (-said[t]).exp());
        let of_token = |t: usize| -(if flags[t] == 1 { chance(t) } else { 1.0 - chance(t) }).ln();
        let marks: f64 = (0..10).map(of_token).sum();

        let near = |found: f64, expected: f64| {
            assert!((found - expected).abs() < TOLERANCE * expected.abs().max(1.0), "{found} {expected}");
        };
        let TrainLoss { minimised, reported } =
            model.train_loss(batch(0, &device), &LossConfig::default(), Switches::default());
        let sum = tokens / 3.0 + 50.0 * marks / 10.0;
        near(read(minimised)[0], sum);
        let (total, count) = reported.read().unwrap();
        near(total, marks);
        near(count, 10.0);
        near(read(reported.training_total.unwrap())[0], 10.0 * sum);
        near(model.valid_step(batch(0, &device), Switches::default()).losses.read().unwrap().0, marks);

        let sums = read(model.valid_step(batch(0, &device), Switches::default()).answers);
        let right = (0..10).filter(|&t| (said[t] > 0.0) == (flags[t] == 1)).count() as f64;
        near(sums[0], tokens);
        assert_eq!((sums[1], sums[2], sums[3]), (3.0, 10.0, right));
        assert_eq!(sums[6], flags.iter().sum::<i64>() as f64);
        // 4 found of 6 that are replaced, among 5 taken for it: 8 / 11.
        assert_close(&scores(&[9.0, 3.0, 20.0, 15.0, 4.0, 5.0, 6.0]), &[3.0, 0.75, 8.0 / 11.0], TOLERANCE);
    }

    #[test]
    fn padding_changes_nothing() {
        let device = Device::default();
        let model = model(&device);
        let measured = |padding| model.valid_step(batch(padding, &device), Switches::default()).answers.into_data();
        assert_close(&measured(3), &measured(0), 1e-4);
        let loss = |padding| model.valid_step(batch(padding, &device), Switches::default()).losses.read().unwrap();
        assert!((loss(3).0 - loss(0).0).abs() < 1e-4 && loss(3).1 == 10.0);
    }

    #[test]
    fn nothing_flows_from_the_discriminator_into_the_generator() {
        let device = Device::default().autodiff();
        let model = model(&device);
        let passes = [&mut Pass::default(), &mut Pass::default()];
        let losses = Losses::of(&model, batch(0, &device), LossConfig::default(), passes);
        let gradients = losses.verdict.loss().backward();
        let dense = |head: &crate::MaskedLanguageHead| head.dense.weight.val().grad(&gradients);
        assert!(dense(&model.generator.head).is_none());
        assert!(model.head.dense.weight.val().grad(&gradients).is_some());
        let gradients = losses.tokens.mean().backward();
        assert!(model.head.dense.weight.val().grad(&gradients).is_none());
        assert!(model.encoder.embedding.weight.val().grad(&gradients).is_some(), "the embedding is shared");
    }

    #[test]
    fn one_batch_is_overfitted() {
        let device = Device::default().autodiff();
        let optimizer = OptimizerConfig { learning_rate: 1e-2, weight_decay: 0.0, ..OptimizerConfig::default() };
        let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
        let mut trainer =
            Trainer::new(TrainingModule::new(model(&device), LossConfig::default()), optimizer, schedule, 0);
        let reports: Vec<_> = (0..150).map(|_| trainer.step(batch(0, &device)).unwrap()).collect();
        let (first, last) = (&reports[0], &reports[149]);
        assert!(first.loss > 0.5 && first.training_loss.unwrap() > 25.0, "{first:?}");
        assert!(last.loss < 1e-2 && last.training_loss.unwrap() < 1.0, "{last:?}");
        let found = trainer.model().model.valid().valid_step(batch(0, &device.inner()), Switches::default());
        let sums: Vec<f64> = found.answers.try_into_vec_as().unwrap();
        assert_eq!(sums[3], 10.0, "all tokens are classified correctly: {sums:?}");
    }
}
