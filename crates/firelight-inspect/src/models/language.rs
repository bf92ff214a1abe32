//! Language models: the text, or what they write after it.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use firelight_core::{Pass, SequenceInput, TokenEmbedding, Trace};
use firelight_data::{Tokenizer, right_padded};
use firelight_generation::{Autoregressive, GenerationOptions};
use firelight_language::{LanguageModel, TextGenerator};
use firelight_storage::{Checkpoint, TaskError};

use super::table::{Inspected, Open, Prune, text_model};
use super::{Attends, within};
use crate::asked::{Asked, check_length};
use crate::labels::token_labels;
use crate::maps::{AttentionKind, AttentionMaps};
use crate::prune::prune_language_model;
use crate::stacks::ModelStack;
use crate::text_model::{ReadText, Reader, TextModel};

impl Inspected for TextGenerator {
    const TASKS: &'static [&'static str] = &[firelight_language::TASK];
    const TEXT: Option<Open<TextModel>> = Some(text_model::<Self>);
    const PRUNE: Option<Prune> = Some(prune_language_model);

    fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        Self::load_from(folder, checkpoint, device)
    }

    fn stacks(&self) -> Vec<ModelStack> {
        vec![ModelStack::new("model", self.model().transformer.clone())]
    }
}

impl Attends for TextGenerator {
    /// One pass over the text and what is generated, without a cache: the weights are those of the cached steps.
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
        asked.fits("a language model", &["text", "generate"])?;
        let mut ids = self.encode(asked.text())?;
        let longest = self.model().max_seq_len();
        check_length("text", ids.len(), longest)?;
        check_length("text, with what is generated,", ids.len() + asked.generate, longest)?;
        let read = ids.len();
        if asked.generate > 0 {
            let options = GenerationOptions::new(asked.generate).greedy();
            ids.extend(self.generate(asked.text(), &options)?.ids);
        }
        let maps = maps(self, &ids)?;
        // Where the model ends at once there is nothing but the text to show.
        let written = ids.len() - read;
        Ok(vec![if written > 0 { maps.last_queries(written) } else { maps }])
    }
}

/// The maps between all tokens of a text.
fn maps(generator: &TextGenerator, ids: &[u32]) -> Result<AttentionMaps, TaskError> {
    let (tokens, _) = right_padded(&[ids], &generator.model().device());
    let mut trace = Trace::default();
    generator.model().hidden(tokens, &SequenceInput::default(), &mut Pass::default().with_trace(&mut trace));
    let labels = token_labels(generator.tokenizer(), ids);
    AttentionMaps::of_weights(AttentionKind::SelfAttention, labels.clone(), labels, within(&trace))
}

impl From<TextGenerator> for TextModel {
    fn from(generator: TextGenerator) -> Self {
        let model = generator.model().clone().freeze();
        Self::of(LanguageReader { generator, model })
    }
}

/// What encodes, and what computes.
#[derive(Debug)]
struct LanguageReader {
    generator: TextGenerator,
    model: LanguageModel,
}

impl Reader for LanguageReader {
    fn tokenizer(&self) -> &Tokenizer {
        self.generator.tokenizer()
    }

    fn max_seq_len(&self) -> usize {
        self.model.max_seq_len()
    }

    fn encode(&self, text: &str) -> Result<(Vec<u32>, usize), TaskError> {
        Ok((self.generator.encode(text)?, usize::MAX))
    }

    fn hidden(&self, text: &ReadText, pass: &mut Pass) -> Tensor<3> {
        let (tokens, _) = right_padded(&[&text.ids], &self.model.embedding.weight.device());
        self.model.hidden(tokens, &SequenceInput::default(), pass)
    }

    fn embedding(&self) -> &TokenEmbedding {
        &self.model.embedding
    }

    fn language(&self) -> Option<&LanguageModel> {
        Some(&self.model)
    }
}
