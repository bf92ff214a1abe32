//! What a reader must be able to do before it is worth training: ignore padding and batch mates, and overfit one batch. Its
//! first loss is that of no guess: texts of several lengths are guessed at with several chances.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::Device;
use firelight_core::{ParamBuilder, Pass};
use firelight_training::Check;

use super::batch::{SpanBatcher, SpanExample, SpanLossConfig, SpanTask};
use super::corpus::QuestionCorpus;
use crate::data::{EncodedText, input_of};
use crate::error::ClassificationError;
use crate::model::{SpanReader, SpanReaderConfig};

/// Windows of the batch that is to be overfitted.
const WINDOWS: usize = 8;

/// Checks the model of `config` and `seed`, without dropout, on the first windows.
pub(super) fn self_check(
    config: &SpanReaderConfig,
    seed: u64,
    corpus: &QuestionCorpus,
    device: &Device,
) -> Result<Vec<Check>, ClassificationError> {
    let model = quiet(config).init_with(&ParamBuilder::new(device, seed)).valid();
    let examples: Vec<SpanExample> = corpus.training().iter().flatten().take(WINDOWS).cloned().collect();
    let batch = |device: &Device| SpanBatcher.batch(examples.clone(), device);
    let task = SpanTask::new(model.clone(), SpanLossConfig::default());
    let device = model.devices().into_iter().next().unwrap_or_default();
    Ok(vec![
        padding(&model, &examples, &device)?,
        Check::overfit(task.train(), || batch(&device.clone().autodiff()), seed)?,
    ])
}

/// The same structure without dropout.
pub(super) fn quiet(config: &SpanReaderConfig) -> SpanReaderConfig {
    let mut quiet = config.clone();
    quiet.encoder = quiet.encoder.with_stack(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
    quiet
}

/// A longer window in the same batch, and so padding, changes nothing.
fn padding(model: &SpanReader, examples: &[SpanExample], device: &Device) -> Result<Check, ClassificationError> {
    let mut texts: Vec<&EncodedText> = examples.iter().map(|example| &example.window.text).collect();
    texts.sort_by_key(|text| text.ids.len());
    let length = texts[0].ids.len();
    let logits = |texts: &[&EncodedText]| {
        let found = model.forward(&input_of(texts, device), &mut Pass::default()).start;
        let first = found.narrow(0, 0, 1).narrow(1, 0, length);
        first.try_into_vec_as::<f32>().map_err(ClassificationError::device("the logits of the self-check"))
    };
    let [alone, padded] = [logits(&texts[..1])?, logits(&texts)?];
    Ok(Check::same("padding invariance", &padded, &alone))
}
