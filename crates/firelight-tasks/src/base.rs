//! Which weights of a model go into blocks of few bits where low-rank adapters are trained beside them.

use std::collections::BTreeMap;

use burn::module::Module;
use firelight_core::{BlockFormat, WeightEntry, WeightLayout, weights_of};

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
        let format = blocks_of(&weight, format).filter(|_| is_base(&weight.path))?;
        Some((weight.path, format))
    };
    weights_of(model).into_iter().filter_map(chosen).collect()
}

fn blocks_of(weight: &WeightEntry, format: BlockFormat) -> Option<BlockFormat> {
    let is_end = weight.layout == WeightLayout::Rows || weight.path.starts_with("head.");
    let format = if is_end && format == BlockFormat::Q4K { BlockFormat::Q6K } else { format };
    let is_router = weight.path.ends_with(".router.weight");
    weight.format.or_else(|| (weight.fits(format) && !is_router).then_some(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, width: usize) -> WeightEntry {
        let layout = if path.ends_with("embedding.weight") { WeightLayout::Rows } else { WeightLayout::Columns };
        WeightEntry { path: path.into(), rows: 3, width, layout, format: None }
    }

    #[test]
    fn ends_have_more_bits_and_routers_stay() {
        let blocks = |path: &str, width| blocks_of(&entry(path, width), BlockFormat::Q4K);
        assert_eq!(blocks("encoder.embedding.weight", 256), Some(BlockFormat::Q6K));
        assert_eq!(blocks("head.weight", 256), Some(BlockFormat::Q6K));
        assert_eq!(blocks("encoder.blocks.0.feed_forward.up.weight", 256), Some(BlockFormat::Q4K));
        assert_eq!(blocks("encoder.blocks.0.feed_forward.up.weight", 64), None);
        assert_eq!(blocks("encoder.blocks.0.feed_forward.router.weight", 256), None);
        let already = WeightEntry { format: Some(BlockFormat::Q8_0), ..entry("head.weight", 256) };
        assert_eq!(blocks_of(&already, BlockFormat::Q4K), Some(BlockFormat::Q8_0));
    }
}
