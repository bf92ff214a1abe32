//! What a training is said to cost.

use burn::tensor::Device;
use firelight_training::{Estimate, RunRequest};

use super::{Run, Seq2Seq, Seq2SeqRecipe};

#[test]
fn both_stacks_and_the_head_are_counted() {
    let text = "task = \"seq2seq\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\nmax_seq_len = 4\n\
                position = \"none\"\n[training]\nsteps = 10\nbatch_size = 3\n";
    let recipe = Seq2SeqRecipe::parse(text, "small.toml", &[]).unwrap();
    let found = Estimate::of::<Seq2Seq>(&recipe, &recipe.model.config([5, 5], 0), &Device::default());
    // A block has 288 + 552 + 32 numbers, a cross-attention 288 + 16 more, a stack a norm of 16, the embedding 40.
    assert_eq!(found.parameters, 2 * (872 + 16) + 304 + 40);
    // Matrices of 768 numbers in each stack, 256 of the cross-attention, 40 of the head; 4, 2.5 and 4 keys.
    assert_eq!(found.flops_per_token, 6.0 * (2.0 * 768.0 + 256.0 + 40.0) + 3.0 * 32.0 * 10.5);
    assert_eq!((found.tokens_per_step, found.state_bytes), (12, 16 * found.parameters));
    assert_eq!(found.activation_bytes, 4 * 12 * (144 + 192 + 10));
}

#[test]
fn a_training_that_no_machine_holds_is_refused_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    for (key, value) in [("model.n_layers", 60_000), ("training.batch_size", 1_000_000)] {
        let request = RunRequest::new(&Device::default()).with_out(home.path().join("run"));
        let error = Run::prepare(&request.with_override(key, value)).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("would take about"), "{key}: {error}");
        assert!(!home.path().join("run").exists(), "{key}");
    }
}
