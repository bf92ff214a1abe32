//! Vectors of texts that can be compared: where the model says nothing else the mean of the vectors of a text's tokens, of length 1, so
//! that the scalar product of two is the cosine of their angle.
//!
//! Source: Reimers and Gurevych 2019, §3 (<https://arxiv.org/abs/1908.10084>).

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use firelight_core::Pass;
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, InputError, TaskError, listed, shortened};

use crate::encoder::TextEncoder;
use crate::long_text::{LongText, PartPooling, PartReader, TextPart, merged};
use crate::pretrained::{Prompts, load_encoder};
use crate::reading::{read_texts, rows};
use crate::sentence_encoder::SentenceEncoder;
use crate::vocabulary::TextVocabulary;

/// The encoder of a run, of any head, and its tokenizer.
#[derive(Debug)]
pub struct Embedder {
    model: SentenceEncoder,
    vocabulary: TextVocabulary,
    prompts: BTreeMap<String, String>,
    /// What is put in front of every text.
    prompt: String,
    long_text: LongText,
    part_pooling: PartPooling,
}

impl Embedder {
    /// Puts an encoder and a tokenizer together.
    pub fn new(encoder: TextEncoder, vocabulary: TextVocabulary) -> Self {
        Self::of(SentenceEncoder::of(encoder), vocabulary, BTreeMap::new(), String::new())
    }

    /// Loads the last weights of a run, of a classifier or of a masked language model, onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of these tasks, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let (model, vocabulary, Prompts { by_name, default }) = load_encoder(folder.as_ref(), checkpoint, device)?;
        let prompt = default.and_then(|name| by_name.get(&name)).cloned().unwrap_or_default();
        Ok(Self::of(model, vocabulary, by_name, prompt))
    }

    fn of(
        model: SentenceEncoder,
        vocabulary: TextVocabulary,
        prompts: BTreeMap<String, String>,
        prompt: String,
    ) -> Self {
        let (long_text, part_pooling) = (LongText::default(), PartPooling::default());
        Self { model, vocabulary, prompts, prompt, long_text, part_pooling }
    }

    /// The encoder.
    pub fn encoder(&self) -> &TextEncoder {
        &self.model.encoder
    }

    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// Sets how texts are read that are longer than the model reads.
    ///
    /// # Errors
    /// If a stride is 0, or longer than a window.
    pub fn with_long_text(mut self, long_text: LongText) -> Result<Self, InputError> {
        self.long_text = long_text.checked(self.vocabulary.room(self.model.max_text_len()))?;
        Ok(self)
    }

    /// Sets how the vectors of the parts of a long text become one, which is of length 1 where the model's vectors are. Default: their
    /// mean.
    pub fn with_part_pooling(mut self, part_pooling: PartPooling) -> Self {
        self.part_pooling = part_pooling;
        self
    }

    /// Puts a text in front of every other one, such as `query: `.
    pub fn with_prompt(mut self, prompt: impl Into<String>) -> Self {
        self.prompt = prompt.into();
        self
    }

    /// The prompt that stands in front of every text; empty if there is none.
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Puts the prompt of this name in front of every text, of those that a published model comes with.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn with_prompt_name(self, name: &str) -> Result<Self, InputError> {
        match self.prompts.get(name).cloned() {
            Some(prompt) => Ok(self.with_prompt(prompt)),
            None => {
                let problem = format!("the model has no prompt \"{}\"", shortened(name));
                let known = match self.prompts.is_empty() {
                    true => "it has none at all; give the text itself".into(),
                    false => format!("it has {}", listed(self.prompts.keys())),
                };
                Err(InputError::new(problem).advise(known))
            }
        }
    }

    /// A vector for every text, of length 1 unless the model says otherwise, as many and in the same order. Neither company nor order
    /// changes one. A text that is too long is cut, or read as [`with_long_text`](Self::with_long_text) says.
    ///
    /// # Errors
    /// If a text has a character that the tokenizer does not know, or the prompt leaves no room for a part of it, with its line, or the
    /// device fails.
    pub fn embed<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Vec<f32>>, TaskError> {
        self.embed_after(0, texts)
    }

    /// As [`embed`](Self::embed), of texts before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn embed_after<S: AsRef<str>>(&self, before: usize, texts: &[S]) -> Result<Vec<Vec<f32>>, TaskError> {
        let max_len = self.model.max_text_len();
        let reader = PartReader { vocabulary: &self.vocabulary, max_len, long_text: self.long_text };
        let parts = |(line, text): (usize, &S)| {
            reader.parts(&self.prompt, (text.as_ref(), None)).map_err(TaskError::in_line(line))
        };
        let parts: Vec<Vec<TextPart>> = (before + 1..).zip(texts).map(parts).collect::<Result<_, _>>()?;
        let device = self.model.encoder.embedding.weight.device();
        let found = read_texts(parts.iter().flatten().map(|part| &part.text), &device, |input, _| {
            let found: Vec<Vec<f32>> =
                rows(awake(&device, || self.model.forward(input, &mut Pass::default())), "the vectors of texts")?;
            TaskError::require_finite(found.iter().flatten().all(|number| number.is_finite()))?;
            Ok(found)
        })?;
        Ok(merged(&parts, found, |rows, weights| self.pooled(rows, weights)))
    }

    /// The vector of a text out of those of its parts.
    fn pooled(&self, rows: &[Vec<f32>], weights: &[f64]) -> Vec<f32> {
        let rows: Vec<Vec<f64>> = rows.iter().map(|row| wide(row)).collect();
        let pooled = self.part_pooling.merge(&rows, weights);
        let pooled = if self.model.normalizes() { unit(pooled) } else { pooled };
        pooled.into_iter().map(|number| number as f32).collect()
    }

    /// How similar every text is to every other one: a row for each text, with a number from -1 to 1 for each text.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn similarities<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Vec<f64>>, TaskError> {
        let vectors = self.embed(texts)?;
        Ok(cosine_similarities(&vectors, &vectors))
    }
}

