//! What examples are drawn from: texts, or pairs of sentences.

use std::sync::Arc;

use firelight_data::{DataError, Frame, NoiseSeed, SentencePairs, Split};

use firelight_storage::{InputError, TaskError};

use crate::data::EncodedText;
use crate::vocabulary::{TextVocabulary, framed};

/// Texts or pairs of sentences, as ids. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Units {
    /// Texts, the long ones in pieces.
    Texts(Arc<Vec<EncodedText>>),
    /// Pairs of sentences.
    Pairs(Arc<Pairs>),
}

/// Pairs of sentences.
#[derive(Debug)]
pub(super) struct Pairs {
    sentences: SentencePairs<Vec<u32>>,
    documents: usize,
    /// Tokens of the longest sentence.
    longest: usize,
    frame: Frame,
    max_len: usize,
}

impl Units {
    /// The units of a split of the texts, none longer than `max_len` tokens.
    pub(super) fn texts(texts: &[String], vocabulary: &TextVocabulary, max_len: usize) -> Result<Self, TaskError> {
        let pieces =
            (1..).zip(texts).map(|(line, text)| vocabulary.pieces(text, max_len).map_err(TaskError::in_line(line)));
        let pieces: Vec<EncodedText> = pieces.collect::<Result<Vec<_>, _>>()?.concat();
        match pieces.is_empty() {
            true => {
                let problem = "there is no text to train on or none to validate on: all lines are empty";
                Err(InputError::new(problem).into())
            }
            false => Ok(Self::Texts(Arc::new(pieces))),
        }
    }

    /// The pairs of a split of the documents, each at most `max_len` tokens long.
    pub(super) fn pairs(
        (split, documents): (Split, &[String]),
        vocabulary: &TextVocabulary,
        max_len: usize,
    ) -> Result<Self, TaskError> {
        let sentences = (1..)
            .zip(documents)
            .map(|(line, document)| sentences(document, vocabulary).map_err(TaskError::in_line(line)));
        let sentences = sentences.collect::<Result<Vec<_>, _>>()?;
        let longest = sentences.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let sentences = SentencePairs::new(sentences).map_err(|error| no_pairs(split, &error))?;
        let (documents, frame) = (documents.len(), vocabulary.frame().clone());
        Ok(Self::Pairs(Arc::new(Pairs { sentences, documents, longest, frame, max_len })))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Pairs(pairs) => pairs.sentences.len(),
        }
    }

    /// The most tokens that each has, with those around it.
    pub(super) fn lengths(&self) -> Vec<usize> {
        match self {
            Self::Texts(texts) => texts.iter().map(|text| text.ids.len()).collect(),
            Self::Pairs(pairs) => (0..self.len()).map(|index| pairs.most_tokens(index)).collect(),
        }
    }

    /// How much there is of two parts, in words.
    pub(super) fn sizes(training: &Self, validation: &Self) -> String {
        let ([units, within], [other, other_within]) = (training.counts(), validation.counts());
        match training {
            Self::Texts(_) => {
                format!("{units} texts of {within} tokens to train on, {other} of {other_within} to validate on")
            }
            Self::Pairs(_) => format!(
                "{units} documents with {within} pairs of sentences to train on, {other} with {other_within} to validate on"
            ),
        }
    }

    /// Texts and their tokens, or documents and their pairs of sentences.
    fn counts(&self) -> [usize; 2] {
        match self {
            Self::Texts(texts) => [texts.len(), texts.iter().map(|text| text.ids.len()).sum()],
            Self::Pairs(pairs) => [pairs.documents, pairs.sentences.len()],
        }
    }
}

impl Pairs {
    /// The pair of the seed's item as a text, and whether its second sentence follows the first.
    pub(super) fn draw(&self, seed: NoiseSeed) -> (EncodedText, bool) {
        let pair = self.sentences.pair(seed);
        let text = framed(&self.frame, pair.first.clone(), Some(pair.second.clone()), self.max_len);
        (text, pair.is_next)
    }

    /// Which sentence comes second, every epoch decides anew.
    fn most_tokens(&self, index: usize) -> usize {
        let first = self.sentences.pair(NoiseSeed { seed: 0, epoch: 0, index: index as u64 }).first;
        (first.len() + self.longest + self.frame.size(true)).min(self.max_len)
    }
}

/// The lines of a document that have tokens.
fn sentences(document: &str, vocabulary: &TextVocabulary) -> Result<Vec<Vec<u32>>, DataError> {
    let lines = document.lines().map(|line| vocabulary.tokenizer().encode(line));
    Ok(lines.collect::<Result<Vec<_>, _>>()?.into_iter().filter(|ids| !ids.is_empty()).collect())
}

/// A split without pairs of sentences.
fn no_pairs(split: Split, error: &DataError) -> InputError {
    let forms = "a document is the lines of a .txt between two blank ones, or a row of a table, and each of its lines a sentence";
    InputError::new(format!("the {split} split: {error}")).advise(forms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::{Tokenizer, TokenizerConfig};

    const DOCUMENTS: [&str; 2] = ["ab\ncdef\ng", "hi\n\nj"];

    fn pairs(max_len: usize) -> Arc<Pairs> {
        let vocabulary = TextVocabulary::new(Tokenizer::train(&TokenizerConfig::Char, "abcdefghij").unwrap()).unwrap();
        let documents = DOCUMENTS.map(String::from);
        let Units::Pairs(pairs) = Units::pairs((Split::Training, &documents), &vocabulary, max_len).unwrap() else {
            panic!("pairs")
        };
        pairs
    }

    #[test]
    fn a_pair_is_two_segments_and_no_longer_than_planned() {
        let pairs = pairs(8);
        assert_eq!(Units::Pairs(pairs.clone()).lengths(), [8, 8, 8]);
        assert_eq!(Units::Pairs(pairs.clone()).counts(), [2, 3]);
        let (mut next, mut other) = (0, 0);
        for epoch in 0..60 {
            let (text, is_next) = pairs.draw(NoiseSeed { seed: 1, epoch, index: 0 });
            // [CLS] a b [SEP] ... [SEP], where `cdef` follows and loses its last letter.
            assert_eq!((&text.ids[..4], text.second_from), (&[10, 0, 1, 11][..], 4));
            let second = &text.ids[4..text.ids.len() - 1];
            assert!(text.ids.len() <= 8 && text.ids.last() == Some(&11));
            assert_eq!(is_next, second == [2, 3, 4], "{second:?}");
            *if is_next { &mut next } else { &mut other } += 1;
        }
        assert!(next > 15 && other > 15, "{next} {other}");
    }

    #[test]
    fn lengths_are_bounds_in_every_epoch() {
        let pairs = pairs(20);
        let lengths = Units::Pairs(pairs.clone()).lengths();
        assert_eq!(lengths, [9, 11, 9]);
        for number in 0..90 {
            let (epoch, index) = (number / 3, number % 3);
            let (text, _) = pairs.draw(NoiseSeed { seed: 2, epoch, index });
            assert!(text.ids.len() <= lengths[index as usize]);
        }
    }
}
