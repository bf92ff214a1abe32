//! What a training is going to cost: a step reads sources with the encoder and writes targets with the decoder.

use firelight_core::ParamBuilder;
use firelight_training::{BatchCost, Estimate};

use super::Seq2SeqRecipe;
use crate::model::Seq2SeqConfig;

/// What a training of `config` by `recipe` costs. A token is one of the target with one of the source, as many of both.
pub(super) fn estimate(config: &Seq2SeqConfig, recipe: &Seq2SeqRecipe) -> Estimate {
    let lengths = [&config.stacks.encoder, &config.stacks.decoder].map(|stack| stack.max_seq_len);
    let cost = config.init_with(&ParamBuilder::counting()).cost(lengths);
    let batch = BatchCost {
        parameters: cost.parameters,
        flops_per_token: cost.training_flops_per_token(),
        kept_per_token: cost.kept_per_token,
        logits_per_token: config.target_vocab_size,
        tokens: recipe.data.batching.max_batch_tokens(recipe.training.batch_size, lengths[1]),
    };
    Estimate::new(batch, &recipe.training)
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
}
