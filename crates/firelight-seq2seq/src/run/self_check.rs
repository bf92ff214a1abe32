//! What an encoder-decoder must be able to do before it is worth training: keep the target's future out, ignore the padding of
//! the source, begin at the loss of a guess, and overfit one batch.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_data::EncodedPair;
use firelight_storage::TaskError;
use firelight_training::{Check, Task};

use super::{Run, Seq2Seq};
use crate::data::{PairBatcher, right_padded};
use crate::model::Seq2SeqModel;
use crate::training::Seq2SeqTask;

/// Pairs of the batch that is to be overfitted.
const PAIRS: usize = 4;

/// The most tokens of a side that are tried: attention costs their square, and more show nothing that these do not.
const TOKENS: usize = 512;

/// Checks the model without dropout and adapters on the first pairs.
pub(super) fn self_check(run: &Run) -> Result<Vec<Check>, TaskError> {
    let (corpus, seed) = (&run.corpus, run.recipe.seed);
    let bare = run.config().clone().with_adapters(None);
    let quiet = bare.with_both(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
    let model = Seq2Seq::model(&quiet, seed, run.device()).valid();
    let (vocabulary, ends) = (corpus.vocabulary(), corpus.vocabulary().ends());
    let cut = |ids: &[u32], around: usize| ids[..ids.len().min(TOKENS.saturating_sub(around))].to_vec();
    let around = ends.source.size(false);
    let cut_pair = |pair: &EncodedPair| EncodedPair { source: cut(&pair.source, around), target: cut(&pair.target, 1) };
    let pairs: Vec<EncodedPair> = corpus.training_ids().iter().take(PAIRS).map(cut_pair).collect();
    let longest = pairs.iter().max_by_key(|pair| pair.source.len().min(pair.target.len())).cloned().unwrap_or_default();
    let longest = EncodedPair {
        source: ends.source.put(&longest.source, None).0,
        target: [&[ends.start], &longest.target[..]].concat(),
    };
    let batch = |device: &Device| PairBatcher::of(vocabulary).batch(pairs.clone(), device);
    let task = Seq2SeqTask::new(model.clone(), LossConfig::default());
    let device = model.devices().into_iter().next().unwrap_or_default();
    Ok(vec![
        future(&model, &longest, &device)?,
        padding(&longest.source, |sources| logits(&model, sources, &longest.target, &device))?,
        Check::guess(&task, batch(&device), model.vocab_size())?,
        Check::overfit(task.train(), || batch(&device.clone().autodiff()), seed)?,
    ])
}

/// The logits of a target after a source, token after token, of the last of `sources`; all are read in one batch.
fn logits(model: &Seq2SeqModel, sources: &[Vec<u32>], target: &[u32], device: &Device) -> Result<Vec<f32>, TaskError> {
    let (source, padding) = right_padded(sources, device);
    let (target, _) = right_padded(&vec![target.to_vec(); sources.len()], device);
    let logits = model.forward(source, padding, target);
    let last = logits.narrow(0, sources.len() - 1, 1);
    last.try_into_vec_as().map_err(TaskError::device("the logits of the self-check"))
}

/// Other target tokens from the middle on change nothing before it.
fn future(model: &Seq2SeqModel, pair: &EncodedPair, device: &Device) -> Result<Check, TaskError> {
    let (half, vocab) = (pair.target.len().div_ceil(2), model.vocab_size());
    let other = |(t, &id): (usize, &u32)| if t < half { id } else { (id + 1) % vocab as u32 };
    let changed: Vec<u32> = pair.target.iter().enumerate().map(other).collect();
    let sources = [pair.source.clone()];
    let [found, expected] = [&changed, &pair.target].map(|target| logits(model, &sources, target, device));
    let past = half * vocab;
    Ok(Check::same("causality", &found?[..past], &expected?[..past]))
}

/// A longer source in the same batch, and so padding, changes nothing of the logits after the last one.
fn padding(source: &[u32], logits: impl Fn(&[Vec<u32>]) -> Result<Vec<f32>, TaskError>) -> Result<Check, TaskError> {
    let half = source[..source.len().div_ceil(2)].to_vec();
    let alone = logits(std::slice::from_ref(&half))?;
    let padded = logits(&[source.to_vec(), half])?;
    Ok(Check::same("padding invariance", &padded, &alone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Seq2SeqConfig;
    use firelight_core::{AttentionPattern, ParamBuilder};

    fn config() -> Seq2SeqConfig {
        Seq2SeqConfig::new(11, 16, 2, 2).with_max_seq_len(12)
    }

    fn pair() -> EncodedPair {
        EncodedPair { source: (0..10).map(|i| i * 7 % 11).collect(), target: (0..9).map(|i| i * 4 % 11).collect() }
    }

    #[test]
    fn a_decoder_that_sees_the_future_is_caught() {
        let (device, config) = (Device::default(), config());
        let mut model = config.init_with(&ParamBuilder::new(&device, 0));
        assert!(future(&model, &pair(), &device).unwrap().holds());
        model.stacks.decoder =
            config.stacks.decoder.with_patterns(vec![AttentionPattern::Full]).init_with(&ParamBuilder::new(&device, 0));
        let check = future(&model, &pair(), &device).unwrap();
        assert!(!check.holds() && check.to_string().starts_with("causality: FAILED"), "{check}");
    }

    #[test]
    fn padding_that_is_read_as_text_is_caught() {
        let (device, pair) = (Device::default(), pair());
        let model = config().init_with(&ParamBuilder::new(&device, 0));
        assert!(padding(&pair.source, |sources| logits(&model, sources, &pair.target, &device)).unwrap().holds());
        let unmasked = |sources: &[Vec<u32>]| {
            let (source, _) = right_padded(sources, &device);
            let (target, _) = right_padded(&vec![pair.target.clone(); sources.len()], &device);
            let logits = model.forward(source, None, target).narrow(0, sources.len() - 1, 1);
            logits.try_into_vec_as().map_err(TaskError::device("the logits"))
        };
        let check = padding(&pair.source, unmasked).unwrap();
        assert!(!check.holds() && check.to_string().starts_with("padding invariance: FAILED"), "{check}");
    }

    #[test]
    fn a_model_whose_blocks_are_frozen_overfits_no_batch() {
        let device = Device::default().autodiff();
        let learns = |model: Seq2SeqModel| {
            let batch = || PairBatcher::new(0, 1, 1).batch(vec![pair(); 2], &device);
            Check::overfit(Seq2SeqTask::new(model, LossConfig::default()), batch, 1)
        };
        assert!(learns(config().init_with(&ParamBuilder::new(&device, 0))).unwrap().holds());
        let mut frozen = config().init_with(&ParamBuilder::new(&device, 0));
        (frozen.embedding, frozen.stacks.encoder) = (frozen.embedding.no_grad(), frozen.stacks.encoder.no_grad());
        frozen.stacks.decoder.blocks = frozen.stacks.decoder.blocks.no_grad();
        let check = learns(frozen).unwrap();
        assert!(!check.holds(), "{check}");
    }
}
