//! What a text may not hold, what it begins with and what it has to satisfy: options of every command that writes.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use firelight::data::{DataError, Tokenizer};
use firelight::generation::processors::{BannedText, ForcedPrefix};
use firelight::generation::{Constraint, Processing};
use serde_json::Value;

use super::texts::whole_file;
use crate::failure::Mistake;

#[derive(clap::Args, Clone)]
pub(super) struct Restrictions {
    /// Never write this text, however it is divided into tokens; may be repeated
    #[arg(long, value_name = "TEXT")]
    ban: Vec<String>,
    /// Never choose the tokens with these ids, which commas separate
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    suppress_tokens: Vec<u32>,
    /// Begin the written text with this one
    #[arg(long, value_name = "TEXT", conflicts_with = "constraint")]
    prefix: Option<String>,
    /// Write JSON that is valid by the schema in FILE
    #[arg(long, value_name = "FILE", group = "constraint")]
    json_schema: Option<PathBuf>,
    /// Write a text that the regular expression matches as a whole
    #[arg(long, value_name = "PATTERN", group = "constraint")]
    regex: Option<String>,
    /// Write a text of the grammar in FILE, in llguidance's variant of Lark
    #[arg(long, value_name = "FILE", group = "constraint")]
    grammar: Option<PathBuf>,
}

impl Restrictions {
    /// Whether the text has to satisfy something.
    pub(super) fn is_constrained(&self) -> bool {
        self.json_schema.is_some() || self.regex.is_some() || self.grammar.is_some()
    }

    /// Whether they depend on what a text stands behind.
    pub(super) fn depend_on_prompts(&self) -> bool {
        self.prefix.is_some()
    }

    /// Adds them to what changes the logits of a text of at most so many tokens that stands behind `before`.
    pub(super) fn add_to(
        &self,
        processing: &mut Processing,
        tokenizer: &Tokenizer,
        before: &str,
        max_new_tokens: usize,
    ) -> Result<()> {
        processing.constraint = self.constraint(tokenizer)?;
        processing.banned.extend(self.suppressed(tokenizer)?);
        if !self.ban.is_empty() {
            let banned = BannedText::new(&self.ban, tokenizer);
            processing.custom.push(banned.map_err(|error| Mistake(format!("--ban: {error}")))?);
        }
        let prefix = self.prefix_ids(tokenizer, before, max_new_tokens)?;
        if !prefix.is_empty() {
            processing.custom.push(ForcedPrefix(prefix));
        }
        Ok(())
    }

    fn suppressed(&self, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>> {
        let size = tokenizer.vocab_size();
        if let Some(id) = self.suppress_tokens.iter().find(|&&id| id as usize >= size) {
            let known = size.saturating_sub(1);
            return Err(Mistake(format!("--suppress-tokens names the id {id}, expected ids from 0 to {known}")).into());
        }
        Ok(self.suppress_tokens.iter().map(|&id| vec![id]).collect())
    }

    fn prefix_ids(&self, tokenizer: &Tokenizer, before: &str, max_new_tokens: usize) -> Result<Vec<u32>> {
        let Some(prefix) = &self.prefix else { return Ok(Vec::new()) };
        let ids = ids_behind(tokenizer, before, prefix).map_err(|error| Mistake(format!("--prefix: {error}")))?;
        let count = ids.len();
        ensure!(
            count <= max_new_tokens,
            Mistake(format!(
                "--prefix has {count} tokens, but the text can have at most {max_new_tokens}: shorten the prefix"
            ))
        );
        Ok(ids)
    }

    fn constraint(&self, tokenizer: &Tokenizer) -> Result<Option<Constraint>> {
        Ok(match (&self.json_schema, &self.regex, &self.grammar) {
            (Some(file), ..) => {
                let schema = serde_json::from_str(&whole_file(file)?);
                let schema: Value = schema.map_err(|error| {
                    Mistake(format!("--json-schema: `{}` is not valid JSON: {error}", file.display()))
                })?;
                Some(Constraint::json_schema(&schema, tokenizer)?)
            }
            (_, Some(pattern), _) => Some(Constraint::regex(pattern, tokenizer)?),
            (.., Some(file)) => Some(Constraint::lark(&whole_file(file)?, tokenizer)?),
            _ => None,
        })
    }
}

/// The ids of a text as they stand behind another one. Some tokenizers put a space in front of a text that stands alone.
fn ids_behind(tokenizer: &Tokenizer, before: &str, text: &str) -> Result<Vec<u32>, DataError> {
    let alone = tokenizer.encode(text)?;
    let behind = |before: &str| {
        let (begun, whole) = (tokenizer.encode(before).ok()?, tokenizer.encode(&format!("{before}{text}")).ok()?);
        whole.strip_prefix(begun.as_slice()).map(<[u32]>::to_vec)
    };
    // Where a token spans the border, the text is taken by itself: without a space in front, as behind a line break.
    Ok(behind(before).or_else(|| behind("\n")).unwrap_or(alone))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use firelight::data::TokenizerConfig;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        restrictions: Restrictions,
    }

