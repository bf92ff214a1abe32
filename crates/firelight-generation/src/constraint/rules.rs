//! Parts of a JSON schema that llguidance accepts but does not follow exactly. It refuses keywords that it does not know.

use serde_json::{Number, Value};

/// Keywords whose value is a schema, or an array of schemas.
const SCHEMAS: [&str; 7] =
    ["items", "prefixItems", "additionalItems", "additionalProperties", "anyOf", "oneOf", "allOf"];

/// Keywords whose value is an object of schemas by their names.
const NAMED_SCHEMAS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Keywords whose value holds numbers that llguidance reads as `f64`.
const NUMBERS: [&str; 7] =
    ["const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// Makes sure that a schema and all within it can be followed.
///
/// # Errors
/// The keyword and its value, and why it cannot be followed.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else { return Ok(()) };
    check_properties(schema)?;
    check_items(schema)?;
    for (keyword, value) in keywords {
        match keyword.as_str() {
            name if NUMBERS.contains(&name) => check_numbers(name, value)?,
            name if NAMED_SCHEMAS.contains(&name) => {
                value.as_object().into_iter().flatten().try_for_each(|(_, schema)| check(schema))?;
            }
            name if SCHEMAS.contains(&name) => match value.as_array() {
                Some(schemas) => schemas.iter().try_for_each(check)?,
                None => check(value)?,
            },
            _ => {}
        }
    }
    Ok(())
}

/// Beside `additionalItems` llguidance leaves `prefixItems` out, and where a keyword that applies other schemas stands between it and `items`, it
/// leaves `additionalItems` out.
fn check_items(schema: &Value) -> Result<(), String> {
    let has = |keyword: &&str| schema.get(*keyword).is_some();
    let beside = ["prefixItems", "$ref", "allOf", "anyOf", "const", "enum", "oneOf"].into_iter().find(has);
    match beside.filter(|_| has(&"additionalItems")) {
        Some(keyword) => {
            Err(format!("additionalItems is not followed beside {keyword}; write prefixItems and items alone"))
        }
        None => Ok(()),
    }
}

/// Two properties of free names could have the same name, and then they are one.
fn check_properties(schema: &Value) -> Result<(), String> {
    let Some(least) = schema.get("minProperties").and_then(Value::as_u64) else { return Ok(()) };
    let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    if least <= required + 1 {
        return Ok(());
    }
    let counted = required + 1;
    Err(format!(
        "minProperties is {least}, but names that the schema leaves free may repeat, so that only {counted} can be \
         guaranteed; list the names in `required`"
    ))
}

fn check_numbers(keyword: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::Number(number) if !is_exact(number) => {
            Err(format!("{keyword} has {number}, an integer that a 64-bit float cannot hold exactly"))
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_numbers(keyword, value)),
        Value::Object(values) => values.values().try_for_each(|value| check_numbers(keyword, value)),
        _ => Ok(()),
    }
}

/// Whether an integer stays what it is as `f64`.
fn is_exact(number: &Number) -> bool {
    let integer = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    integer.is_none_or(|integer| (integer as f64) as i128 == integer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_would_be_broken_in_silence_is_named() {
        let free = json!({"type": "object", "required": ["a"], "minProperties": 3});
        let counted = "minProperties is 3, but names that the schema leaves free may repeat, so that only 2 can be \
                       guaranteed; list the names in `required`";
        let large = 9_007_199_254_740_993u64;
        let number = "has 9007199254740993, an integer that a 64-bit float cannot hold exactly";
        for (schema, expected) in [
            (free.clone(), counted.to_string()),
            (json!({"$defs": {"x": {"anyOf": [true, {"items": free}]}}}), counted.to_string()),
            (
                json!({"items": {"prefixItems": [true], "additionalItems": false}}),
                "additionalItems is not followed beside prefixItems; write prefixItems and items alone".to_string(),
            ),
            (json!({"const": large}), format!("const {number}")),
            (json!({"prefixItems": [{"enum": [1, {"k": [large]}]}]}), format!("enum {number}")),
            (json!({"additionalProperties": {"maximum": large}}), format!("maximum {number}")),
        ] {
            assert_eq!(check(&schema), Err(expected), "{schema}");
        }
    }

    #[test]
    fn names_and_numbers_that_can_be_followed_pass() {
        for schema in [
            json!(true),
            json!({"type": "object", "required": ["a", "b"], "minProperties": 3}),
            json!({"properties": {"minProperties": {"const": "9007199254740993"}, "const": {"minimum": 1.5}}}),
            json!({"enum": [9_007_199_254_740_992u64, -9_007_199_254_740_992i64, 0.1, i64::MIN]}),
            json!({"items": [true], "additionalItems": {"anyOf": [true]}}),
            json!({"default": {"const": 9_007_199_254_740_993u64}}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }
}
