//! Decoding as `generate` of transformers decodes: the same ids of the same tiny models, and the same logits behind each processor.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Device;
use firelight_generation::processors::ForcedPrefix;
use firelight_generation::{
    Autoregressive, BeamOptions, ContrastiveOptions, EarlyStopping, GenerationDefaults, GenerationOptions, History,
    Processing, WithVocabulary, beam_search, contrastive_search, generate,
};
use firelight_kernels::assert_close;
use firelight_language::LanguageModel;
use firelight_pretrained::{AutoModel, PublishedModel};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Golden {
    processed: Option<Processed>,
    wide: Option<Processed>,
    end: u32,
    models: Vec<Model>,
    #[serde(default)]
    families: Vec<Model>,
}

#[derive(Deserialize)]
struct Processed {
    logits: Vec<Option<f64>>,
    history: Vec<u32>,
    prompt: usize,
    cases: Vec<Processor>,
}

#[derive(Deserialize)]
struct Processor {
    name: String,
    value: Value,
    logits: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct Model {
    folder: String,
    inputs: Vec<Vec<u32>>,
    length: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    options: Map<String, Value>,
    rows: Vec<Vec<Vec<u32>>>,
}

fn golden(name: &str) -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Options of ours with one field set by its name.
fn options(name: &str, value: &Value) -> GenerationOptions {
    let samplers = ["temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"];
    let keys = match samplers.contains(&name) {
        true => {
            let mut random = json!({"kind": "random", "temperature": 1.0});
            random[name] = value.clone();
            json!({"max_new_tokens": 6, "sampling": random})
        }
        false => json!({"max_new_tokens": 6, "sampling": {"kind": "greedy"}, "processing": {name: value}}),
    };
    serde_json::from_value::<GenerationOptions>(keys).unwrap().with_stop_tokens([0, 5])
}

#[test]
fn processors_leave_what_those_of_transformers_leave() {
    let golden = golden("decoding.json");
    for (processed, count) in [(golden.processed, 21), (golden.wide, 2)] {
        let processed = processed.unwrap();
        assert_eq!(processed.cases.len(), count);
        check_processed(processed);
    }
}

/// Each case of one row of logits.
fn check_processed(Processed { logits, history, prompt, cases }: Processed) {
    for Processor { name, value, logits: expected } in cases {
        let mut found: Vec<f64> = logits.iter().map(|logit| logit.unwrap()).collect();
        // The place of a first token is here by what is new, there by a length.
        let prompt = if name == "not_first" { history.len() } else { prompt };
        options(&name, &value).processors().process(&History::new(&history, prompt), &mut found);
        // What a temperature divides is moved to 0, which changes no probability.
        let moved = |row: Vec<Option<f64>>| {
            let highest = row.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
            row.into_iter().map(|logit| logit.map_or(-1e9, |logit| logit - highest)).collect::<Vec<f64>>()
        };
        let found = moved(found.iter().map(|logit| logit.is_finite().then_some(*logit)).collect());
        assert_close(&found, &moved(expected), 1e-5);
        assert!(found.iter().any(|logit| *logit > -1e8), "{name} {value}");
    }
}

/// What both decoders understand of the options of `generate`.
fn processing(options: &Map<String, Value>) -> Processing {
    let mut processing = Processing::default();
    let number = |key: &str| options.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
    processing.repetition_penalty = options.get("repetition_penalty").and_then(Value::as_f64).unwrap_or(1.0);
    processing.no_repeat_ngram_size = number("no_repeat_ngram_size");
    processing.min_new_tokens = number("min_new_tokens");
    serde_json::from_value::<GenerationDefaults>(Value::Object(options.clone()))
        .unwrap()
        .add_to(&mut processing, usize::MAX);
    let prefix = options.get("forced_prefix").map(|ids| serde_json::from_value(ids.clone()).unwrap());
    prefix.map(ForcedPrefix).into_iter().for_each(|prefix| processing.custom.push(prefix));
    processing
}

fn beams(options: &Map<String, Value>, length: usize) -> BeamOptions {
    let number = |key: &str, usual| options.get(key).and_then(Value::as_u64).unwrap_or(usual) as usize;
    let early = match options.get("early_stopping") {
        Some(Value::Bool(true)) => EarlyStopping::Full,
        Some(Value::String(_)) => EarlyStopping::Never,
        _ => EarlyStopping::Heuristic,
    };
    BeamOptions::new(length)
        .with_beams(number("num_beams", 1))
        .with_n_best(number("num_return_sequences", 1))
        .with_length_penalty(options.get("length_penalty").and_then(Value::as_f64).unwrap_or(1.0))
        .with_early_stopping(early)
        .with_groups(
            number("num_beam_groups", 1),
            options.get("diversity_penalty").and_then(Value::as_f64).unwrap_or(0.0),
        )
}

/// The new ids of every row, best first.
fn decoded<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(
    model: &M,
    case: &Case,
    (length, end): (usize, u32),
    rows: &[Vec<u32>],
) -> Vec<Vec<Vec<u32>>> {
    let (options, size) = (&case.options, usize::MAX);
    let defaults: GenerationDefaults = serde_json::from_value(Value::Object(options.clone())).unwrap();
    let model = WithVocabulary::new(model, size).with_defaults(&defaults);
    let (rows, processing) = (rows.to_vec(), processing(options));
    if options.contains_key("num_beams") {
        let options = beams(options, length).with_stop_tokens([end]).with_processing(processing);
        let found = beam_search(&model, rows, &options).unwrap();
        return found.into_iter().map(|row| row.into_iter().map(|found| found.ids).collect()).collect();
    }
    let options = GenerationOptions::new(length).greedy().with_stop_tokens([end]);
    let found = generate(&model, rows, &options.with_processing(processing), |_| ControlFlow::Continue(())).unwrap();
    found.into_iter().map(|row| vec![row.ids]).collect()
}

/// The same of a contrastive search.
fn contrasted(
    model: &LanguageModel,
    case: &Case,
    (length, end): (usize, u32),
    rows: &[Vec<u32>],
) -> Vec<Vec<Vec<u32>>> {
    let alpha = case.options["penalty_alpha"].as_f64().unwrap();
    let options = ContrastiveOptions::new(length)
        .with_contrast(case.options["top_k"].as_u64().unwrap() as usize, alpha)
        .with_stop_tokens([end])
        .with_processing(processing(&case.options));
    let found = contrastive_search(model, rows.to_vec(), &options).unwrap();
    found.into_iter().map(|row| vec![row.ids]).collect()
}

fn open(folder: &str) -> AutoModel {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained").join(folder);
    PublishedModel::open(path).unwrap().load(&Device::default()).unwrap()
}

/// Each case, with all rows together and with the last alone.
fn check(Model { folder, inputs, length, cases }: &Model, end: u32) {
    let (model, limits) = (open(folder), (*length, end));
    for case in cases {
        for rows in [inputs.clone(), inputs[1..].to_vec()] {
            let found = match &model {
                AutoModel::Language(model) if case.options.contains_key("penalty_alpha") => {
                    contrasted(model, case, limits, &rows)
                }
                AutoModel::Language(model) => decoded(model, case, limits, &rows),
                AutoModel::Seq2Seq(model) => decoded(model, case, limits, &rows),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, case.rows[inputs.len() - rows.len()..], "{folder} {:?}", case.options);
        }
    }
}

#[test]
fn tiny_models_write_what_they_write_in_transformers() {
    let golden = golden("decoding.json");
    assert_eq!(golden.models.iter().map(|model| model.cases.len()).collect::<Vec<_>>(), [19; 3]);
    golden.models.iter().for_each(|model| check(model, golden.end));
}

#[test]
fn every_family_writes_with_beams_bans_and_forced_tokens_what_it_writes_in_transformers() {
    let golden = golden("decoding.json");
    assert_eq!(golden.families.len(), 50);
    for model in &golden.families {
        assert!(model.cases.len() >= 3 && model.length == 8, "{}", model.folder);
        check(model, golden.end);
    }
}

#[test]
fn groups_of_beams_and_contrastive_search_write_what_they_wrote_in_transformers() {
    let golden = golden("older_decoding.json");
    assert_eq!(golden.models.iter().map(|model| model.cases.len()).collect::<Vec<_>>(), [6, 6, 3]);
    golden.models.iter().for_each(|model| check(model, golden.end));
}
