//! Encoder-decoders of texts: the source, the target, and how one reads the other.

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{Pass, SequenceInput, Trace};
use firelight_data::right_padded;
use firelight_generation::Autoregressive;
use firelight_seq2seq::{TranslateOptions, Translator};
use firelight_storage::{Checkpoint, TaskError};

use super::table::Inspected;
use super::{Attends, across, within};
use crate::asked::{Asked, check_length};
use crate::labels::token_labels;
use crate::maps::{AttentionKind, AttentionMaps};
use crate::stacks::ModelStack;

impl Inspected for Translator {
    const TASKS: &'static [&'static str] = &[firelight_seq2seq::TASK];

    fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        Self::load_from(folder, checkpoint, device)
    }

    fn stacks(&self) -> Vec<ModelStack> {
        let stacks = &self.model().stacks;
        vec![ModelStack::new("encoder", stacks.encoder.clone()), ModelStack::new("decoder", stacks.decoder.clone())]
    }
}

impl Attends for Translator {
    /// A row of the decoder is a token that it reads, the start token first; the row decides which token comes next.
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
        asked.fits("an encoder-decoder", &["text", "target"])?;
        let source = self.encode(asked.text())?;
        check_length("text", source.len(), self.model().max_source_len())?;
        let target = [self.target_front(), target(self, asked)?].concat();
        check_length("target, with the start token,", target.len(), self.model().max_target_len())?;
        maps(self, &source, &target)
    }
}

/// The ids of the target that was given, or of the greedy output.
fn target(translator: &Translator, asked: &Asked) -> Result<Vec<u32>, TaskError> {
    match &asked.target {
        Some(target) => Ok(translator.vocabulary().target().encode(target)?),
        None => {
            let found = translator.translate_with(&[asked.text()], &TranslateOptions::greedy(), |_| ())?;
            let mut ids = found.into_iter().flatten().next().map_or_else(Vec::new, |best| best.ids);
            let room = translator.model().max_target_len().saturating_sub(translator.target_front().len());
            ids.truncate(room); // The last one is never read.
            Ok(ids)
        }
    }
}

/// The maps of both stacks and between them; none of a decoder that reads its target without attention, as recurrences do.
fn maps(translator: &Translator, source: &[u32], target: &[u32]) -> Result<Vec<AttentionMaps>, TaskError> {
    let (model, vocabulary) = (translator.model(), translator.vocabulary());
    let [sources, targets] = [source, target].map(|ids| right_padded(&[ids], &model.device()).0);
    let (mut encoder, mut decoder) = (Trace::default(), Trace::default());
    let read = model.encode(sources, None, &mut Pass::default().with_trace(&mut encoder));
    model.decode(targets, read, &SequenceInput::default(), &mut Pass::default().with_trace(&mut decoder));
    let source = || token_labels(vocabulary.source(), source);
    let target = || token_labels(vocabulary.target(), target);
    let mut maps = vec![AttentionMaps::of_weights(AttentionKind::Encoder, source(), source(), within(&encoder))?];
    if within(&decoder).any(|weights| weights.is_some()) {
        maps.push(AttentionMaps::of_weights(AttentionKind::Decoder, target(), target(), within(&decoder))?);
    }
    maps.push(AttentionMaps::of_weights(AttentionKind::Cross, target(), source(), across(&decoder))?);
    Ok(maps)
}
