//! Banned texts, suppressed tokens and forced beginnings, and texts that an error ends.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::USER;
use crate::support::{Model, firelight, generate, model, text};

fn written(more: &[&str]) -> String {
    firelight(generate(&model().dir, more)).succeeds().stdout
}

/// The same without the prompt and without the end of the line.
fn continuation(more: &[&str]) -> String {
    let found = written(&[&["--echo=false"], more].concat());
    found.strip_suffix('\n').unwrap().to_string()
}

/// Every way to choose tokens.
const WAYS: [&[&str]; 4] = [&["--greedy"], &["--temperature", "2"], &["--beams", "3"], &["--contrastive", "0.6"]];

#[test]
fn a_banned_text_is_never_written() {
    for way in WAYS {
        let plain = continuation(way);
        let banned: String = plain.chars().skip(5).take(2).collect();
        let found = continuation(&[way, &["--ban", &banned, "--ban", "he"]].concat());
        assert!(!found.contains(&banned) && !found.contains("he"), "{banned:?} is in {found:?}");
    }
    let scratch = Model::scratch();
    let file = scratch.path().join("prompts.txt");
    fs::write(&file, "The\nA fox\n").unwrap();
    let run = text(&model().dir);
    let found = firelight(["generate", &run, "--batch-file", &text(&file), "--echo=false", "--ban", "e"]).succeeds();
    assert!(found.stdout.len() > 100 && !found.stdout.contains('e'), "{}", found.stdout);
    firelight(generate(&model().dir, &["--ban", ""])).fails(USER, &["--ban: a banned text is empty", "leave it out"]);
}

#[test]
fn a_suppressed_token_is_never_chosen() {
    let ids = |more: &[&str]| -> Vec<u64> {
        let found = written(&[&["--greedy", "--json", "--logprobs", "0"], more].concat());
        let found: Value = serde_json::from_str(&found).unwrap();
        found["logprobs"].as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap()).collect()
    };
    let plain = ids(&[]);
    let suppressed = [plain[0], plain[1]];
    let found = ids(&["--suppress-tokens", &suppressed.map(|id| id.to_string()).join(",")]);
    assert!(found.len() == 30 && suppressed.iter().all(|id| !found.contains(id)), "{suppressed:?} {found:?}");
    let refused = |ids: &str, expected: &[&str]| {
        firelight(generate(&model().dir, &["--suppress-tokens", ids])).fails(USER, expected);
    };
    let characters: BTreeSet<char> = fs::read_to_string(&model().text).unwrap().chars().collect();
    let all: Vec<String> = (0..characters.len()).map(|id| id.to_string()).collect();
    refused(&all.join(","), &["no token is left to choose as new token 0"]);
    refused("99999", &["--suppress-tokens names the id 99999, expected ids from 0 to"]);
    refused("fox", &["'fox'", "--suppress-tokens"]);
}

#[test]
fn a_text_begins_with_its_prefix_and_goes_on_as_behind_a_prompt() {
    for way in WAYS {
        let found = written(&[way, &["--prefix", " sat"]].concat());
        assert!(found.starts_with("The fox sat") && found.chars().count() == "The fox".len() + 31, "{found}");
    }
    let run = text(&model().dir);
    let greedy = |prompt: &str, more: &[&str]| {
        let arguments = [&["generate", &run, "--greedy", "--prompt", prompt], more].concat();
        firelight(arguments).succeeds().stdout
    };
    let prefixed = greedy("The", &["--prefix", " fox", "--max-new-tokens", "14"]);
    assert_eq!(prefixed, greedy("The fox", &["--max-new-tokens", "10"]));
    let refused = |more: &[&str], expected: &[&str]| firelight(generate(&model().dir, more)).fails(USER, expected);
    refused(&["--prefix", "fox", "--regex", "fox"], &["'--prefix <TEXT>'"]);
    refused(&["--prefix", &"fox ".repeat(9)], &["--prefix has 36 tokens, but the text can have at most 30"]);
    refused(&["--prefix", "f\u{e6}x"], &["--prefix: the character '\u{e6}'"]);
}

#[test]
fn what_was_written_before_an_error_is_printed() {
    // No character twice: when all of them are used, none is left.
    let once = ["--no-repeat-ngram-size", "1"];
    let characters: BTreeSet<char> = fs::read_to_string(&model().text).unwrap().chars().collect();
    let rest: BTreeSet<char> = characters.iter().copied().filter(|&c| !"The fox".contains(c)).collect();
    let told = format!("no token is left to choose as new token {}", rest.len());
    let is_whole = |text: &str| {
        let found: BTreeSet<char> = text.chars().collect();
        assert!(text.chars().count() == rest.len() && found == rest, "{text}");
    };
    for way in [&["--greedy"][..], &["--temperature", "2"], &["--contrastive", "0.6"]] {
        let finished = firelight(generate(&model().dir, &[way, &once].concat()));
        is_whole(finished.stdout.strip_prefix("The fox").unwrap().strip_suffix('\n').unwrap());
        finished.fails(USER, &[&told]);
    }
    for (more, count) in [(&["--num-samples", "3"][..], 3), (&["--best-of", "2"][..], 2), (&[][..], 1)] {
        let finished = firelight(generate(&model().dir, &[more, &once, &["--json"]].concat()));
        let lines: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() == count && lines.iter().all(|line| line["stopped"] == "error"), "{lines:?}");
        lines.iter().for_each(|line| is_whole(line["text"].as_str().unwrap()));
        finished.fails(USER, &[&told]);
    }
    let scratch = Model::scratch();
    let file = scratch.path().join("prompts.txt");
    fs::write(&file, "The fox\n\n").unwrap();
    let (run, file) = (text(&model().dir), text(&file));
    let arguments = ["generate", &run, "--batch-file", &file];
    let finished = firelight(arguments.iter().chain(&once));
    is_whole(finished.stdout.strip_prefix("The fox").unwrap().strip_suffix("\n\n").unwrap());
    finished.fails(USER, &[&told, "the prompt is empty", "2 of 2 prompts could not be continued"]);
}
