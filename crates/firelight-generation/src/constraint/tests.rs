//! Texts by models of random logits, at all limits.

use firelight_data::{Tokenizer, TokenizerConfig};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::Constraint;
use super::compiled::Source;
use super::writing::{bytes, of_bytes, uniform, write};
use crate::processors::{HIDDEN, History, LogitsProcessor};

fn regex(pattern: &str) -> Constraint {
    of_bytes(Source::Regex(pattern.into())).unwrap()
}

/// The ids below 256 that are left for a first token.
fn first(row: &mut dyn LogitsProcessor) -> Vec<u8> {
    let mut logits = [0.0; 258];
    row.process(&History::default(), &mut logits);
    (0..=255).filter(|&byte| logits[usize::from(byte)] != HIDDEN).collect()
}

#[test]
fn every_text_satisfies_a_regular_expression_at_every_limit() {
    for (pattern, least) in [
        ("[0-9]{4}-[0-9]{2}-[0-9]{2}", 10),
        ("(yes|no|perhaps)", 2),
        ("[a-d]*z", 1),
        ("[a-z]{3,}( [a-z]{2,5})*\\.", 4),
        ("(a|b[0-9]{30})+", 1),
        ("\"([^\"\\\\]|\\\\.)*\"", 2),
        ("é?[ü🙂]+", 2),
        ("(ab|abcd)(ef|cdef)", 4),
        ("( [a-z]+)+ (love|death)[.]", 8),
        ("[a-z]{3,}(ab|cd)x", 6),
        ("(a[a-z]{30}|z[a-z]zq)", 4),
        ("(love|death)( [a-z]+)+ (love|death)", 11),
        ("", 0),
    ] {
        let constraint = regex(pattern);
        assert_eq!(constraint.needs(), least, "{pattern}");
        for most in (least..least + 12).chain([60, 300]) {
            for seed in 0..6 {
                let text = write(&constraint, &bytes(), most, seed).text;
                assert!(constraint.accepts(&text), "{pattern}: {text:?} of at most {most}");
            }
        }
        assert!(constraint.check(least).is_ok(), "{pattern}");
    }
}

#[test]
fn only_what_goes_on_with_the_text_is_left() {
    let mut row = regex("a[0-9]?").processor(9, &[257]);
    let mut at = |ids: &[u32], next: Option<u32>| {
        let mut logits = [0.5; 300];
        row.process(&History::new(ids, 0), &mut logits);
        next.into_iter().for_each(|id| row.accept(id));
        (0..300).filter(|&id| logits[id] != HIDDEN).collect::<Vec<_>>()
    };
    assert_eq!(at(&[], Some(97)), [97]);
    assert_eq!(at(&[97], Some(51)), (48..58).chain([257]).collect::<Vec<_>>());
    assert_eq!(at(&[97, 51], None), [257], "nothing but the end");
    assert!(row.is_complete());
}

#[test]
fn a_copy_goes_on_by_itself() {
    let mut row = regex("a[xy]|b[0-9]").processor(9, &[257]).boxed();
    assert_eq!(first(row.as_mut()), b"ab");
    let mut other = row.boxed();
    row.accept(97);
    other.accept(98);
    assert_eq!(first(row.as_mut()), b"xy");
    assert_eq!(first(other.as_mut()), b"0123456789");
    let mut third = other.boxed();
    other.accept(48);
    assert!(other.is_complete() && !third.is_complete());
    assert_eq!(first(third.as_mut()), b"0123456789");
}

#[test]
fn what_does_not_belong_there_leaves_nothing() {
    let mut row = regex("ab").processor(9, &[]);
    row.accept(122);
    assert_eq!(first(&mut row), b"");
    assert!(!row.is_complete());
}

#[test]
fn what_would_end_a_text_too_early_is_refused() {
    let mut options = crate::GenerationOptions::new(9).with_stop_strings(["a"]);
    options.validate().unwrap();
    options.processing.constraint = Some(regex("ab"));
    let error = options.validate().unwrap_err().to_string();
    assert!(error.contains("stop_strings cannot be combined with a constraint"), "{error}");
}

