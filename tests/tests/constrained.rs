//! What a byte-level language model of random weights writes under JSON schemas, by draws, greedily and with beams, is valid.

use std::ops::ControlFlow;

use firelight::data::{Tokenizer, TokenizerConfig};
use firelight::generation::{
    BeamOptions, Constraint, GenerationError, GenerationOptions, Processing, beam_search, generate,
};
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::nn::{Init, ParamBuilder, WeightInit};
use serde_json::Value;

use crate::support::device;

/// The generator that the tests of constraints draw theirs from.
#[path = "../../crates/firelight-generation/src/constraint/schemas.rs"]
mod schemas;

/// How many schemas are written by.
const SCHEMAS: usize = 24;

/// The longest text that a schema may need, in bytes: a model is slower than the logits of the tests of constraints.
const LONGEST: usize = 48;

fn tokenizer() -> Tokenizer {
    let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").expect("bytes need no text");
    bytes.with_special_tokens(&["</s>"]).expect("a new token")
}

fn model(vocab_size: usize) -> LanguageModel {
    let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
    let config = LanguageModelConfig::new(vocab_size, 16, 2, 1).with_max_seq_len(128);
    config.with_transformer(|stack| stack.with_init(wide)).init_with(&ParamBuilder::new(&device(), 5))
}

/// The constraint of a schema that is satisfiable by a short text.
fn constraint(schema: &Value, tokenizer: &Tokenizer) -> Option<Constraint> {
    match Constraint::json_schema(schema, tokenizer) {
        Ok(constraint) => Some(constraint).filter(|constraint| constraint.needs() <= LONGEST),
        Err(GenerationError::Unsatisfiable { .. }) => None,
        Err(error) => panic!("{schema}: {error}"),
    }
}

/// The texts of all ways of decoding, in ids.
fn texts(model: &LanguageModel, constraint: &Constraint, (seed, stop): (u64, u32)) -> Vec<Vec<u32>> {
    let (prompt, limit) = (|| vec![vec![74, 83, 79, 78]], constraint.needs() + 16);
    let processing = Processing { constraint: Some(constraint.clone()), ..Processing::default() };
    let drawn = GenerationOptions::new(limit).with_temperature(1.0).with_seed(seed).with_stop_tokens([stop]);
    let drawn = drawn.with_processing(processing.clone());
    let beams = BeamOptions::new(limit).with_beams(3).with_n_best(2).with_stop_tokens([stop]);
    let best = beam_search(model, prompt(), &beams.with_processing(processing)).expect("beams");
    let mut texts: Vec<_> = best.into_iter().flatten().map(|hypothesis| hypothesis.ids).collect();
    for options in [drawn.clone().greedy(), drawn] {
        let written = generate(model, prompt(), &options, |_| ControlFlow::Continue(())).expect("a text");
        texts.extend(written.into_iter().map(|row| row.ids));
    }
    texts
}

#[test]
fn every_text_of_a_language_model_is_valid_by_its_schema() {
    let tokenizer = tokenizer();
    let (model, stop) = (model(tokenizer.vocab_size()), tokenizer.special("</s>").expect("it was added"));
    let compiled = |seed| Some((seed, constraint(&schemas::schema(seed), &tokenizer)?));
    let found: Vec<_> = (0..100).filter_map(compiled).take(SCHEMAS).collect();
    assert_eq!(found.len(), SCHEMAS);
    for (seed, constraint) in found {
        let schema = schemas::schema(seed);
        let valid = jsonschema::options().should_validate_formats(true).build(&schema).expect("a schema");
        for text in texts(&model, &constraint, (seed, stop)).iter().map(|ids| tokenizer.decode(ids)) {
            let value = schemas::read(&text).unwrap_or_else(|error| panic!("{seed}: {schema}: {text}: {error}"));
            assert!(valid.is_valid(&value), "{seed}: {schema}: {text}");
        }
    }
}
