//! White space of JSON: a text stands on one line, with at most one space after each comma and colon. Otherwise a model could write white space
//! up to its limit.

use serde_json::json;

use super::Constraint;
use super::compiled::Source;
use super::writing::of_bytes;
use crate::processors::{HIDDEN, History, LogitsProcessor};

const COMPACT: &str = r#"{"a":1,"b":[2,3],"c":{"d":null,"e":[]}}"#;

/// A schema of objects and arrays that are listed and of others that are free, with options of its own for llguidance.
fn constraint() -> Constraint {
    let schema = json!({
        "type": "object", "required": ["a", "b", "c"], "additionalProperties": false,
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "integer"}}, "c": {"type": "object"}},
        "x-guidance": {"whitespace_flexible": true},
    });
    of_bytes(Source::Schema(schema)).unwrap()
}

/// The places between two tokens of JSON, and both ends.
fn borders() -> impl Iterator<Item = usize> {
    let is_mark = |byte: Option<&u8>| byte.is_none_or(|byte| b"{}[]:,".contains(byte));
    let bytes = COMPACT.as_bytes();
    (0..=bytes.len()).filter(move |&place| is_mark(bytes[..place].last()) || is_mark(bytes.get(place)))
}

#[test]
fn white_space_is_one_space_behind_a_comma_or_colon() {
    let constraint = constraint();
    assert!(constraint.accepts(COMPACT));
    for (place, white) in borders().flat_map(|place| [" ", "  ", "\n", "\t", "\r", " \n"].map(|white| (place, white))) {
        let text = format!("{}{white}{}", &COMPACT[..place], &COMPACT[place..]);
        let expected = white == " " && COMPACT[..place].ends_with([',', ':']);
        assert_eq!(constraint.accepts(&text), expected, "{text:?}");
    }
    assert!(constraint.accepts(&COMPACT.replace(',', ", ").replace(':', ": ")), "at every place");
    assert!(constraint.accepts(&COMPACT.replacen(',', ", ", 1)), "at one and not at others");
}

#[test]
fn white_space_that_may_not_follow_is_hidden() {
    let constraint = constraint();
    let left = |text: &str| -> Vec<u8> {
        let (mut row, mut logits) = (constraint.processor(99, &[]), [0.0; 258]);
        let ids: Vec<u32> = text.bytes().map(u32::from).collect();
        ids.iter().for_each(|&id| row.accept(id));
        row.process(&History::new(&ids, 0), &mut logits);
        b" \n\t\r".iter().copied().filter(|&byte| logits[usize::from(byte)] != HIDDEN).collect()
    };
    for text in ["", "{", "{\"a\"", "{\"a\": ", "{\"a\": 1", "{\"a\": 1, "] {
        assert_eq!(left(text), b"", "behind {text:?}");
    }
    for text in ["{\"a\":", "{\"a\": 1,"] {
        assert_eq!(left(text), b" ", "behind {text:?}");
    }
}
