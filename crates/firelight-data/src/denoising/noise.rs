//! What a recipe asks for, and the same with the ids of a tokenizer: a function from the ids of a text to a pair.

use serde::{Deserialize, Serialize};

use super::{BartNoise, BartTokens, NoiseSeed, SpanCorruption};
use firelight_storage::InputError;

use crate::{DataError, EncodedPair, Tokenizer};

/// The token that stands for what BART's noise has taken away.
const MASK: &str = "<mask>";

/// Characters that end a sentence.
const ENDS: [char; 3] = ['.', '!', '?'];

/// How pairs are made out of plain text. In a recipe: `"span_corruption"`, `{ kind = "span_corruption", noise_density = 0.3 }`,
/// `"bart"`, `{ kind = "bart", noises = [{ kind = "token_masking", ratio = 0.15 }] }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Denoising {
    /// T5's: the target lists the spans that are missing.
    SpanCorruption(SpanCorruption),
    /// BART's: the target is the whole text.
    Bart(Noises),
}

/// BART's noises, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Noises {
    /// Default: the paper's, text infilling of 30 % and sentence permutation.
    pub noises: Vec<BartNoise>,
}

impl Default for Noises {
    fn default() -> Self {
        let infilling = BartNoise::TextInfilling { ratio: 0.3, mean_span_length: 3.0 };
        Self { noises: vec![infilling, BartNoise::SentencePermutation] }
    }
}

impl Denoising {
    /// # Errors
    /// Lists every number that is out of its range.
    pub fn validate(&self) -> Result<(), DataError> {
        match self {
            Self::SpanCorruption(spans) => spans.validate(),
            Self::Bart(Noises { noises }) => {
                let problems = noises.iter().filter_map(|noise| noise.validate().err());
                let problems: Vec<String> = problems.map(|error| error.to_string()).collect();
                Ok(InputError::of_all(&problems)?)
            }
        }
    }

    /// The special tokens that a tokenizer needs for texts of at most `longest` tokens: sentinels, called as T5's, or a mask.
    pub fn special_tokens(&self, longest: usize) -> Vec<String> {
        match self {
            Self::SpanCorruption(spans) => (0..spans.counts(longest).1).map(sentinel).collect(),
            Self::Bart(_) => vec![MASK.into()],
        }
    }

    /// The noise with the ids of `tokenizer`, which has the [special tokens](Self::special_tokens), for texts of at most
    /// `longest` tokens.
    ///
    /// # Errors
    /// If it lacks one of them.
    pub fn noise(&self, tokenizer: &Tokenizer, longest: usize) -> Result<Noise, DataError> {
        let id = |token: String| {
            let missing = || InputError::new(format!("the tokenizer has no token `{token}`"));
            tokenizer.special(&token).ok_or_else(missing)
        };
        let ids = self.special_tokens(longest).into_iter().map(id).collect::<Result<Vec<u32>, _>>()?;
        let ends_of_sentences = match self {
            Self::Bart(_) => ends_of_sentences(tokenizer),
            Self::SpanCorruption(_) => Vec::new(),
        };
        Ok(Noise { denoising: self.clone(), ids, ends_of_sentences, longest })
    }
}

fn sentinel(span: usize) -> String {
    format!("<extra_id_{span}>")
}

/// The ids whose text ends as a sentence does.
fn ends_of_sentences(tokenizer: &Tokenizer) -> Vec<u32> {
    let ends = |id: &u32| tokenizer.decode(&[*id]).trim_end().ends_with(ENDS);
    (0..tokenizer.vocab_size() as u32).filter(ends).collect()
}

/// Makes a pair of the ids of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    denoising: Denoising,
    /// The sentinels, or the mask alone.
    ids: Vec<u32>,
    ends_of_sentences: Vec<u32>,
    longest: usize,
}

