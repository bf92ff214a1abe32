//! Language models: the text, or what they write after it.

use firelight_core::{Pass, SequenceInput, Trace};
use firelight_data::right_padded;
use firelight_generation::{Autoregressive, GenerationOptions};
use firelight_language::TextGenerator;
use firelight_storage::TaskError;

use super::{Attends, within};
use crate::asked::{Asked, check_length};
use crate::labels::token_labels;
use crate::maps::{AttentionKind, AttentionMaps};

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
