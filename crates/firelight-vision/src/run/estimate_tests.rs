//! What a training is said to cost.

use burn::tensor::Device;
use firelight_data::ImageShape;
use firelight_training::{Estimate, RunRequest};

use super::corpus::tests::folder;
use super::{Run, Vision, VisionRecipe};
use crate::model::VisionConfig;

#[test]
fn a_small_model_is_counted_by_hand() {
    let text = "task = \"vision\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\npatch_size = 2\n\
                pooling = \"mean\"\n[training]\nsteps = 10\nbatch_size = 3\n";
    let recipe = VisionRecipe::parse(text, "small.toml", &[]).unwrap();
    let names = (0..8).map(|class| class.to_string()).collect();
    let config = VisionConfig::new(names, recipe.model.config(ImageShape::new(1, [4, 4]), 8));
    let found = Estimate::of::<Vision>(&recipe, &config, &Device::default());
    // Block 288 + 552 + 32, final norm 16; patches 4 * 8 + 8, places 4 * 8, head 9 * 8.
    assert_eq!(found.parameters, 888 + 40 + 32 + 72);
    // Products with every number of a matrix, those of the head once in 4 tokens, and with 4 keys and values of 8 numbers.
    assert_eq!(found.flops_per_token, 6.0 * (768.0 + 32.0 + 16.0) + 3.0 * 128.0);
    assert_eq!((found.tokens_per_step, found.state_bytes), (12, 16 * found.parameters));
    assert_eq!(found.activation_bytes, 4 * 12 * (144 + 4 + 2 * 2));
}

#[test]
fn the_sums_of_the_gradients_of_several_batches_are_counted() {
    let home = tempfile::tempdir().unwrap();
    folder(home.path(), 10);
    let estimate = |batches: usize| {
        let request = RunRequest::new(&Device::default()).with_data(home.path());
        Run::estimate(&request.with_override("training.gradient_accumulation_steps", batches)).unwrap()
    };
    let (one, many) = (estimate(1), estimate(1_000_000));
    // Three halvings, and the sum of what is left.
    assert_eq!(many.state_bytes, one.state_bytes + 4 * 4 * one.parameters);
    assert_eq!((many.activation_bytes, many.tokens_per_step), (one.activation_bytes, 1_000_000 * one.tokens_per_step));
}

#[test]
fn a_training_that_no_machine_holds_is_refused_before_anything_is_made() {
    let home = tempfile::tempdir().unwrap();
    folder(&home.path().join("data"), 10);
    let request =
        RunRequest::new(&Device::default()).with_data(home.path().join("data")).with_out(home.path().join("run"));
    let error = Run::prepare(&request.with_override("model.n_layers", 60_000)).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("would take about"), "{error}");
    assert!(!home.path().join("run").exists());
}
