//! JSON by models of random logits and by a trained one is valid by its schema.

use std::collections::HashMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::ConstraintCompiler;
use super::compiled::Source;
use super::schemas::schema;
use super::vocabulary::Vocabulary;
use super::writing::{Model, bytes, of_bytes, random_logits, write_by};
use crate::GenerationError;

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

/// Schemas that hold the keywords of the parser, nested and mixed, each at three limits.
fn every_text_is_valid_by_its_schema(model: &Model<'_>) {
    let tokenizer = bytes();
    let mut satisfiable = 0;
    for seed in 0..300 {
        let schema = schema(seed);
        let constraint = match of_bytes(Source::Schema(schema.clone())) {
            Ok(constraint) => constraint,
            Err(error) => {
                assert!(error.to_string().starts_with("no JSON satisfies the schema:"), "{schema}: {error}");
                continue;
            }
        };
        satisfiable += 1;
        let valid = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        let least = constraint.needs();
        let limits = [least, least + 1 + seed as usize % 40, 400.max(least)];
        for most in limits {
            let text = write_by(model, &constraint, &tokenizer, most, seed).text;
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => value,
                // JSON sets no limit to an exponent, but f64 does.
                Err(error) if error.to_string().starts_with("number out of range") => continue,
                Err(error) => panic!("{seed}: {schema}: {text}: {error}"),
            };
            let problems: Vec<String> = valid.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(problems.is_empty(), "{seed}: {schema}: {text}: {problems:?}");
        }
    }
    assert!(satisfiable > 250, "{satisfiable}");
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
