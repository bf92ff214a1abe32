//! Each keyword of JSON schema is followed or refused by its name.

use serde_json::{Value, json};

use super::compiled::Source;
use super::schemas::read;
use super::writing::{bytes, of_bytes, write};

/// Schemas with a value that each accepts and one that it does not.
fn followed() -> Vec<(Value, Value, Value)> {
    let tagged = |tag: &str, kind: &str| {
        json!({
            "type": "object", "required": ["kind", "value"], "additionalProperties": false,
            "properties": {"kind": {"const": tag}, "value": {"type": kind}},
        })
    };
    let tree = json!({
        "$ref": "#/$defs/tree",
        "$defs": {"tree": {
            "type": "object", "required": ["leaf"], "additionalProperties": false,
            "properties": {"leaf": {"type": "boolean"}, "next": {"$ref": "#/$defs/tree"}},
        }},
    });
    let object = |keyword: &str, value: Value| {
        let mut schema = json!({"type": "object", "additionalProperties": {"type": "integer"}});
        schema[keyword] = value;
        schema
    };
    vec![
        (json!({"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]}), json!(7), json!(true)),
        (
            json!({"oneOf": [tagged("a", "integer"), tagged("b", "null")]}),
            json!({"kind": "b", "value": null}),
            json!({"kind": "b", "value": 1}),
        ),
        (json!({"anyOf": [{"const": 3}, {"type": "null"}]}), json!(null), json!(4)),
        (json!({"allOf": [{"type": "integer"}, {"minimum": 5}, {"maximum": 9}]}), json!(5), json!(4)),
        (
            json!({"type": "object", "patternProperties": {"^n_[a-z]$": {"type": "integer"}}, "additionalProperties": false}),
            json!({"n_a": 1}),
            json!({"other": 1}),
        ),
        (object("maxProperties", json!(1)), json!({"x": 1}), json!({"x": 1, "y": 2})),
        (object("minProperties", json!(1)), json!({"x": 1}), json!({})),
        (object("required", json!(["z"])), json!({"z": 1}), json!({"y": 1})),
        (json!({"type": "object", "additionalProperties": {"type": "boolean"}}), json!({"x": true}), json!({"x": 1})),
        (tree, json!({"leaf": true, "next": {"leaf": false}}), json!({"leaf": true, "next": {}})),
        (json!({"enum": ["red", 2, null, [true]]}), json!([true]), json!("green")),
        (json!({"const": {"a": [1, "x"]}}), json!({"a": [1, "x"]}), json!({"a": [1]})),
        (json!({"type": "string", "pattern": "^[a-c]+-[0-9]{2}$"}), json!("ab-07"), json!("ab-7")),
        (json!({"type": "string", "minLength": 2, "maxLength": 3}), json!("abc"), json!("abcd")),
        (json!({"type": "string", "format": "uuid"}), json!("01234567-89ab-cdef-0123-456789abcdef"), json!("0123")),
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}),
            json!([1, 2]),
            json!([]),
        ),
        (json!({"type": "array", "prefixItems": [{"const": 1}], "items": false}), json!([1]), json!([1, 2])),
        (older_array(), json!([1, true, null, null]), json!([1, true, 2])),
        (json!({"type": "string", "format": "duration"}), json!("P1Y2M3DT4H"), json!("P1Y2H")),
        (json!({"type": "string", "format": "uri"}), json!("https://a.b/c?d#e"), json!("a b")),
        (json!({"type": "integer", "minimum": -3, "maximum": 12}), json!(12), json!(13)),
        (json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}), json!(0.5), json!(1)),
        (json!({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 99}), json!(14), json!(15)),
        (json!({"type": ["null", "boolean"]}), json!(false), json!(0)),
    ]
}

/// An array as drafts before 2020-12 write it.
fn older_array() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
        "items": [{"const": 1}, {"type": "boolean"}], "additionalItems": {"type": "null"},
    })
}

#[test]
fn keywords_that_are_followed_hold_in_every_text() {
    for (schema, accepted, refused) in followed() {
        let constraint = of_bytes(Source::Schema(schema.clone())).unwrap_or_else(|error| panic!("{schema}: {error}"));
        assert!(constraint.accepts(&accepted.to_string()), "{schema}: {accepted}");
        assert!(!constraint.accepts(&refused.to_string()), "{schema}: {refused}");
        let valid = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        let least = constraint.needs();
        for (seed, most) in [least, least + 9, least + 60].into_iter().enumerate() {
            let text = write(&constraint, &bytes(), most, seed as u64).text;
            assert!(read(&text).is_ok_and(|value| valid.is_valid(&value)), "{schema}: {text}");
        }
    }
}

#[test]
fn keywords_that_are_not_followed_are_refused_by_name() {
    let object = |keyword: &str, value: Value| {
        let mut schema = json!({"type": "object"});
        schema[keyword] = value;
        schema
    };
    for (schema, named) in [
        (json!({"not": {"type": "string"}}), "\"not\""),
        (json!({"if": {"type": "string"}, "then": {"minLength": 2}}), "\"if\""),
        (json!({"type": "array", "contains": {"const": 1}}), "\"contains\""),
        (
            json!({"type": "array", "prefixItems": [true], "additionalItems": false}),
            "additionalItems is not followed beside prefixItems",
        ),
        (
            json!({"anyOf": [{"maxItems": 2}, {"minItems": 3}], "items": [true], "additionalItems": false}),
            "additionalItems is not followed beside anyOf",
        ),
        (json!({"type": "array", "uniqueItems": true}), "\"uniqueItems\""),
        (json!({"type": "array", "unevaluatedItems": false}), "\"unevaluatedItems\""),
        (object("unevaluatedProperties", json!(false)), "\"unevaluatedProperties\""),
        (object("propertyNames", json!({"maxLength": 2})), "\"propertyNames\""),
        (object("dependentRequired", json!({"a": ["b"]})), "\"dependentRequired\""),
        (object("dependentSchemas", json!({"a": true})), "\"dependentSchemas\""),
        (json!({"$dynamicRef": "#node"}), "\"$dynamicRef\""),
        (json!({"oneOf": [{"type": "string"}, {"minLength": 2}]}), "oneOf constraints are not supported"),
        (object("patternProperties", json!({"^a": true, "b$": true})), "patternProperty regexes"),
        (object("minProperties", json!(2)), "minProperties is 2"),
        (json!({"properties": {"a": true, "b": true}, "maxProperties": 2, "type": "object"}), "min/maxProperties"),
        (json!({"$ref": "#/$defs/missing"}), "missing"),
        (json!({"const": 9_007_199_254_740_993u64}), "const has 9007199254740993"),
        (json!({"type": "string", "pattern": "(?=a)"}), "look-around"),
    ] {
        // Within another schema as well as alone.
        for schema in [schema.clone(), json!({"anyOf": [schema, {"type": "null"}], "$defs": {}})] {
            let error = of_bytes(Source::Schema(schema.clone())).unwrap_err().to_string();
            assert!(error.starts_with("the JSON schema cannot be used: "), "{schema}: {error}");
            assert!(error.contains(named), "{schema}: {error}");
        }
    }
}
