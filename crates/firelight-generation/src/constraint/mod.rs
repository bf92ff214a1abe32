//! Constrained decoding: texts that satisfy a regular expression, a JSON schema or a grammar.
//!
//! ```text
//! regex, schema, grammar -compile-> Constraint -processor-> hides tokens that no valid text continues with
//! Tokenizer -token_bytes-> Vocabulary --^                     `-> closing: bytes that complete the text, kept within the tokens left
//! ```
//!
//! The `llguidance` crate (<https://github.com/guidance-ai/llguidance>) parses the grammar and says which tokens may follow: an Earley parser
//! over a lexer of derivatives. This module adds the bytes of a tokenizer's ids, the end of a text by a stop token or by its length limit,
//! errors, and a copy for each beam. Closings are found in the states of the lexer ([`explorer`]) and by trial ([`closing`]).

mod closing;
mod compiled;
mod compiler;
mod explorer;
#[cfg(test)]
mod keyword_tests;
mod processor;
mod read_text;
mod refusal;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod replay_tests;
mod rules;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod stopped_tests;
#[cfg(test)]
mod strategy_tests;
#[cfg(test)]
mod tests;
mod vocabulary;
#[cfg(test)]
mod whitespace_tests;
#[cfg(test)]
mod writing;

use std::sync::Arc;

use firelight_data::Tokenizer;
use firelight_storage::InputError;
use serde_json::Value;

use crate::GenerationError;
use compiled::Compiled;
pub use compiler::ConstraintCompiler;
pub(crate) use processor::Constrained;

/// A constraint on generated text (regex, JSON schema or grammar), compiled for one tokenizer. Cheap to clone.
///
/// ```
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_generation::Constraint;
///
/// let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
/// let date = Constraint::regex("[0-9]{4}-[0-9]{2}", &tokenizer).unwrap();
/// assert!(date.accepts("2024-05") && !date.accepts("2024-5"));
/// assert!(date.check(6).unwrap_err().to_string().contains("needs at least 7 tokens"));
/// ```
#[derive(Clone, Debug)]
pub struct Constraint(Arc<Compiled>);

impl Constraint {
    /// A regular expression of the whole text, in the syntax of the `regex` crate without anchors, look-around and back-references.
    ///
    /// The tokens of some tokenizers begin with the space in front of a word; ` ?` at the beginning of an expression lets a text begin with it.
    ///
    /// # Errors
    /// Fails if it is no regular expression, if the tokenizer cannot write a text that matches, or if none is found
    /// ([`GenerationError::SearchGaveUp`]).
    pub fn regex(pattern: &str, tokenizer: &Tokenizer) -> Result<Self, GenerationError> {
        ConstraintCompiler::default().regex(pattern, tokenizer)
    }

    /// A JSON text that a schema accepts. It is written on one line, with at most one space after each comma and colon, and with the properties
    /// in the order of the schema.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_generation::Constraint;
    ///
    /// let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    /// let schema = serde_json::json!({
    ///     "type": "object", "required": ["age"], "properties": {"age": {"type": "integer", "minimum": 0}}, "additionalProperties": false,
    /// });
    /// let person = Constraint::json_schema(&schema, &tokenizer).unwrap();
    /// assert!(person.accepts("{\"age\": 7}") && !person.accepts("{\"age\":-7}") && !person.accepts("{}"));
    ///
    /// let nobody = Constraint::json_schema(&false.into(), &tokenizer).unwrap_err();
    /// assert!(nobody.to_string().starts_with("no JSON satisfies the schema"));
    /// ```
    ///
    /// # Errors
    /// Fails if it is no schema, if it has a keyword that is not followed, if nothing satisfies it ([`GenerationError::Unsatisfiable`]), if the
    /// tokenizer cannot write what satisfies it, or if no text is found ([`GenerationError::SearchGaveUp`]).
    pub fn json_schema(schema: &Value, tokenizer: &Tokenizer) -> Result<Self, GenerationError> {
        ConstraintCompiler::default().json_schema(schema, tokenizer)
    }

    /// A context-free grammar in llguidance's variant of Lark's syntax, of which `start` is the whole text
    /// (<https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md>).
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_generation::Constraint;
    ///
    /// let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    /// let brackets = Constraint::lark(r#"start: "(" start? ")""#, &tokenizer).unwrap();
    /// assert!(brackets.accepts("((()))") && !brackets.accepts("(()"));
    /// ```
    ///
    /// # Errors
    /// Fails if it is no grammar, if the tokenizer cannot write a text of it, or if none is found ([`GenerationError::SearchGaveUp`]).
    pub fn lark(grammar: &str, tokenizer: &Tokenizer) -> Result<Self, GenerationError> {
        ConstraintCompiler::default().lark(grammar, tokenizer)
    }

    /// Whether a whole text satisfies it.
    pub fn accepts(&self, text: &str) -> bool {
        self.0.accepts(text)
    }

    /// The length in tokens of the shortest known text that satisfies it.
    pub fn needs(&self) -> usize {
        self.0.needs()
    }

    /// The shortest known text that satisfies it.
    #[cfg(test)]
    fn closing(&self) -> String {
        String::from_utf8_lossy(self.0.closing()).into_owned()
    }

    /// Makes sure that a text of `max_new_tokens` tokens can satisfy it.
    ///
    /// # Errors
    /// Fails if no known text is short enough.
    pub fn check(&self, max_new_tokens: usize) -> Result<(), GenerationError> {
        match self.needs() {
            needs if needs <= max_new_tokens => Ok(()),
            needs => {
                let source = self.0.source();
                let problem = format!("max_new_tokens is {max_new_tokens}, but {source} needs at least {needs} tokens");
                Err(InputError::new(problem).advise(format!("give max_new_tokens {needs} or more")).into())
            }
        }
    }

    /// The processor of a row whose text has at most `max_new_tokens` tokens and ends with one of the stop tokens.
    pub(crate) fn processor(&self, max_new_tokens: usize, stop_tokens: &[u32]) -> Constrained {
        Constrained::new(self.0.clone(), max_new_tokens, stop_tokens)
    }
}

/// Two constraints are equal if one was cloned from the other.
impl PartialEq for Constraint {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