    fn processing(words: &[&str], before: &str, most: usize) -> Result<Processing> {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc ").unwrap();
        let command = Command::parse_from([&["command"], words].concat());
        let mut processing = Processing::default();
        command.restrictions.add_to(&mut processing, &tokenizer, before, most)?;
        Ok(processing)
    }

    /// The ids that may begin a text, out of four.
    fn may_begin(words: &[&str], before: &str) -> Vec<usize> {
        let mut logits = [0.0; 4];
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc ").unwrap();
        let before_ids = tokenizer.encode(before).unwrap();
        let history = firelight::generation::History::new(&before_ids, before_ids.len());
        processing(words, before, 9).unwrap().processors(9, &[]).process(&history, &mut logits);
        (0..4).filter(|&id| logits[id].is_finite()).collect()
    }

    #[test]
    fn bans_hide_tokens_and_a_prefix_leaves_one() {
        let ids = |text: &str| {
            let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc ").unwrap();
            tokenizer.encode(text).unwrap().into_iter().map(|id| id as usize).collect::<Vec<_>>()
        };
        let without = |text: &str| (0..4).filter(|id| !ids(text).contains(id)).collect::<Vec<_>>();
        assert_eq!(may_begin(&[], "ab"), [0, 1, 2, 3]);
        assert_eq!(may_begin(&["--ban", "abc", "--ban", "b "], "ab"), without("c "));
        assert_eq!(may_begin(&["--ban", "abc"], "b"), [0, 1, 2, 3]);
        assert_eq!(may_begin(&["--suppress-tokens", "1,2", "--suppress-tokens", "0"], ""), [3]);
        assert_eq!(may_begin(&["--prefix", "ca"], "ab"), ids("c"));
    }

    #[test]
    fn a_prefix_is_read_as_it_stands_behind_its_prompt() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/sentence_piece/llama");
        let tokenizer = Tokenizer::of_folder(folder).unwrap().unwrap();
        let ids = |before: &str, text: &str| ids_behind(&tokenizer, before, text).unwrap();
        let alone = |text: &str| tokenizer.encode(text).unwrap();
        // SentencePiece puts a space in front of a text that stands alone.
        assert_eq!(ids("", "and"), alone("and"));
        assert_eq!(ids("The fox", " and"), alone("and"));
        assert_ne!(ids("The fox", " and"), alone(" and"));
        assert_eq!([alone("The fox"), ids("The fox", "es")].concat(), alone("The foxes"));
        assert_ne!(ids("The fox", "es"), alone("es"));
        // Of "a the" the space and the word are one token, but the prompt has the space already.
        let whole = [alone("a "), ids("a ", "the")].concat();
        assert_eq!(tokenizer.decode(&whole), "a the");
    }

    #[test]
    fn what_the_tokenizer_does_not_know_is_refused() {
        let refused = |words: &[&str]| processing(words, "a", 3).unwrap_err().to_string();
        assert_eq!(refused(&["--suppress-tokens", "4"]), "--suppress-tokens names the id 4, expected ids from 0 to 3");
        assert_eq!(
            refused(&["--prefix", "abca"]),
            "--prefix has 4 tokens, but the text can have at most 3: shorten the prefix"
        );
        assert!(refused(&["--prefix", "z"]).starts_with("--prefix: the character 'z'"));
        assert!(refused(&["--ban", ""]).starts_with("--ban: a banned text is empty"));
        assert!(Command::try_parse_from(["command", "--prefix", "a", "--regex", "a"]).is_err());
    }
}
