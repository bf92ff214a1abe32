//! Text encoders of any head: the text, or the pair of texts, between the tokens around it.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_classification::{
    Embedder, MASKED_LANGUAGE_TASK, QUESTION_ANSWERING_TASK, TEXT_ENCODER_TASK, TOKEN_CLASSIFICATION_TASK, TextEncoder,
    TextInput,
};
use firelight_core::{Pass, TokenEmbedding, Trace};
use firelight_data::{Tokenizer, right_padded};
use firelight_storage::{Checkpoint, TaskError};

use super::table::{Inspected, Open, text_model};
use super::{Attends, within};
use crate::asked::{Asked, check_length};
use crate::labels::token_labels;
use crate::maps::{AttentionKind, AttentionMaps};
use crate::stacks::ModelStack;
use crate::text_model::{ReadText, Reader, TextModel};

impl Inspected for Embedder {
    const TASKS: &'static [&'static str] = &[
        firelight_classification::TASK,
        TEXT_ENCODER_TASK,
        TOKEN_CLASSIFICATION_TASK,
        QUESTION_ANSWERING_TASK,
        MASKED_LANGUAGE_TASK,
    ];
    const TEXT: Option<Open<TextModel>> = Some(text_model::<Self>);

    fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        Self::load_from(folder, checkpoint, device)
    }

    fn stacks(&self) -> Vec<ModelStack> {
        vec![ModelStack::new("model", self.encoder().transformer.clone())]
    }
}

impl Attends for Embedder {
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
        asked.fits("a text encoder", &["text"])?;
        let (ids, second_from) = encode(self, asked.text())?;
        check_length("text, with the tokens around it,", ids.len(), self.encoder().max_seq_len())?;
        let mut trace = Trace::default();
        let read = input(self.encoder(), &ids, second_from);
        self.encoder().forward(&read, &mut Pass::default().with_trace(&mut trace));
        let labels = token_labels(self.vocabulary().tokenizer(), &ids);
        let maps = AttentionMaps::of_weights(AttentionKind::SelfAttention, labels.clone(), labels, within(&trace))?;
        Ok(vec![maps])
    }
}

/// The ids of a text with those around it, and where the second text of a pair begins; a tab parts the two.
fn encode(embedder: &Embedder, text: &str) -> Result<(Vec<u32>, usize), TaskError> {
    let (first, pair) = text.split_once('\t').map_or((text, None), |(first, pair)| (first, Some(pair)));
    let encoded = embedder.vocabulary().encode(&[embedder.prompt(), first].concat(), pair, usize::MAX)?;
    Ok((encoded.ids, encoded.second_from))
}

/// The text as an encoder reads it, with segments where it knows them.
fn input(encoder: &TextEncoder, ids: &[u32], second_from: usize) -> TextInput {
    let device = encoder.embedding.weight.device();
    let input = TextInput::new(right_padded(&[ids], &device).0);
    if encoder.segment_embedding.is_none() {
        return input;
    }
    let count = ids.len();
    let segments: Vec<i32> = (0..count).map(|place| i32::from(place >= second_from)).collect();
    input.with_segments(Tensor::<2, Int>::from_data(TensorData::new(segments, [1, count]), &device))
}

impl From<Embedder> for TextModel {
    fn from(embedder: Embedder) -> Self {
        let encoder = embedder.encoder().clone().freeze();
        Self::of(EncoderReader { embedder, encoder })
    }
}

/// What encodes, and what computes.
#[derive(Debug)]
struct EncoderReader {
    embedder: Embedder,
    encoder: TextEncoder,
}

impl Reader for EncoderReader {
    fn tokenizer(&self) -> &Tokenizer {
        self.embedder.vocabulary().tokenizer()
    }

    fn prompt(&self) -> &str {
        self.embedder.prompt()
    }

    fn max_seq_len(&self) -> usize {
        self.encoder.max_seq_len()
    }

    fn encode(&self, text: &str) -> Result<(Vec<u32>, usize), TaskError> {
        encode(&self.embedder, text)
    }

    fn hidden(&self, text: &ReadText, pass: &mut Pass) -> Tensor<3> {
        self.encoder.forward(&input(&self.encoder, &text.ids, text.second_from), pass)
    }

    fn embedding(&self) -> &TokenEmbedding {
        &self.encoder.embedding
    }
}
