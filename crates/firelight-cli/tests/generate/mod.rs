//! A prompt is continued, and what is no prompt or no option is refused.

mod cache_type;
mod compressed;
mod overflow;
mod restricted;
mod strategies;
mod streaming;

use std::fs;
use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::USER;
use crate::support::{Model, command, evaluate, finish, firelight, generate, model, text};

#[test]
fn generate_continues_the_prompt_on_stdout() {
    let finished = firelight(generate(&model().dir, &["--seed", "3"])).succeeds();
    assert!(finished.stdout.starts_with("The fox"), "{}", finished.stdout);
    assert!(finished.stdout.ends_with('\n'));
    assert_eq!(finished.stdout.chars().count(), "The fox".len() + 30 + 1);
    let read = format!("checkpoint: last, step 20, {}/model.safetensors, device: ", text(&model().dir));
    assert!(finished.stderr.starts_with(&read), "{}", finished.stderr);
}

#[test]
fn a_prompt_may_come_from_the_standard_input() {
    let run = text(&model().dir);
    let asked = |prompt: &str| ["generate", &run, "--prompt", prompt, "--max-new-tokens", "30"].map(str::to_string);
    let given = firelight(asked("The fox")).succeeds().stdout;
    let scratch = Model::scratch();
    let file = scratch.path().join("prompt.txt");
    let mut piped = command(asked("-"));
    fs::write(&file, "The fox\n").unwrap();
    piped.stdin(fs::File::open(&file).unwrap());
    assert_eq!(finish(piped).succeeds().stdout, given);
    let mut broken = command(asked("-"));
    fs::write(&file, b"The f\xf8x").unwrap();
    broken.stdin(fs::File::open(&file).unwrap());
    finish(broken).fails(USER, &["the standard input", "offset 5"]);
}

#[test]
fn several_samples_of_one_seed_differ_and_the_first_is_the_text_of_the_seed() {
    let sampled =
        |more: &[&str]| firelight(generate(&model().dir, &[&["--seed", "3"], more].concat())).succeeds().stdout;
    let three = ["--num-samples", "3", "--temperature", "1.5"];
    let json = sampled(&[&three[..], &["--json"]].concat());
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<String> = lines.iter().map(|line| format!("The fox{}\n", line["text"].as_str().unwrap())).collect();
    assert_eq!(texts.len(), 3);
    assert_eq!(texts[0], sampled(&three[2..]));
    assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2], "{texts:?}");
    assert_eq!(sampled(&three), texts.concat());
    assert!(lines.iter().zip(1..).all(|(line, sample)| line["seed"] == 3 && line["sample"] == sample), "{json}");
    firelight(generate(&model().dir, &["--num-samples", "2", "--greedy"])).fails(USER, &["--greedy"]);
    firelight(generate(&model().dir, &["--num-samples", "0"])).fails(USER, &["'0'"]);
}

#[test]
fn one_seed_is_one_text() {
    let seeded = |seed| firelight(generate(&model().dir, &["--temperature", "1.5", "--seed", seed])).succeeds().stdout;
    assert_eq!(seeded("1"), seeded("1"));
    assert_ne!(seeded("1"), seeded("2"));
}

#[test]
fn penalties_and_samplers_change_the_text_and_are_checked() {
    let written = |more: &[&str]| firelight(generate(&model().dir, more)).succeeds().stdout;
    let text = written(&["--greedy", "--no-repeat-ngram-size", "2"]);
    let characters: Vec<char> = text.trim_end().chars().collect();
    let pairs: Vec<&[char]> = characters.windows(2).collect();
    assert!((1..pairs.len()).all(|place| !pairs[..place].contains(&pairs[place])), "{text}");
    let plain = written(&["--temperature", "2"]);
    let others: [&[&str]; 12] = [
        &["--min-p", "0.5"],
        &["--typical-p", "0.2"],
        &["--top-h", "0.1"],
        &["--epsilon-cutoff", "0.1"],
        &["--eta-cutoff", "0.9"],
        &["--top-n-sigma", "0.5"],
        &["--xtc-probability", "1", "--xtc-threshold", "0.02"],
        &["--mirostat", "0.5"],
        &["--repetition-penalty", "3"],
        &["--frequency-penalty", "-5"],
        &["--presence-penalty", "5"],
        &["--dry-multiplier", "20", "--dry-allowed", "1"],
    ];
    for more in others {
        assert_ne!(written(&[&["--temperature", "2"], more].concat()), plain, "{more:?}");
    }
    let json = written(&["--greedy", "--json"]);
    let whole = serde_json::from_str::<Value>(&json).unwrap()["text"].as_str().unwrap().to_string();
    let stop: String = whole.chars().skip(5).take(3).collect();
    let json: Value = serde_json::from_str(&written(&["--greedy", "--json", "--stop", "@@", "--stop", &stop])).unwrap();
    assert_eq!(
        (json["text"].as_str().unwrap(), &json["stopped"]),
        (whole.split(&stop).next().unwrap(), &"stop_string".into())
    );
    let refused = |more: &[&str], expected: &[&str]| {
        firelight(generate(&model().dir, more)).fails(USER, expected);
    };
    refused(&["--min-p", "2", "--repetition-penalty", "0"], &["--min-p is 2", "--repetition-penalty is 0"]);
    refused(&["--epsilon-cutoff", "1", "--eta-cutoff", "0"], &["--epsilon-cutoff is 1", "--eta-cutoff is 0"]);
    refused(&["--top-h", "1.5"], &["--top-h is 1.5, expected more than 0 and at most 1"]);
    refused(&["--xtc-threshold", "0.2"], &["--xtc-probability"]);
    refused(&["--greedy", "--mirostat", "3"], &["--greedy"]);
    refused(&["--stop", ""], &["--stop contains an empty string; leave it out"]);
}

