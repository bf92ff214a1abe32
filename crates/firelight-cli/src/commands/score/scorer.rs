//! The models that score texts, as one.

use anyhow::Result;
use firelight::data::Tokenizer;
use firelight::generation::{ScoredToken, TextScore};
use firelight::language::{ScoreOptions, TextGenerator};
use firelight::seq2seq::Translator;
use firelight::storage::{InputError, TaskError};
use serde_json::{Value, json};

use super::super::trained_model::TrainedModel;

/// A model, and how it scores.
pub(super) enum Scorer {
    /// Any text, in windows of the context that begin every so many tokens.
    Language { generator: Box<TextGenerator>, options: ScoreOptions, stride: usize },
    /// A target after a source: that one, or what stands before the tab of a line.
    Translator { translator: Box<Translator>, source: Option<String>, top: usize },
}

impl Scorer {
    /// A language model; the stride is checked.
    pub(super) fn language(model: &TrainedModel, stride: Option<usize>, top: usize) -> Result<Self> {
        let generator = Box::new(model.load(TextGenerator::load_from)?);
        let options = ScoreOptions { stride, top, ..ScoreOptions::default() };
        let stride = options.stride_in(generator.model().max_seq_len())?;
        Ok(Self::Language { generator, options, stride })
    }

    /// A translator.
    pub(super) fn translator(model: &TrainedModel, source: Option<String>, top: usize) -> Result<Self> {
        Ok(Self::Translator { translator: Box::new(model.load(Translator::load_from)?), source, top })
    }

    /// The score of a text, of a target, or of a line with a source and a target.
    pub(super) fn score(&self, text: &str) -> Result<TextScore, TaskError> {
        match self {
            Self::Language { generator, options, .. } => generator.score(text, options),
            Self::Translator { translator, source: Some(source), top } => translator.score(source, text, *top),
            Self::Translator { translator, source: None, top } => {
                let (source, target) = pair(text)?;
                translator.score(source, target, *top)
            }
        }
    }

    /// The same of a line, counted from 1, that errors name.
    pub(super) fn score_line(&self, number: usize, line: &str) -> Result<TextScore, TaskError> {
        self.score(line).map_err(TaskError::in_line(number))
    }

    /// Context and stride of a language model.
    pub(super) fn protocol(&self) -> Option<(usize, usize)> {
        match self {
            Self::Language { generator, stride, .. } => Some((generator.model().max_seq_len(), *stride)),
            Self::Translator { .. } => None,
        }
    }

    /// An object with what was scored.
    pub(super) fn names(&self, text: &str) -> Value {
        match self {
            Self::Language { .. } => json!({"text": text}),
            Self::Translator { source: Some(source), .. } => json!({"source": source, "target": text}),
            Self::Translator { source: None, .. } => {
                let (source, target) = text.split_once('\t').unwrap_or(("", text));
                json!({"source": source, "target": target})
            }
        }
    }

    /// A token of the text, as people read it: its piece of the text, or how its tokenizer spells it where it has none.
    pub(super) fn label(&self, id: u32, text: &str) -> String {
        match text {
            "" => self.tokenizer().token(id).unwrap_or_else(|| format!("<{id}>")),
            text => format!("{text:?}"),
        }
    }

    /// Any token, by itself.
    pub(super) fn label_of(&self, id: u32) -> String {
        self.label(id, &self.tokenizer().decode(&[id]))
    }

    pub(super) fn token_to_json(&self, token: &ScoredToken) -> Value {
        let score = token.score.as_ref();
        let mut object =
            json!({"id": token.id, "text": token.text, "log_probability": score.map(|score| score.log_probability)});
        if let Some(rank) = score.and_then(|score| score.rank) {
            let decoded = |id: u32| self.tokenizer().decode(&[id]);
            let top = score.into_iter().flat_map(|score| &score.top);
            let top = top.map(
                |&(id, log_probability)| json!({"id": id, "text": decoded(id), "log_probability": log_probability}),
            );
            object["rank"] = rank.into();
            object["top"] = top.collect();
        }
        object
    }

    fn tokenizer(&self) -> &Tokenizer {
        match self {
            Self::Language { generator, .. } => generator.tokenizer(),
            Self::Translator { translator, .. } => translator.vocabulary().target(),
        }
    }
}

/// The source and the target of a line.
fn pair(line: &str) -> Result<(&str, &str), InputError> {
    match (line.split_once('\t'), line.matches('\t').count()) {
        (Some(pair), 1) => Ok(pair),
        (_, tabs) => {
            let problem = format!("expected a source, a tab and its target, found {tabs} tabs");
            Err(InputError::new(problem).advise("put one tab between the two"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_one_tab() {
        assert_eq!(pair("a b\tc").unwrap(), ("a b", "c"));
        for (line, tabs) in [("a b", 0), ("a\tb\tc", 2)] {
            let expected = format!("found {tabs} tabs; put one tab between the two");
            assert!(pair(line).unwrap_err().to_string().ends_with(&expected), "{line}");
        }
    }
}
