//! Which weights of a model go into blocks of few bits where low-rank adapters are trained beside them.

use std::collections::BTreeMap;

use burn::module::Module;
use firelight_core::{BlockFormat, WeightEntry, weights_of};

/// The blocks of the matrices of a training's base, of which `is_base` tells by their paths; those that are in blocks already have their own.
///
/// As `firelight quantize` does, it leaves routers of experts as they are, whose small differences choose other experts, and with `q4_k` it
/// puts embeddings and the head of a language model into `q6_k`. A matrix whose rows are not of whole blocks is left out.
pub fn base_in_blocks<M: Module>(
    model: &M,
    format: BlockFormat,
    is_base: &dyn Fn(&str) -> bool,
) -> BTreeMap<String, BlockFormat> {
    let chosen = |weight: WeightEntry| {
        let format = weight.mixed(format, format.of_ends()).ok().filter(|_| is_base(&weight.path))?;
        Some((weight.path, format))
    };
    weights_of(model).into_iter().filter_map(chosen).collect()
}
