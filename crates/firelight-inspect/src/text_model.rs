//! Models of one text whose passes are measured: language models and text encoders.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use firelight_core::{HookError, Pass, TokenEmbedding};
use firelight_data::{Tokenizer, right_padded};
use firelight_language::LanguageModel;
use firelight_storage::{Checkpoint, InputError, TaskError, shortened};

use crate::asked::check_length;
use crate::labels::token_labels;
use crate::models::of_task;

/// A language model or a text encoder, which reads a text in one pass without a cache. Nothing is dropped at random, on a device with autodiff
/// neither.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::Pass;
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_inspect::TextModel;
/// use firelight_language::{LanguageModelConfig, TextGenerator};
///
/// let model = LanguageModelConfig::new(256, 16, 2, 1).init(&Device::flex());
/// let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "")?;
/// let model = TextModel::from(TextGenerator::new(model, tokenizer));
/// let text = model.read("Hi")?;
/// assert_eq!(text.labels, ["H", "i"]);
/// assert_eq!(model.hidden(&text, &mut Pass::default()).dims(), [1, 2, 16]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TextModel {
    reader: Box<dyn Reader>,
}

/// What a sort of model does with one text: it encodes it, and reads it by a copy that drops nothing.
pub(crate) trait Reader: Debug + Send + Sync {
    /// The tokenizer.
    fn tokenizer(&self) -> &Tokenizer;

    /// What stands in front of every text. Default: nothing.
    fn prompt(&self) -> &str {
        ""
    }

    /// The most tokens that it reads.
    fn max_seq_len(&self) -> usize;

    /// The ids of a text with those around it, and where the second text of a pair begins, `usize::MAX` of a single text.
    fn encode(&self, text: &str) -> Result<(Vec<u32>, usize), TaskError>;

    /// The output of the stack, `[1, T, D]`.
    fn hidden(&self, text: &ReadText, pass: &mut Pass) -> Tensor<3>;

    /// What its tokens are before positions join.
    fn embedding(&self) -> &TokenEmbedding;

    /// The language model. Default: it is none.
    fn language(&self) -> Option<&LanguageModel> {
        None
    }
}

/// A text as a model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadText {
    /// Its tokens, with those that the model puts around it.
    pub ids: Vec<u32>,
    /// The same for people.
    pub labels: Vec<String>,
    /// Where the second text of a pair begins.
    pub(crate) second_from: usize,
}

impl TextModel {
    /// By what reads its texts.
    pub(crate) fn of(reader: impl Reader + 'static) -> Self {
        Self { reader: Box::new(reader) }
    }

    /// Loads the model of a run folder.
    ///
    /// # Errors
    /// If the folder is of another task, there is no such checkpoint, or one of its files is missing or damaged.
    pub fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let refusal = ["whose passes are not of one text", "give a language model or a text encoder"];
        of_task(folder, |entry| entry.text, refusal)?(folder, checkpoint, device)
    }

    /// The tokens of a text; a tab parts the two texts of a pair for an encoder.
    ///
    /// # Errors
    /// If it has no token, more than the context, or a character that the tokenizer does not know.
    pub fn read(&self, text: &str) -> Result<ReadText, TaskError> {
        let (ids, second_from) = self.reader.encode(text)?;
        check_length("text, with the tokens around it,", ids.len(), self.reader.max_seq_len())?;
        let labels = token_labels(self.tokenizer(), &ids);
        Ok(ReadText { ids, labels, second_from })
    }

    /// The places of the tokens that hold a stretch of the bytes of a text, which was [read](Self::read).
    ///
    /// # Errors
    /// If no token does, as in a pair of texts.
    pub(crate) fn tokens_of(
        &self,
        read: &ReadText,
        text: &str,
        stretch: &Range<usize>,
    ) -> Result<Vec<usize>, TaskError> {
        let prompt = self.reader.prompt();
        let tokens = self.tokenizer().encode_with_offsets(&[prompt, text].concat())?;
        let ids: Vec<u32> = tokens.iter().map(|(id, _)| *id).collect();
        let front = (0..read.ids.len()).find(|front| read.ids[*front..].starts_with(&ids));
        let [begin, end] = [stretch.start, stretch.end].map(|place| place + prompt.len());
        let held: Vec<usize> = match front {
            None => Vec::new(),
            Some(front) => {
                let held = tokens.iter().zip(front..).filter(|((_, bytes), _)| bytes.start < end && bytes.end > begin);
                held.map(|(_, place)| place).collect()
            }
        };
        match held.is_empty() {
            false => Ok(held),
            true => {
                let problem = format!("no tokens of the text \"{}\" can be told to be the word", shortened(text));
                Err(InputError::new(problem).advise("give a single text without a tab").into())
            }
        }
    }

    /// The output of the stack, `[1, T, D]`.
    pub fn hidden(&self, text: &ReadText, pass: &mut Pass) -> Tensor<3> {
        self.reader.hidden(text, pass)
    }

    /// The vectors of the tokens before positions join, a row each.
    pub(crate) fn embeddings(&self, read: &ReadText) -> Result<Vec<Vec<f32>>, TaskError> {
        let embedding = self.reader.embedding();
        let (tokens, _) = right_padded(&[&read.ids], &embedding.weight.device());
        let vectors = embedding.forward(tokens); // [1, T, D]
        let width = vectors.dims()[2];
        let numbers: Vec<f32> = vectors.try_into_vec_as().map_err(TaskError::device("the embeddings"))?;
        Ok(numbers.chunks(width).map(<[f32]>::to_vec).collect())
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.reader.tokenizer()
    }

    /// The language model; none if it is an encoder.
    pub fn language(&self) -> Option<&LanguageModel> {
        self.reader.language()
    }
}

/// A hook that does not fit the model, as a mistake of the user: `what` the model lacks.
pub(crate) fn lacking(what: &str) -> impl Fn(HookError) -> TaskError {
    move |error| InputError::new(format!("{what}: {error}")).into()
}

/// Numbers of a tensor, row by row: `[.., R, C]`, all but the last two sizes 1.
pub(crate) fn rows<const R: usize>(x: Tensor<R>) -> Result<Vec<Vec<f64>>, TaskError> {
    let width = x.dims()[R - 1];
    let numbers: Vec<f32> = x.try_into_vec_as().map_err(TaskError::device("the activations"))?;
    TaskError::require_finite(numbers.iter().all(|number| number.is_finite()))?;
    Ok(numbers.chunks(width.max(1)).map(|row| row.iter().copied().map(f64::from).collect()).collect())
}
