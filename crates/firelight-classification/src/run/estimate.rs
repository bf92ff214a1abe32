//! What a training is going to cost: every token goes once through the stack, the head is next to nothing.

use firelight_core::{Cost, ParamBuilder};
use firelight_data::Batching;
use firelight_training::{BatchCost, Estimate, TrainingConfig};

use super::ClassificationRecipe;
use crate::model::TextClassifierConfig;

/// What a training of `config` by `recipe` costs.
pub(super) fn estimate(config: &TextClassifierConfig, recipe: &ClassificationRecipe) -> Estimate {
    let length = config.encoder.transformer.max_seq_len;
    let cost = config.init_with(&ParamBuilder::counting()).cost(length);
    estimate_of(&cost, length, recipe.data.batching, &recipe.training)
}

/// The same of any model that reads texts of up to `length` tokens and has hardly any logits.
pub(crate) fn estimate_of(cost: &Cost, length: usize, batching: Batching, training: &TrainingConfig) -> Estimate {
    let batch = BatchCost {
        parameters: cost.parameters,
        flops_per_token: cost.training_flops_per_token(),
        kept_per_token: cost.kept_per_token,
        logits_per_token: 0,
        tokens: batching.max_batch_tokens(training.batch_size, length),
    };
    Estimate::new(batch, training)
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::corpus::tests::folder;
    use super::*;
    use burn::tensor::Device;
    use firelight_training::RunRequest;

    #[test]
    fn the_stack_is_counted() {
        let text = "task = \"classification\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\nmax_seq_len = 4\n\
                    position = \"none\"\n[training]\nsteps = 10\nbatch_size = 3\n";
        let recipe = ClassificationRecipe::parse(text, "small.toml", &[]).unwrap();
        let found = estimate(&recipe.model.config(5, vec!["a".into(), "b".into()]), &recipe);
        // A block has 288 + 552 + 32 numbers, the stack a norm of 16, the embedding 40, the head 18.
        assert_eq!(found.parameters, 872 + 16 + 40 + 18);
        // The head of 16 numbers is computed once in 4 tokens.
        assert_eq!(found.flops_per_token, 6.0 * (768.0 + 4.0) + 3.0 * 128.0);
        assert_eq!((found.tokens_per_step, found.activation_bytes), (12, 4 * 12 * 144));
    }

    #[test]
    fn a_training_that_no_machine_holds_is_refused_before_anything_is_made() {
        let home = tempfile::tempdir().unwrap();
        let data = folder(12);
        let request = RunRequest::new(&Device::default()).with_data(data.path()).with_out(home.path().join("run"));
        let error = Run::prepare(&request.with_override("model.n_layers", 60_000)).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("would take about"), "{error}");
        assert!(!home.path().join("run").exists());
    }
}
