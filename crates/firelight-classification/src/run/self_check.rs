//! What a classifier must be able to do before it is worth training: ignore padding and batch mates, begin at the loss of a
//! guess, and overfit one batch.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::Device;
use firelight_core::{ParamBuilder, Pass};
use firelight_training::Check;

use super::LabelledCorpus;
use crate::data::{EncodedText, Example, TextBatcher, input_of};
use crate::error::ClassificationError;
use crate::loss::{ProblemType, SequenceLossConfig};
use crate::model::{TextClassifier, TextClassifierConfig};
use crate::training::ClassifierTask;

/// Texts of the batch that is to be overfitted.
const TEXTS: usize = 8;

/// Checks the model of `config` and `seed`, without dropout, on the first texts.
pub(super) fn self_check(
    config: &TextClassifierConfig,
    seed: u64,
    corpus: &LabelledCorpus,
    device: &Device,
) -> Result<Vec<Check>, ClassificationError> {
    let model = quiet(config).init_with(&ParamBuilder::new(device, seed)).valid();
    let examples = &corpus.training()[..TEXTS.min(corpus.training().len())];
    let batch = |device: &Device| TextBatcher.batch(examples.to_vec(), device);
    let task = ClassifierTask::new(model.clone(), SequenceLossConfig::default());
    let device = model.devices().into_iter().next().unwrap_or_default();
    let mut checks = vec![padding(&model, examples, &device)?];
    if let Some(choices) = choices(config) {
        checks.push(Check::guess(&task, batch(&device), choices)?);
    }
    checks.push(Check::overfit(task.train(), || batch(&device.clone().autodiff()), seed)?);
    Ok(checks)
}

/// Among how many a guess chooses; a number cannot be guessed.
fn choices(config: &TextClassifierConfig) -> Option<usize> {
    match config.problem_type {
        ProblemType::SingleLabel => Some(config.labels.len()),
        ProblemType::MultiLabel => Some(2),
        ProblemType::Regression => None,
    }
}

/// The same structure without dropout, and without adapters: it is the weights beside them that must be able to learn.
fn quiet(config: &TextClassifierConfig) -> TextClassifierConfig {
    let mut quiet = config.clone();
    quiet.head.dropout = 0.0;
    quiet.encoder =
        quiet.encoder.with_adapters(None).with_stack(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
    quiet
}

/// A longer text in the same batch, and so padding, changes nothing.
fn padding(model: &TextClassifier, examples: &[Example], device: &Device) -> Result<Check, ClassificationError> {
    let mut texts: Vec<&EncodedText> = examples.iter().map(|example| &example.text).collect();
    texts.sort_by_key(|text| text.ids.len());
    let logits = |texts: &[&EncodedText]| {
        let found = model.forward(&input_of(texts, device), &mut Pass::default()).narrow(0, 0, 1);
        found.try_into_vec_as::<f32>().map_err(ClassificationError::device("the logits of the self-check"))
    };
    let [alone, padded] = [logits(&texts[..1])?, logits(&texts)?];
    Ok(Check::same("padding invariance", &padded, &alone))
}

#[cfg(test)]
mod tests {
    use super::super::corpus::tests::{folder, recipe};
    use super::super::{Classification, Run};
    use super::*;
    use firelight_training::{OptimizerConfig, RunRequest, ScheduleConfig, ScheduleKind, Task, Trainer};
    use std::path::Path;

    #[test]
    fn the_built_in_model_holds_what_it_must() {
        let data = folder(12);
        let run =
            Run::prepare(&RunRequest::new(&Device::default()).with_data(data.path()).with_out(data.path().join("run")));
        for check in run.unwrap().self_check().unwrap() {
            assert!(check.holds(), "{check}");
        }
    }

    #[test]
    fn one_batch_is_learnt_to_zero_loss() {
        let data = folder(8);
        let recipe = recipe(&[]);
        let corpus = LabelledCorpus::read(&recipe, Path::new("x.toml"), &[data.path().into()], None).unwrap();
        let config = quiet(&Classification::config(&recipe, &corpus, Path::new("x.toml")).unwrap());
        let device = Device::default().autodiff();
        let task = ClassifierTask::new(config.init_with(&ParamBuilder::new(&device, 0)), SequenceLossConfig::default());
        let batch = |device: &Device| TextBatcher.batch(corpus.training().to_vec(), device);
        let optimizer = OptimizerConfig { learning_rate: 3e-3, weight_decay: 0.0, ..OptimizerConfig::default() };
        let schedule = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() };
        let mut trainer = Trainer::new(task, optimizer, schedule, 0);
        let losses: Vec<f64> = (0..60).map(|_| trainer.step(batch(&device)).unwrap().loss).collect();
        assert!(losses[59] < 1e-3, "{losses:?}");
        assert!(losses[0] > 0.5, "{losses:?}");
    }
}
