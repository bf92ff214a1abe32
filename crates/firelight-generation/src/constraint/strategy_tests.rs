//! Bans, n-gram rules and other processors beside a constraint, in every way of decoding.

use std::ops::ControlFlow;

use firelight_data::{Tokenizer, TokenizerConfig};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::Constraint;
use super::writing::uniform;
use crate::mock::Pairs;
use crate::processors::{HIDDEN, History, LogitsProcessor};
use crate::{
    Autoregressive, BeamOptions, Drafter, GenerationOptions, Hypothesis, ModelDrafter, Processing, PromptLookup,
    StopReason, TokenStream, WithVocabulary, beam_search, decode_texts, generate,
};

fn tokenizer() -> Tokenizer {
    let characters = "{}[]\",: ab0123456789";
    Tokenizer::train(&TokenizerConfig::Char, characters).unwrap().with_special_tokens(&["</s>"]).unwrap()
}

/// Random logits by the last two tokens.
fn model() -> Pairs {
    let size = tokenizer().vocab_size();
    let mut random = ChaCha8Rng::seed_from_u64(25);
    Pairs::new(size, (0..size.pow(3)).map(|_| 6.0 * uniform(&mut random) as f32).collect())
}

fn id(text: &str) -> u32 {
    tokenizer().encode(text).unwrap()[0]
}

fn stop() -> u32 {
    tokenizer().special("</s>").unwrap()
}

fn prompt() -> Vec<Vec<u32>> {
    vec![vec![id("a"), id("b")]]
}

/// The ids of a text with guesses.
fn guessed<'m, M>(model: &'m M, options: &GenerationOptions, drafter: impl Drafter + 'm) -> Vec<u32>
where
    M: Autoregressive<Prompt = Vec<Vec<u32>>>,
{
    let mut stream = TokenStream::new(model, prompt(), options).unwrap().with_drafter(drafter);
    let mut texts = decode_texts(&mut stream, vec![tokenizer().stream()], |_, _| ControlFlow::Continue(())).unwrap();
    texts.remove(0).ids
}

/// The texts of all strategies: sampled and greedy, each without and with guesses, and those of beams.
fn texts<M>(model: &M, processing: &Processing, limit: usize, stops: &[u32]) -> Vec<String>
where
    M: Autoregressive<Prompt = Vec<Vec<u32>>>,
{
    let mut found = Vec::new();
    let sampled = GenerationOptions::new(limit).with_temperature(1.0).with_seed(limit as u64);
    let sampled = sampled.with_stop_tokens(stops).with_processing(processing.clone());
    for options in [sampled.clone(), sampled.greedy()] {
        let ids = generate(model, prompt(), &options, |_| ControlFlow::Continue(())).unwrap().remove(0).ids;
        let draft = ModelDrafter::new(model, &options).unwrap().with_confidence(0.0);
        assert_eq!(guessed(model, &options, PromptLookup::default()), ids);
        assert_eq!(guessed(model, &options, draft), ids);
        found.push(ids);
    }
    let beams = BeamOptions::new(limit).with_beams(3).with_n_best(2).with_stop_tokens(stops);
    let best = beam_search(model, prompt(), &beams.with_processing(processing.clone())).unwrap().remove(0);
    found.extend(best.into_iter().map(|hypothesis| hypothesis.ids));
    found.iter().map(|ids| tokenizer().decode(ids)).collect()
}

/// All texts beside these rules satisfy the schema, with a stop token at a limit that is near, and without one at a limit that is not.
fn assert_valid<M>(model: &M, schema: &Value, rules: &Processing)
where
    M: Autoregressive<Prompt = Vec<Vec<u32>>>,
{
    let constraint = Constraint::json_schema(schema, &tokenizer()).unwrap();
    let valid = jsonschema::validator_for(schema).unwrap();
    let least = constraint.needs();
    let processing = Processing { constraint: Some(constraint), ..rules.clone() };
    for (limit, stops) in [(least + 1, vec![stop()]), (least + 20, vec![])] {
        for text in texts(model, &processing, limit, &stops) {
            let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} within {limit}: {text}"));
            assert!(valid.is_valid(&value), "{text}");
        }
    }
}

