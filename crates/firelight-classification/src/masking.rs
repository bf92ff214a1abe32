//! Texts become batches in which some tokens are hidden, other ones every epoch, and the loss of a model on them.
//!
//! Sources: Devlin et al. 2019, §3.1, task 1 (<https://arxiv.org/abs/1810.04805>); masks that differ from epoch to epoch Liu et
//! al. 2019, RoBERTa, §4.1 (<https://arxiv.org/abs/1907.11692>).

use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_core::{LossConfig, Pass, TokenLoss};
use firelight_data::{MaskVocabulary, Masking, NoiseSeed};
use firelight_tasks::{plain_pass, token_report, token_step, train_step};
use firelight_training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput};

use crate::data::{EncodedText, input_of};
use crate::encoder::TextInput;
use crate::model::MaskedLanguageModel;

/// A text with hidden tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedExample {
    /// The text as the model reads it.
    pub text: EncodedText,
    /// The places that it is asked about, and the tokens that stood there.
    pub hidden: Vec<(usize, u32)>,
}

/// What one step of a masked language model reads.
#[derive(Debug, Clone)]
pub struct MaskedBatch {
    /// The texts.
    pub input: TextInput,
    /// `[M]`, the places that are asked about, each `b T + t`.
    pub places: Tensor<1, Int>,
    /// `[1, M]`, the tokens that stood there.
    pub targets: Tensor<2, Int>,
    /// `[1, M]`, true where a place does not count: a batch that hides nothing asks about one that does not.
    pub ignored: Option<Tensor<2, Bool>>,
}

/// What hides tokens of texts, other ones in every epoch.
#[derive(Debug, Clone)]
pub(crate) struct Hiding {
    pub(crate) vocabulary: Arc<MaskVocabulary>,
    pub(crate) masking: Masking,
    pub(crate) seed: u64,
}

impl Hiding {
    /// The text of this index with the tokens hidden that `epoch` hides.
    pub(crate) fn hide(&self, text: &EncodedText, epoch: u64, index: usize) -> MaskedExample {
        let masked = self.masking.apply(&text.ids, &self.vocabulary, self.seed(epoch, index));
        let chosen = masked.chosen.iter().enumerate().filter(|(_, is_chosen)| **is_chosen);
        let hidden = chosen.map(|(place, _)| (place, text.ids[place])).collect();
        MaskedExample { text: EncodedText { ids: masked.inputs, ..text.clone() }, hidden }
    }

    /// What the noise of an example is drawn from.
    pub(crate) fn seed(&self, epoch: u64, index: usize) -> NoiseSeed {
        NoiseSeed { seed: self.seed, epoch, index: index as u64 }
    }
}

/// Stacks texts with hidden tokens.
#[derive(Debug, Clone, Copy)]
pub struct MaskedBatcher;

impl Batcher<MaskedExample, MaskedBatch> for MaskedBatcher {
    fn batch(&self, examples: Vec<MaskedExample>, device: &Device) -> MaskedBatch {
        let texts: Vec<&EncodedText> = examples.iter().map(|example| &example.text).collect();
        let input = input_of(&texts, device);
        let length = input.tokens.dims()[1];
        let of_row = |(row, example): (usize, &MaskedExample)| {
            example.hidden.iter().map(|(place, id)| ((row * length + place) as i32, *id as i32)).collect::<Vec<_>>()
        };
        let (mut places, mut targets): (Vec<i32>, Vec<i32>) = examples.iter().enumerate().flat_map(of_row).unzip();
        let is_empty = places.is_empty();
        if is_empty {
            (places, targets) = (vec![0], vec![0]);
        }
        let count = places.len();
        MaskedBatch {
            input,
            places: Tensor::from_data(TensorData::new(places, [count]), device),
            targets: Tensor::from_data(TensorData::new(targets, [1, count]), device),
            ignored: is_empty.then(|| Tensor::from_bool(TensorData::from([[true]]), device)),
        }
    }
}

/// A masked language model with its loss.
pub type MaskedLanguageTask = TrainingModule<MaskedLanguageModel>;

fn compute_loss(model: &MaskedLanguageModel, batch: MaskedBatch, loss: LossConfig, pass: &mut Pass) -> TokenLoss {
    loss.init().forward(model.forward_at(&batch.input, batch.places, pass), batch.targets, batch.ignored)
}

impl Objective for MaskedLanguageModel {
    type Batch = MaskedBatch;
    type Loss = LossConfig;
    type Answers = ();

