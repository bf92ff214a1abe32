//! Text encoders of any head: the text, or the pair of texts, between the tokens around it.

use burn::tensor::{Int, Tensor, TensorData};
use firelight_classification::{Embedder, TextEncoder, TextInput};
use firelight_core::{Pass, Trace};
use firelight_data::right_padded;
use firelight_storage::TaskError;

use super::{Attends, within};
use crate::asked::{Asked, check_length};
use crate::labels::token_labels;
use crate::maps::{AttentionKind, AttentionMaps};

impl Attends for Embedder {
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
        asked.fits("a text encoder", &["text"])?;
        let (text, pair) = match asked.text().split_once('\t') {
            Some((text, pair)) => (text, Some(pair)),
            None => (asked.text(), None),
        };
        let encoded = self.vocabulary().encode(&[self.prompt(), text].concat(), pair, usize::MAX)?;
        check_length("text, with the tokens around it,", encoded.ids.len(), self.encoder().max_seq_len())?;
        let mut trace = Trace::default();
        let read = input(self.encoder(), &encoded.ids, encoded.second_from);
        self.encoder().forward(&read, &mut Pass::default().with_trace(&mut trace));
        let labels = token_labels(self.vocabulary().tokenizer(), &encoded.ids);
        let maps = AttentionMaps::of_weights(AttentionKind::SelfAttention, labels.clone(), labels, within(&trace))?;
        Ok(vec![maps])
    }
}

/// The text as an encoder reads it, with segments where it knows them.
pub(crate) fn input(encoder: &TextEncoder, ids: &[u32], second_from: usize) -> TextInput {
    let device = encoder.embedding.weight.device();
    let input = TextInput::new(right_padded(&[ids], &device).0);
    if encoder.segment_embedding.is_none() {
        return input;
    }
    let count = ids.len();
    let segments: Vec<i32> = (0..count).map(|place| i32::from(place >= second_from)).collect();
    input.with_segments(Tensor::<2, Int>::from_data(TensorData::new(segments, [1, count]), &device))
}