#[test]
fn a_text_is_closed_within_its_limit() {
    let schema = json!({
        "type": "object", "required": ["name", "tags"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    });
    let constraint = Constraint::json_schema(&schema, &bytes()).unwrap();
    assert_eq!(constraint.closing(), r#"{"name":"","tags":[]}"#);
    for most in 21..90 {
        let written = write(&constraint, &bytes(), most, most as u64);
        let value: Value = serde_json::from_str(&written.text).unwrap();
        assert!(value["name"].is_string() && value["tags"].is_array() && written.tokens <= most, "{value}");
    }
    let error = constraint.check(20).unwrap_err().to_string();
    assert_eq!(
        error,
        "max_new_tokens is 20, but the JSON schema needs at least 21 tokens; give max_new_tokens 21 or more"
    );
}

#[test]
fn a_token_behind_which_there_is_no_room_is_not_admitted() {
    let constraint = regex("a*(b[0-9]{40})?");
    let mut row = constraint.processor(30, &[257]);
    assert_eq!(first(&mut row), b"ab", "far from the limit all are left");
    assert!(row.admits(97) && !row.admits(98) && row.admits(257));
    let mut row = constraint.processor(41, &[257]);
    assert!(row.admits(98));
    let mut row = constraint.processor(10, &[257]);
    assert_eq!(first(&mut row), b"a", "near it those that fit");
}

#[test]
fn what_a_later_processor_shows_is_not_admitted_unless_it_belongs_there() {
    let mut row = regex("ab?").processor(9, &[257]);
    assert_eq!(first(&mut row), b"a");
    assert_eq!([97, 98, 256, 257, 258, 9999].map(|id| row.admits(id)), [true, false, false, false, false, false]);
    row.accept(97);
    assert!(row.admits(98) && row.admits(257), "the parser is sound, and the text may end here");
}

#[test]
fn the_fallback_is_the_closing_then_a_stop_token_and_then_the_end() {
    let written = |stops: &[u32]| {
        let mut row = regex("ab(c[0-9]{40})?").processor(30, stops);
        let mut ids = Vec::new();
        while let Some(id) = row.fallback_token().filter(|id| !stops.contains(id)) {
            row.accept(id);
            ids.push(id);
        }
        (ids, row.fallback_token(), row.is_complete())
    };
    assert_eq!(written(&[257]), (vec![97, 98], Some(257), false));
    assert_eq!(written(&[]), (vec![97, 98], None, true));
}

#[test]
fn a_recursive_schema_is_closed_too() {
    let schema = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {"anyOf": [
            {"type": "object", "required": ["kind", "next"], "additionalProperties": false,
             "properties": {"kind": {"const": "branch"}, "next": {"$ref": "#/$defs/node"}}},
            {"type": "object", "required": ["kind"], "additionalProperties": false, "properties": {"kind": {"const": "leaf"}}},
        ]}},
    });
    let constraint = Constraint::json_schema(&schema, &bytes()).unwrap();
    assert_eq!(constraint.needs(), r#"{"kind":"leaf"}"#.len());
    for most in (15..60).chain([200]) {
        let text = write(&constraint, &bytes(), most, most as u64).text;
        serde_json::from_str::<Value>(&text).unwrap();
    }
}

#[test]
fn a_grammar_is_followed() {
    let constraint = Constraint::lark(
        "start: sum\nsum: product (\"+\" product)*\nproduct: NUMBER (\"*\" NUMBER)*\nNUMBER: /[1-9][0-9]{0,3}/",
        &bytes(),
    )
    .unwrap();
    assert!(constraint.accepts("1+20*3") && !constraint.accepts("1+") && !constraint.accepts("01"));
    for most in 1..40 {
        let text = write(&constraint, &bytes(), most, most as u64).text;
        let factors: Vec<&str> = text.split(['+', '*']).collect();
        assert!(factors.iter().all(|factor| factor.parse::<u32>().is_ok_and(|factor| factor > 0)), "{text}");
    }
}