    /// What is minimised is the loss of the hidden tokens and, with experts, the load balance.
    fn train_loss(&self, batch: MaskedBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[pass]| token_step(compute_loss(self, batch, *loss, pass), loss))
    }

    fn valid_step(&self, batch: MaskedBatch, switches: Switches) -> ValidOutput<()> {
        token_report(compute_loss(self, batch, LossConfig::default(), &mut plain_pass(switches))).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::TextVocabulary;
    use firelight_core::ParamBuilder;
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;
    use firelight_training::{OptimizerConfig, ScheduleConfig, ScheduleKind, Trainer};

    /// Three texts, and what hides their tokens.
    fn texts() -> (Vec<EncodedText>, Hiding) {
        let vocabulary = TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Char, "abcdefghij").unwrap()).unwrap();
        let texts = ["abcdefghij", "ab", "cdefg"].map(|text| vocabulary.encode(text, None, 20).unwrap());
        let vocabulary = Arc::new(MaskVocabulary::of(vocabulary.tokenizer()).unwrap());
        let masking = Masking { ratio: 0.4, ..Masking::default() };
        (texts.to_vec(), Hiding { vocabulary, masking, seed: 3 })
    }

    fn examples() -> Vec<MaskedExample> {
        let (texts, hiding) = texts();
        (0..3).map(|index| hiding.hide(&texts[index], 0, index)).collect()
    }

    #[test]
    fn epochs_hide_other_tokens_but_never_the_ends() {
        let (texts, hiding) = texts();
        let of = |epoch, index: usize| hiding.hide(&texts[index], epoch, index);
        assert_eq!(of(0, 0), of(0, 0));
        assert!((1..20).any(|epoch| of(epoch, 0).hidden != of(0, 0).hidden));
        let ends = |example: &MaskedExample| (example.text.ids[0], *example.text.ids.last().unwrap());
        assert!((0..30).all(|number| ends(&of(number / 3, number as usize % 3)) == (10, 11)), "ends are never hidden");
    }

    #[test]
    fn places_are_counted_over_the_rows() {
        let examples = examples();
        let expected: Vec<(i64, i64)> = examples
            .iter()
            .enumerate()
            .flat_map(|(row, example)| {
                example.hidden.iter().map(move |(t, id)| ((12 * row + t) as i64, i64::from(*id)))
            })
            .collect();
        let batch = MaskedBatcher.batch(examples, &Device::default());
        let places: Vec<i64> = batch.places.try_into_vec_as().unwrap();
        let targets: Vec<i64> = batch.targets.try_into_vec_as().unwrap();
        assert_eq!(places.into_iter().zip(targets).collect::<Vec<_>>(), expected);
        assert!(batch.ignored.is_none() && expected.len() == 7, "four, one and two: {expected:?}");
    }

    #[test]
    fn one_batch_is_learnt_to_zero_loss() {
        let device = Device::default().autodiff();
        let encoder = crate::TextEncoderConfig::modern(13, 16, 2, 1);
        let encoder = encoder.with_stack(|stack| stack.with_dropout(0.0));
        let model = crate::MaskedLanguageModelConfig::new(encoder).init_with(&ParamBuilder::new(&device, 0));
        let batch = || MaskedBatcher.batch(examples(), &device);
        let optimizer = OptimizerConfig { learning_rate: 1e-2, weight_decay: 0.0, ..OptimizerConfig::default() };
        let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
        let task = MaskedLanguageTask::new(model, LossConfig::default());
        let mut trainer = Trainer::new(task, optimizer, schedule, 0);
        let losses: Vec<f64> = (0..80).map(|_| trainer.step(batch()).unwrap().loss).collect();
        assert!(losses[0] > 2.0 && losses[79] < 1e-2, "{losses:?}");
    }

    #[test]
    fn what_a_step_minimises_stands_beside_the_plain_loss_where_it_is_another_one() {
        let device = Device::default().autodiff();
        let model = crate::MaskedLanguageModelConfig::new(crate::TextEncoderConfig::modern(13, 16, 2, 1))
            .init_with(&ParamBuilder::new(&device, 0));
        let step = |loss: LossConfig| {
            let batch = MaskedBatcher.batch(examples(), &device);
            let TrainLoss { minimised, reported } = model.train_loss(batch, &loss, Switches::default());
            let training_loss = reported.training_total.clone().map(|total| total.into_scalar::<f64>() / 7.0);
            [Some(minimised.into_scalar()), training_loss, Some(reported.mean().into_scalar())]
        };
        let [minimised, training_loss, plain] = step(LossConfig::default().with_label_smoothing(0.3).with_z_loss(0.1));
        let training_loss = training_loss.expect("not the plain loss");
        assert_close(&[training_loss], &[minimised.unwrap()], 1e-5);
        assert!(
            training_loss > plain.unwrap() + 0.1,
            "z-loss alone is 0.1 ln² 13 = 0.66 at first: {training_loss} and {plain:?}"
        );
        let [minimised, training_loss, plain] = step(LossConfig::default());
        assert_eq!(training_loss, None);
        assert_close(&[minimised.unwrap()], &[plain.unwrap()], 1e-5);
    }

    #[test]
    fn a_batch_that_hides_nothing_costs_nothing() {
        let text = EncodedText { ids: vec![10, 11], second_from: 2, is_cut: false };
        let batch = MaskedBatcher.batch(vec![MaskedExample { text, hidden: Vec::new() }], &Device::default());
        let encoder = crate::TextEncoderConfig::modern(13, 8, 2, 1);
        let model = crate::MaskedLanguageModelConfig::new(encoder).init_with(&ParamBuilder::new(&Device::default(), 0));
        let loss = model.valid_step(batch, Switches::default()).losses;
        assert_eq!(loss.read().unwrap(), (0.0, 0.0));
    }
}
