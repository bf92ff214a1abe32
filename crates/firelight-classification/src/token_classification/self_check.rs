//! What a classifier of tokens must be able to do before it is worth training: ignore padding and batch mates, begin at the loss of
//! a guess, and overfit one batch.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::Device;
use firelight_core::{LossConfig, ParamBuilder, Pass};
use firelight_training::Check;

use super::batch::{TaggedBatcher, TaggedExample, TokenClassifierTask};
use super::corpus::TaggedCorpus;
use crate::data::{EncodedText, input_of};
use crate::error::ClassificationError;
use crate::model::{TokenClassifier, TokenClassifierConfig};

/// Sentences of the batch that is to be overfitted.
const SENTENCES: usize = 8;

/// Checks the model of `config` and `seed`, without dropout, on the first sentences.
pub(super) fn self_check(
    config: &TokenClassifierConfig,
    seed: u64,
    corpus: &TaggedCorpus,
    device: &Device,
) -> Result<Vec<Check>, ClassificationError> {
    let model = quiet(config).init_with(&ParamBuilder::new(device, seed)).valid();
    let examples = &corpus.training()[..SENTENCES.min(corpus.training().len())];
    let batch = |device: &Device| TaggedBatcher.batch(examples.to_vec(), device);
    let task = TokenClassifierTask::new(model.clone(), LossConfig::default());
    let device = model.devices().into_iter().next().unwrap_or_default();
    Ok(vec![
        padding(&model, examples, &device)?,
        Check::guess(&task, batch(&device), config.labels.len())?,
        Check::overfit(task.train(), || batch(&device.clone().autodiff()), seed)?,
    ])
}

/// The same structure without dropout.
pub(super) fn quiet(config: &TokenClassifierConfig) -> TokenClassifierConfig {
    let mut quiet = config.clone();
    quiet.head.dropout = 0.0;
    quiet.encoder = quiet.encoder.with_stack(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
    quiet
}

/// A longer sentence in the same batch, and so padding, changes nothing.
fn padding(model: &TokenClassifier, examples: &[TaggedExample], device: &Device) -> Result<Check, ClassificationError> {
    let mut texts: Vec<&EncodedText> = examples.iter().map(|example| &example.words.text).collect();
    texts.sort_by_key(|text| text.ids.len());
    let length = texts[0].ids.len();
    let logits = |texts: &[&EncodedText]| {
        let found = model.forward(&input_of(texts, device), &mut Pass::default());
        let first = found.narrow(0, 0, 1).narrow(1, 0, length);
        first.try_into_vec_as::<f32>().map_err(ClassificationError::device("the logits of the self-check"))
    };
    let [alone, padded] = [logits(&texts[..1])?, logits(&texts)?];
    Ok(Check::same("padding invariance", &padded, &alone))
}
