//! What the tasks on the models of `firelight-core` say alike to `firelight-training`, which do not know each other: how a step is
//! computed and what it reports (step.rs), what a batch costs, what is wrong with the sections of a recipe, and what follows from
//! the structure of a model (structure.rs), the blocks of its base included (base.rs).
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod base;
mod step;
mod structure;

use firelight_core::{ConfigError, Cost, PatchPosition, VisionTransformerConfig, resize_positions};
use firelight_training::{BatchCost, PositionGrid, Problem};

pub use base::base_in_blocks;
pub use step::{plain_pass, token_report, token_step, train_pass, train_step};
#[doc(hidden)]
pub use {burn, firelight_core, firelight_training};

/// What a batch of at most so many tokens costs, each with so many logits.
pub fn cost_of(cost: &Cost, logits_per_token: usize, tokens: usize) -> BatchCost {
    BatchCost {
        parameters: cost.parameters,
        flops_per_token: cost.training_flops_per_token(),
        activations_per_token: cost.activations_per_token,
        logits_per_token,
        tokens,
    }
}

/// What is wrong with the sections of a recipe, each with its name.
pub fn problems<const N: usize>(sections: [(&str, Result<(), ConfigError>); N]) -> Vec<Problem> {
    sections.into_iter().flat_map(|(section, check)| Problem::list(section, ConfigError::list(check))).collect()
}

/// The learned positions of the patches of a model's field `vit`, where it has some.
pub fn patch_grid(vit: &VisionTransformerConfig) -> Option<PositionGrid> {
    let is_learned = vit.patch_position == PatchPosition::Learned;
    let (before, grid) = (vit.pooling.tokens(), vit.grid());
    is_learned.then_some(PositionGrid { parameter: "vit.position", before, grid, resize: resize_positions })
}
