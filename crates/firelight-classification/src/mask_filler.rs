//! A trained masked language model and its tokenizer, loaded from a run folder: texts with masks in, the likeliest tokens behind them out.

use std::path::Path;

use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor, TensorData};
use firelight_core::Pass;
use firelight_data::TokenizerKind;
use firelight_kernels::awake;
use firelight_storage::{Checkpoint, InputError, TaskError};

use crate::data::EncodedText;
use crate::encoder::TextInput;
use crate::objectives::{PretrainingConfig, PretrainingModel};
use crate::pretrained::load;
use crate::reading::{read_texts, rows};
use crate::vocabulary::{TextVocabulary, framed};

/// What stands in a text in the place of a token, whatever the tokenizer calls its mask.
const MASK: &str = "[MASK]";

/// A token that may stand behind a mask.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledMask {
    /// Its text, with the white space that belongs to it.
    pub token: String,
    /// Its number.
    pub id: u32,
    /// How likely it is, from 0 to 1.
    pub probability: f64,
}

/// A masked language model and its tokenizer. Of a generator and a discriminator (ELECTRA) the generator fills masks.
#[derive(Debug)]
pub struct MaskFiller {
    model: PretrainingModel,
    vocabulary: TextVocabulary,
}

impl MaskFiller {
    /// Puts a model and a tokenizer together.
    pub fn new(model: PretrainingModel, vocabulary: TextVocabulary) -> Self {
        Self { model, vocabulary }
    }

