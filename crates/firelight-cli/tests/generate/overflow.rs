//! Texts and prompts that are longer than the context, which has 8 tokens.

use serde_json::Value;

use crate::USER;
use crate::support::{Finished, firelight, generate, model, text};

fn ask(prompt: &str, tokens: usize, more: &[&str]) -> Finished {
    let (run, tokens) = (text(&model().dir), tokens.to_string());
    let common = ["generate", &run, "--prompt", prompt, "--max-new-tokens", &tokens, "--greedy"];
    firelight(common.iter().chain(more))
}

#[test]
fn a_prompt_slides_as_the_text_does_where_that_is_asked_for() {
    let whole = ask("The fox", 30, &[]).succeeds().stdout;
    let slide = ["--context-overflow", "slide"];
    assert_eq!(ask("The fox", 30, &slide).succeeds().stdout, whole, "texts slide in any case");
    for read in [8, 9, 12, 13, 25] {
        let prompt: String = whole.chars().take(read).collect();
        assert_eq!(ask(&prompt, 37 - read, &slide).succeeds().stdout, whole, "{read}");
    }
    let refused = ["the prompt has 16 tokens: the context of this model holds 8"];
    ask("The fox sat down", 4, &[]).fails(USER, &refused);
    ask("The fox sat down", 4, &["--context-overflow", "stop"]).fails(USER, &refused);
    ask("The fox", 4, &["--context-overflow", "shift"]).fails(USER, &["expected slide or stop"]);
}

#[test]
fn a_text_may_end_where_the_context_is_full() {
    let stop = ["--context-overflow", "stop"];
    let whole = ask("The", 30, &[]).succeeds().stdout;
    let found = ask("The", 30, &stop).succeeds().stdout;
    let expected: String = whole.chars().take(8).collect();
    assert_eq!(found, expected + "\n");
    let found = ask("The", 30, &[&stop[..], &["--json"]].concat()).succeeds().stdout;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found["stopped"], &found["tokens"]), (&"context_full".into(), &5.into()));
    // What ends the text early satisfies its constraint, too.
    let found = firelight(generate(&model().dir, &[&stop[..], &["--regex", "x|y( sat)*"]].concat())).succeeds();
    assert!(["x\n", "y\n"].contains(&&*found.stdout), "{}", found.stdout);
}

#[test]
fn the_first_tokens_may_be_kept_of_a_text_and_of_a_prompt() {
    let whole = ask("The fox", 30, &["--keep", "2"]).succeeds().stdout;
    for read in [8, 9, 12, 13, 25] {
        let prompt: String = whole.chars().take(read).collect();
        let found = ask(&prompt, 37 - read, &["--context-overflow", "slide", "--keep", "2"]).succeeds().stdout;
        assert_eq!(found, whole, "{read}");
    }
    assert_eq!(ask("The fox", 30, &["--keep", "0"]).succeeds().stdout, ask("The fox", 30, &[]).succeeds().stdout);
    let most = ["--keep is 5, expected at most 4, half of the context of 8 tokens"];
    ask("The fox", 4, &["--keep", "5"]).fails(USER, &most);
    ask("The fox", 4, &["--keep", "2", "--context-overflow", "stop"])
        .fails(USER, &["--keep cannot be used with --context-overflow stop"]);
}