/// The cosine of the angle between every vector of `rows` and every one of `columns`: a row for each of the first. A vector of
/// length 0 has the similarity 0 with all.
///
/// ```
/// use firelight_classification::cosine_similarities;
///
/// let (rows, columns) = ([vec![3.0, 4.0], vec![0.0, 0.0]], [vec![1.0, 0.0], vec![-3.0, -4.0]]);
/// assert_eq!(cosine_similarities(&rows, &columns), [[0.6, -1.0], [0.0, 0.0]]);
/// ```
///
/// # Panics
/// If two vectors have not the same number of numbers.
pub fn cosine_similarities(rows: &[Vec<f32>], columns: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let units = |vectors: &[Vec<f32>]| vectors.iter().map(|vector| unit(wide(vector))).collect::<Vec<_>>();
    let columns = units(columns);
    units(rows).iter().map(|row| columns.iter().map(|column| product(row, column)).collect()).collect()
}

/// The vector of length 1 in the same direction; zeros where there is none.
fn unit(vector: Vec<f64>) -> Vec<f64> {
    let length = product(&vector, &vector).sqrt();
    vector.into_iter().map(|number| if length > 0.0 { number / length } else { 0.0 }).collect()
}

/// The same numbers in double precision.
fn wide(vector: &[f32]) -> Vec<f64> {
    vector.iter().map(|&number| f64::from(number)).collect()
}

