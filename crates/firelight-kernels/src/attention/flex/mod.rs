//! Attention on the flex backend, in tiles: a tile of scores is formed, used and forgotten, so memory is linear in the
//! number of tokens.
//!
//! Source: Dao 2023, FlashAttention-2, algorithms 1 and 2 (<https://arxiv.org/abs/2307.08691>). Differs in what is kept
//! of a row: its largest score and the sum relative to it instead of one logarithm, which would round where scores are
//! large. Keys that a rule hides from all queries of a tile are
//! not visited, nor are tiles in which padding or given pairs hide everything. Keys and values of `bf16` beside queries of `f32` are widened
//! tile by tile, so that a cache of them is read once and never copied as a whole. Where the queries are of `bf16`, too, and the processor has
//! tile registers, nothing is widened.

mod backward;
mod forward;
mod problem;
mod products;

use super::extension::{AttentionExtension, AttentionKernel, Inputs, Settings};
use crate::flex::halves::Units;
use crate::flex::with_real;
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, bf16};
use products::{Tiled, Widened};

/// Queries of a tile at most.
const QUERIES: usize = 256;

/// Keys of a tile at most: with the queries they fill a part of a core's second cache.
const KEYS: usize = 512;

/// Queries of a tile where a query sees so many tokens at most: many queries share the work of packing the keys, few compute
/// less that is hidden from some of them.
fn queries_of_tile(seen: usize) -> usize {
    (seen / 8).next_multiple_of(64).clamp(64, QUERIES)
}

/// Multiplications below which one thread is enough.
const PARALLEL: usize = 256 * 1024;

/// Queries from which on their products in tile registers pay for packing the keys: a panel of them.
const QUERIES_OF_TILES: usize = 32;

/// Whether a pass over so many queries multiplies `bf16` as it is.
pub(super) fn multiplies_halves(queries: usize) -> bool {
    queries >= QUERIES_OF_TILES && Units::chosen().is_some()
}

/// The forward pass of queries, keys and values of `bf16`, whose output is of `f32`.
fn in_tiles(inputs: &Inputs<Flex>, units: Units) -> [FlexTensor; 2] {
    forward::forward::<f32, bf16, bf16, _>(inputs, |_| Tiled::new(units))
}

impl AttentionExtension for Flex {
    fn attention(
        query: FlexTensor,
        key: FlexTensor,
        value: FlexTensor,
        bias: OptionalFloat<Self>,
        sinks: OptionalFloat<Self>,
        padding: OptionalBool<Self>,
        hidden: OptionalBool<Self>,
        settings: Settings,
    ) -> FlexTensor {
        let (bias, sinks) = (bias.into_option(), sinks.into_option());
        let (padding, hidden) = (padding.into_option(), hidden.into_option());
        let inputs = Inputs { query, key, value, bias, sinks, padding, hidden, settings, seed: None };
        let [output, _] = Self::forward(&inputs);
        output
    }
}

impl AttentionKernel for Flex {
    fn forward(inputs: &Inputs<Self>) -> [FlexTensor; 2] {
        use forward::forward;
        match (inputs.query.dtype(), inputs.key.dtype()) {
            (DType::F64, _) => forward::<_, f64, f64, _>(inputs, Widened::new::<f64>),
            (DType::BF16, _) => in_tiles(inputs, Units::chosen().expect("`multiplies_halves` was asked")),
            (_, DType::BF16) => forward::<_, f32, bf16, _>(inputs, Widened::new::<bf16>),
            _ => forward::<_, f32, f32, _>(inputs, Widened::new::<f32>),
        }
    }

    fn backward(
        inputs: &Inputs<Self>,
        outputs: [FlexTensor; 2],
        grad: FlexTensor,
        with_bias: bool,
    ) -> ([FlexTensor; 3], Option<FlexTensor>) {
        use backward::backward;
        with_real!(inputs.query, backward(inputs, outputs, grad, with_bias))
    }
}
