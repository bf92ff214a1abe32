//! What a training is going to cost: a step reads sources with the encoder and writes targets with the decoder.

use firelight_training::{Cost, Estimate};

use super::Seq2SeqRecipe;
use crate::model::Seq2SeqConfig;

/// What a training of `config` by `recipe` costs. A token is one of the target with one of the source, as many of both.
pub(super) fn estimate(config: &Seq2SeqConfig, recipe: &Seq2SeqRecipe) -> Estimate {
    let stacks = [&config.stacks.encoder, &config.stacks.decoder];
    let products = config.target_vocab_size * config.stacks.decoder.d_model;
    let cost = Cost {
        parameters: config.num_params(),
        flops_per_token: stacks.map(|stack| stack.train_flops_per_token()).iter().sum::<usize>() + 6 * products,
        floats_per_token: stacks.map(|stack| stack.floats_kept_per_token()).iter().sum(),
        vocab_size: config.target_vocab_size,
        batch_tokens: recipe.data.batching.max_tokens(recipe.training.batch_size, config.stacks.decoder.max_seq_len),
    };
    Estimate::new(cost, &recipe.training)
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::*;
    use burn::tensor::Device;
    use firelight_training::RunRequest;

    #[test]
    fn both_stacks_and_the_head_are_counted() {
        let text = "task = \"seq2seq\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\nmax_seq_len = 4\n\
                    position = \"none\"\n[training]\nsteps = 10\nbatch_size = 3\n";
        let recipe = Seq2SeqRecipe::parse(text, "small.toml", &[]).unwrap();
        let found = estimate(&recipe.model.config([5, 5], 0), &recipe);
        // A block has 288 + 552 + 32 numbers, a cross-attention 288 + 16 more, a stack a norm of 16, the embedding 40.
        assert_eq!(found.parameters, 2 * (872 + 16) + 304 + 40);
        assert_eq!(found.flops_per_token, 6 * found.parameters + 3 * 12 * 8 * 4);
        assert_eq!((found.tokens_per_step, found.state_bytes), (12, 16 * found.parameters));
        assert_eq!(found.activation_bytes, 4 * 12 * (144 + 192 + 10));
    }

    #[test]
    fn a_training_that_no_machine_holds_is_refused_before_anything_is_made() {
        let home = tempfile::tempdir().unwrap();
        for (key, value) in [("model.n_layers", 1_000_000), ("training.batch_size", 1_000_000)] {
            let request = RunRequest::new(&Device::default()).with_out(home.path().join("run"));
            let error = Run::prepare(&request.with_override(key, value)).unwrap_err();
            assert!(error.is_user_error() && error.to_string().contains("would take about"), "{key}: {error}");
            assert!(!home.path().join("run").exists(), "{key}");
        }
    }
}
