//! Next-sentence prediction: two sentences, of which the second follows the first in its document every other time, and
//! else comes from another document; the model is to tell which. Source: Devlin et al. 2019, BERT, section 3.1, task 2
//! (<https://arxiv.org/abs/1810.04805>).

use super::{NoiseSeed, STREAM};
use firelight_storage::InputError;

use crate::DataError;
use crate::dice::Dice;

/// Documents as lists of sentences, each sentence a text or its ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentencePairs<S> {
    documents: Vec<Vec<S>>,
    /// Document and sentence of every sentence that another one follows.
    followed: Vec<(usize, usize)>,
}

/// Two sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentencePair<'a, S> {
    /// The first.
    pub first: &'a S,
    /// The second.
    pub second: &'a S,
    /// Whether it follows the first.
    pub is_next: bool,
}

/// Keeps these draws apart from the mask of the same item.
const PAIRS: u64 = STREAM ^ 1;

impl<S> SentencePairs<S> {
    /// Pairs out of these documents; those without a sentence are left out.
    ///
    /// # Errors
    /// Fails if there are fewer than two documents, or if no sentence follows another.
    pub fn new(mut documents: Vec<Vec<S>>) -> Result<Self, DataError> {
        documents.retain(|document| !document.is_empty());
        let of = |(document, sentences): (usize, &Vec<S>)| (1..sentences.len()).map(move |next| (document, next - 1));
        let followed: Vec<_> = documents.iter().enumerate().flat_map(of).collect();
        match documents.len() < 2 || followed.is_empty() {
            true => Err(too_few(documents.len(), followed.len()).into()),
            false => Ok(Self { documents, followed }),
        }
    }

    /// Number of items: sentences that another one follows.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.followed.len()
    }

    /// The pair of the seed's item, drawn anew in every epoch.
    ///
    /// # Panics
    /// Panics if the item's number is not below [`len`](Self::len).
    pub fn pair(&self, seed: NoiseSeed) -> SentencePair<'_, S> {
        let (document, sentence) = self.followed[seed.index as usize];
        let dice = &mut Dice::of(&[seed.seed, seed.epoch, seed.index, PAIRS]);
        let is_next = dice.below(2) == 0;
        let first = &self.documents[document][sentence];
        let second = if is_next { &self.documents[document][sentence + 1] } else { self.other(document, dice) };
        SentencePair { first, second, is_next }
    }

    /// A sentence of another document.
    fn other(&self, document: usize, dice: &mut Dice) -> &S {
        let number = dice.below(self.documents.len() - 1);
        let other = &self.documents[if number < document { number } else { number + 1 }];
        &other[dice.below(other.len())]
    }
}

/// Too few documents, or sentences that another one follows.
fn too_few(documents: usize, pairs: usize) -> InputError {
    let found = if documents == 1 { "is 1 document".to_owned() } else { format!("are {documents} documents") };
    InputError::new(format!(
        "there {found} with {pairs} sentences that another one follows: pairs of sentences need two documents or more, and one \
         of two sentences"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sentences as document and number.
    fn pairs() -> SentencePairs<(usize, usize)> {
        let sentences = |document: usize, count: usize| (0..count).map(|number| (document, number)).collect();
        SentencePairs::new(vec![sentences(0, 3), vec![], sentences(1, 1), sentences(2, 4)]).unwrap()
    }

    fn at(epoch: u64, index: u64) -> NoiseSeed {
        NoiseSeed { seed: 5, epoch, index }
    }

    #[test]
    fn every_other_second_sentence_follows_the_first() {
        let pairs = pairs();
        assert_eq!(pairs.len(), 5);
        let (mut next, mut lonely) = (0, 0);
        for epoch in 0..4_000 {
            let pair = pairs.pair(at(epoch, 1));
            assert_eq!(*pair.first, (0, 1));
            if pair.is_next {
                assert_eq!(*pair.second, (0, 2));
                next += 1;
            } else {
                assert_ne!(pair.second.0, 0);
                lonely += i32::from(pair.second.0 == 1);
            }
        }
        // Of 4,000: 2,000 and, of two other documents, 1,000; standard deviations 32 and 27.
        assert!((1_840..2_160).contains(&next) && (870..1_130).contains(&lonely), "{next} {lonely}");
    }

    #[test]
    fn a_pair_is_a_function_of_seed_epoch_and_item() {
        let pairs = pairs();
        let seconds = |epoch| (0..5).map(|index| *pairs.pair(at(epoch, index)).second).collect::<Vec<_>>();
        assert_eq!(seconds(0), seconds(0));
        assert!((1..9).any(|epoch| seconds(epoch) != seconds(0)));
    }

    #[test]
    fn one_document_or_single_sentences_make_no_pairs() {
        let error = SentencePairs::new(vec![vec!["a", "b"], vec![]]).unwrap_err();
        assert!(error.to_string().contains("1 document with"), "{error}");
        let error = SentencePairs::new(vec![vec!["a"], vec!["b"]]).unwrap_err();
        assert!(error.to_string().contains("2 documents with 0 sentences") && error.is_user_error(), "{error}");
    }
}