    /// Loads the last weights of a run onto Burn's default device.
    ///
    /// # Errors
    /// If the folder is no run of this task, or one of its files is missing or damaged.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, TaskError> {
        Self::load_from(folder, &Checkpoint::Last, &Device::default())
    }

    /// Loads the weights of a checkpoint onto a device.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if there is no such checkpoint.
    pub fn load_from(folder: impl AsRef<Path>, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        let (_, model, vocabulary) = load::<PretrainingConfig>(folder.as_ref(), checkpoint, device)?;
        Ok(Self::new(model, vocabulary))
    }

    /// The model.
    pub fn model(&self) -> &PretrainingModel {
        &self.model
    }

    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The `top_k` likeliest tokens behind every `[MASK]` of every text, the likeliest first. Neither company nor order changes them.
    ///
    /// # Errors
    /// If a text has no mask or more tokens than the model reads, with its line, has a character that the tokenizer does not know,
    /// or the device fails.
    pub fn fill<S: AsRef<str>>(&self, texts: &[S], top_k: usize) -> Result<Vec<Vec<Vec<FilledMask>>>, TaskError> {
        self.fill_after(0, texts, top_k)
    }

    /// As [`fill`](Self::fill), of texts before which so many others stand in their file: errors name the line.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub fn fill_after<S: AsRef<str>>(
        &self,
        before: usize,
        texts: &[S],
        top_k: usize,
    ) -> Result<Vec<Vec<Vec<FilledMask>>>, TaskError> {
        let encoded = (before + 1..).zip(texts).map(|(line, text)| self.encode(text.as_ref(), line));
        let encoded: Vec<EncodedText> = encoded.collect::<Result<_, _>>()?;
        read_texts(&encoded, &self.model.encoder().embedding.weight.device(), |input, batch| {
            let rows: Vec<&EncodedText> = batch.iter().map(|&place| &encoded[place]).collect();
            let mut filled = self.probabilities(input, &rows)?.into_iter().map(|row| self.likeliest(&row, top_k));
            Ok(rows.iter().map(|row| filled.by_ref().take(self.masks_of(row).count()).collect()).collect())
        })
    }

    /// The tokens of a text with masks, and those around it. Where a word begins with its space, the space in front of a mask is the
    /// mask's.
    fn encode(&self, text: &str, line: usize) -> Result<EncodedText, TaskError> {
        let (tokenizer, kind) = (self.vocabulary.tokenizer(), self.vocabulary.tokenizer().kind());
        let has_spaces = matches!(kind, TokenizerKind::Bpe | TokenizerKind::SentenceBpe | TokenizerKind::Unigram);
        let brings_spaces = matches!(kind, TokenizerKind::SentenceBpe | TokenizerKind::Unigram);
        let parts: Vec<&str> = text.split(MASK).collect();
        if parts.len() < 2 {
            let problem = format!("line {line}: the text has no [MASK]");
            return Err(InputError::new(problem).advise("write [MASK] where a token is to be found").into());
        }
        let mut ids = Vec::new();
        if kind == TokenizerKind::Other {
            // Its file says which white space belongs to the mask.
            let mask = tokenizer.token(self.vocabulary.mask()).unwrap_or_default();
            return self.framed(
                tokenizer.encode_with_special(&parts.join(mask.as_str())).map_err(TaskError::in_line(line))?,
                line,
            );
        }
        for (number, part) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len();
            let part = if has_spaces && !is_last { part.strip_suffix(' ').unwrap_or(part) } else { part };
            let part = if brings_spaces && number > 0 { part.strip_prefix(' ').unwrap_or(part) } else { part };
            if !part.is_empty() {
                ids.extend(tokenizer.encode(part).map_err(TaskError::in_line(line))?);
            }
            ids.extend((!is_last).then_some(self.vocabulary.mask()));
        }
        self.framed(ids, line)
    }

    /// The tokens between those that stand around a text.
    fn framed(&self, ids: Vec<u32>, line: usize) -> Result<EncodedText, TaskError> {
        let frame = self.vocabulary.frame();
        let (tokens, max_len) = (ids.len() + frame.size(false), self.model.encoder().max_seq_len());
        match tokens <= max_len {
            true => Ok(framed(frame, ids, None, max_len)),
            false => {
                let limit = format!("the model reads model.max_seq_len = {max_len} at most");
                let problem = format!("line {line}: the text has {tokens} tokens, with those around it, but {limit}");
                Err(InputError::new(problem).advise("shorten it").into())
            }
        }
    }

    /// The places of its masks.
    fn masks_of<'a>(&self, text: &'a EncodedText) -> impl Iterator<Item = usize> + use<'a> {
        let mask = self.vocabulary.mask();
        text.ids.iter().enumerate().filter(move |(_, id)| **id == mask).map(|(place, _)| place)
    }

    /// The probabilities of all tokens, a row for each mask of all texts, which `input` has side by side.
    fn probabilities(&self, input: &TextInput, texts: &[&EncodedText]) -> Result<Vec<Vec<f64>>, TaskError> {
        let (device, length) = (input.tokens.device(), input.tokens.dims()[1]);
        let mut places: Vec<i32> = Vec::new();
        for (row, text) in texts.iter().enumerate() {
            places.extend(self.masks_of(text).map(|place| (row * length + place) as i32));
        }
        let count = places.len();
        let places = Tensor::from_data(TensorData::new(places, [count]), &device);
        let logits = awake(&device, || self.model.tokens_at(input, places, &mut Pass::default())); // [1, M, V]
        let found: Vec<Vec<f64>> = rows(softmax(logits, 2).squeeze_dim(0), "the tokens behind masks")?;
        TaskError::require_finite(found.iter().flatten().all(|probability| probability.is_finite()))?;
        Ok(found)
    }

    fn likeliest(&self, probabilities: &[f64], top_k: usize) -> Vec<FilledMask> {
        let mut ids: Vec<usize> = (0..probabilities.len().min(self.vocabulary.vocab_size())).collect();
        ids.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]).then(a.cmp(&b)));
        let filled = |id: usize| FilledMask {
            token: self.vocabulary.tokenizer().decode(&[id as u32]),
            id: id as u32,
            probability: probabilities[id],
        };
        ids.into_iter().take(top_k).map(filled).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::TextEncoderConfig;
    use crate::objectives::{PretrainingObjective, ReplacedTokens};
    use firelight_core::{Init, ParamBuilder, WeightInit};
    use firelight_data::{Tokenizer, TokenizerConfig};

    const TEXTS: &str = "the bank of the river\nthe bank of the town\na house by the river\n";

    fn filler(tokenizer: &TokenizerConfig, objective: PretrainingObjective) -> MaskFiller {
        let vocabulary = TextVocabulary::new(Tokenizer::train(tokenizer, TEXTS).unwrap()).unwrap();
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let encoder = TextEncoderConfig::bert(vocabulary.vocab_size(), 16, 2, 1);
        let encoder = encoder.with_stack(|stack| stack.with_init(wide).with_max_seq_len(24));
        let config = PretrainingConfig::new(encoder, objective);
        MaskFiller::new(config.init_with(&ParamBuilder::new(&Device::default(), 3)), vocabulary)
    }

    fn words() -> MaskFiller {
        filler(&TokenizerConfig::Word { min_frequency: 1 }, PretrainingObjective::Masked)
    }

    #[test]
    fn every_mask_has_its_likeliest_tokens_first() {
        for objective in [
            PretrainingObjective::Masked,
            PretrainingObjective::MaskedAndNextSentence,
            PretrainingObjective::Replaced(ReplacedTokens { generator_size: 0.5, ..ReplacedTokens::default() }),
        ] {
            let filler = filler(&TokenizerConfig::Word { min_frequency: 1 }, objective);
            let all = filler.vocabulary().vocab_size();
            let found = filler.fill(&["the [MASK] of the [MASK]", "[MASK] river"], all).unwrap();
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
            for row in found.iter().flatten() {
                let sum: f64 = row.iter().map(|filled| filled.probability).sum();
                assert!((sum - 1.0).abs() < 1e-5 && row.len() == all, "{sum}");
                assert!(row.windows(2).all(|pair| pair[0].probability >= pair[1].probability));
                assert!(row[0].probability > 1.5 / all as f64, "weights are far from 0");
            }
            assert_ne!(found[0][0], found[0][1], "masks of one text differ");
        }
    }

    #[test]
    fn neither_company_nor_order_changes_what_is_found() {
        let filler = words();
        let texts = ["the [MASK] of the river", "[MASK]", "a house by [MASK] river in the town"];
        let together = filler.fill(&texts, 3).unwrap();
        assert_eq!(together.len(), texts.len());
        for (text, together) in texts.iter().zip(&together) {
            let alone = filler.fill(&[text], 3).unwrap().remove(0);
            assert_eq!([&alone, together].map(|found| found.iter().map(Vec::len).collect::<Vec<_>>()), [[3], [3]]);
            for (alone, together) in alone.iter().flatten().zip(together.iter().flatten()) {
                assert_eq!(alone.id, together.id);
                assert!((alone.probability - together.probability).abs() < 1e-5);
            }
        }
    }

    /// What a training hides: a token with the space in front of it.
    #[test]
    fn a_text_with_a_mask_is_the_text_with_a_token_hidden() {
        let bpe = |n_merges: usize| TokenizerConfig::Bpe { vocab_size: 260 + n_merges };
        for tokenizer in [TokenizerConfig::Word { min_frequency: 1 }, TokenizerConfig::Char, bpe(40)] {
            let filler = filler(&tokenizer, PretrainingObjective::Masked);
            let vocabulary = filler.vocabulary();
            let mut expected = vocabulary.encode("the bank of", None, 24).unwrap().ids;
            let hidden = if tokenizer == TokenizerConfig::Char { 5 } else { 2 };
            let text = if tokenizer == TokenizerConfig::Char { "the [MASK]ank of" } else { "the [MASK] of" };
            if matches!(tokenizer, TokenizerConfig::Bpe { .. }) {
                assert_eq!(vocabulary.tokenizer().decode(&expected[2..3]), " bank", "a word is a token");
            }
            expected[hidden] = vocabulary.mask();
            assert_eq!(filler.encode(text, 1).unwrap().ids, expected, "{tokenizer:?}");
        }
    }

    #[test]
    fn a_text_without_a_mask_or_with_too_many_tokens_is_named_by_its_line() {
        let message = |text: &str| words().fill_after(6, &[text], 1).unwrap_err().to_string();
        let error = message("the river");
        assert!(error.starts_with("line 7: ") && error.contains("[MASK]"), "{error}");
        let error = message(&["the "; 30].concat().replace("the the ", "[MASK] the "));
        assert!(error.contains("line 7") && error.contains("32 tokens") && error.contains("24"), "{error}");
    }
}
