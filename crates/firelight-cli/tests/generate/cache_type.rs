//! A KV cache of a type: the same text in the type that is computed in, nearly the same in fewer bits, and what does not go together.

use crate::USER;
use crate::support::{firelight, generate, model};

#[test]
fn fewer_bits_change_probabilities_a_little_and_the_type_of_the_model_nothing() {
    let written = |more: &[&str]| {
        let arguments = [&["--greedy", "--logprobs", "0", "--json"], more].concat();
        firelight(generate(&model().dir, &arguments)).succeeds().stdout
    };
    assert_eq!(written(&["--cache-type", "f32"]), written(&[]));
    assert_ne!(written(&["--cache-type", "q8_0"]), written(&[]));
}

#[test]
fn what_has_no_cache_of_a_type_is_refused() {
    let refused = |more: &[&str], told: &[&str]| firelight(generate(&model().dir, more)).fails(USER, told);
    refused(&["--cache-type", "q3"], &["'q3'", "--cache-type", "expected f32, bf16 or q8_0"]);
    for other in [&["--no-cache"][..], &["--compress-past", "3"], &["--contrastive", "0.5"]] {
        refused(&[&["--cache-type", "q8_0"], other].concat(), &["--cache-type", other[0]]);
    }
}