impl Noise {
    /// Source and target of a text. BART's masks may stand for nothing, so that a source can become longer than its text;
    /// what is more than the longest text has is cut off.
    ///
    /// # Panics
    /// If the text is longer than the noise was made for.
    pub fn apply(&self, ids: &[u32], seed: NoiseSeed) -> EncodedPair {
        let (mut source, target) = match &self.denoising {
            Denoising::SpanCorruption(spans) => spans.apply(ids, &self.ids, seed),
            Denoising::Bart(Noises { noises }) => {
                let tokens = BartTokens { mask: self.ids[0], ends_of_sentences: &self.ends_of_sentences };
                BartNoise::apply(noises, ids, &tokens, seed)
            }
        };
        source.truncate(self.longest);
        EncodedPair { source, target }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;

    const SEED: NoiseSeed = NoiseSeed { seed: 1, epoch: 0, index: 0 };

    fn tokenizer(denoising: &Denoising, longest: usize) -> Tokenizer {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc.! ").unwrap();
        let special = denoising.special_tokens(longest);
        tokenizer.with_special_tokens(&special.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn sentinels_are_as_many_as_the_longest_text_needs() {
        let spans = Denoising::SpanCorruption(SpanCorruption { noise_density: 0.5, mean_span_length: 2.0 });
        // Half of 12 tokens in spans of 2.
        assert_eq!(spans.special_tokens(12), ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"]);
        let tokenizer = tokenizer(&spans, 12);
        let ids = tokenizer.encode("abc abc abc.").unwrap();
        let noise = spans.noise(&tokenizer, 12).unwrap();
        let pair = noise.apply(&ids, SEED);
        assert_eq!((pair.source.len(), pair.target.len()), (9, 9));
        let sentinels: Vec<u32> = pair.target.iter().copied().filter(|id| *id >= 6).collect();
        assert_eq!(sentinels, [6, 7, 8]);
        assert_ne!(noise.apply(&ids, NoiseSeed { epoch: 1, ..SEED }), pair);
        let error = spans.noise(&tokenizer, 24).unwrap_err();
        assert_eq!(error.to_string(), "the tokenizer has no token `<extra_id_3>`");
    }

    #[test]
    fn barts_target_is_the_text_and_its_sentences_end_where_they_do() {
        let permuted = Denoising::Bart(Noises { noises: vec![BartNoise::SentencePermutation] });
        let tokenizer = tokenizer(&permuted, 9);
        let ids = tokenizer.encode("a.bb!ccc.").unwrap();
        let noise = permuted.noise(&tokenizer, 9).unwrap();
        let found: std::collections::BTreeSet<String> = (0..60)
            .map(|index| noise.apply(&ids, NoiseSeed { index, ..SEED }))
            .inspect(|pair| assert_eq!(pair.target, ids))
            .map(|pair| tokenizer.decode(&pair.source))
            .collect();
        let orders = ["a.bb!ccc.", "a.ccc.bb!", "bb!a.ccc.", "bb!ccc.a.", "ccc.a.bb!", "ccc.bb!a."];
        assert!(found.iter().eq(orders), "{found:?}");
    }

    #[test]
    fn a_source_is_never_longer_than_the_longest_text() {
        // Spans of one token in the mean: more than a third of them are empty, and every one leaves a mask.
        let infilling = BartNoise::TextInfilling { ratio: 0.9, mean_span_length: 1.0 };
        let noisy = Denoising::Bart(Noises { noises: vec![infilling] });
        let tokenizer = tokenizer(&noisy, 6);
        let noise = noisy.noise(&tokenizer, 6).unwrap();
        let lengths = (0..99).map(|index| noise.apply(&[0; 6], NoiseSeed { index, ..SEED }).source.len());
        assert_eq!(lengths.max(), Some(6));
    }

    #[test]
    fn a_recipe_names_an_objective_and_wrong_numbers_are_listed() {
        let read = |json: &str| serde_json::from_str::<Denoising>(json);
        assert_eq!(read(r#"{"kind": "bart"}"#).unwrap(), Denoising::Bart(Noises::default()));
        let spans = read(r#"{"kind": "span_corruption", "noise_density": 2.0}"#).unwrap();
        assert!(spans.validate().unwrap_err().to_string().starts_with("denoising.noise_density = 2"));
        let bart = r#"{"kind": "bart", "noises": [{"kind": "token_masking", "ratio": 2}, {"kind": "token_deletion", "ratio": -1}]}"#;
        let problems = read(bart).unwrap().validate().unwrap_err().to_string();
        assert!(problems.contains("ratio = 2") && problems.contains("ratio = -1"), "{problems}");
        assert!(read(r#"{"kind": "span_corruption", "ratio": 2}"#).is_err());
        assert!(Denoising::Bart(Noises::default()).validate().is_ok());
    }
}
