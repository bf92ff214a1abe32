//! DRY, whose price rises with the length of a repetition: options of every command that writes.

use anyhow::{Result, ensure};
use firelight::data::Tokenizer;
use firelight::generation::Processing;
use firelight::generation::processors::Dry;

use crate::failure::Mistake;

#[derive(clap::Args, Clone)]
pub(super) struct Repetitions {
    /// Strength of DRY, whose price rises with the length of a repetition; 0.8 is usual
    #[arg(long, value_name = "F")]
    dry_multiplier: Option<f64>,
    /// What DRY multiplies its price by for each further token of a repetition
    #[arg(long, value_name = "F", default_value_t = Dry::default().base, requires = "dry_multiplier")]
    dry_base: f64,
    /// Tokens that DRY lets repeat freely
    #[arg(long, visible_alias = "dry-allowed-length", value_name = "N", default_value_t = Dry::default().allowed,
        requires = "dry_multiplier")]
    dry_allowed: usize,
    /// How many of the last tokens DRY looks for repetitions in [default: all]
    #[arg(long, value_name = "N", requires = "dry_multiplier")]
    dry_penalty_last_n: Option<usize>,
    /// End a repetition of DRY at tokens with this text, such as a line feed; may be repeated
    #[arg(long, value_name = "TEXT", requires = "dry_multiplier")]
    dry_sequence_breaker: Vec<String>,
}

impl Repetitions {
    /// The penalty, where one is asked for; its breakers are [added](Self::add_breakers) once there is a tokenizer.
    pub(super) fn dry(&self) -> Option<Dry> {
        let (base, allowed, range) = (self.dry_base, self.dry_allowed, self.dry_penalty_last_n);
        self.dry_multiplier.map(|multiplier| Dry { multiplier, base, allowed, range, ..Dry::default() })
    }

    /// Adds the tokens that end a repetition to the penalty.
    pub(super) fn add_breakers(&self, processing: &mut Processing, tokenizer: &Tokenizer) -> Result<()> {
        let Some(dry) = &mut processing.dry else { return Ok(()) };
        if self.dry_sequence_breaker.is_empty() {
            return Ok(());
        }
        let tokens = texts_of_tokens(tokenizer);
        for text in &self.dry_sequence_breaker {
            ensure!(!text.is_empty(), Mistake("--dry-sequence-breaker is an empty text; leave it out".into()));
            let holds = |token: &[u8]| token.windows(text.len()).any(|part| part == text.as_bytes());
            let found = (0u32..).zip(&tokens).filter_map(|(id, token)| holds(token).then_some(id));
            let known = dry.breakers.len();
            dry.breakers.extend(found);
            let problem =
                format!("--dry-sequence-breaker: no token of the model has `{text}` in it; give a shorter text");
            ensure!(dry.breakers.len() > known, Mistake(problem));
        }
        Ok(())
    }
}

/// The bytes that each token stands for in the middle of a text, with the space in front that a decoder leaves out at the beginning. Where a
/// tokenizer does not know them, as WordPiece, the text of the token alone.
fn texts_of_tokens(tokenizer: &Tokenizer) -> Vec<Vec<u8>> {
    tokenizer
        .token_bytes()
        .unwrap_or_else(|_| (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.decode(&[id]).into_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use firelight::data::TokenizerConfig;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        repetitions: Repetitions,
    }

    fn dry(words: &[&str]) -> Result<Option<Dry>> {
        let Command { repetitions } = Command::parse_from([&["command"], words].concat());
        let mut processing = Processing { dry: repetitions.dry(), ..Processing::default() };
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc ").unwrap();
        repetitions.add_breakers(&mut processing, &tokenizer)?;
        Ok(processing.dry)
    }

    #[test]
    fn every_option_of_dry_is_handed_on() {
        let id = |text: &str| Tokenizer::train(&TokenizerConfig::Char, "abc ").unwrap().encode(text).unwrap()[0];
        let found = dry(&[
            "--dry-multiplier",
            "2",
            "--dry-base",
            "3",
            "--dry-allowed-length",
            "4",
            "--dry-penalty-last-n",
            "5",
            "--dry-sequence-breaker",
            " ",
            "--dry-sequence-breaker",
            "b",
        ]);
        let expected = Dry { multiplier: 2.0, base: 3.0, allowed: 4, breakers: vec![id(" "), id("b")], range: Some(5) };
        assert_eq!(found.unwrap(), Some(expected));
        assert_eq!(dry(&["--dry-multiplier", "0.8", "--dry-allowed", "2"]).unwrap(), Some(Dry::default()));
        assert_eq!(dry(&[]).unwrap(), None);
    }

    #[test]
    fn a_breaker_is_found_where_a_decoder_leaves_out_the_first_space() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/sentence_piece/llama");
        let tokenizer = Tokenizer::of_folder(folder).unwrap().unwrap();
        let begin_words =
            (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.token(id).unwrap().starts_with('\u{2581}'));
        let words = ["command", "--dry-multiplier", "1", "--dry-sequence-breaker", " "];
        let Command { repetitions } = Command::parse_from(words);
        let mut processing = Processing { dry: repetitions.dry(), ..Processing::default() };
        repetitions.add_breakers(&mut processing, &tokenizer).unwrap();
        let breakers = processing.dry.unwrap().breakers;
        assert!(begin_words.clone().count() > 10 && begin_words.into_iter().all(|id| breakers.contains(&id)));
    }

    #[test]
    fn a_breaker_that_no_token_has_is_refused() {
        let refused =
            |text: &str| dry(&["--dry-multiplier", "1", "--dry-sequence-breaker", text]).unwrap_err().to_string();
        let unknown = "--dry-sequence-breaker: no token of the model has `ab` in it; give a shorter text";
        assert_eq!(refused("ab"), unknown);
        assert_eq!(refused(""), "--dry-sequence-breaker is an empty text; leave it out");
        for option in ["--dry-base", "--dry-allowed", "--dry-penalty-last-n", "--dry-sequence-breaker"] {
            assert!(Command::try_parse_from(["command", option, "2"]).is_err(), "{option}");
        }
    }
}
