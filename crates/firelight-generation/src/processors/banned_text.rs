//! Texts that are banned, however they are divided into tokens.

use std::sync::Arc;

use firelight_data::Tokenizer;
use firelight_storage::InputError;

use super::{History, LogitsProcessor, hide_ids};

/// Bans texts: hides every token that would complete one of them. Upper and lower case differ.
///
/// [`BannedSequences`](super::BannedSequences) bans one sequence of ids, and a model may write the same text with others. This processor looks at the
/// bytes of the tokens, so that the text never occurs. The end of the prompt counts as its beginning.
///
/// ```
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_generation::processors::{BannedText, HIDDEN, History, LogitsProcessor};
///
/// let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
/// let mut banned = BannedText::new(&["cab"], &tokenizer).unwrap();
/// let mut logits = [0.0; 3];
/// banned.process(&History::new(&tokenizer.encode("bca").unwrap(), 0), &mut logits);
/// assert_eq!(logits, [0.0, HIDDEN, 0.0]);
/// ```
#[doc(alias = "bad_words_ids")]
#[derive(Clone, Debug)]
pub struct BannedText(Arc<Table>);

#[derive(Debug)]
struct Table {
    /// The bytes of each id.
    tokens: Vec<Vec<u8>>,
    endings: Vec<Ending>,
    /// The most bytes of a text that are looked at.
    longest: usize,
}

/// After a text that ends with these bytes, each of these ids completes a banned text.
#[derive(Debug)]
struct Ending {
    written: Vec<u8>,
    ids: Vec<u32>,
}

impl BannedText {
    /// Bans texts that a tokenizer writes.
    ///
    /// # Errors
    /// If a text is empty, or the tokenizer's tokens have no bytes of their own, as those of WordPiece
    /// ([`Tokenizer::token_bytes`]).
    pub fn new<S: AsRef<str>>(texts: &[S], tokenizer: &Tokenizer) -> Result<Self, InputError> {
        if texts.iter().any(|text| text.as_ref().is_empty()) {
            let problem = "a banned text is empty, and every text contains the empty text";
            return Err(InputError::new(problem).advise("leave it out"));
        }
        let tokens = tokenizer.token_bytes()?;
        let endings = texts.iter().flat_map(|text| endings(text.as_ref().as_bytes(), &tokens)).collect();
        let longest = texts.iter().map(|text| text.as_ref().len() - 1).max().unwrap_or(0);
        Ok(Self(Arc::new(Table { tokens, endings, longest })))
    }
}

/// The ways in which a token completes a text: it has all of it, or begins with the rest of it.
fn endings(text: &[u8], tokens: &[Vec<u8>]) -> Vec<Ending> {
    let ending = |place: usize| {
        let (written, rest) = text.split_at(place);
        let completes = |token: &[u8]| match place {
            0 => token.windows(rest.len()).any(|part| part == rest),
            _ => token.starts_with(rest),
        };
        let ids = (0..).zip(tokens).filter(|(_, token)| completes(token)).map(|(id, _)| id).collect();
        Ending { written: written.to_vec(), ids }
    };
    (0..text.len()).map(ending).filter(|ending| !ending.ids.is_empty()).collect()
}

impl Table {
    fn bytes(&self, id: u32) -> &[u8] {
        self.tokens.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// The last bytes of a text, at least as many as are looked at.
    fn tail(&self, ids: &[u32]) -> Vec<u8> {
        let (mut first, mut length) = (ids.len(), 0);
        while first > 0 && length < self.longest {
            first -= 1;
            length += self.bytes(ids[first]).len();
        }
        ids[first..].iter().flat_map(|&id| self.bytes(id)).copied().collect()
    }
}

impl LogitsProcessor for BannedText {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let tail = self.0.tail(history.ids());
        let reached = self.0.endings.iter().filter(|ending| tail.ends_with(&ending.written));
        hide_ids(logits, reached.flat_map(|ending| ending.ids.iter().copied()));
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use firelight_data::TokenizerConfig;

    use super::*;
    use crate::processors::HIDDEN;

    /// Bans texts of these tokens.
    fn banned(texts: &[&str], tokens: &[&str]) -> BannedText {
        let tokens: Vec<Vec<u8>> = tokens.iter().map(|token| token.as_bytes().to_vec()).collect();
        let endings = texts.iter().flat_map(|text| endings(text.as_bytes(), &tokens)).collect();
        BannedText(Arc::new(Table { tokens, endings, longest: 9 }))
    }

    fn hidden(banned: &BannedText, size: usize, written: &[u32]) -> Vec<usize> {
        let mut logits = vec![0.0; size];
        banned.clone().process(&History::new(written, 0), &mut logits);
        (0..size).filter(|&id| logits[id] == HIDDEN).collect()
    }

    #[test]
    fn every_token_that_completes_the_text_is_hidden() {
        let tokens = ["c", "o", "w", "co", "ow", "acowy", "owed", "", "w "];
        let cow = banned(&["cow"], &tokens);
        assert_eq!(hidden(&cow, 9, &[]), [5], "it has the whole text");
        assert_eq!(hidden(&cow, 9, &[0]), [4, 5, 6]);
        assert_eq!(hidden(&cow, 9, &[3]), [2, 5, 8]);
        assert_eq!(hidden(&cow, 9, &[0, 1]), [2, 5, 8], "other tokens of the same text");
        assert_eq!(hidden(&cow, 9, &[0, 7, 1, 7]), [2, 5, 8], "a token without bytes is no text");
        assert_eq!(hidden(&cow, 9, &[0, 2, 1]), [5]);
    }

    #[test]
    fn no_text_of_a_random_walk_holds_what_is_banned() {
        let tokens = ["a", "b", "ab", "ba", "aa", "bab"];
        let texts = ["abba", "aaa", "babab"];
        let mut banned = banned(&texts, &tokens);
        let mut ids: Vec<u32> = Vec::new();
        for step in 0..300 {
            let draw = History::default().with_draw(5, 0, step).uniform();
            let mut logits = vec![0.0; tokens.len()];
            banned.process(&History::new(&ids, 0), &mut logits);
            let left: Vec<u32> = (0..6).filter(|&id| logits[id as usize] != HIDDEN).collect();
            ids.push(left[(draw * left.len() as f64) as usize]);
        }
        let text: String = ids.iter().map(|&id| tokens[id as usize]).collect();
        assert!(texts.iter().all(|banned| !text.contains(banned)), "{text}");
        assert!(text.contains("abb") && text.contains("baba"), "all but the last token is allowed: {text}");
    }

    #[test]
    fn an_empty_text_is_refused() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let error = BannedText::new(&["a", ""], &tokenizer).unwrap_err().to_string();
        assert!(error.starts_with("a banned text is empty") && error.ends_with("leave it out"), "{error}");
    }
}
