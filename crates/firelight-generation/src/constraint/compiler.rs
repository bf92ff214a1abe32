//! What constraints are compiled with.

use std::sync::Arc;

use firelight_data::Tokenizer;
use serde_json::Value;

use super::Constraint;
use super::compiled::{Compiled, Source};
use super::vocabulary::Vocabulary;
use crate::GenerationError;

/// The bytes that the search for a first text tries by default.
const SEARCH_LIMIT: usize = 3_000_000;

/// Compiles constraints with a limit of your own. The functions of [`Constraint`] use the default.
///
/// Each constraint comes with a text that satisfies it, found by trial. A text that reaches its limit of tokens is completed by it.
///
/// ```
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_generation::{ConstraintCompiler, GenerationError};
///
/// let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
/// let hasty = ConstraintCompiler::default().with_search_limit(100).regex("[0-9]{80}", &tokenizer);
/// assert!(matches!(hasty, Err(GenerationError::SearchGaveUp { .. })));
/// assert_eq!(ConstraintCompiler::default().regex("[0-9]{80}", &tokenizer)?.needs(), 80);
/// # Ok::<(), GenerationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstraintCompiler {
    search_limit: usize,
}

impl Default for ConstraintCompiler {
    fn default() -> Self {
        Self { search_limit: SEARCH_LIMIT }
    }
}

impl ConstraintCompiler {
    /// Sets after about how many tried bytes the search for a first text gives up. Default 3,000,000.
    pub fn with_search_limit(self, search_limit: usize) -> Self {
        Self { search_limit }
    }

    /// As [`Constraint::regex`].
    ///
    /// # Errors
    /// As [`Constraint::regex`].
    pub fn regex(&self, pattern: &str, tokenizer: &Tokenizer) -> Result<Constraint, GenerationError> {
        self.compile(Source::Regex(pattern.into()), tokenizer)
    }

    /// As [`Constraint::json_schema`].
    ///
    /// # Errors
    /// As [`Constraint::json_schema`].
    pub fn json_schema(&self, schema: &Value, tokenizer: &Tokenizer) -> Result<Constraint, GenerationError> {
        self.compile(Source::Schema(schema.clone()), tokenizer)
    }

    /// As [`Constraint::lark`].
    ///
    /// # Errors
    /// As [`Constraint::lark`].
    pub fn lark(&self, grammar: &str, tokenizer: &Tokenizer) -> Result<Constraint, GenerationError> {
        self.compile(Source::Lark(grammar.into()), tokenizer)
    }

    fn compile(self, source: Source, tokenizer: &Tokenizer) -> Result<Constraint, GenerationError> {
        self.compile_for(source, Arc::new(Vocabulary::of(tokenizer)?))
    }

    /// For a vocabulary that others may share.
    pub(super) fn compile_for(
        self,
        source: Source,
        vocabulary: Arc<Vocabulary>,
    ) -> Result<Constraint, GenerationError> {
        Ok(Constraint(Arc::new(Compiled::of(source, vocabulary, self.search_limit)?)))
    }
}
