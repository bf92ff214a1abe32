//! Where texts end, and what is told of their tokens: options of `generate` and `translate`.

use anyhow::Result;
use firelight::data::Tokenizer;
use firelight::generation::TokenScore;
use serde_json::{Value, json};

use crate::failure::Mistake;

#[derive(clap::Args, Clone)]
pub(super) struct Ends {
    /// Number of tokens to add [default: 200; translate: as many as the model has places for]
    #[arg(long, value_name = "N")]
    pub(super) max_new_tokens: Option<usize>,
    /// End the text before this one; may be repeated
    #[arg(long, value_name = "TEXT", conflicts_with = "constraint")]
    pub(super) stop: Vec<String>,
    /// Also end the text where the model chooses this token; may be repeated
    #[arg(long, value_name = "TOKEN")]
    end_token: Vec<String>,
    /// Tell the log-probability of each token, and those of the N most probable ones; with --json
    #[arg(long, value_name = "N", requires = "json")]
    pub(super) logprobs: Option<usize>,
}

impl Ends {
    /// The ids of the further end tokens.
    pub(super) fn tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        self.end_token.iter().map(|token| id_of(tokenizer, token)).collect()
    }
}

/// The id of a token, as the tokenizer's file spells it or as the text that it stands for.
fn id_of(tokenizer: &Tokenizer, token: &str) -> Result<u32> {
    let is_spelt = |id: &u32| tokenizer.token(*id).as_deref() == Some(token);
    if let Some(id) = (0..tokenizer.vocab_size() as u32).find(is_spelt) {
        return Ok(id);
    }
    match tokenizer.encode(token).as_deref() {
        Ok(&[id]) => Ok(id),
        Ok(ids) => {
            let count = ids.len();
            let problem =
                format!("--end-token: `{token}` is {count} tokens, expected one; give a longer text to --stop");
            Err(Mistake(problem).into())
        }
        Err(error) => Err(Mistake(format!("--end-token: {error}")).into()),
    }
}

/// The tokens of a text with their log-probabilities.
pub(super) fn logprobs(tokenizer: &Tokenizer, scores: &[TokenScore]) -> Value {
    let piece = |id: u32| tokenizer.decode(&[id]);
    let others = |score: &TokenScore| -> Vec<Value> {
        let other = |&(id, logprob): &(u32, f64)| json!({"id": id, "token": piece(id), "logprob": logprob});
        score.top.iter().map(other).collect()
    };
    let told = |score: &TokenScore| {
        json!({"id": score.id, "token": piece(score.id), "logprob": score.log_probability, "rank": score.rank,
            "top": others(score)})
    };
    scores.iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use firelight::data::TokenizerConfig;

    use super::*;

    #[test]
    fn a_token_is_named_as_the_file_spells_it_or_by_its_text() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/sentence_piece/llama");
        let tokenizer = Tokenizer::of_folder(folder).unwrap().unwrap();
        assert_eq!(tokenizer.token(id_of(&tokenizer, "</s>").unwrap()).unwrap(), "</s>");
        let characters = Tokenizer::train(&TokenizerConfig::Char, "abc ").unwrap();
        assert_eq!(vec![id_of(&characters, "b").unwrap()], characters.encode("b").unwrap());
        let refused = |token: &str| id_of(&characters, token).unwrap_err().to_string();
        assert_eq!(refused("abc"), "--end-token: `abc` is 3 tokens, expected one; give a longer text to --stop");
        assert!(refused("z").starts_with("--end-token: the character 'z'"), "{}", refused("z"));
    }
}
