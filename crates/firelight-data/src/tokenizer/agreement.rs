//! Whether two models have the same tokens, as one that guesses and the one that reads its guesses.

use firelight_storage::InputError;

use super::Tokenizer;

impl Tokenizer {
    /// Makes sure that the tokenizer of another model, `what` it is called, has the same tokens.
    ///
    /// # Errors
    /// Names the first token that differs.
    pub fn agrees_with(&self, what: &str, other: &Self) -> Result<(), InputError> {
        let both = [self, other];
        let size = both.map(Self::vocab_size).into_iter().max().unwrap_or(0);
        let tokens = |id| both.map(|tokenizer| tokenizer.token(id));
        let differ = (0..size as u32).map(tokens).find(|[own, others]| own != others);
        differ.map_or(Ok(()), |tokens| Err(other_vocabulary(what, tokens)))
    }
}

/// The tokenizer of `what` has another token where the model's has the first one.
fn other_vocabulary(what: &str, tokens: [Option<String>; 2]) -> InputError {
    let [own, others] = tokens.map(|token| token.map_or("no token".to_string(), |token| format!("`{token}`")));
    InputError::new(format!("the {what} has another vocabulary: it has {others}, where the model has {own}"))
        .advise("take one with the model's own tokenizer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;

    #[test]
    fn the_first_token_that_differs_is_named() {
        let [abc, abx, more] =
            ["abc", "abx", "abcd"].map(|text| Tokenizer::train(&TokenizerConfig::Char, text).unwrap());
        abc.agrees_with("draft", &abc.clone()).unwrap();
        let differ = |own: &Tokenizer, other: &Tokenizer| own.agrees_with("draft", other).unwrap_err().to_string();
        let advice = "take one with the model's own tokenizer";
        for (own, other, told) in [
            (&abc, &abx, "it has `x`, where the model has `c`"),
            (&abc, &more, "it has `d`, where the model has no token"),
            (&more, &abc, "it has no token, where the model has `d`"),
        ] {
            assert_eq!(differ(own, other), format!("the draft has another vocabulary: {told}; {advice}"));
        }
    }
}
