//! JSON by models of random logits and by a trained one is valid by its schema.

use std::collections::HashMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::compiled::Source;
use super::schemas::{read, schema};
use super::vocabulary::Vocabulary;
use super::writing::{Model, bytes, of_bytes, random_logits, write_by};
use super::{Constraint, ConstraintCompiler};
use crate::GenerationError;

/// How many schemas are written by, and how many seeds it may take until so many are satisfiable.
const SCHEMAS: usize = 300;
const SEEDS: u64 = 400;

/// What docs/how-to/sampler.md says is followed.
const KEYWORDS: [&str; 27] = [
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
];

const FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// What followed two bytes in JSON, counted: a trained model of bytes.
struct Trigrams(HashMap<[u32; 2], HashMap<u32, f64>>);

impl Trigrams {
    /// Learns from schemas, which are JSON themselves.
    fn trained() -> Self {
        let mut counts: HashMap<[u32; 2], HashMap<u32, f64>> = HashMap::new();
        for text in (1000..1300).map(|seed| format!("{:#}", schema(seed))) {
            let ids: Vec<u32> = text.bytes().map(u32::from).collect();
            for window in ids.windows(3) {
                *counts.entry([window[0], window[1]]).or_default().entry(window[2]).or_default() += 1.0;
            }
        }
        Self(counts)
    }

    fn logits(&self, ids: &[u32], vocabulary: usize) -> Vec<f64> {
        let counts = ids.last_chunk::<2>().and_then(|last| self.0.get(last));
        let mut logits = vec![1e-3f64.ln(); vocabulary];
        counts.into_iter().flatten().for_each(|(&id, &count)| logits[id as usize] = (count + 1e-3).ln());
        logits
    }
}

#[test]
fn every_text_of_random_logits_is_valid_by_its_schema() {
    every_text_is_valid_by_its_schema(&random_logits);
}

#[test]
fn every_text_of_a_trained_model_is_valid_by_its_schema() {
    let trained = Trigrams::trained();
    every_text_is_valid_by_its_schema(&|ids: &[u32], vocabulary: usize, _: &mut ChaCha8Rng| {
        trained.logits(ids, vocabulary)
    });
}

/// The first satisfiable schemas of the generator, which hold the keywords of the parser, nested and mixed.
fn satisfiable() -> impl Iterator<Item = (u64, Value, Constraint)> {
    let compiled = |seed| {
        let schema = schema(seed);
        match of_bytes(Source::Schema(schema.clone())) {
            Ok(constraint) => Some((seed, schema, constraint)),
            Err(GenerationError::Unsatisfiable { .. }) => None,
            Err(error) => panic!("{seed}: {schema}: {error}"),
        }
    };
    (0..SEEDS).filter_map(compiled).take(SCHEMAS)
}

fn every_text_is_valid_by_its_schema(model: &Model<'_>) {
    let mut count = 0;
    for (seed, schema, constraint) in satisfiable() {
        check(model, seed, &schema, &constraint);
        count += 1;
    }
    assert_eq!(count, SCHEMAS);
}

/// The texts at three limits. None is left out.
fn check(model: &Model<'_>, seed: u64, schema: &Value, constraint: &Constraint) {
    let valid = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
    let least = constraint.needs();
    for most in [least, least + 1 + seed as usize % 40, 400.max(least)] {
        let text = write_by(model, constraint, &bytes(), most, seed).text;
        let value = read(&text).unwrap_or_else(|error| panic!("{seed}: {schema}: {text}: {error}"));
        let problems: Vec<String> = valid.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{seed}: {schema}: {text}: {problems:?}");
    }
}

#[test]
fn the_schemas_hold_every_keyword_that_the_guide_lists() {
    let guide = include_str!("../../../../docs/how-to/sampler.md");
    let (_, listed) = guide.split_once("Of JSON schema these keywords are followed:").expect("the guide has a list");
    let (listed, _) = listed.split_once(". Others").expect("the guide says what becomes of others");
    let mut listed: Vec<&str> = listed.split('`').skip(1).step_by(2).collect();
    listed.sort_unstable();
    assert_eq!(listed, KEYWORDS);
    let schemas: Vec<String> = (0..SCHEMAS as u64).map(|seed| schema(seed).to_string()).collect();
    let mut looked_for = KEYWORDS.map(|keyword| format!("\"{keyword}\":")).to_vec();
    looked_for.extend(FORMATS.map(|format| format!("\"format\":\"{format}\"")));
    for keyword in looked_for {
        assert!(schemas.iter().any(|schema| schema.contains(&keyword)), "{keyword}");
    }
}

#[test]
fn numbers_are_read_within_their_range() {
    let text = r#"{"1e999": [1e999, -2.5E+12345, 3e-0000, true], "\"e999": "e999"}"#;
    let expected = json!({"1e999": [1e99, -2.5e12, 3.0, true], "\"e999": "e999"});
    assert_eq!(read(text).unwrap(), expected);
    assert!(read(&"7".repeat(400)).is_ok_and(|value| value.is_f64()));
    assert!(read("1e").is_err());
}

/// An alphabet as large as that of a tokenizer of many languages: all bytes and thousands of characters.
#[test]
fn a_schema_of_many_identifiers_is_satisfied_with_a_large_alphabet() {
    let others = ('\u{4e00}'..'\u{9fff}').take(5000).map(|character| character.to_string().into_bytes());
    let vocabulary = Arc::new(Vocabulary::new((0..=255).map(|byte| vec![byte]).chain(others).collect()));
    let names: Vec<String> = ('a'..='l').map(String::from).collect();
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({"type": "string", "format": "uuid"}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false});
    let compiled =
        |compiler: ConstraintCompiler| compiler.compile_for(Source::Schema(schema.clone()), vocabulary.clone());
    // Every character at every place would be 4 million bytes, more than the default.
    let constraint = compiled(ConstraintCompiler::default().with_search_limit(400_000)).unwrap();
    assert_eq!(constraint.needs(), 12 * (4 + 38) + 11 + 2);
    assert!(constraint.accepts(&constraint.closing()));
    let error = compiled(ConstraintCompiler::default().with_search_limit(1000)).unwrap_err();
    match error {
        GenerationError::SearchGaveUp { constraint, tried } => {
            assert!(constraint == "the JSON schema" && tried >= 1000, "{tried} bytes for {constraint}");
        }
        error => panic!("{error}"),
    }
}