#[test]
fn texts_of_all_sorts_of_tokenizers_satisfy_it() {
    let people = r#"{"name": "Ann", "age": 30} {"name": "Bob", "age": 4, "tags": ["x", "y"]} true false null -1.5e3 "#
        .repeat(20);
    let schema = json!({
        "type": "object", "required": ["name", "age"], "additionalProperties": {"type": "boolean"},
        "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    });
    let valid = jsonschema::validator_for(&schema).unwrap();
    for config in [
        TokenizerConfig::Char,
        TokenizerConfig::Bpe { vocab_size: 300 },
        TokenizerConfig::SentenceBpe { vocab_size: 300 },
        TokenizerConfig::Unigram { vocab_size: 300 },
    ] {
        let tokenizer = Tokenizer::train(&config, &people).unwrap();
        for tokenizer in [tokenizer.clone(), tokenizer.with_special_tokens(&["</s>", "<pad>"]).unwrap()] {
            let constraint = Constraint::json_schema(&schema, &tokenizer).unwrap();
            let least = constraint.needs();
            for (seed, most) in (least..least + 20).chain([100]).enumerate() {
                let written = write(&constraint, &tokenizer, most, seed as u64);
                let value =
                    serde_json::from_str(&written.text).unwrap_or_else(|error| panic!("{error}: {}", written.text));
                assert!(valid.is_valid(&value) && (written.has_ended || written.tokens == most), "{config}: {value}");
            }
        }
    }
}

/// Words that look like the end of the text, letter by letter.
#[test]
fn words_before_an_end_of_letters_are_closed() {
    let lines = "we love the death of a star, and a star may love it so. ".repeat(20);
    for config in [TokenizerConfig::Char, TokenizerConfig::Bpe { vocab_size: 300 }] {
        let tokenizer = Tokenizer::train(&config, &lines).unwrap();
        let constraint = Constraint::regex("( [a-z]+)+ (love|death)[.]", &tokenizer).unwrap();
        let least = constraint.needs();
        assert!(least <= 8, "{config}: {:?}", constraint.closing());
        for (seed, most) in (least..least + 20).chain([100]).enumerate() {
            let written = write(&constraint, &tokenizer, most, seed as u64);
            assert!(constraint.accepts(&written.text) && written.tokens <= most, "{config}: {:?}", written.text);
        }
    }
    let verse =
        Constraint::lark("start: (\" \" WORD)+ \" \" (\"love\" | \"death\") \".\"\nWORD: /[a-z]+/", &bytes()).unwrap();
    assert_eq!(verse.needs(), 8, "{:?}", verse.closing());
    for most in (8..30).chain([80]) {
        let text = write(&verse, &bytes(), most, most as u64).text;
        assert!(verse.accepts(&text), "{text:?}");
    }
}

#[test]
fn words_before_an_end_of_letters_are_closed_in_nested_json() {
    let line = json!({"type": "string", "pattern": "^( [a-z]+)+ (love|death)[.]$"});
    let verse = json!({"type": "array", "minItems": 1, "items": line});
    let schema = json!({
        "type": "object", "required": ["verses"], "additionalProperties": false,
        "properties": {"verses": {"type": "array", "minItems": 2, "items": verse}},
    });
    let (constraint, valid) =
        (Constraint::json_schema(&schema, &bytes()).unwrap(), jsonschema::validator_for(&schema).unwrap());
    let least = constraint.needs();
    for (seed, most) in (least..least + 12).chain([200]).enumerate() {
        let text = write(&constraint, &bytes(), most, seed as u64).text;
        let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(valid.is_valid(&value), "{text}");
    }
}

/// The whole decoding loop, over logits that are drawn by the last two tokens.
#[test]
fn every_way_of_decoding_writes_what_satisfies_it() {
    use std::ops::ControlFlow;

    use crate::mock::Pairs;
    use crate::{
        BeamOptions, GenerationOptions, PromptLookup, StopReason, TokenStream, beam_search, decode_texts, generate,
        generate_samples,
    };

    let tokenizer = bytes();
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let table = (0..258usize.pow(2) * 258).map(|_| 6.0 * uniform(&mut random) as f32).collect();
    let model = Pairs::new(258, table);
    let dates = Constraint::regex("[0-9]{4}-(0[1-9]|1[0-2])( or [0-9]{4}-(0[1-9]|1[0-2]))*", &tokenizer).unwrap();
    let prompt = vec![vec![40, 41]];
    for (limit, seed) in [(7, 1), (8, 2), (17, 3), (40, 4)] {
        for stops in [vec![], vec![257]] {
            let mut options = GenerationOptions::new(limit).with_temperature(1.0).with_seed(seed);
            options = options.with_stop_tokens(stops.clone());
            options.processing.constraint = Some(dates.clone());
            let drawn = generate_samples(&model, prompt.clone(), 3, &options).unwrap();
            drawn.iter().for_each(|row| assert!(dates.accepts(&tokenizer.decode(&row.ids)), "{row:?}"));
            let mut stream =
                TokenStream::new(&model, prompt.clone(), &options).unwrap().with_drafter(PromptLookup::default());
            let guessed =
                decode_texts(&mut stream, vec![tokenizer.stream()], |_, _| ControlFlow::Continue(())).unwrap();
            assert_eq!(guessed[0].ids, drawn[0].ids);
            let greedy = generate(&model, prompt.clone(), &options.clone().greedy(), |_| ControlFlow::Continue(()));
            assert!(dates.accepts(&tokenizer.decode(&greedy.unwrap()[0].ids)));
            let mut beams = BeamOptions::new(limit).with_beams(3).with_n_best(2).with_stop_tokens(stops.clone());
            beams.processing.constraint = Some(dates.clone());
            for found in &beam_search(&model, prompt.clone(), &beams).unwrap()[0] {
                assert!(dates.accepts(&tokenizer.decode(&found.ids)), "{found:?}");
            }
        }
    }
    let once = Constraint::regex("[0-9]{3}", &tokenizer).unwrap();
    let mut options = GenerationOptions::new(9).greedy();
    options.processing.constraint = Some(once);
    let found = generate(&model, prompt.clone(), &options, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((found[0].ids.len(), found[0].stop_reason), (3, StopReason::Complete));
    options.max_new_tokens = 2;
    let refused = generate(&model, prompt, &options, |_| ControlFlow::Continue(())).unwrap_err().to_string();
    let expected = "max_new_tokens is 2, but the regular expression `[0-9]{3}` needs at least 3 tokens";
    assert!(refused.starts_with(expected), "{refused}");
}
