//! A compressed past: the same text while nothing is old, another one then, and what does not go together.

use crate::USER;
use crate::support::{firelight, generate, model};

#[test]
fn a_compressed_past_changes_the_text_once_something_is_old() {
    let written = |more: &[&str]| {
        let arguments = [&["--temperature", "1", "--logprobs", "0", "--json"], more].concat();
        firelight(generate(&model().dir, &arguments)).succeeds().stdout
    };
    assert_eq!(written(&["--compress-past", "100000"]), written(&[]));
    assert_ne!(written(&["--compress-past", "1", "--compress-rate", "2"]), written(&[]));
}

#[test]
fn what_says_nothing_beside_a_compressed_past_is_refused() {
    let refused = |more: &[&str], told: &[&str]| firelight(generate(&model().dir, more)).fails(USER, told);
    refused(&["--compress-past", "0"], &["'0'", "--compress-past"]);
    refused(&["--compress-past", "3", "--compress-rate", "1"], &["'1'", "--compress-rate"]);
    refused(&["--compress-rate", "4"], &["--compress-past <RECENT>"]);
    refused(&["--compress-past", "3", "--no-cache"], &["--compress-past", "--no-cache"]);
}
