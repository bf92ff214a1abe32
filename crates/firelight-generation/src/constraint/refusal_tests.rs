//! Constraints that cannot be followed, that nothing satisfies, or that a tokenizer cannot write are refused by name.

use firelight_data::{Tokenizer, TokenizerConfig};
use serde_json::json;

use super::Constraint;
use super::writing::bytes;
use crate::GenerationError;

#[test]
fn a_regular_expression_or_grammar_that_cannot_be_followed_is_refused_by_name() {
    let told = |found: Result<Constraint, GenerationError>| found.unwrap_err().to_string();
    let advice = "use the syntax of Rust's `regex` crate, without anchors and look-around";
    for (pattern, reason) in [
        ("[a", "unclosed character class"),
        ("(?=a)b", "look-around, including look-ahead and look-behind, is not supported"),
    ] {
        let expected = format!("the regular expression `{pattern}` cannot be used: {reason}; {advice}");
        assert_eq!(told(Constraint::regex(pattern, &bytes())), expected);
    }
    for (grammar, reason) in [("start: other", "at 1(8): unknown name: \"other\""), ("", "no start rule found")] {
        let expected = format!("the grammar cannot be used: {reason}; write it in llguidance's variant of Lark");
        assert_eq!(told(Constraint::lark(grammar, &bytes())), expected);
    }
}

#[test]
fn a_schema_that_cannot_be_followed_is_refused_by_name() {
    for (schema, expected) in [
        (json!({"uniqueItems": true}), "Unimplemented keys: [\"uniqueItems\"]"),
        (json!({"type": "what"}), "Invalid type: what"),
        (json!({"type": "string", "format": "what"}), "Unknown format: what"),
        (json!(3), "schema must be an object or boolean"),
        (json!({"$ref": "http://x.y/z"}), "Only absolute $ref's (#/...) are supported"),
        (json!({"oneOf": [{"type": "string"}, {"minLength": 2}]}), "oneOf constraints are not supported"),
    ] {
        let error = Constraint::json_schema(&schema, &bytes()).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("the JSON schema cannot be used: {expected}; change or remove that part of the schema")
        );
    }
}

#[test]
fn a_schema_that_nothing_satisfies_is_refused_by_name() {
    for (schema, expected) in [
        (json!(false), "schema is false"),
        (json!({"allOf": [{"enum": [1, 2]}, {"const": "x"}]}), "incompatible types"),
        (json!({"type": "string", "minLength": 3, "maxLength": 2}), "minLength (3) is greater than maxLength (2)"),
    ] {
        let error = Constraint::json_schema(&schema, &bytes()).unwrap_err().to_string();
        assert_eq!(error, format!("no JSON satisfies the schema: {expected}; relax it"));
    }
    let endless =
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/a"}}}});
    let error = Constraint::json_schema(&endless, &bytes()).unwrap_err();
    assert!(matches!(error, GenerationError::SearchGaveUp { .. }), "{error}");
    assert!(error.to_string().starts_with("the search for a text that satisfies the JSON schema gave up after "));
    let nothing = Constraint::json_schema(&json!(false), &bytes()).unwrap_err();
    assert!(matches!(nothing, GenerationError::Unsatisfiable { .. }), "{nothing}");
}

#[test]
fn what_the_tokenizer_cannot_write_is_named() {
    let digits = Tokenizer::train(&TokenizerConfig::Char, "0123456789.,\":ab").unwrap();
    let advice = "use a model whose tokenizer has one, such as a tokenizer of bytes";
    assert_eq!(
        Constraint::json_schema(&json!({"type": "object"}), &digits).unwrap_err().to_string(),
        format!("the JSON schema needs the character '{{', for which the tokenizer has no token; {advice}")
    );
    assert_eq!(
        Constraint::regex("[0-9]{2}x", &digits).unwrap_err().to_string(),
        format!(
            "the regular expression `[0-9]{{2}}x` needs the character 'x', for which the tokenizer has no token; {advice}"
        )
    );
    assert_eq!(Constraint::regex("x|[0-9]", &digits).unwrap().needs(), 1, "another text will do");
    let pieces =
        Tokenizer::train(&TokenizerConfig::WordPiece { vocab_size: 40 }, &"some words are longer ".repeat(20)).unwrap();
    let error = Constraint::regex("a", &pieces).unwrap_err().to_string();
    assert!(error.starts_with("the tokenizer's decoder is `WordPiece`:"), "{error}");
}
