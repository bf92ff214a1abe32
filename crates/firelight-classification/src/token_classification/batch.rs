//! Tagged sentences become batches. The loss of a model on them is that of every word's tag, at its first token.
//!
//! Source: Devlin et al. 2019, §5.3 (<https://arxiv.org/abs/1810.04805>).

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_core::LossConfig;
use firelight_tasks::{plain_pass, token_report, token_step, train_step};
use firelight_training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput};

use crate::data::{EncodedText, EncodedWords, input_of};
use crate::encoder::TextInput;
use crate::model::TokenClassifier;

/// A sentence, or a part of a long one, with the tags of its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedExample {
    /// Its place among all that were read.
    pub number: usize,
    /// The words.
    pub words: EncodedWords,
    /// The number of each word's tag.
    pub tags: Vec<usize>,
}

/// What one step of a classifier of tokens reads.
#[derive(Debug, Clone)]
pub struct TaggedBatch {
    /// The [numbers](TaggedExample::number) of the sentences.
    pub numbers: Vec<usize>,
    /// The sentences.
    pub input: TextInput,
    /// `[B, T]`, the tags of first tokens; 0 elsewhere.
    pub targets: Tensor<2, Int>,
    /// `[B, T]`, true where a token does not speak for a word: padding, the tokens around a sentence, those that go on with a word.
    pub ignored: Tensor<2, Bool>,
}

/// Stacks tagged sentences.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaggedBatcher;

impl Batcher<TaggedExample, TaggedBatch> for TaggedBatcher {
    fn batch(&self, examples: Vec<TaggedExample>, device: &Device) -> TaggedBatch {
        let texts: Vec<&EncodedText> = examples.iter().map(|example| &example.words.text).collect();
        let input = input_of(&texts, device);
        let [rows, length] = input.tokens.dims();
        let (mut targets, mut ignored) = (vec![0; rows * length], vec![true; rows * length]);
        for (row, example) in examples.iter().enumerate() {
            for (place, tag) in example.words.places.iter().zip(&example.tags) {
                targets[row * length + place] = *tag as i32;
                ignored[row * length + place] = false;
            }
        }
        TaggedBatch {
            numbers: examples.iter().map(|example| example.number).collect(),
            input,
            targets: Tensor::from_data(TensorData::new(targets, [rows, length]), device),
            ignored: Tensor::from_bool(TensorData::new(ignored, [rows, length]), device),
        }
    }
}

/// A classifier of tokens with its loss.
pub type TokenClassifierTask = TrainingModule<TokenClassifier>;

/// What an evaluation reads of a batch of sentences.
#[derive(Debug, Clone)]
pub struct TagAnswers {
    /// The [numbers](TaggedExample::number) of the sentences.
    pub numbers: Vec<usize>,
    /// `[B, T]`, the likeliest tag of every token.
    pub tags: Tensor<2, Int>,
}

impl Objective for TokenClassifier {
    type Batch = TaggedBatch;
    type Loss = LossConfig;
    type Answers = TagAnswers;

    /// What is minimised is the loss of the words and, with experts, the load balance.
    fn train_loss(&self, batch: TaggedBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[pass]| {
            let logits = self.forward(&batch.input, pass);
            token_step(loss.init().forward(logits, batch.targets, Some(batch.ignored)), loss)
        })
    }

    fn valid_step(&self, batch: TaggedBatch, switches: Switches) -> ValidOutput<TagAnswers> {
        let logits = self.forward(&batch.input, &mut plain_pass(switches)); // [B, T, C]
        let tags = logits.clone().argmax(2).squeeze_dim(2);
        let loss = LossConfig::default().init().forward(logits, batch.targets, Some(batch.ignored));
        ValidOutput::new(token_report(loss), TagAnswers { numbers: batch.numbers, tags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TextEncoderConfig, TokenClassifierConfig};
    use firelight_core::ParamBuilder;
    use firelight_kernels::assert_close;

    fn example(ids: &[u32], places: &[usize], tags: &[usize]) -> TaggedExample {
        let text = EncodedText { ids: ids.into(), second_from: ids.len(), is_cut: false };
        TaggedExample { number: 0, words: EncodedWords { text, places: places.into() }, tags: tags.into() }
    }

    #[test]
    fn tags_stand_at_the_first_tokens_of_words_and_nowhere_else() {
        let device = Device::default();
        let examples = vec![example(&[7, 1, 2, 8], &[1], &[2]), example(&[7, 1, 2, 3, 4, 8], &[1, 3], &[0, 1])];
        let batch = TaggedBatcher.batch(examples, &device);
        let ids = |tensor: Tensor<2, Int>| tensor.try_to_vec_as::<i64>().unwrap();
        assert_eq!(ids(batch.targets), [0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(ids(batch.ignored.int()), [1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1]);
    }

    #[test]
    fn what_a_step_minimises_stands_beside_the_plain_loss_where_it_is_another_one() {
        let device = Device::default().autodiff();
        let model = TokenClassifierConfig::new(TextEncoderConfig::modern(9, 8, 2, 1), ["a", "b", "c"])
            .init_with(&ParamBuilder::new(&device, 0));
        let step = |loss: LossConfig| {
            let examples = vec![example(&[7, 1, 2, 8], &[1], &[2]), example(&[7, 1, 2, 3, 4, 8], &[1, 3], &[0, 1])];
            let batch = TaggedBatcher.batch(examples, &device);
            let TrainLoss { minimised, reported } = model.train_loss(batch, &loss, Switches::default());
            let training_loss = reported.training_total.clone().map(|total| total.into_scalar::<f64>() / 3.0);
            [Some(minimised.into_scalar()), training_loss, Some(reported.mean().into_scalar())]
        };
        let [minimised, training_loss, plain] = step(LossConfig::default().with_label_smoothing(0.3).with_z_loss(0.1));
        let training_loss = training_loss.expect("not the plain loss");
        assert_close(&[training_loss], &[minimised.unwrap()], 1e-5);
        assert!(
            training_loss > plain.unwrap() + 0.1,
            "z-loss alone is 0.1 ln² 3 = 0.12 at first: {training_loss} and {plain:?}"
        );
        let [minimised, training_loss, plain] = step(LossConfig::default());
        assert_eq!(training_loss, None);
        assert_close(&[minimised.unwrap()], &[plain.unwrap()], 1e-5);
    }

    #[test]
    fn padding_and_batch_mates_change_no_loss_and_other_tokens_do_not_count() {
        let device = Device::default();
        let model = TokenClassifierConfig::new(TextEncoderConfig::modern(9, 8, 2, 1), ["a", "b", "c"])
            .init_with(&ParamBuilder::new(&device, 0));
        let loss = |examples: &[TaggedExample]| {
            model
                .valid_step(TaggedBatcher.batch(examples.to_vec(), &device), Switches::default())
                .losses
                .read()
                .unwrap()
        };
        let [one, other] = [example(&[7, 1, 2, 8], &[1], &[2]), example(&[7, 1, 2, 3, 4, 8], &[1, 3], &[0, 1])];
        let both = [one, other];
        let (alone, beside, together) = (loss(&both[..1]), loss(&both[1..]), loss(&both));
        assert_eq!((alone.1, together.1), (1.0, 3.0));
        assert!((alone.0 + beside.0 - together.0).abs() < 1e-5, "{alone:?} {beside:?} {together:?}");
    }
}
