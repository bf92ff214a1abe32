//! A constraint that is compiled and checked against a tokenizer.

use std::fmt;
use std::sync::{Arc, OnceLock};

use firelight_storage::shortened;
use llguidance::api::TopLevelGrammar;
use llguidance::{JsonCompileOptions, Matcher, TokenParser};
use serde_json::{Value, json};

use super::closing::Search;
use super::explorer::Explorer;
use super::read_text::ReadText;
use super::refusal;
use super::rules;
use super::vocabulary::Vocabulary;
use crate::GenerationError;

/// The bytes after which the search for the end of a text gives up.
const LONGEST_CLOSING: usize = 1 << 15;

/// The bytes that are tried for the shortest text are the limit on the direct way, and one in so many among the states of the lexer and on the
/// wide way.
const OF_STATES: usize = 10;
const OF_WIDE: usize = 30;

/// What the user gave.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Regex(String),
    Schema(Value),
    Lark(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regex(pattern) => write!(f, "the regular expression `{}`", shortened(pattern)),
            Self::Schema(_) => f.write_str("the JSON schema"),
            Self::Lark(_) => f.write_str("the grammar"),
        }
    }
}

impl Source {
    /// The parser at the beginning of a text, or the message of llguidance.
    pub(super) fn parser(&self, vocabulary: &Vocabulary) -> Result<TokenParser, String> {
        if let Self::Schema(schema) = self {
            rules::check(schema)?;
        }
        let mut parser = vocabulary.factory()?.create_parser(self.grammar()).map_err(|error| error.to_string())?;
        parser.start_without_prompt();
        Ok(parser)
    }

    fn grammar(&self) -> TopLevelGrammar {
        match self {
            // A pair of slashes is a comment in Lark.
            Self::Regex(pattern) if pattern.is_empty() => TopLevelGrammar::from_regex("(?:)"),
            Self::Regex(pattern) => TopLevelGrammar::from_regex(pattern),
            Self::Schema(schema) => TopLevelGrammar::from_json_schema(on_one_line(schema)),
            Self::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
        }
    }
}

/// Restricts the white space of a schema's texts to one space after commas and colons: otherwise a model could write white space for ever.
fn on_one_line(schema: &Value) -> Value {
    let mut schema = match schema {
        Value::Object(_) => schema.clone(),
        Value::Bool(true) => json!({}),
        other => json!({"allOf": [other]}),
    };
    let options = JsonCompileOptions {
        item_separator: ", ?".into(),
        key_separator: ": ?".into(),
        whitespace_flexible: false,
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    schema
}

/// See [`Constraint`](super::Constraint).
pub(super) struct Compiled {
    source: Source,
    vocabulary: Arc<Vocabulary>,
    /// At the beginning of a text.
    parser: Arc<TokenParser>,
    /// At the beginning of a text.
    matcher: Matcher,
    /// The shortest known text that satisfies it.
    closing: Vec<u8>,
    /// As `matcher`, for bytes instead of tokens. Made on first use.
    of_bytes: OnceLock<Option<Matcher>>,
}

impl Compiled {
    /// For a vocabulary that others may share. Searches a first text with about `limit` bytes.
    pub(super) fn of(source: Source, vocabulary: Arc<Vocabulary>, limit: usize) -> Result<Self, GenerationError> {
        let parser = source.parser(&vocabulary).map_err(|reason| refusal::of_message(&source, &reason))?;
        let mut matcher = matcher_at(&parser);
        let mut search = Search::new(&mut matcher, &vocabulary);
        let closing = match shortest(&parser, &mut search, limit) {
            Some(closing) => closing,
            None => by_bytes(&source, &mut search, limit)?,
        };
        let parser = Arc::new(parser);
        Ok(Self { source, vocabulary, parser, matcher, closing, of_bytes: OnceLock::new() })
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub(super) fn closing(&self) -> &[u8] {
        &self.closing
    }

    /// A parser of its own at the beginning of a text.
    pub(super) fn matcher(&self) -> Matcher {
        self.matcher.deep_clone()
    }

    /// An empty text.
    pub(super) fn text(&self) -> ReadText {
        ReadText::new(self.parser.clone())
    }

    pub(super) fn needs(&self) -> usize {
        self.vocabulary.count(&self.closing).unwrap_or(0)
    }

    pub(super) fn accepts(&self, text: &str) -> bool {
        let bytes = Vocabulary::bytes();
        let of_bytes = || self.source.parser(bytes).ok().map(|parser| matcher_at(&parser));
        let Some(matcher) = self.of_bytes.get_or_init(of_bytes) else { return false };
        Search::new(&mut matcher.deep_clone(), bytes).completes(text.as_bytes())
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A matcher at the place of a parser.
fn matcher_at(parser: &TokenParser) -> Matcher {
    Matcher::new(Ok(parser.deep_clone()))
}

/// The text of the fewest tokens that the searches find; parser and search are at its beginning.
fn shortest(parser: &TokenParser, search: &mut Search<'_>, limit: usize) -> Option<Vec<u8>> {
    let vocabulary = search.vocabulary;
    let explored = Explorer::new(parser.deep_clone(), vocabulary).shortest(LONGEST_CLOSING, limit / OF_STATES);
    let explored = explored.filter(|text| search.completes(text));
    let straight = search.straight(explored.as_ref().map_or(LONGEST_CLOSING, |text| 2 * text.len()), limit);
    let tokens = |text: &Vec<u8>| vocabulary.count(text).unwrap_or(LONGEST_CLOSING);
    let known = straight.into_iter().chain(explored).min_by_key(tokens);
    let most = known.as_ref().map_or(LONGEST_CLOSING, tokens);
    search.wide(limit / OF_WIDE, most.saturating_sub(1)).or(known)
}

/// The text that a search by bytes finds, where one by the tokenizer's characters has found none.
fn by_bytes(source: &Source, search: &mut Search<'_>, limit: usize) -> Result<Vec<u8>, GenerationError> {
    let bytes = Vocabulary::bytes();
    let Ok(parser) = source.parser(bytes) else {
        return Err(refusal::of_search(source, search.tried(), search.gave_up()));
    };
    let mut matcher = matcher_at(&parser);
    let mut other = Search::new(&mut matcher, bytes);
    let Some(text) = shortest(&parser, &mut other, limit) else {
        let (tried, gave_up) = (search.tried() + other.tried(), search.gave_up() || other.gave_up());
        return Err(refusal::of_search(source, tried, gave_up));
    };
    match search.vocabulary.missing(&String::from_utf8_lossy(&text)) {
        None if search.completes(&text) => Ok(text),
        None => Err(refusal::of_search(source, search.tried() + other.tried(), true)),
        Some(character) => Err(refusal::of_missing(source, character).into()),
    }
}
