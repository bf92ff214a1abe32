//! Vectors of texts that can be compared: the mean of the vectors of a text's tokens, of length 1, so that the scalar product of
//! two is the cosine of their angle.
//!
//! Source: Reimers and Gurevych 2019, §3 (<https://arxiv.org/abs/1908.10084>).

use std::path::Path;

use burn::tensor::{Device, Tensor};
use firelight_core::Pass;
use firelight_data::Batching;
use firelight_kernels::awake;
use firelight_storage::Checkpoint;

use crate::classifier::batches;
use crate::data::{EncodedText, input_of};
use crate::encoder::{TextEncoder, TextInput};
use crate::error::ClassificationError;
use crate::pooling::mean;
use crate::pretrained::Pretrained;
use crate::vocabulary::TextVocabulary;

/// The encoder of a run, of any head, and its tokenizer.
#[derive(Debug)]
pub struct Embedder {
    encoder: TextEncoder,
    vocabulary: TextVocabulary,
}

impl Embedder {
    /// Puts an encoder and a tokenizer together.
    pub fn new(encoder: TextEncoder, vocabulary: TextVocabulary) -> Self {
        Self { encoder, vocabulary }
    }

    /// Loads the last weights of a run, of a classifier or of a masked language model, onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of these tasks, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, ClassificationError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(
        folder: impl AsRef<Path>,
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<Self, ClassificationError> {
        let pretrained = Pretrained::open(folder.as_ref())?;
        Ok(Self::new(pretrained.encoder(checkpoint, device)?, pretrained.vocabulary()?))
    }

    /// A vector of length 1 for every text, as many and in the same order. Neither company nor order changes one. A text that is
    /// too long is cut.
    ///
    /// # Errors
    /// If a text has a character that the tokenizer does not know, with its line, or the device fails.
    pub fn embed<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Vec<f32>>, ClassificationError> {
        self.embed_after(0, texts)
    }

    /// As [`embed`](Self::embed), of texts before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn embed_after<S: AsRef<str>>(&self, before: usize, texts: &[S]) -> Result<Vec<Vec<f32>>, ClassificationError> {
        let encoded = (before + 1..).zip(texts).map(|(line, text)| {
            let encoded = self.vocabulary.encode(text.as_ref(), None, self.encoder.max_seq_len());
            encoded.map_err(|error| ClassificationError::Line { line, error })
        });
        let encoded: Vec<EncodedText> = encoded.collect::<Result<_, _>>()?;
        let device = self.encoder.embedding.weight.device();
        let mut found = vec![Vec::new(); texts.len()];
        for batch in batches(&encoded, Batching::TOKENS_TO_READ) {
            let input = input_of(&batch.iter().map(|&index| &encoded[index]).collect::<Vec<_>>(), &device);
            let vectors = awake(&device, || self.vectors(&input));
            let numbers: Vec<f32> =
                vectors.try_into_vec_as().map_err(ClassificationError::device("the vectors of texts"))?;
            if numbers.iter().any(|number| !number.is_finite()) {
                return Err(ClassificationError::NotFinite);
            }
            let rows = numbers.chunks(self.encoder.d_model());
            batch.iter().zip(rows).for_each(|(&index, row)| found[index] = row.to_vec());
        }
        Ok(found)
    }

    /// # Shapes
    /// - `input.tokens`: `[B, T]`; output: `[B, D]`, rows of length 1
    fn vectors(&self, input: &TextInput) -> Tensor<2> {
        let hidden = self.encoder.forward(input, &mut Pass::default());
        let vectors = mean(hidden, input.padding.as_ref());
        let lengths = vectors.clone().square().sum_dim(1).sqrt().clamp_min(1e-12); // [B, 1]
        vectors / lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::TextEncoderConfig;
    use firelight_data::{Tokenizer, TokenizerConfig};

    #[test]
    fn vectors_have_length_one_and_company_changes_none() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let encoder = TextEncoderConfig::bert(12, 16, 2, 1).init(&Device::default());
        let embedder = Embedder::new(encoder, TextVocabulary::new(tokenizer).unwrap());
        let texts = ["abc", "hgfedcba", "a"];
        let together = embedder.embed(&texts).unwrap();
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        for (text, vector) in texts.iter().zip(&together) {
            let alone = embedder.embed(&[text]).unwrap().remove(0);
            assert_eq!(vector.len(), 16);
            assert!((product(vector, vector) - 1.0).abs() < 1e-5 && (product(vector, &alone) - 1.0).abs() < 1e-5);
        }
        assert!(product(&together[0], &together[1]) < 0.9999);
    }
}
