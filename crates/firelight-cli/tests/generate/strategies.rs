//! Beams, guesses, contrast, several prompts, constraints and log-probabilities.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::USER;
use crate::support::{Model, firelight, generate, model, text};

/// The arguments with another limit, where `more` begins with one.
fn arguments(more: &[&str]) -> Vec<String> {
    match more {
        ["--max-new-tokens", limit, more @ ..] => {
            let limited = |arg: String| if arg == "30" { limit.to_string() } else { arg };
            generate(&model().dir, more).into_iter().map(limited).collect()
        }
        more => generate(&model().dir, more),
    }
}

fn written(more: &[&str]) -> String {
    firelight(arguments(more)).succeeds().stdout
}

fn lines(more: &[&str]) -> Vec<Value> {
    written(&[more, &["--json"]].concat()).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn refused(more: &[&str], expected: &[&str]) {
    firelight(arguments(more)).fails(USER, expected);
}

#[test]
fn beams_find_texts_with_falling_scores() {
    assert_eq!(written(&["--beams", "1"]), written(&["--greedy"]));
    let found = lines(&["--beams", "4", "--n-best", "3", "--length-penalty", "0"]);
    let scores: Vec<f64> = found.iter().map(|line| line["score"].as_f64().unwrap()).collect();
    assert!(scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let groups = lines(&["--beams", "4", "--n-best", "4", "--beam-groups", "4", "--diversity-penalty", "50"]);
    let firsts: std::collections::BTreeSet<String> =
        groups.iter().map(|line| line["text"].as_str().unwrap().chars().take(1).collect()).collect();
    assert_eq!(firsts.len(), 4, "groups avoid one another's tokens: {groups:?}");
    refused(
        &["--beams", "3", "--temperature", "2"],
        &["--temperature cannot be used with --beams: remove one of the two"],
    );
    refused(&["--beams", "3", "--seed", "7"], &["--seed cannot be used with --beams: remove one of the two"]);
    refused(&["--greedy", "--seed", "7"], &["'--greedy'", "'--seed <N>'"]);
    refused(&["--n-best", "2"], &["--n-best needs a beam search: add --beams N, or remove --n-best"]);
    refused(
        &["--beams", "3", "--beam-groups", "2"],
        &["--beam-groups is 2, expected a divisor of --beams, which is 3"],
    );
    refused(&["--beams", "3", "--early-stopping", "soon"], &["expected full, heuristic or never"]);
}

#[test]
fn guesses_change_no_text() {
    let drawn = ["--temperature", "1", "--seed", "4"];
    let plain = written(&drawn);
    assert_eq!(written(&[&drawn[..], &["--prompt-lookup"]].concat()), plain);
    let draft = text(&model().dir);
    assert_eq!(written(&[&drawn[..], &["--draft", &draft, "--draft-tokens", "3"]].concat()), plain);
    refused(&["--draft", &draft, "--prompt-lookup"], &["--prompt-lookup"]);
    refused(&["--draft", &draft, "--num-samples", "2"], &["--num-samples"]);
    refused(&["--draft", "no/such/model"], &["no/such/model"]);
}

#[test]
fn a_contrastive_search_takes_other_tokens_than_greedy_choice() {
    let greedy = written(&["--greedy"]);
    assert_eq!(written(&["--contrastive", "0"]), greedy);
    assert_eq!(written(&["--contrastive", "0.9", "--top-k", "1"]), greedy);
    let found = lines(&["--contrastive", "1", "--top-k", "3"]).remove(0);
    assert_ne!(format!("The fox{}\n", found["text"].as_str().unwrap()), greedy);
    assert_eq!((&found["tokens"], &found["stopped"]), (&30.into(), &"max_new_tokens".into()));
    let whole = written(&["--contrastive", "0.6", "--regex", "(fox|hen)( sat)*", "--echo=false"]);
    assert!(whole.starts_with("fox") || whole.starts_with("hen"), "{whole}");
    refused(&["--contrastive", "1.5"], &["--contrastive is 1.5, expected a number from 0 to 1"]);
    refused(&["--contrastive", "0.6", "--top-k", "0"], &["--top-k is 0, expected 1 or more"]);
    let draft = text(&model().dir);
    let others: [&[&str]; 10] = [
        &["--beams", "3"],
        &["--best-of", "2"],
        &["--num-samples", "2"],
        &["--draft", &draft],
        &["--prompt-lookup"],
        &["--greedy"],
        &["--temperature", "2"],
        &["--seed", "7"],
        &["--no-cache"],
        &["--keep", "2"],
    ];
    for more in others {
        refused(&[&["--contrastive", "0.6"], more].concat(), &["'--contrastive <ALPHA>'", more[0]]);
    }
}

#[test]
fn an_amateur_changes_every_way_of_writing() {
    let run = text(&model().dir);
    // Below 8 tokens, the context, both read the same text: a model is no weaker than itself.
    let drawn = ["--max-new-tokens", "1", "--temperature", "1", "--seed", "4"];
    let own = ["--amateur", &run, "--amateur-strength", "2", "--amateur-plausibility", "0"];
    assert_eq!(written(&[&drawn[..], &own].concat()), written(&drawn));
    // The first steps of the same training.
    let contrast = ["--checkpoint", "10", "--amateur", &run, "--amateur-strength", "50", "--amateur-plausibility", "0"];
    for how in [&["--greedy"][..], &["--beams", "2"], &["--contrastive", "0"], &["--num-samples", "2"]] {
        let plain = written(&[how, &["--checkpoint", "10"]].concat());
        assert_ne!(written(&[how, &contrast].concat()), plain, "{how:?}");
    }
    let plausible = ["--checkpoint", "10", "--amateur", &run, "--amateur-plausibility", "1", "--temperature", "2"];
    assert_eq!(written(&plausible), written(&["--checkpoint", "10", "--greedy"]));
    refused(&["--amateur-strength", "2"], &["--amateur <MODEL>"]);
    refused(&["--amateur", &run, "--draft", &run], &["'--amateur <MODEL>'", "--draft"]);
    refused(&["--amateur", "no/such/model"], &["no/such/model"]);
    refused(&["--amateur", &run, "--amateur-strength", "-1"], &["--amateur-strength is -1, expected a finite number"]);
    refused(
        &["--amateur", &run, "--amateur-plausibility", "2"],
        &["--amateur-plausibility is 2, expected a number from"],
    );
}

#[test]
fn several_prompts_are_continued_as_they_are_alone() {
    let scratch = Model::scratch();
    let file = scratch.path().join("prompts.txt");
    fs::write(&file, "The fox\nThe\n\nThe f\u{e6}x\nT\n").unwrap();
    let run = text(&model().dir);
    let ask = |more: &[&str]| {
        let common = ["generate", &run, "--max-new-tokens", "4", "--temperature", "1"];
        firelight(common.iter().chain(more).map(|arg| arg.to_string()).collect::<Vec<_>>())
    };
    let finished = ask(&["--batch-file", &text(&file)]);
    let found = finished.stdout.clone();
    let told =
        ["error: line 3: the prompt is empty", "error: line 4: ", "2 of 5 prompts could not be continued, see above"];
    finished.fails(USER, &told);
    let alone = |prompt: &str| ask(&["--prompt", prompt]).succeeds().stdout;
    assert_eq!(found, [alone("The fox"), alone("The"), "\n\n".into(), alone("T")].concat());
    let whole = scratch.path().join("prompt.txt");
    fs::write(&whole, "The fox\n").unwrap();
    assert_eq!(ask(&["--prompt-file", &text(&whole)]).succeeds().stdout, alone("The fox"));
    assert_eq!(format!("The fox{}", ask(&["--prompt", "The fox", "--echo=false"]).succeeds().stdout), alone("The fox"));
}

#[test]
fn several_prompts_are_contrasted_as_they_are_alone() {
    let scratch = Model::scratch();
    let file = scratch.path().join("prompts.txt");
    fs::write(&file, "The fox\nThe\nT\n").unwrap();
    let run = text(&model().dir);
    let ask = |more: &[&str]| {
        let common = ["generate", &run, "--max-new-tokens", "4", "--contrastive", "0.6"];
        firelight(common.iter().chain(more).map(|arg| arg.to_string()).collect::<Vec<_>>()).succeeds().stdout
    };
    let alone = ["The fox", "The", "T"].map(|prompt| ask(&["--prompt", prompt]));
    assert_eq!(ask(&["--batch-file", &text(&file)]), alone.concat());
}

#[test]
fn log_probabilities_are_those_of_score() {
    let found = lines(&["--max-new-tokens", "1", "--temperature", "1", "--logprobs", "2"]).remove(0);
    let token = &found["logprobs"][0];
    assert_eq!((token["token"].as_str(), token["top"].as_array().unwrap().len()), (found["text"].as_str(), 2));
    let whole = format!("The fox{}", found["text"].as_str().unwrap());
    let scored = firelight(["score", &text(&model().dir), "--text", &whole, "--json"]).succeeds().stdout;
    let scored: Value = serde_json::from_str(&scored).unwrap();
    let last = scored["tokens"].as_array().unwrap().last().unwrap()["log_probability"].as_f64().unwrap();
    assert!((token["logprob"].as_f64().unwrap() - last).abs() < 1e-4, "{token} {last}");
    refused(&["--logprobs", "2"], &["--json"]);
    let best = lines(&["--temperature", "2", "--best-of", "5"]).remove(0);
    let samples = lines(&["--temperature", "2", "--num-samples", "5"]);
    assert!(samples.iter().any(|sample| sample["text"] == best["text"]));
}

#[test]
fn every_way_ends_where_it_is_told_to_and_tells_log_probabilities() {
    let whole = lines(&["--greedy"]).remove(0)["text"].as_str().unwrap().to_string();
    let stop: String = whole.chars().skip(5).take(3).collect();
    let end: String = whole.chars().skip(5).take(1).collect();
    for how in [&["--greedy"][..], &["--beams", "1"], &["--contrastive", "0"]] {
        let ended = |option: &str, text: &str, reason: &str| {
            let found = lines(&[how, &[option, text, "--logprobs", "2"]].concat()).remove(0);
            assert_eq!(found["text"].as_str().unwrap(), whole.split(text).next().unwrap(), "{how:?}");
            assert_eq!(found["stopped"], reason);
            let scores = found["logprobs"].as_array().unwrap();
            assert_eq!(scores.len() as u64, found["tokens"].as_u64().unwrap());
            assert!(scores.iter().all(|score| score["rank"] == 1), "{found}");
        };
        ended("--stop", &stop, "stop_string");
        ended("--end-token", &end, "stop_token");
    }
    refused(&["--beams", "2", "--stop", ""], &["--stop contains an empty string; leave it out"]);
    refused(&["--end-token", "fox"], &["--end-token: `fox` is 3 tokens, expected one"]);
}

#[test]
fn breakers_end_what_dry_takes_for_a_repetition() {
    let greedy = written(&["--greedy"]);
    let penalised = ["--greedy", "--dry-multiplier", "20", "--dry-allowed-length", "1"];
    assert_ne!(written(&penalised), greedy);
    // With a breaker in every place nothing is a repetition.
    let letters: BTreeSet<char> = greedy.strip_suffix('\n').unwrap().chars().collect();
    let letters: Vec<String> = letters.into_iter().map(String::from).collect();
    let breakers = letters.iter().flat_map(|letter| ["--dry-sequence-breaker", letter.as_str()]);
    assert_eq!(written(&penalised.into_iter().chain(breakers).collect::<Vec<_>>()), greedy);
    assert_eq!(written(&[&penalised[..], &["--dry-penalty-last-n", "0"]].concat()), greedy);
    refused(&[&penalised[..], &["--dry-base", "0.5"]].concat(), &["--dry-base is 0.5, expected a finite number"]);
}

#[test]
fn constrained_texts_satisfy_their_constraint_at_every_limit() {
    for limit in ["3", "4", "7", "20"] {
        for how in [&["--greedy"][..], &["--temperature", "3"], &["--beams", "3"]] {
            let more = [&["--max-new-tokens", limit, "--regex", "(fox|hen)( sat)*"], how].concat();
            let found = written(&more);
            let rest =
                found.trim_end_matches('\n').strip_prefix("fox").or(found.trim_end_matches('\n').strip_prefix("hen"));
            assert!(rest.is_some_and(|rest| rest.replace(" sat", "").is_empty()), "{found}");
        }
    }
    let found = lines(&["--regex", "fox|hen"]).remove(0);
    assert_eq!((&found["stopped"], found["tokens"].as_u64()), (&"complete".into(), Some(3)));
    let short =
        "--max-new-tokens is 3, but the regular expression `fox sat` needs at least 7 tokens; give --max-new-tokens 7";
    refused(&["--max-new-tokens", "3", "--regex", "fox sat"], &[short]);
    refused(&["--regex", "(fox"], &["the regular expression `(fox` cannot be used"]);
    let scratch = Model::scratch();
    let schema = scratch.path().join("schema.json");
    fs::write(&schema, r#"{"type": "object"}"#).unwrap();
    refused(&["--json-schema", &text(&schema)], &["the JSON schema needs the character '{', for which"]);
    fs::write(&schema, "{").unwrap();
    refused(&["--json-schema", &text(&schema)], &["--json-schema: `", "schema.json` is not valid JSON: EOF"]);
    refused(&["--json-schema", "no.json"], &["no.json"]);
    let grammar = scratch.path().join("pairs.lark");
    fs::write(&grammar, "start: \"fox\" (\" \" start)?\n").unwrap();
    let found = written(&["--max-new-tokens", "12", "--grammar", &text(&grammar), "--temperature", "2"]);
    assert!(found.trim_end().split(' ').all(|word| word == "fox"), "{found}");
}
