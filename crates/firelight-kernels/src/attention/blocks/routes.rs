//! The backends that compute attention in blocks.

use super::super::extension::{AttentionExtension, AttentionKernel, Inputs, Settings};
use super::forward::output;
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::tensor::FloatTensor;

/// The operation for a backend, from its kernel.
macro_rules! in_blocks {
    ($backend:ty) => {
        impl AttentionExtension for $backend {
            fn attention(
                query: FloatTensor<Self>,
                key: FloatTensor<Self>,
                value: FloatTensor<Self>,
                bias: OptionalFloat<Self>,
                sinks: OptionalFloat<Self>,
                padding: OptionalBool<Self>,
                hidden: OptionalBool<Self>,
                settings: Settings,
            ) -> FloatTensor<Self> {
                let seed = Self::draw_seed(&query, &settings);
                let (bias, sinks) = (bias.into_option(), sinks.into_option());
                let (padding, hidden) = (padding.into_option(), hidden.into_option());
                output::<Self>(&Inputs { query, key, value, bias, sinks, padding, hidden, settings, seed })
            }
        }
    };
}

#[cfg(feature = "cube")]
mod on_cube {
    use super::super::super::extension::BlockDropout;
    use super::super::dropout::DropoutOperations;
    use super::*;
    use burn::backend::{Cube, TensorMetadata, ops::FloatTensorOps};
    use burn::tensor::{Distribution, FloatDType, Shape};

    in_blocks!(Cube);

    impl AttentionKernel for Cube {
        fn draw_seed(query: &FloatTensor<Self>, settings: &Settings) -> Option<FloatTensor<Self>> {
            let draw = || Self::float_random(Shape::from([2]), Distribution::Default, &query.device(), FloatDType::F32);
            (settings.dropout > 0.0).then(draw)
        }

        fn dropped(weights: FloatTensor<Self>, seed: FloatTensor<Self>, place: BlockDropout) -> FloatTensor<Self> {
            Self::drop_weights(weights, seed, place)
        }
    }
}

// A CPU backend without kernels of its own, for a test of the blocks without a GPU. It drops weights on the host, by the seed of
// the settings.
#[cfg(all(test, feature = "ndarray"))]
#[allow(deprecated)]
mod on_ndarray {
    use super::super::super::extension::BlockDropout;
    use super::super::dropped;
    use super::*;
    use burn::backend::{NdArray, TensorMetadata, ops::FloatTensorOps};
    use burn::tensor::{TensorData, read_sync};

    in_blocks!(NdArray);

    impl AttentionKernel for NdArray {
        fn draw_seed(query: &FloatTensor<Self>, settings: &Settings) -> Option<FloatTensor<Self>> {
            let numbers = || TensorData::from(dropped::numbers(settings.seed));
            (settings.dropout > 0.0).then(|| Self::float_from_data(numbers(), &query.device()))
        }

        fn dropped(weights: FloatTensor<Self>, seed: FloatTensor<Self>, place: BlockDropout) -> FloatTensor<Self> {
            let (shape, device) = (weights.shape(), weights.device());
            let seed = read_sync(Self::float_into_data(seed)).expect("a seed on the host");
            let seed = seed.to_vec().expect("numbers in single precision");
            let factors = dropped::factors([seed[0], seed[1]], shape.dims(), place);
            let factors = TensorData::new(factors, shape).convert_dtype(weights.dtype());
            Self::float_mul(weights, Self::float_from_data(factors, &device))
        }
    }
}