#[test]
fn where_the_user_says_nothing_the_makers_of_the_model_do() {
    let copy = model().copy();
    let written = |more: &[&str]| firelight(generate(copy.path(), more)).succeeds();
    let (greedy, drawn) = (written(&["--greedy"]).stdout, written(&["--temperature", "2"]).stdout);
    assert_ne!(greedy, drawn);
    let defaults = r#"{"temperature": 2.0, "top_k": 1, "top_p": null, "repetition_penalty": 1.0, "num_beams": 4}"#;
    fs::write(copy.path().join("generation_config.json"), defaults).unwrap();
    let found = written(&[]);
    assert_eq!(found.stdout, greedy);
    let told = "defaults of the model: --temperature 2, --top-k 1, --repetition-penalty 1\n";
    assert!(found.stderr.contains(told), "{}", found.stderr);
    assert_eq!(written(&["--top-k", "1000"]).stdout, drawn);
    assert!(!written(&["--greedy"]).stderr.contains("--top-k"));

    let defaults = |text: &str| fs::write(copy.path().join("generation_config.json"), text).unwrap();
    defaults(r#"{"temperature": 2.0, "top_h": 0.001, "epsilon_cutoff": 0.999, "eta_cutoff": 0.999}"#);
    let found = written(&[]);
    assert_eq!(found.stdout, greedy);
    let told = "--temperature 2, --top-h 0.001, --epsilon-cutoff 0.999, --eta-cutoff 0.999\n";
    assert!(found.stderr.contains(told), "{}", found.stderr);
    defaults(r#"{"temperature": 2.0, "top_h": null, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}"#);
    assert_eq!(written(&[]).stdout, drawn, "0 is none");
}

#[test]
fn the_cache_changes_no_greedy_text() {
    let cached = firelight(generate(&model().dir, &["--greedy"])).succeeds().stdout;
    assert_eq!(firelight(generate(&model().dir, &["--greedy", "--no-cache"])).succeeds().stdout, cached);
}

#[test]
fn generate_speaks_json_with_the_text_of_the_terminal() {
    let plain = firelight(generate(&model().dir, &["--seed", "3"])).succeeds().stdout;
    let json = firelight(generate(&model().dir, &["--seed", "3", "--json"])).succeeds().stdout;
    assert_eq!(json.lines().count(), 1);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["prompt"], "The fox");
    assert_eq!(value["tokens"], 30);
    assert_eq!(value["stopped"], "max_new_tokens");
    assert_eq!(format!("The fox{}\n", value["text"].as_str().unwrap()), plain);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let args = generate(&model().dir, &[]).into_iter().map(|arg| if arg == "30" { "100000".into() } else { arg });
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 8];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // and hangs up
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains("error"), "{stderr}");
}

// Bad wishes.

#[test]
fn a_character_outside_the_vocabulary_is_located() {
    let prompt = firelight(["generate", &text(&model().dir), "--prompt", "The f\u{e6}x"]);
    prompt.fails(USER, &["'\u{e6}'", "position 5", "vocabulary"]);
    let scratch = Model::scratch();
    let data = scratch.path().join("foreign.txt");
    fs::write(&data, "The fox ran.\n".repeat(20) + "The hen sat \u{2014}").unwrap();
    firelight(evaluate(&model().dir, &data)).fails(USER, &["line 21", "column 13", "vocabulary"]);
}

#[test]
fn a_prompt_longer_than_the_context_is_refused() {
    let finished = firelight(["generate", &text(&model().dir), "--prompt", "The fox sat down"]);
    finished.fails(USER, &["16 tokens", "8"]);
}

#[test]
fn an_empty_prompt_is_refused() {
    firelight(["generate", &text(&model().dir), "--prompt", ""]).fails(USER, &["prompt", "empty"]);
}

#[test]
fn options_out_of_range_are_all_listed() {
    let finished = firelight(generate(&model().dir, &["--temperature", "0", "--top-p", "-1"]));
    assert_eq!(finished.stderr.lines().filter(|line| line.starts_with("error: ")).count(), 2, "{}", finished.stderr);
    finished.fails(USER, &["--temperature is 0", "use --greedy", "--top-p is -1"]);
}