fn object() -> Value {
    let properties = json!({"a": {"type": "integer"}, "b": {"type": "string"}});
    json!({"type": "object", "properties": properties, "required": ["a", "b"], "additionalProperties": false})
}

fn banned(texts: &[&str]) -> Processing {
    Processing { banned: texts.iter().map(|text| vec![id(text)]).collect(), ..Processing::default() }
}

#[test]
fn banned_braces_and_quotes_stand_where_the_schema_needs_them() {
    for rules in [banned(&["}"]), banned(&["\""])] {
        assert_valid(&model(), &object(), &rules);
    }
}

#[test]
fn an_array_is_closed_though_no_token_may_come_twice() {
    let rules = Processing { no_repeat_ngram_size: 1, ..Processing::default() };
    let array = json!({"type": "array", "items": {"type": "integer"}, "minItems": 4});
    assert_valid(&model(), &array, &rules);
}

#[test]
fn forced_tokens_and_a_least_length_give_way() {
    let rules = Processing { forced_first: vec![id("b")], forced_last: vec![id("b")], ..Processing::default() };
    assert_valid(&model(), &object(), &rules);
    assert_valid(&model(), &object(), &Processing { min_new_tokens: 60, ..Processing::default() });
}

#[test]
fn what_the_model_never_writes_is_written_where_the_schema_needs_it() {
    let model = model();
    let without = WithVocabulary::new(&model, tokenizer().vocab_size()).banning([id("\""), id("}")]);
    assert_valid(&without, &object(), &Processing::default());
}

/// Processors that run behind a constraint: one hides everything, one shows two tokens, and one refuses all.
#[derive(Clone, Debug)]
enum Behind {
    Hides,
    Shows([u32; 2]),
    Refuses,
}

impl LogitsProcessor for Behind {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        match self {
            Self::Hides => logits.fill(HIDDEN),
            Self::Shows(ids) => ids.iter().for_each(|&id| logits[id as usize] = 20.0),
            Self::Refuses => {}
        }
    }

    fn admits(&mut self, _: u32) -> bool {
        !matches!(self, Self::Refuses)
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[test]
fn processors_behind_a_constraint_do_not_break_it() {
    for behind in [Behind::Hides, Behind::Shows([id("b"), stop()]), Behind::Refuses] {
        assert_valid(&model(), &object(), &Processing::default().with_processor(behind));
    }
}

#[test]
fn rules_that_leave_something_are_kept() {
    let digits = Constraint::regex("[0-9]{4}", &tokenizer()).unwrap();
    let rules = Processing { no_repeat_ngram_size: 1, constraint: Some(digits), ..banned(&["0", "1"]) };
    for text in texts(&model(), &rules, 9, &[]) {
        let mut written: Vec<char> = text.chars().collect();
        written.sort_unstable();
        written.dedup();
        assert!(written.len() == 4 && !text.contains(['0', '1']), "{text}");
    }
}

/// Behind `a` the text is complete. It could go on, but there is no room for that, and no token would end it.
#[test]
fn a_text_that_can_only_end_ends() {
    let constraint = Constraint::regex("a(b[0-9]{40})?", &tokenizer()).unwrap();
    let rules = Processing { constraint: Some(constraint), ..Processing::default() };
    assert!(texts(&model(), &rules, 30, &[]).iter().all(|text| text == "a"));
    let groups = BeamOptions::new(30).with_beams(4).with_groups(2, 0.5).with_n_best(4).with_processing(rules.clone());
    let best = beam_search(&model(), prompt(), &groups).unwrap().remove(0);
    let ended = |found: &Hypothesis| found.ids == [id("a")] && found.stop_reason == StopReason::Complete;
    assert!(best.len() == 2 && best.iter().all(ended), "one of each group: {best:?}");
    let options = GenerationOptions::new(30).greedy().with_processing(rules);
    let found = generate(&model(), prompt(), &options, |_| ControlFlow::Continue(())).unwrap().remove(0);
    assert_eq!((found.ids, found.stop_reason), (vec![id("a")], StopReason::Complete));
}
