//! What a training is said to cost.

use burn::tensor::Device;
use firelight_storage::Existing;
use firelight_training::{Estimate, RunRequest};

use super::{Language, LanguageRecipe, Run};

#[test]
fn the_costs_of_a_small_model_are_counted_by_hand() {
    // d 8, 2 heads of 4, 1 layer, inner 32, context 4, 5 tokens, tied, no positions to learn.
    let text = "task = \"language\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\nmax_seq_len = 4\n\
                position = \"none\"\n[training]\nsteps = 10\nbatch_size = 3\ngradient_accumulation_steps = 2\n";
    let recipe = LanguageRecipe::parse(text, "small.toml", &[]).unwrap();
    let config = recipe.model.config(5);
    let estimate = Estimate::of::<Language>(&recipe, &config, &Device::default());
    // Attention 4 (64 + 8), feed-forward 2 * 256 + 32 + 8, three norms of 16, embedding 40.
    assert_eq!(estimate.parameters, 288 + 552 + 48 + 40);
    // Three times two for every number of a matrix, 40 of them the head's, and two products with 2.5 keys of 8 numbers.
    assert_eq!(estimate.flops_per_token, 6.0 * (768.0 + 40.0) + 3.0 * 80.0);
    assert_eq!((estimate.tokens_per_step, estimate.steps), (24, 10));
    // Weight, gradient, two moments, and the sum of the gradients of two batches.
    assert_eq!(estimate.state_bytes, 20 * 928);
    // A token keeps 4 * 8 + 4 * 8 + 2 * 32 floats of the layer, 16 of the head, and 10 of the logits.
    assert_eq!(estimate.activation_bytes, 4 * 12 * (128 + 16 + 10));
    assert!(estimate.to_string().starts_with("928 parameters, 0.0 MFLOP per token, 24 tokens a step"), "{estimate}");
}

#[test]
fn a_training_that_no_machine_holds_is_refused_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    // Layers wide enough for a GPU as well, of whose memory no more is known than that it is below a tebibyte.
    let request = RunRequest::new(&Device::default()).with_out(home.path().join("run"));
    for (key, value) in [("model.n_layers", 60_000), ("training.batch_size", 1_000_000)] {
        let request = request.clone().with_override("model.d_ff", 4096).with_override(key, value);
        let error = Run::prepare(&request).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("would take about"), "{key}: {error}");
        assert!(!home.path().join("run").exists(), "{key}");
    }
}

#[test]
fn a_run_that_the_machine_does_not_hold_is_not_resumed() {
    let home = tempfile::tempdir().unwrap();
    let request = RunRequest::new(&Device::default()).with_out(home.path().join("run"));
    let run = Run::prepare(&request.clone().with_override("training.batch_size", 7)).unwrap();
    let path = run.folder.recipe();
    drop(run);
    let recipe = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, recipe.replace("\nbatch_size = 7\n", "\nbatch_size = 1000000\n")).unwrap();
    let error = Run::prepare(&RunRequest { existing: Existing::Resume, ..request }).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("would take about"), "{error}");
}
