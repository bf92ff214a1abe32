//! What a training is going to cost. A token is a patch or the class token.

use firelight_training::{Cost, Estimate};

use super::VisionRecipe;
use crate::model::VisionConfig;

/// What a training of `config` by `recipe` costs. The logits of an image are shared among its tokens.
pub(super) fn estimate(config: &VisionConfig, recipe: &VisionRecipe) -> Estimate {
    let (vit, tokens) = (&config.vit, config.tokens());
    let patch = vit.channels * vit.patch_size * vit.patch_size;
    let width = vit.transformer.d_model;
    let cost = Cost {
        parameters: config.num_params(),
        flops_per_token: vit.transformer.train_flops_per_token()
            + 6 * patch * width
            + 6 * width * vit.n_classes / tokens,
        floats_per_token: vit.transformer.floats_kept_per_token() + patch,
        vocab_size: vit.n_classes.div_ceil(tokens),
        batch_tokens: recipe.training.batch_size.saturating_mul(tokens),
    };
    Estimate::new(cost, &recipe.training)
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::corpus::tests::folder;
    use super::*;
    use crate::model::VisionConfig;
    use burn::tensor::Device;
    use firelight_data::ImageShape;
    use firelight_training::RunRequest;

    #[test]
    fn a_small_model_is_counted_by_hand() {
        let text = "task = \"vision\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\npatch_size = 2\n\
                    pooling = \"mean\"\n[training]\nsteps = 10\nbatch_size = 3\n";
        let recipe = VisionRecipe::parse(text, "small.toml", &[]).unwrap();
        let names = (0..8).map(|class| class.to_string()).collect();
        let config = VisionConfig::new(names, recipe.model.config(ImageShape::new(1, [4, 4]), 8));
        let found = estimate(&config, &recipe);
        // Block 288 + 552 + 32, final norm 16; patches 4 * 8 + 8, places 4 * 8, head 9 * 8.
        assert_eq!(found.parameters, 888 + 40 + 32 + 72);
        assert_eq!(found.flops_per_token, 6 * 888 + 12 * 8 * 4 + 6 * 32 + 6 * 64 / 4);
        assert_eq!((found.tokens_per_step, found.state_bytes), (12, 16 * found.parameters));
        assert_eq!(found.activation_bytes, 4 * 12 * (144 + 4 + 2 * 2));
    }

    #[test]
    fn a_training_that_no_machine_holds_is_refused_before_anything_is_made() {
        let home = tempfile::tempdir().unwrap();
        folder(&home.path().join("data"), 10);
        let request =
            RunRequest::new(&Device::default()).with_data(home.path().join("data")).with_out(home.path().join("run"));
        let error = Run::prepare(&request.with_override("model.n_layers", 1_000_000)).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("would take about"), "{error}");
        assert!(!home.path().join("run").exists());
    }
}