fn product(one: &[f64], other: &[f64]) -> f64 {
    assert_eq!(one.len(), other.len(), "vectors of one length are compared");
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::TextEncoderConfig;
    use crate::sentence_encoder::SentenceEncoderConfig;
    use firelight_core::ParamBuilder;
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;

    fn embedder() -> Embedder {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
        let encoder = TextEncoderConfig::bert(12, 16, 2, 1).init_with(&ParamBuilder::new(&Device::default(), 0));
        Embedder::new(encoder, TextVocabulary::new(tokenizer).unwrap())
    }

    /// One whose model reads 4 tokens of a text.
    fn short_embedder(normalize: bool) -> Embedder {
        let encoder = TextEncoderConfig::bert(12, 16, 2, 1).with_stack(|stack| stack.with_max_seq_len(6));
        let config = SentenceEncoderConfig::new(encoder).with_normalize(normalize);
        let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        Embedder::of(model, embedder().vocabulary, BTreeMap::new(), String::new())
    }

    #[test]
    fn a_long_text_has_the_pooled_vector_of_its_windows() {
        let windows = LongText::Windows { stride: Some(3) };
        for normalize in [true, false] {
            let parts = short_embedder(normalize).embed(&["abcd", "defg", "gh"]).unwrap();
            let [a, b, c] = [0, 1, 2].map(|part| wide(&parts[part]));
            let expected = |of: fn(f64, f64, f64) -> f64| {
                let merged = (0..a.len()).map(|i| of(a[i], b[i], c[i])).collect();
                if normalize { unit(merged) } else { merged }
            };
            let long = || short_embedder(normalize).with_long_text(windows).unwrap();
            let found = |embedder: Embedder| wide(&embedder.embed(&["abcdefgh"]).unwrap()[0]);
            // Of the 8 tokens two are in two windows each, which have half of their weight.
            assert_close(&found(long()), &expected(|a, b, c| (3.5 * a + 3.0 * b + 1.5 * c) / 8.0), 1e-5);
            let most = found(long().with_part_pooling(PartPooling::Max));
            assert_close(&most, &expected(|a, b, c| a.max(b).max(c)), 1e-5);
        }
    }

    #[test]
    fn a_text_that_fits_has_the_same_vector_however_long_ones_are_read() {
        let texts = ["abc", "", "abcd"];
        let expected = short_embedder(true).embed(&texts).unwrap();
        for long_text in [LongText::Windows { stride: Some(4) }, LongText::Sentences] {
            let embedder = short_embedder(true).with_long_text(long_text).unwrap();
            assert_eq!(embedder.embed(&texts).unwrap(), expected);
        }
        let error = short_embedder(true).with_long_text(LongText::Windows { stride: Some(5) }).unwrap_err();
        assert!(error.to_string().contains("stride is 5, expected at least 1 and at most 4"), "{error}");
        let crowded = short_embedder(true).with_long_text(LongText::Sentences).unwrap().with_prompt("abcd");
        let error = crowded.embed(&["a", "b"]).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with("line 1: the text has more than"), "{error}");
    }

    #[test]
    fn similarities_are_those_of_the_vectors() {
        let (embedder, texts) = (embedder(), ["abc", "hgfedcba", "a", "abc"]);
        let found = embedder.similarities(&texts).unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [4; 4]);
        let vectors = embedder.embed(&texts).unwrap();
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
            // Vectors of length 1: the cosine is the product.
            let expected: f64 = (0..16).map(|d| f64::from(vectors[i][d]) * f64::from(vectors[j][d])).sum();
            assert_close(&[found[i][j], found[j][i]], &[expected; 2], 1e-6);
        }
        assert_close(&[found[0][0], found[0][3]], &[1.0, 1.0], 1e-6);
        assert!(found[0][1] < 0.9999, "{found:?}");
        let error = embedder.embed_after(10, &["a", "bz"]).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with("line 12: the character 'z'"), "{error}");
    }

    #[test]
    fn a_prompt_stands_in_front_of_every_text() {
        let whole = embedder().embed(&["ab cd"]).unwrap();
        assert_eq!(embedder().with_prompt("ab ").embed(&["cd"]).unwrap(), whole);
        let mut named = embedder();
        named.prompts.insert("query".into(), "ab ".into());
        let error = named.with_prompt_name("passage").unwrap_err().to_string();
        assert_eq!(error, "the model has no prompt \"passage\"; it has query");
        assert!(embedder().with_prompt_name("query").unwrap_err().to_string().contains("none at all"));
    }

    #[test]
    fn similarities_are_cosines_of_vectors_of_any_length() {
        let found = cosine_similarities(&[vec![3.0, 4.0], vec![0.0, 0.0]], &[vec![6.0, 8.0], vec![0.0, -5.0]]);
        assert_close(&found.concat(), &[1.0, -0.8, 0.0, 0.0], 1e-12);
    }

    #[test]
    #[should_panic(expected = "vectors of one length are compared")]
    fn vectors_of_two_widths_are_not_compared() {
        let _ = cosine_similarities(&[vec![1.0; 3]], &[vec![1.0; 2]]);
    }

    #[test]
    fn vectors_have_length_one_and_company_changes_none() {
        let embedder = embedder();
        let texts = ["abc", "hgfedcba", "a"];
        let together = embedder.embed(&texts).unwrap();
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        assert_eq!(together.len(), texts.len());
        for (text, vector) in texts.iter().zip(&together) {
            let alone = embedder.embed(&[text]).unwrap().remove(0);
            assert_eq!(vector.len(), 16);
            assert_close(&[product(vector, vector)], &[1.0_f32], 1e-5);
            assert_close(&alone, vector, 1e-5);
        }
        assert!(product(&together[0], &together[1]) < 0.9999);
    }
}
