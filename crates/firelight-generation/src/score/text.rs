//! The scores of a text: its tokens, each with its piece of the text, and the measures of the whole.

use std::iter::repeat_n;

use firelight_data::TextStream;

use super::TokenScore;

/// A token of a text that was scored.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredToken {
    /// The token.
    pub id: u32,
    /// The piece of the text that it ends: joined, the pieces are what the tokenizer makes of the ids. Empty for a special token, and for
    /// one within a character, which stands at the last token of the character.
    pub text: String,
    /// Its score; none if no token precedes it.
    pub score: Option<TokenScore>,
}

/// How probable a text is to a model, token by token.
#[derive(Clone, Debug, PartialEq)]
pub struct TextScore {
    /// All tokens of the text, in their order.
    pub tokens: Vec<ScoredToken>,
    /// Bytes of the text that was scored, in UTF-8, without those of tokens that nothing precedes.
    pub bytes: usize,
}

impl TextScore {
    /// Joins a `text`, its `ids` and the scores of the last of them; `stream` decodes the ids. The ids before those have no score.
    ///
    /// # Panics
    /// If there are more scores than ids.
    pub fn new(text: &str, ids: &[u32], scores: Vec<TokenScore>, stream: TextStream) -> Self {
        assert!(scores.len() <= ids.len(), "{} scores of {} tokens", scores.len(), ids.len());
        let unscored = ids.len() - scores.len();
        let scores = repeat_n(None, unscored).chain(scores.into_iter().map(Some));
        let tokens = ids.iter().zip(pieces(ids, stream)).zip(scores);
        let tokens = tokens.map(|((&id, text), score)| ScoredToken { id, text, score });
        let tokens: Vec<ScoredToken> = tokens.collect();
        let before: usize = tokens[..unscored].iter().map(|token| token.text.len()).sum();
        Self { tokens, bytes: text.len().saturating_sub(before) }
    }

    /// The scores: one for each token that another one precedes.
    pub fn scores(&self) -> impl Iterator<Item = &TokenScore> {
        self.tokens.iter().filter_map(|token| token.score.as_ref())
    }

    /// How many tokens have a score.
    pub fn count(&self) -> usize {
        self.scores().count()
    }

    /// The log-probability of the text in nats: the sum over its tokens.
    pub fn log_probability(&self) -> f64 {
        // Not `sum`, which begins with minus 0.
        self.scores().fold(0.0, |sum, score| sum + score.log_probability)
    }

    /// The mean log-probability in nats per token that has a score.
    pub fn mean(&self) -> f64 {
        self.log_probability() / self.count() as f64
    }

    /// `exp(-mean)`: a model that chooses evenly among this many tokens would be as uncertain.
    pub fn perplexity(&self) -> f64 {
        (-self.mean()).exp()
    }

    /// The negative log-probability of the text in bits, divided by its [bytes](Self::bytes). Unlike the perplexity it does not depend on how
    /// a tokenizer cuts the text.
    pub fn bits_per_byte(&self) -> f64 {
        -self.log_probability() / std::f64::consts::LN_2 / self.bytes as f64
    }
}

/// The piece of the text that each id ends; what is left at the end belongs to the last.
fn pieces(ids: &[u32], mut stream: TextStream) -> Vec<String> {
    let mut pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap_or_default()).collect();
    if let (Some(last), Some(rest)) = (pieces.last_mut(), stream.finish()) {
        last.push_str(&rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::{Tokenizer, TokenizerConfig};
    use firelight_kernels::assert_close;

    fn scored(text: &str, probabilities: &[f64]) -> TextScore {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let ids = tokenizer.encode(text).unwrap();
        let unscored = ids.len() - probabilities.len();
        let score = |(&id, probability): (&u32, &f64)| {
            let (log_probability, rank, top) = (probability.ln(), None, Vec::new());
            TokenScore { id, log_probability, rank, top }
        };
        let scores = ids[unscored..].iter().zip(probabilities).map(score).collect();
        TextScore::new(text, &ids, scores, tokenizer.stream())
    }

    #[test]
    fn what_is_said_of_a_text_by_hand() {
        let found = scored("abc", &[0.5, 0.125]);
        assert_eq!((found.tokens.len(), found.count(), found.bytes), (3, 2, 2));
        assert!(found.tokens[0].score.is_none());
        let expected = [0.0625f64.ln(), 0.25f64.ln(), 4.0, 2.0];
        let numbers = [found.log_probability(), found.mean(), found.perplexity(), found.bits_per_byte()];
        assert_close(&numbers, &expected, 1e-12);
        let certain = scored("ab", &[1.0]);
        assert_eq!((certain.log_probability().to_bits(), certain.perplexity()), (0.0f64.to_bits(), 1.0));
    }

    #[test]
    fn joined_pieces_are_the_text() {
        let found = scored("a\u{e9}b", &[0.5; 4]);
        let pieces: Vec<&str> = found.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!((pieces, found.bytes), (vec!["a", "", "\u{e9}", "b"], 4));
        let whole = scored("ab", &[0.5, 0.5]);
        assert_eq!((whole.tokens[0].text.as_str(), whole.bytes), ("a", 2));
    }
}
