//! What a language model must be able to do before it is worth training: keep the future out, ignore padding, begin at the
//! loss of a guess, and overfit one batch.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use firelight_core::{LossConfig, ParamBuilder, Pass, SequenceInput};
use firelight_data::Window;
use firelight_storage::TaskError;
use firelight_training::Check;

use crate::data::{LmBatch, LmBatcher, tokens as ids};
use crate::model::{LanguageModel, LanguageModelConfig};
use crate::training::LmTask;

/// The most tokens that are tried: attention costs their square, and a longer row shows nothing that these do not.
pub(super) const TOKENS: usize = 512;

/// Checks the model of `config` and `seed`, without dropout, on the first tokens of a text, at least two.
pub(super) fn self_check(
    config: &LanguageModelConfig,
    seed: u64,
    text: &[u32],
    device: &Device,
) -> Result<Vec<Check>, TaskError> {
    let quiet = config.clone().with_transformer(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
    let model = quiet.init_with(&ParamBuilder::new(device, seed)).valid();
    let length = model.max_seq_len().min(TOKENS).min(text.len() - 1);
    let window = &text[..length + 1];
    let row = &window[..length];
    let logits = model.logits_of(&[row], None)?;
    let task = LmTask::new(model.clone(), LossConfig::default());
    let model_device = model.devices().into_iter().next().unwrap_or_default();
    Ok(vec![
        future(&model, row, &logits)?,
        padding(&model, row, &logits)?,
        Check::guess(&task, batch(window, &model_device), model.vocab_size())?,
        Check::overfit(task.train(), || batch(window, &model_device.clone().autodiff()), seed)?,
    ])
}

impl LanguageModel {
    /// The logits of rows of equal length on the host, row after row; `padding` counts hidden tokens at the left.
    fn logits_of(&self, rows: &[&[u32]], padding: Option<&[usize]>) -> Result<Vec<f32>, TaskError> {
        let device = self.devices().into_iter().next().unwrap_or_default();
        let shape = [rows.len(), rows[0].len()];
        let mut input = SequenceInput::default();
        if let Some(hidden) = padding {
            let flags: Vec<bool> = hidden.iter().flat_map(|&hidden| (0..shape[1]).map(move |t| t < hidden)).collect();
            input = input.with_padding(Tensor::<2, Bool>::from_bool(TensorData::new(flags, shape), &device));
        }
        let logits = self.logits(self.hidden(ids(rows.concat(), shape, &device), &input, &mut Pass::default()));
        logits.try_into_vec_as().map_err(TaskError::device("the logits of the self-check"))
    }
}

/// Other tokens from the middle on change nothing before it.
fn future(model: &LanguageModel, row: &[u32], logits: &[f32]) -> Result<Check, TaskError> {
    let (half, vocab) = (row.len() / 2, model.vocab_size());
    let changed: Vec<u32> =
        row.iter().enumerate().map(|(t, &id)| if t < half { id } else { (id + 1) % vocab as u32 }).collect();
    let found = model.logits_of(&[&changed], None)?;
    let past = half * vocab;
    Ok(Check::same("causality", &found[..past], &logits[..past]))
}

/// The first half of the row, padded at its left, gives what it gave.
fn padding(model: &LanguageModel, row: &[u32], logits: &[f32]) -> Result<Check, TaskError> {
    let (half, vocab) = (row.len() / 2, model.vocab_size());
    let hidden = row.len() - half;
    let padded = [&vec![0; hidden], &row[..half]].concat();
    let found = model.logits_of(&[row, &padded], Some(&[0, hidden]))?;
    let tail = &found[(row.len() + hidden) * vocab..];
    Ok(Check::same("padding invariance", tail, &logits[..half * vocab]))
}

fn batch(window: &[u32], device: &Device) -> LmBatch {
    let (inputs, targets) = (window[..window.len() - 1].to_vec(), window[1..].to_vec());
    LmBatcher.batch(vec![Window { inputs, targets }], device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::AttentionPattern;

    fn checks(change: impl FnOnce(LanguageModelConfig) -> LanguageModelConfig) -> Vec<Check> {
        let config = change(LanguageModelConfig::new(11, 16, 2, 2).with_max_seq_len(12));
        let text: Vec<u32> = (0..40).map(|i| i * 7 % 11).collect();
        self_check(&config, 1, &text, &Device::default()).unwrap()
    }

    #[test]
    fn a_sound_model_passes_with_dropout_and_all() {
        let checks = checks(|config| config.with_transformer(|stack| stack.with_dropout(0.5)));
        assert_eq!(checks.len(), 4);
        assert!(checks.iter().all(Check::holds), "{checks:?}");
    }

    #[test]
    fn a_long_context_is_tried_on_its_beginning() {
        let config = LanguageModelConfig::new(11, 8, 1, 1).with_max_seq_len(1 << 16);
        let text: Vec<u32> = (0..=TOKENS as u32).map(|i| i * 7 % 11).collect();
        let checks = self_check(&config, 1, &text, &Device::default()).unwrap(); // the text has no token more
        assert_eq!((checks.len(), checks[0].holds(), checks[1].holds()), (4, true, true), "{checks:?}");
    }

    /// A model, a row of its context, and the logits of the row.
    fn probe(seed: u64) -> (LanguageModelConfig, LanguageModel, Vec<u32>, Vec<f32>) {
        let config = LanguageModelConfig::new(11, 16, 2, 2).with_max_seq_len(12);
        let model = config.init_with(&ParamBuilder::new(&Device::default(), seed));
        let row: Vec<u32> = (0..12).map(|i| i * 7 % 11).collect();
        let logits = model.logits_of(&[&row], None).unwrap();
        (config, model, row, logits)
    }

    #[test]
    fn a_stack_that_sees_the_future_is_caught() {
        let (config, mut model, row, logits) = probe(1);
        assert!(future(&model, &row, &logits).unwrap().holds());
        let seeing = config.transformer.with_patterns(vec![AttentionPattern::Full]);
        model.transformer = seeing.init_with(&ParamBuilder::new(&Device::default(), 0));
        let logits = model.logits_of(&[&row], None).unwrap();
        let check = future(&model, &row, &logits).unwrap();
        assert!(!check.holds() && check.to_string().starts_with("causality: FAILED"), "{check}");
    }

    #[test]
    fn logits_that_padding_changes_are_caught() {
        let (_, model, row, logits) = probe(1);
        assert!(padding(&model, &row, &logits).unwrap().holds());
        let (_, _, _, others) = probe(2);
        let check = padding(&model, &row, &others).unwrap();
        assert!(!check.holds() && check.to_string().starts_with("padding invariance: FAILED"), "{check}");
    }

    #[test]
    fn a_model_whose_blocks_are_frozen_overfits_no_batch() {
        let device = Device::default().autodiff();
        let config = LanguageModelConfig::new(11, 16, 2, 2).with_max_seq_len(12);
        let window: Vec<u32> = (0..13).map(|i| i * 7 % 11).collect();
        let learns = |model: LanguageModel| {
            Check::overfit(LmTask::new(model, LossConfig::default()), || batch(&window, &device), 1)
        };
        assert!(learns(config.init_with(&ParamBuilder::new(&device, 0))).unwrap().holds());
        let mut half_frozen = config.init_with(&ParamBuilder::new(&device, 0));
        (half_frozen.embedding, half_frozen.transformer.blocks) =
            (half_frozen.embedding.no_grad(), half_frozen.transformer.blocks.no_grad());
        let check = learns(half_frozen).unwrap();
        assert!(!check.holds(), "{check}");
    }

    #[test]
    fn a_model_that_begins_far_from_a_guess_is_caught() {
        let wild = firelight_core::Init::Normal { std: 3.0 };
        let checks = checks(|config| {
            config.with_transformer(|mut stack| {
                stack.init.weight = wild;
                stack
            })
        });
        assert!(!checks[2].holds(), "{checks:?}");
        assert!(checks[2].to_string().starts_with("initial loss ln V: FAILED "), "{}", checks[2]);
    }
}
