//! Which weights of a block are dropped: a function of a seed and the index of the weight, as on the CPU, so that nothing
//! needs to be kept but the seed, which stays on the GPU.
//!
//! Source: counters in place of a state as Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3, §2
//! (<https://doi.org/10.1145/2063384.2063405>). The bits are mixed by the 32-bit finaliser `lowbias32` of Wellons 2018.

use super::super::extension::BlockDropout;
use crate::cube::{buffer, empty};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// Dropping, which Burn's fusion carries through as it is.
#[backend_extension(Cube, Fusion)]
pub(crate) trait DropoutOperations: Backend {
    /// Weights `[B, H, q, k]` times 0, or times one over the share that is kept; `seed`: two numbers in `[0, 1)`.
    #[fusion(dtype = weights, shape = weights)]
    fn drop_weights(weights: FloatTensor<Self>, seed: FloatTensor<Self>, place: BlockDropout) -> FloatTensor<Self>;
}

impl DropoutOperations for CubeBackend {
    fn drop_weights(weights: CubeTensor, seed: CubeTensor, place: BlockDropout) -> CubeTensor {
        let shape = weights.meta.shape().clone();
        let [_, _, queries, keys] = shape.dims();
        let (dim, count) = (CubeDim::new(&weights.client, shape.num_elements()), shape.num_elements());
        let output = empty(&weights, shape, weights.dtype);
        let kept = 1.0 - place.rate;
        drop_kernel::launch(
            &output.client,
            cubecl::calculate_cube_count_elemwise(&output.client, count, dim),
            dim,
            output.required_address_type(),
            buffer(weights),
            buffer(seed),
            output.clone().into_buffer_arg(),
            count,
            queries as u32,
            keys as u32,
            place.queries as u32,
            place.first_query as u32,
            place.first_key as u32,
            (kept * 2f64.powi(32)) as u32,
            (1.0 / kept) as f32,
        );
        output
    }
}

/// A weight whose 32 bits are below `threshold` is kept.
#[cube(launch, address_type = "dynamic")]
fn drop_kernel(
    weights: &[f32],
    seed: &[f32],
    output: &mut [f32],
    count: usize,
    queries: u32,
    keys: u32,
    all_queries: u32,
    first_query: u32,
    first_key: u32,
    threshold: u32,
    scale: f32,
) {
    let index = ABSOLUTE_POS;
    if index >= count {
        terminate!();
    }
    let place = index as u32;
    let query = place / keys;
    let row = query / queries * all_queries + first_query + query % queries;
    let key = place % keys + first_key;
    let offset = mix(row * 0x9e37_79b9u32 + u32::cast_from(seed[0] * 16_777_216.0f32));
    let mask = mix(offset ^ u32::cast_from(seed[1] * 16_777_216.0f32));
    let mut factor = 0.0f32;
    if mix((key * 0x9e37_79b9u32 + offset) ^ mask) < threshold {
        factor = scale;
    }
    output[index] = weights[index] * factor;
}

#[cube]
fn mix(x: u32) -> u32 {
    let x = (x ^ (x >> 16u32)) * 0x7feb_352du32;
    let x = (x ^ (x >> 15u32)) * 0x846c_a68bu32;
    x ^ (x >> 16u32)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::super::dropped::{factors, of_a_block};
    use super::*;
    use crate::assert_same_bits;
    use crate::testing::Case;
    use burn::backend::Dispatch;
    use burn::tensor::Tensor;

    #[test]
    fn the_kernel_drops_what_the_host_says() {
        let device = Case::gpu(&[1, 1]).device;
        for (queries, first_key) in [([0, 50], 0), ([20, 30], 15)] {
            let (shape, place) = of_a_block(queries, first_key);
            let weights = Tensor::<4>::ones(shape, &device).into_dispatch();
            let seed = Tensor::<1>::from_floats([0.1, 0.2], &device).into_dispatch();
            let found = Tensor::<4>::from_dispatch(Dispatch::drop_weights(weights, seed, place));
            assert_same_bits(&found, &factors([0.1, 0.2], shape, place));
        }
    }
}
